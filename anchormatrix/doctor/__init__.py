"""The doctor: what a run on a host will need, looked at before the first run, each line with its cure."""
