"""Look at a host before the first run: is everything there, and does the configuration say what the model's files say?

python scripts/doctor.py --config my-host.yaml           each line ok, wrong with its cure, or not checked with why
python scripts/doctor.py --config my-host.yaml --json    the same for other programs

Nothing is started, leased or written. Exit code 0: nothing is wrong; 1: something is; 2: the configuration cannot be
read. docs/first-hour.md says how each figure of the model is found.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from anchormatrix.cli.command import FINDING, run
from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.doctor.examine import examine, is_well
from anchormatrix.doctor.lines import Line
from anchormatrix.store.files import json_text


def main() -> int:
    """Parse, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=DEFAULT_FILE, help="the host to look at (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    args = parser.parse_args()
    settings = load_settings(args.config)
    lines = []
    for line in examine(settings):
        lines.append(line)
        if not args.json:
            print(_words(line), flush=True)
    if args.json:
        found = {"config": str(args.config), "well": is_well(lines), "lines": msgspec.to_builtins(lines)}
        print(json_text(found), end="")
    return 0 if is_well(lines) else FINDING


def _words(line: Line) -> str:
    cure = f"\n{'':13}cure: {line.cure}" if line.cure else ""
    return f"{line.status:<12} {line.topic}: {line.text}{cure}"


if __name__ == "__main__":
    run(main)
