"""From numbers to a decision: cells, verdict, gates, conclusion."""
