"""Vendor tools: their text becomes cards, links and processes."""
