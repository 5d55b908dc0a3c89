"""Serve one form once on the contract's cards and measure it: one session of one window.

Writes session.json (--out), and requests.csv, server.log and output.bin beside it. A form that does not run through,
does not take effect or cannot be timed is a result with its evidence (exit code 0). When the live host no longer is the
contract's, or somebody else uses its cards, nothing is written (exit code 2). Under the adaptive design a session that
need not be measured is written with status skipped and the reason.

Example:
  python scripts/rules/measure_window.py --config config/config.yaml --contract results/c4-…/contract.json \\
      --form tp1-usp4 --window 1
"""

from __future__ import annotations

import argparse
from datetime import datetime
from functools import partial
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.measuring import add_options, open_rig, read_orders, say
from anchormatrix.decide.effects.features import while_measuring
from anchormatrix.errors import ConfigError
from anchormatrix.history.deadline import check_deadline
from anchormatrix.history.keeping import record_beside
from anchormatrix.measure.order import SessionOrder, planned_command, planned_requests
from anchormatrix.measure.session import run_session
from anchormatrix.planning.adaptive_run import order_of_session, skipped_session
from anchormatrix.planning.configured import matrix_design
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.form import parse_form
from anchormatrix.records.night import Place
from anchormatrix.store.sessions import write_session


def main() -> int:
    """Parse, measure, write."""
    args = _arguments()
    settings, contract, results = read_orders(args)
    form = parse_form(args.form)
    if form.cards != contract.size:
        raise ConfigError(f"form {form.name} runs on {form.cards} cards", where="--form", expected=f"{contract.size}")
    plan = required_run_plan(args.plan, results)
    planned = plan.of(contract.id)
    design = matrix_design(settings, planned.noise)
    counted = partial(while_measuring, model=settings.model)
    todo = order_of_session(results / contract.id, planned, form.name, args.window, design, counted)
    order = SessionOrder(contract, form, args.window, results, todo.repeats, args.generation, args.night)
    out = args.out or order.folder / f"w{args.window}" / "session.json"
    if todo.skip and not args.dry_run:
        write_session(out, skipped_session(contract, todo, generation=args.generation, night=args.night))
        say(f"{form.name} window {args.window}: not measured: {todo.skip}")
        return 0
    if args.deadline and not args.dry_run:
        place = Place(contract.id, form.name, args.window)
        check_deadline(settings.history.file, results, place, args.night, args.deadline, datetime.now())
    with open_rig(settings, contract) as rig:
        if args.dry_run:
            command = planned_command(order, rig)
            print(command.shown)
            print("\n".join(planned_requests(order, rig)))
            return 0
        finished = run_session(order, rig)
    write_session(out, finished.timed, finished.log_text, finished.output)
    session = finished.session
    say(f"{session.form} window {session.window}: {session.status} {session.reason}".rstrip())
    if session.failure and session.failure.advice:
        say(session.failure.advice)
    if problem := record_beside(settings.history.file, out):
        say(problem)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--form", required=True, help="name of the form, such as tp1-usp4")
    parser.add_argument("--window", type=int, required=True, help="number of the window, from 1; only 1 captures")
    parser.add_argument("--out", type=Path, help="session.json (default: <contract's folder>/<form>/w<window>/)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
