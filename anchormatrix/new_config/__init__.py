"""A first configuration for a host: what is detected there, what is asked, and the file that follows."""
