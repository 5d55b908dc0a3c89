"""The hosts that commands run on: this machine, or one reached over SSH."""
