"""The serving engine: HTTP, log and profiler files."""
