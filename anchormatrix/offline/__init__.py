"""Serving logs that somebody else made: the same requests, cells and verdict, without a device."""
