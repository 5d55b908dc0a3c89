"""The unattended sweep of a night: run, judged, reported."""
