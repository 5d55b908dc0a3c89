"""What follows from sessions: cells, the selection of the fastest form, verdict, gates, decision."""
