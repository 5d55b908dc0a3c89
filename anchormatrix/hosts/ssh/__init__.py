"""A host reached over SSH."""
