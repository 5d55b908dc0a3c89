"""Write a capture as a trace that opens in Perfetto (ui.perfetto.dev): a process per rank, a track per stream and per
communicator, with as many lanes as kernels run there at once.

Steps, exposed communication and the time without compute have tracks of their own. Each rank starts at its own first
kernel: clocks of two ranks are not comparable.

python scripts/perfetto_export.py --profile-dir capture/ --out trace.json.gz
"""

from __future__ import annotations

from pathlib import Path

from anchormatrix.attribution.perfetto.trace import write_trace
from anchormatrix.cli.analysis import capture_parser, finish, load
from anchormatrix.cli.command import run
from anchormatrix.errors import InputError
from anchormatrix.store.files import replacing


def main() -> int:
    """Parse, convert, write."""
    parser = capture_parser(__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="trace.json.gz, or trace.json for plain"
    )
    args = parser.parse_args()
    capture = load(args)
    if capture.kernels.empty:
        raise InputError(
            "holds no kernels, only tables of steps",
            where=str(args.profile_dir),
            expected="kernel_details.csv or a trace of each rank",
        )
    with replacing(args.out) as temporary:
        slices = write_trace(capture, temporary, compress=args.out.suffix == ".gz")
    print(f"{len(capture.kernels)} kernels in {slices} slices written to {args.out}")
    return finish(
        {"out": str(args.out), "events": slices, "kernels": len(capture.kernels), "ranks": list(capture.ranks)},
        capture.findings,
        args.json,
    )


if __name__ == "__main__":
    run(main)
