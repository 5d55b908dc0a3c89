"""Profiler files of both families, read into one kernel table and one step table with integer nanoseconds."""
