"""The device of one rank: what runs on it when, and which stretch of its time belongs to which step."""
