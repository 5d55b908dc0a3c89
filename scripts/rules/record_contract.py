"""Write one contract's own file, made once: everything measured under the contract lies beside it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.errors import InputError
from anchormatrix.planning.contracts import append_ledger, read_ledger, stored_contract
from anchormatrix.records.contract import ContractList
from anchormatrix.store.codec import read_record, write_record


def main() -> int:
    """Find the contract in the list of current ones, enter it in the ledger, write its file."""
    args = _arguments()
    listed = read_record(args.contracts, ContractList).contracts
    contract = next((item for item in listed if item.id == args.id), None)
    if contract is None:
        raise InputError(f"does not list {args.id}", where=str(args.contracts), todo="run the target contract again")
    if contract.rank > 0:
        when = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        append_ledger(args.ledger, [contract], when=when, why="the preferred group failed its smoke")
    write_record(args.out, stored_contract(contract, read_ledger(args.ledger)))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contracts", type=Path, required=True, help="contracts.json")
    parser.add_argument("--id", required=True, help="id of the contract")
    parser.add_argument("--ledger", type=Path, required=True, help="append-only ledger")
    parser.add_argument("--out", type=Path, required=True, help="the contract's own file")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
