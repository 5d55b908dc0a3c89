"""The option ``--plan``: what the run has decided for a command."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add ``--plan``."""
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="what the run planned (default: the plan of the latest run, results/.run/plan-….json)",
    )
