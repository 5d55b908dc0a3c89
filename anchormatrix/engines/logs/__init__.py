"""Logs: what the logs of several engines have in common."""
