"""The report's figures."""
