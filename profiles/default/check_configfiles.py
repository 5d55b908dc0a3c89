"""Refuse a configuration file that cannot be read in one line: its name, the line, what was expected, what to do.

Snakemake parses the files of --configfile before it reads the Snakefile, and answers with a traceback what the
workflow would answer with a line. This folder's profile is what it reads first; config.yaml runs this file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from snakemake.common.configfile import load_configfile

from anchormatrix.config.yaml_file import read_config
from anchormatrix.errors import ConfigError


def check_configfiles(argv: Sequence[str]) -> None:
    """Read every configuration file of a command line of Snakemake's.

    Raises :class:`ConfigError` for the first that the workflow, or Snakemake itself, cannot read.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", type=Path, default=[])
    for path in parser.parse_known_args(argv)[0].configfile:
        if not path.suffix and not path.exists():
            expected, todo = "files up to the next option", "give targets first: snakemake TARGET --configfile FILE"
            raise ConfigError("is no file", where=f"--configfile: {path}", expected=expected, todo=todo)
        if path.exists() and not path.is_file():
            expected, todo = "a YAML file, which is read more than once", "check which file is given"
            raise ConfigError("is a directory, a pipe or a device", where=str(path), expected=expected, todo=todo)
        if not read_config(path):
            todo = "fill it, or leave it out"
            raise ConfigError("is empty", where=str(path), expected="a map of sections", todo=todo)
        try:
            load_configfile(path)
        except Exception as error:  # whatever it is, the next thing Snakemake does is to show it as a traceback
            words = f"cannot be read by Snakemake ({error or type(error).__name__})"
            todo = "put dates, lone = and other odd text in quotes"
            raise ConfigError(words, where=str(path), expected="what YAML 1.1 allows, too", todo=todo) from None


if __name__ == "__main__":
    try:
        check_configfiles(sys.argv[1:])
    except ConfigError as error:
        raise SystemExit(f"snakemake: {error}") from None
