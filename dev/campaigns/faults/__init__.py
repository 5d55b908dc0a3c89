"""Faults: the whole workflow on a virtual host, broken in one way at a time, and what must hold afterwards."""
