"""Look after the history of all sessions: list, export as CSV or Parquet, prune, check.

Exit code 1 when `check` finds the file damaged, of another shape, or unusable; it says what to do.

Examples:
  python scripts/history.py list --nights 7
  python scripts/history.py export --out history.parquet
  python scripts/history.py prune --keep-nights 200
  python scripts/history.py check --repair
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import FINDING, run
from anchormatrix.config.merge import load_settings
from anchormatrix.errors import InputError
from anchormatrix.history.export import compact, export_csv, export_parquet, prune
from anchormatrix.history.keeping import Keeper
from anchormatrix.history.nights import night_lines
from anchormatrix.history.record import record_results
from anchormatrix.history.store import check, move_aside, open_history, read_history


def main() -> int:
    """Parse, do the one thing asked for."""
    args = _arguments()
    settings = load_settings(args.config)
    file = args.history or Path(settings.history.file)
    if args.action == "check":
        return _check(file, args)
    if args.action == "prune":
        with open_history(file) as history:
            gone = prune(history, args.keep_nights or settings.history.keep_nights)
            compact(history)
        print(f"{gone} sessions forgotten")
        return 0
    with read_history(file) as found:
        if found is None:
            raise InputError("no history yet", where=str(file), todo="run the workflow, or scripts/record_history.py")
        if args.action == "list":
            print("\n".join(night_lines(found, args.nights)))
            return 0
        parquet = args.out.suffix == ".parquet"
        rows = export_parquet(found, args.out) if parquet else export_csv(found, args.out)
    print(f"{rows} rows in {args.out}")
    return 0


def _check(file: Path, args: argparse.Namespace) -> int:
    try:
        fault = check(file)
    except InputError as error:
        print(error)
        return FINDING
    todo = "" if args.repair or not fault else "; run this with --repair: it is moved aside, what can be read is kept"
    print(f"{file}: {fault or 'sound'}{todo}")
    keeper = Keeper(file, args.results)
    if args.repair or keeper.waiting.exists():
        if fault and args.repair:
            print(move_aside(file))
        new, _ = keeper.on(lambda history: record_results(history, args.results))
        print("\n".join([*keeper.notices, f"{new} sessions of {args.results} recorded anew"]))
    return FINDING if fault else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="configuration file")
    parser.add_argument("--history", type=Path, help="history file (default: the configuration's)")
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="nights, newest first, with their sessions and sweep")
    listing.add_argument("--nights", type=int, default=14, help="how many (default: %(default)s)")
    export = actions.add_parser("export", help="one row per session and tier; Parquet when the name ends so, else CSV")
    export.add_argument("--out", type=Path, required=True, help="file to write")
    pruning = actions.add_parser("prune", help="forget old nights")
    pruning.add_argument("--keep-nights", type=int, help="how many to keep (default: history.keep_nights)")
    checking = actions.add_parser("check", help="read every page and compare indexes with tables")
    checking.add_argument("--repair", action="store_true", help="move a damaged file aside and record results anew")
    checking.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
