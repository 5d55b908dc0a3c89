"""Campaigns: the library against many virtual hosts, judged by a truth that the library never sees."""
