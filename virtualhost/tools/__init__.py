"""The vendor's command-line tools."""
