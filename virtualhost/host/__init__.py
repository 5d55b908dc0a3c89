"""What a virtual host is, and what it has become by now."""
