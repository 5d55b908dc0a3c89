"""Two runs against each other, cell by cell."""
