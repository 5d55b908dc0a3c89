"""The results folder: atomic files, the codec, ledgers, quarantine of damaged files."""
