"""Faults drawn at random from a seed, and every figure of every output held against the undisturbed run's."""
