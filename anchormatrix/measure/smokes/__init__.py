"""Smokes: four steps on a group before it is measured, what they are held to, and what they say of its cards."""
