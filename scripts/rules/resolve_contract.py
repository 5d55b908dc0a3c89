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
from anchormatrix.planning.contracts import append_ledger, current_groups, list_contracts, read_ledger
from anchormatrix.planning.groups import resolve_groups
from anchormatrix.records.host import HostHealth, HostProbe, HostState, Topology
from anchormatrix.store.codec import read_record, write_record
from anchormatrix.store.files import json_text


def main() -> int:
    """Parse, resolve, print or write."""
    args = _arguments()
    health = read_record(args.health, HostHealth, todo="make it with scripts/rules/probe_health.py")
    topology = read_record(args.topology, Topology, todo="make it with scripts/rules/probe_topology.py")
    probe = HostProbe(HostState(topology, health.cards), health.versions)
    settings = load_settings(args.config or DEFAULT_FILE)
    if args.out is None:
        sizes = _sizes(args.sizes) if args.sizes else list(settings.matrix.sizes)
        resolution = resolve_groups(
            probe.state,
            sizes,
            health=settings.health,
            groups=settings.groups,
            current=current_groups(read_ledger(args.ledger)),
        )
        print(json_text(_printed(resolution.candidates, resolution.rejected)), end="")
        return 0
    listed = list_contracts(probe, settings, read_ledger(args.ledger)).contracts
    _same_as_planned(args.expect, {contract.id for contract in listed})
    chosen = [contract for contract in listed if contract.rank == 0]
    append_ledger(args.ledger, chosen, when=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", why="chosen from the live host")
    write_record(args.out, list_contracts(probe, settings, read_ledger(args.ledger)))
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
