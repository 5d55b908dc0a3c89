"""Measurement: server log to requests, requests to cells, cells to a verdict; sessions and smokes on a live host."""
