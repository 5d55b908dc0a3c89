"""The decision, from numbers: cells, verdict, gates, conclusion."""
