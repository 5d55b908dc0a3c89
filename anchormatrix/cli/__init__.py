"""The frame of the commands in scripts/: exit codes, options, tables on a terminal. The only room that prints."""
