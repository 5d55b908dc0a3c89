"""All analyses of one capture, read once: step, collectives, masking bound, bubbles, proof of effect, a timeline.

Writes attribution.json. A capture that cannot be analysed is written as such (status "refused", with the reason) and
gives exit code 2; findings give 1.

python scripts/attribute.py --profile-dir capture/ --out attribution.json --form tp1-usp4+mask5 --layers 40
"""

from __future__ import annotations

import sys
from pathlib import Path

from anchormatrix.attribution.bubbles import RELEASE_NS
from anchormatrix.attribution.hiding import DRAIN_RATIO
from anchormatrix.attribution.layers import ORDERS
from anchormatrix.attribution.summary import AttributionOptions, attribute_directory
from anchormatrix.cli.analysis import capture_parser, positive, request_of, show, show_read
from anchormatrix.cli.command import CANNOT, FINDING, run
from anchormatrix.records.attribution import AttributionStatus
from anchormatrix.records.form import parse_form
from anchormatrix.store.codec import plain, write_record


def main() -> int:
    """Parse, analyse, write."""
    parser = capture_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="attribution.json")
    parser.add_argument("--form", type=parse_form, metavar="NAME", help="the form, to prove that it was in effect")
    parser.add_argument("--contract", default=None, metavar="ID", help="the contract's id, kept in the result")
    parser.add_argument("--layers", type=positive, metavar="L", help="layers of the model")
    parser.add_argument("--chunks", type=positive, metavar="N", help="masking chunks (default: the form's)")
    parser.add_argument(
        "--local-heads", type=positive, metavar="H", help="heads per rank, which the chunks must divide"
    )
    parser.add_argument("--unprofiled-step-s", type=float, metavar="S", help="step time measured without the profiler")
    parser.add_argument("--unmasked-calls", type=positive, metavar="N", help="calls per rank of the unmasked form")
    parser.add_argument("--collective", metavar="NAME", help="family to bound and split (default: the form's own)")
    parser.add_argument("--group-split", type=positive, metavar="N", help="forward calls per layer (default: derived)")
    parser.add_argument("--issue-order", choices=("auto", *ORDERS), default="auto", help="order of chunked calls")
    parser.add_argument("--attn-name", metavar="NAME", help="part of the attention kernels' name")
    parser.add_argument("--release-delta", type=float, metavar="US", default=RELEASE_NS / 1000, help="in µs")
    parser.add_argument("--drain-ratio", type=float, default=DRAIN_RATIO, metavar="R", help="drain ÷ c")
    args = parser.parse_args()
    options = AttributionOptions(
        form=args.form,
        request=request_of(args),
        layers=args.layers,
        chunks=args.chunks,
        local_heads=args.local_heads,
        unprofiled_step_s=args.unprofiled_step_s,
        unmasked_calls=args.unmasked_calls,
        collective=args.collective,
        group_split=args.group_split,
        order=args.issue_order,
        attention=args.attn_name,
        release_ns=round(args.release_delta * 1000),
        drain_ratio=args.drain_ratio,
    )
    result = attribute_directory(
        args.profile_dir,
        options,
        limit_pct=args.unusable_pct,
        every_rank=args.every_rank,
        contract=args.contract,
    )
    for target in filter(None, (args.out, args.json)):
        write_record(target, result)
    if result.status is not AttributionStatus.ANALYSED or result.steps is None:
        print(f"attribute.py: {result.reason}", file=sys.stderr)
        return CANNOT
    ranks = [row.rank for row in result.steps.ranks]
    show_read(result.rows_read or 0, ranks, result.family or "", result.rows_unusable or {}, result.notes or ())
    show(f"Step ({result.steps.why})", map(plain, result.steps.ranks))
    if result.steps.outside:
        show("Outside every step", map(plain, result.steps.outside))
    for sentence in result.reading or ():
        print(f"\n{sentence.text}")
    for finding in result.findings or ():
        print(f"\nfinding ({finding.kind}): {finding.text}")
    return FINDING if result.findings else 0


if __name__ == "__main__":
    run(main)
