"""The history of all sessions, in SQLite: kept over nights, contracts and clones of the results folder."""
