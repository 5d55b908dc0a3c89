"""What the commands in scripts/ share: exit codes, options, tables on a terminal. The only room that prints."""
