"""A serving log as requests, ranks, proof of effect, and the cause of a failure."""
