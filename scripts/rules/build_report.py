"""Build the decision report (page, summary, cells, evidence, figures) from the files of a results folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.planning.run_plan import find_run_plan
from anchormatrix.report.build import build_report


def main() -> int:
    """Parse, build, say what could not be read."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Reads files only: no host is asked, nothing is measured. Missing pieces are said to be missing in the "
        "report; files that cannot be used are named there and on stderr. Exit code 0 in both cases.",
    )
    parser.add_argument("--config", type=Path, required=True, help="the configuration the results were measured with")
    add_plan(parser)
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("results/matrix_report"), help="where to (default: %(default)s)"
    )
    arguments = parser.parse_args()
    plan = find_run_plan(arguments.plan, arguments.results)
    report = build_report(load_settings(arguments.config), arguments.results, arguments.out, plan)
    for problem in report.problems:
        print(f"build_report.py: not used: {problem.file}: {problem.text}")
    print(arguments.out / "index.html")
    return 0


if __name__ == "__main__":
    run(main)
