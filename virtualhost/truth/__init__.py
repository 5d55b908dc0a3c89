"""The true figures of a run; only tests and campaigns read them."""
