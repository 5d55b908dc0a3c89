"""The frame of the measuring commands: their common options, the opened host, and a clean end on SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.devices.open import open_device
from anchormatrix.engines.find import open_engine
from anchormatrix.hosts.open import open_host
from anchormatrix.hosts.owner import follow_owner
from anchormatrix.measure.rig import Rig
from anchormatrix.records.contract import Contract, StoredContract
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import read_record

_ENDINGS = (signal.SIGTERM, signal.SIGINT)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of every measuring command."""
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contract", type=Path, required=True, help="results/<contract>/contract.json")
    parser.add_argument(
        "--generation", type=int, default=0, help="how often this was asked for again; kept in the result"
    )
    parser.add_argument("--night", default="", help="the night this belongs to, as 2026-11-30; kept in the result")
    parser.add_argument(
        "--deadline",
        type=_moment,
        help="local time as 2026-12-01T06:00, or empty for none; what cannot finish before it, judged from history,"
        " is not started",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the exact commands and requests; start nothing")


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def read_orders(args: argparse.Namespace) -> tuple[Settings, Contract, Path]:
    """The settings, the contract, and the results folder that the contract's file lies in."""
    contract = read_record(args.contract, StoredContract)
    return load_settings(args.config), contract, args.contract.resolve().parent.parent


@contextlib.contextmanager
def open_rig(settings: Settings, contract: Contract) -> Iterator[Rig]:
    """Open the host and close it again on every way out: what was started is stopped first.

    SIGTERM and SIGINT are such ways, and so is the end of the Snakemake that this command belongs to.
    """
    for ending in _ENDINGS:
        signal.signal(ending, _leave)
    follow_owner()
    engine = open_engine(settings, contract.framework_version)
    if engine.caution:
        say(engine.caution)
    host = open_host(settings.host)
    try:
        yield Rig(host, open_device(settings.device), engine, settings, say)
    finally:
        host.close()


def say(text: str) -> None:
    """Tell the person, or the log, what happens."""
    print(text, file=sys.stderr, flush=True)


def _leave(number: int, _: object) -> NoReturn:
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)  # once is enough: the stop that follows must not be cut short
    say(f"told to end by {signal.Signals(number).name}: what was started is stopped first")
    raise SystemExit(128 + number)
