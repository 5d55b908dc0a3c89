"""Write a capture as a trace that opens in Perfetto (ui.perfetto.dev): a process per rank, a track per stream.

Exposed communication and the time without compute have tracks of their own. Each rank starts at its own first kernel:
clocks of two ranks are not comparable.

python scripts/perfetto_export.py --profile-dir capture/ --out trace.json.gz
"""

from __future__ import annotations

from pathlib import Path

from anchormatrix.attribution.perfetto import trace_bytes
from anchormatrix.cli.analysis import capture_parser, finish, load
from anchormatrix.cli.command import run
from anchormatrix.store.files import write_bytes


def main() -> int:
    """Parse, convert, write."""
    parser = capture_parser(__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="trace.json.gz, or trace.json for plain"
    )
    args = parser.parse_args()
    capture = load(args)
    data, events = trace_bytes(capture, compress=args.out.suffix == ".gz")
    write_bytes(args.out, data)
    print(f"{events} events written to {args.out}")
    return finish({"out": str(args.out), "events": events, "ranks": list(capture.ranks)}, [], args.json)


if __name__ == "__main__":
    run(main)
