"""Choosing a form: candidates, memory, bounds, gates, projection, and the sentence a person can act on."""
