"""Show who holds which card of a host, since when and what for.

python scripts/leases.py                          the host of the default configuration
python scripts/leases.py --config my-host.yaml    another host, over SSH too
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.tables import text_table
from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.hosts.holdings import Holding, holdings, problems
from anchormatrix.hosts.open import open_host
from anchormatrix.store.files import json_text


def main() -> int:
    """Parse, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=DEFAULT_FILE, help="the host to look at (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    host = open_host(load_settings(args.config).host)
    try:
        found = holdings(host)
    finally:
        host.close()
    if args.json:
        print(json_text({"host": host.alias, "leases": [asdict(holding) for holding in found]}), end="")
    else:
        used = [one for one in found if one.held or one.suspect]
        print(text_table(map(_row, used)) if used else "no card is leased")
        for line in problems(found):
            print(line)
    return 0


def _row(one: Holding) -> dict[str, str]:
    user = f"{one.user} (locked by {one.locker})" if one.locker else one.user
    who = {"user": user, "pid": one.pid, "from": one.origin, "since": one.since, "what": one.what}
    free = {**dict.fromkeys(who, ""), "user": "nobody"}
    return {"card": str(one.card), **(who if one.held else free), "suspect": one.suspect}


if __name__ == "__main__":
    run(main)
