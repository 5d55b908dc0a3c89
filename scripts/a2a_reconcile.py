"""Is what every rank received what the others sent to it? Reconciles the A2AUD lines of all ranks' logs.

Exit code: 0 when every leg was logged and is equal, 1 when one is unequal or missing, 2 without any audit line.

python scripts/a2a_reconcile.py --log rank0.log --log rank1.log
python scripts/a2a_reconcile.py --glob 'logs/rank*.log' --json audit.json
python scripts/a2a_reconcile.py --selftest
"""

from __future__ import annotations

import argparse
import glob
from pathlib import Path

from anchormatrix.attribution.transport import reconcile_transport, selftest
from anchormatrix.cli.analysis import add_json, show
from anchormatrix.cli.command import FINDING, run
from anchormatrix.errors import InputError
from anchormatrix.offline.logfile import log_text
from anchormatrix.store.files import write_json


def main() -> int:
    """Parse, reconcile, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, action="append", default=[], metavar="F", help="a log; may be given again")
    parser.add_argument("--glob", metavar="PATTERN", help="logs by pattern (quoted)")
    parser.add_argument("--selftest", action="store_true", help="reconcile built-in logs, one per fault")
    add_json(parser)
    args = parser.parse_args()
    if args.selftest:
        results = selftest()
        show("Self-test", ({"case": name, "right": right} for name, right in results))
        return 0 if all(right for _, right in results) else FINDING
    logs = args.log + [Path(name) for name in sorted(glob.glob(args.glob))] if args.glob else args.log  # noqa: PTH207
    if not logs:
        raise InputError("no log to read", where="arguments", expected="--log, --glob or --selftest")
    try:
        audit = reconcile_transport(line for log in dict.fromkeys(logs) for line in log_text(log)[0].split("\n"))
    except InputError as error:
        if error.where not in map(str, logs):
            error.where = ", ".join(map(str, logs))
        raise
    values = audit.as_dict()
    legs = values["legs"] | {"self_legs_wrong": audit.self_wrong, "rewritten_blocks": audit.rewritten_blocks}
    print(f"{audit.lines} A2AUD lines of {len(logs)} logs, {audit.unusable_lines} unusable; {len(audit.ranks)} ranks")
    show("Legs (source → destination)", [legs])
    for fault in values["faults"]:
        leg = fault["first"]
        print(
            f"\nfinding ({fault['kind']}): {fault['count']} legs, first call {leg['call']} chunk {leg['chunk']} "
            f"{leg['src']} → {leg['dst']}: sent {leg['sent']}, got {leg['got']}; {fault['meaning']}"
        )
    if audit.rewritten_blocks and not any(fault["kind"] == "rewritten" for fault in values["faults"]):
        print(f"\nfinding (rewritten): {audit.rewritten_blocks} send blocks changed after the launch, unnoticed so far")
    if args.json:
        write_json(args.json, values)
    return 0 if audit.ok else FINDING


if __name__ == "__main__":
    run(main)
