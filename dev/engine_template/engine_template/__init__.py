"""A serving engine as a package of its own."""
