"""Smoke a card group: a few steps of a form on its real cards, judged before anything is measured on them.

Writes smoke.json with status passed, rejected or unverified and every finding (exit code 0: also a rejected group is a
result). What a healthy group would need is taken from the contract's own history, another group of the same size and
links, or the configuration; when none of them tells, another such group is smoked for comparison.

Example:
  python scripts/rules/measure_smoke.py --config config/config.yaml --contract results/c4-…/contract.json
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.measuring import add_options, open_rig, read_orders, say
from anchormatrix.errors import ConfigError
from anchormatrix.history.progress import recorded_steps
from anchormatrix.measure.smokes import suspects
from anchormatrix.measure.smokes.running import other_groups, run_smoke, smoke_command
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.form import parse_form
from anchormatrix.records.night import require_time
from anchormatrix.store.codec import write_record


def main() -> int:
    """Parse, smoke, write."""
    args = _arguments()
    settings, contract, results = read_orders(args)
    names = args.form or required_run_plan(args.plan, results).of(contract.id).forms
    forms = [parse_form(name) for name in names]
    if not forms:
        raise ConfigError(f"no form of {contract.size} cards is configured", where="matrix.forms", todo="give --form")
    if args.deadline and not args.dry_run:
        require_time(f"smoke of {contract.id}", args.deadline, None, datetime.now())
    with open_rig(settings, contract) as rig:
        if args.dry_run:
            rig.device.read(rig.host, timeout_s=settings.host.command_timeout_s)
            command = smoke_command(contract, forms[0], rig, rig.host.free_port())
            print(command.shown)
            print(f"1 request of {settings.smoke.steps} steps")
            return 0
        references = other_groups(contract, args.contracts or results / "contracts.json")
        smoke, stopped = run_smoke(
            contract,
            forms,
            rig,
            results,
            history=recorded_steps(settings.history.file),
            references=references,
            state=args.state,
            generation=args.generation,
            night=args.night,
        )
    suspects.after_smoke(contract, results, smoke, stopped)
    out = args.out or results / contract.id / "smoke.json"
    write_record(out, smoke)
    say(f"{contract.id}: {smoke.status} {'; '.join(finding.text for finding in smoke.findings)}".rstrip())
    if smoke.failure and smoke.failure.advice:
        say(smoke.failure.advice)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--form", action="append", help="form to smoke with; again: the next one when it does not run")
    parser.add_argument("--state", default="", help="health and occupancy as one word; kept in the result")
    parser.add_argument("--contracts", type=Path, help="contracts.json with other groups to compare with")
    parser.add_argument("--out", type=Path, help="smoke.json (default: in the contract's folder)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
