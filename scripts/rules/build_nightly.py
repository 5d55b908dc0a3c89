"""Compare a night with those before it: index.html and summary.json, from the history alone.

Starts with what changed since last night, then trends with contract boundaries, then the matrix of the night. No host
is asked, nothing is measured. Exit code 0, whatever the night amounts to; the summary says it.

Example:
  python scripts/rules/build_nightly.py --config config/config.yaml --night 2026-11-30
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.merge import load_settings
from anchormatrix.history.keeping import Keeper
from anchormatrix.history.nights import last_nights
from anchormatrix.history.review import Limits, place_of, review_night
from anchormatrix.records.night import AUTO, resolve_night
from anchormatrix.report.nightly_page import write_nightly


def main() -> int:
    """Parse, review, write."""
    args = _arguments()
    settings = load_settings(args.config)
    limits = Limits(settings.verdict.dispersion_pct, settings.verdict.noise_floor_pct)
    night = resolve_night(args.night, datetime.now())
    keeper = Keeper(args.history or Path(settings.history.file), args.out.parent)
    places = [place_of(path) for path in args.sessions or ()]
    review, nights = keeper.on(
        lambda history: (review_night(history, night, places, limits), last_nights(history, 30, night))
    )
    write_nightly(replace(review, history=tuple(keeper.notices)), nights, settings, args.out)
    print(f"night {night}: {review.outcome.value}; {args.out / 'index.html'}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    parser.add_argument("--night", default=AUTO, help="date of the night's evening (default: the night it is now)")
    parser.add_argument("--history", type=Path, help="history file (default: the configuration's)")
    parser.add_argument(
        "--sessions", type=Path, nargs="*", help="session.json files the night should have (default: those it recorded)"
    )
    parser.add_argument("--out", type=Path, default=Path("results/nightly"), help="where to (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
