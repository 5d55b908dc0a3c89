"""Where commands run: this machine, or one reached over SSH."""
