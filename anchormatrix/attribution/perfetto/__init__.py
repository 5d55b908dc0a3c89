"""A capture as a trace for Perfetto."""
