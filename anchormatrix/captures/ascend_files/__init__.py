"""Ascend profiler files beside the kernel table: step tables of ranks and clusters, the trace view."""
