"""Torch traces as files: events read in pieces, what ran on which device, ranks read beside each other."""
