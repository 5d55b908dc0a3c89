"""The configuration: files merged, checked once, handed on as a record."""
