"""Attribute the step of one session's capture: where its time goes, on every rank.

Reads session.json and requests.csv, writes attribution.json, then keeps, packs or drops the profiler's files as
capture.keep and capture.compress say. A capture that failed or cannot be analysed is a result with its reason.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from anchormatrix.attribution.of_session import SESSION_SHAPE, attribute_session, keep_capture, with_own_capture
from anchormatrix.cli.command import run
from anchormatrix.config.merge import load_settings
from anchormatrix.store.files import read_json, write_json
from anchormatrix.store.shapes import check_shape


def main() -> int:
    """Read, attribute, write, tidy up."""
    args = _arguments()
    settings = load_settings(args.config)
    values = read_json(args.session)
    check_shape(values, SESSION_SHAPE, str(args.session))
    session = with_own_capture(values, args.session)
    with args.requests.open(encoding="utf-8", newline="") as stream:
        found = attribute_session(session, list(csv.DictReader(stream)), settings)
    write_json(args.out, found)
    directory = (session.get("capture") or {}).get("directory")
    if directory and found["status"] == "analysed":
        keep_capture(Path(directory), settings.capture.keep, compress=settings.capture.compress)
    print(f"{session['form']}: {found.get('reason') or found['reading'][0]['text']}")
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
