"""Which collectives take the time: calls and milliseconds by family and communicator on every rank.

Reconciles calls = layers x calls per layer x steps, says whether calls of a group run one at a time (union / sum = 1:
their time is transfer time) or at once (their sum is occupancy, not exposure), how much families overlap, and what each
stream carries.
Exit code: 0, 1 with a finding (calls left over, compute on a collective stream), 2 when it cannot be analysed.

python scripts/collective_attribution.py --profile-dir capture/ --layers 40 --steps 1 --top 8
"""

from __future__ import annotations

from itertools import islice

from anchormatrix.attribution.collectives import check_streams, collectives, concurrency, reconcile
from anchormatrix.cli.analysis import capture_parser, finish, load, positive, show
from anchormatrix.cli.command import run
from anchormatrix.store.codec import plain


def main() -> int:
    """Parse, analyse, print, write."""
    parser = capture_parser(__doc__)
    parser.add_argument("--layers", type=positive, metavar="L", help="layers of the model, to reconcile calls with")
    parser.add_argument(
        "--steps", type=positive, metavar="S", help="captured steps (default: as many as the files name)"
    )
    parser.add_argument("--top", type=positive, metavar="N", default=12, help="groups shown per rank (default: 12)")
    args = parser.parse_args()
    capture = load(args)
    found = collectives(capture, layers=args.layers, steps=args.steps)
    values = plain(found)
    ranks = values["ranks"]
    show("Collectives", ({"rank": r["rank"], **row} for r in ranks for row in islice(r["families"], args.top)))
    show(
        "Overlap: intersection ÷ the smaller union", ({"rank": r["rank"], **row} for r in ranks for row in r["overlap"])
    )
    show("Streams", ({"rank": r["rank"], **row} for r in ranks for row in r["streams"]))
    for note in concurrency(found):
        print(f"\nnote: {note.text}")
    findings = [*capture.findings, *reconcile(found, layers=args.layers), *check_streams(capture)]
    steps = args.steps or max(1, len(capture.step_ids))
    return finish({"layers": args.layers, "steps": steps, **values}, findings, args.json)


if __name__ == "__main__":
    run(main)
