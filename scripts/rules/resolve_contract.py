"""Choose the card group of every size from a stored topology and health reading, and write the contracts.

With --sizes alone the groups and the reasons for every rejected one are printed as JSON. With --config, as the workflow
calls it, the contracts go to --out and the ledger learns what changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anchormatrix.cli.command import run
from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.errors import ConfigError, ContractError
from anchormatrix.planning.contracts import append_ledger, make_plan, read_ledger
from anchormatrix.planning.groups import resolve_groups
from anchormatrix.store.files import json_text, read_json, write_json
from anchormatrix.store.readings import live_from_dicts


def main() -> int:
    """Parse, resolve, print or write."""
    args = _arguments()
    live = live_from_dicts(read_json(args.topology), read_json(args.health), str(args.health))
    settings = load_settings(args.config or DEFAULT_FILE)
    if args.out is None:
        sizes = _sizes(args.sizes) if args.sizes else list(settings.matrix.sizes)
        resolution = resolve_groups(
            live.state, sizes, health=settings.health, groups=settings.groups, current=_current(args.ledger)
        )
        print(json_text(_printed(resolution.candidates, resolution.rejected)), end="")
        return 0
    plan = make_plan(live, settings, read_ledger(args.ledger))
    _same_as_planned(args.expect, {planned.contract.id for planned in plan.contracts})
    chosen = [planned for planned in plan.contracts if planned.rank == 0]
    append_ledger(args.ledger, chosen, when=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", why="chosen from the live host")
    write_json(args.out, make_plan(live, settings, read_ledger(args.ledger)).as_dict())
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", type=Path, required=True, help="JSON of probe_topology.py")
    parser.add_argument("--health", type=Path, required=True, help="JSON of probe_health.py")
    parser.add_argument("--sizes", help="card counts, such as 2,4,8 (default: those of the configuration)")
    parser.add_argument("--config", type=Path, help="configuration (default: config/config.yaml)")
    parser.add_argument("--ledger", type=Path, default=Path("results/contracts.jsonl"), help="append-only ledger")
    parser.add_argument("--expect", help="ids planned before, comma-separated: stop when the host changed since")
    parser.add_argument("--out", type=Path, help="write contracts.json here and append to the ledger")
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1 or len(set(sizes)) != len(sizes):
        raise ConfigError(f"{text!r}", where="--sizes", expected="different card counts such as 2,4,8")
    return sizes


def _current(ledger: Path) -> dict[int, tuple[int, ...]]:
    return {row["size"]: tuple(row["cards"]) for row in read_ledger(ledger)}


def _printed(candidates: Mapping[int, Any], rejected: Any) -> dict[str, Any]:
    return {
        "groups": {
            str(size): {"cards": list(found[0].cards), "reason": found[0].reason}
            for size, found in candidates.items()
            if found
        },
        "rejected": [{"cards": list(item.cards), "size": item.size, "reason": item.reason} for item in rejected],
    }


def _same_as_planned(expected: str | None, found: set[str]) -> None:
    if expected is None:
        return
    planned = set() if expected == "none" else set(expected.split(","))
    if planned != found:
        raise ContractError(
            f"the host changed since the run was planned: {', '.join(sorted(found ^ planned))}",
            where="contract",
            todo="run again; the new state will be planned for",
        )


if __name__ == "__main__":
    run(main)
