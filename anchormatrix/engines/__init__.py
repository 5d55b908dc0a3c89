"""Serving engines: a form and a workload become a command line; one protocol for all of them."""
