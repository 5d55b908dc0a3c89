"""The virtual host itself: what it is, and what it has become by now."""
