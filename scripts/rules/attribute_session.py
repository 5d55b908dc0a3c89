"""Attribute the step of one session's capture: where its time goes, on every rank.

Reads session.json and requests.csv, writes attribution.json, then keeps, packs or drops the profiler's files as
capture.keep and capture.compress say. A capture that failed or cannot be analysed is a result with its reason.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.attribution.of_session import attribute_session, keep_capture, with_own_capture
from anchormatrix.cli.command import run
from anchormatrix.config.merge import load_settings
from anchormatrix.records.attribution import AttributionStatus
from anchormatrix.records.requests import RequestRow
from anchormatrix.records.session import Session
from anchormatrix.store.codec import read_record, read_table, write_record


def main() -> int:
    """Read, attribute, write, tidy up."""
    args = _arguments()
    settings = load_settings(args.config)
    session = with_own_capture(read_record(args.session, Session), args.session)
    found = attribute_session(session, read_table(args.requests, RequestRow), settings)
    write_record(args.out, found)
    if found.capture and found.capture.directory and found.status is AttributionStatus.ANALYSED:
        keep_capture(Path(found.capture.directory), settings.capture.keep, compress=settings.capture.compress)
    print(f"{session.form}: {found.reason or (found.reading or ())[0].text}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    parser.add_argument("--session", type=Path, required=True, help="session.json of the first window")
    parser.add_argument("--requests", type=Path, required=True, help="requests.csv of the same session")
    parser.add_argument("--out", type=Path, required=True, help="attribution.json")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
