"""The frame of the commands that read a host: which host or saved output, and where the JSON goes."""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.config.merge import DEFAULT_FILE
from anchormatrix.store.files import write_text


def probing_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--config``, ``--from-file`` and ``--out``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=DEFAULT_FILE, help="the host to ask (default: %(default)s)")
    parser.add_argument("--from-file", type=Path, metavar="FILE", help="read a saved output; no host is asked")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there instead of printing it")
    return parser


def tell(text: str, out: Path | None) -> None:
    """Write the JSON to a file, atomically, or print it. Raises :class:`WriteError`."""
    if out:
        write_text(out, text)
    else:
        print(text, end="")
