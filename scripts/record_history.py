"""Record sessions in the history: the given session.json files, or all of a results folder. Twice is once.

Also writes reruns.jsonl: old and new value of every cell that was measured again. Exit code 1 when a file could not be
used; the others are recorded.

Example:
  python scripts/record_history.py --config config/config.yaml --results results
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anchormatrix.cli.command import FINDING, run
from anchormatrix.config.merge import load_settings
from anchormatrix.history.record import record_results, record_sessions
from anchormatrix.history.reruns import write_reruns
from anchormatrix.history.store import open_history


def main() -> int:
    """Parse, record, say what was new."""
    args = _arguments()
    file = args.history or load_settings(args.config).history.file
    with open_history(file) as history:
        if args.session:
            new, problems = record_sessions(history, args.session)
        else:
            new, problems = record_results(history, args.results)
        write_reruns(history, args.results)
        if history.notice:
            print(history.notice, file=sys.stderr)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{new} sessions recorded in {file}")
    return FINDING if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="configuration file")
    parser.add_argument("--history", type=Path, help="history file (default: the configuration's)")
    parser.add_argument("--session", type=Path, nargs="+", help="session.json files (default: all of --results)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
