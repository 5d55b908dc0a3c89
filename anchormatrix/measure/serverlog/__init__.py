"""A serving log as requests, ranks and proof of effect."""
