"""Run tonight's sweep: the workflow's target nightly, again where it failed, then the nightly page and the hook.

A night runs from noon to noon. Started again in the same night it goes on where it stopped. Nothing is started that
cannot finish before nightly.deadline. Exit code for schedulers: 0 fine, 1 a regression, 3 something could not be
measured (2: called wrongly). The hook of the configuration is told the outcome as JSON on its standard input.

Examples:
  python scripts/nightly.py --configfile my-host.yaml
  python scripts/nightly.py --configfile my-host.yaml --dry-run
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.merge import build_settings, merged
from anchormatrix.config.project import project_folder
from anchormatrix.history.nights import Night
from anchormatrix.history.review import Review
from anchormatrix.nightly.sweep import Sweep, run_night, run_workflow
from anchormatrix.planning.run import prepare_run
from anchormatrix.records.night import AUTO, Place, resolve_night
from anchormatrix.report.nightly_page import write_nightly

FRESH = ("topology", "health")


def main() -> int:
    """Parse, sweep, turn the outcome into an exit code."""
    args = _arguments()
    night = resolve_night(args.night, datetime.now())
    settings = build_settings(merged(args.configfile, {"night": night}))
    command = [
        sys.executable, "-m", "snakemake", "nightly", "--profile", "profiles/nightly", "--cores", str(args.cores),
        "--config", f'night="{night}"', *(["--configfile", *map(str, args.configfile)] if args.configfile else []),
    ]  # fmt: skip
    if args.dry_run:
        return run_workflow([*command, "--dry-run"], project_folder())
    results = Path("results")

    def planned() -> tuple[Place, ...]:
        return prepare_run(args.configfile, {"night": night}, results).planned_sessions()

    def publish(review: Review, nights: Sequence[Night]) -> None:
        write_nightly(review, nights, settings, results / "nightly")

    outcome, _ = run_night(
        Sweep(
            settings,
            results,
            night,
            workflow=lambda again: run_workflow([*command, "--forcerun", *FRESH, *again], project_folder()),
            planned=planned,
            publish=publish,
            say=lambda text: print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True),
        )
    )
    return outcome.exit_code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", type=Path, nargs="+", default=[], help="configuration of the host")
    parser.add_argument("--night", default=AUTO, help="date of the night's evening (default: the night it is now)")
    parser.add_argument("--cores", type=int, default=1, help="cores for what does not measure (default: 1)")
    parser.add_argument("--dry-run", action="store_true", help="only list what the night would do")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
