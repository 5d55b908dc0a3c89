"""What arithmetic says beside the measurements: bytes over links, projections, scaling. It never ranks."""
