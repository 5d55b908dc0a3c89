"""Record sessions in the history: the given session.json files, or all of a results folder. Twice is once.

Also writes reruns.jsonl: old and new value of every cell that was measured again. Exit code 1 when a file could not be
used, or the history; the others are recorded.

Example:
  python scripts/record_history.py --config config/config.yaml --results results
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anchormatrix.cli.command import FINDING, run
from anchormatrix.config.merge import load_settings
from anchormatrix.history.keeping import Keeper
from anchormatrix.history.record import record_results, record_sessions
from anchormatrix.history.reruns import write_reruns
from anchormatrix.history.store import History


def main() -> int:
    """Parse, record, say what was new."""
    args = _arguments()
    file = args.history or load_settings(args.config).history.file
    keeper = Keeper(Path(file), args.results)

    def work(history: History) -> tuple[int, list[str]]:
        done = record_sessions(history, args.session) if args.session else record_results(history, args.results)
        write_reruns(history, args.results)
        return done

    new, problems = keeper.on(work)
    for problem in (*keeper.notices, *problems):
        print(problem, file=sys.stderr)
    waits = keeper.waiting.exists()
    print(f"{new} sessions recorded in {keeper.waiting if waits else file}")
    return FINDING if problems or waits else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="configuration file")
    parser.add_argument("--history", type=Path, help="history file (default: the configuration's)")
    parser.add_argument("--session", type=Path, nargs="+", help="session.json files (default: all of --results)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
