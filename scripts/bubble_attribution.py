"""Where the compute stream waits and for what: three tests on its gaps, on every rank.

1. exposed: how much of each family's time lies in the gaps; 2. release: gaps that end when a collective ends waited for
it; 3. producer and consumer: how long an attention kernel's own input had been there. Read all three together. Gap time
in which nothing runs anywhere is a true bubble, the most that launch-side work can win.
Exit code: 0, 1 with a finding (a split was refused), 2 when it cannot be analysed.

python scripts/bubble_attribution.py --profile-dir capture/ --layers 40 --collective alltoall --group-split 15
"""

from __future__ import annotations

from anchormatrix.attribution.bubbles import REFUSED, RELEASE_NS, BubbleOptions, bubbles
from anchormatrix.attribution.findings import by_text
from anchormatrix.attribution.layers import ORDERS
from anchormatrix.attribution.steps import choose_step, decompose
from anchormatrix.cli.analysis import capture_parser, finish, load, positive, show
from anchormatrix.cli.command import run
from anchormatrix.store.codec import plain


def main() -> int:
    """Parse, analyse, print, write."""
    parser = capture_parser(__doc__)
    parser.add_argument("--layers", type=positive, metavar="L", help="layers of the model")
    parser.add_argument(
        "--collective", metavar="NAME", help="family, or family:communicator, to split and pair (default: the largest)"
    )
    parser.add_argument(
        "--group-split", type=positive, metavar="N", help="the first N calls of a layer are forward, the rest reverse"
    )
    parser.add_argument("--chunks", type=positive, metavar="N", default=0, help="masking chunks in effect")
    parser.add_argument(
        "--issue-order",
        choices=("auto", *ORDERS),
        default="auto",
        help="order of chunked calls (default: from the times)",
    )
    parser.add_argument("--attn-name", metavar="NAME", help="part of the attention kernels' name (default: as usual)")
    parser.add_argument(
        "--release-delta",
        type=float,
        metavar="US",
        default=RELEASE_NS / 1000,
        help="tolerance of the release test in µs (default: %(default)s)",
    )
    args = parser.parse_args()
    capture = load(args)
    choice = choose_step(decompose(capture), capture.cut)
    options = BubbleOptions(
        layers=args.layers,
        collective=args.collective,
        group_split=args.group_split,
        attention=args.attn_name,
        release_ns=round(args.release_delta * 1000),
        order=args.issue_order,
        chunks=args.chunks,
    )
    found = bubbles(capture, choice.step, options)
    rows = [plain(one) for one in found]
    lag = {"lag_median_ms": "median", "lag_within_100us_share": "within_100us_share"}
    show(
        f"Gaps of the compute stream ({choice.why})",
        (
            {"rank": row["rank"]}
            | {key: value for key, value in row.items() if key.endswith("_ms") and key != "producer_lag_ms"}
            | {shown: row["producer_lag_ms"][key] for shown, key in lag.items()}
            for row in rows
        ),
    )
    show("Families in the gaps", ({"rank": row["rank"], **group} for row in rows for group in row["groups"]))
    said = by_text(finding for one in found for finding in one.findings)
    for note in (finding for finding in said if finding.kind != REFUSED):
        print(f"\nnote: no producer lag: {note.text}")
    refused = [finding for finding in said if finding.kind == REFUSED]
    return finish({"step": choice.step, "why": choice.why, "ranks": rows}, [*capture.findings, *refused], args.json)


if __name__ == "__main__":
    run(main)
