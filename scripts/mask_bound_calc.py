"""How much of a family's communication attention can hide, and how much of that was reached, on every rank.

Per layer: C is the masked family's time, F the attention kernels' time, n chunks, c = C/n, f = F/n.
bound = min(F, C - first chunk's forward calls - last chunk's reverse calls) / C; with equal chunks min(1 - 1/n, F/C).
No schedule exceeds it (docs/attribution.md). estimate: the source document's 1 - [c + (n-1)(c-f) + drain] / C where
f < c, drain = ratio x c; no bound. achievement = the family's share under attention / bound; above 100 % the chunks,
the family or the attention kernels given contradict the capture, and the warnings say which.
Exit code: 0, 1 with a finding (achievement above 100 %), 2 when it cannot be analysed.

python scripts/mask_bound_calc.py --profile-dir capture/ --layers 40 --chunks 5 --mask-family alltoall
"""

from __future__ import annotations

from anchormatrix.attribution.hiding import DRAIN_RATIO
from anchormatrix.attribution.masking import MaskOptions, mask_bounds
from anchormatrix.attribution.steps import choose_step, decompose
from anchormatrix.cli.analysis import capture_parser, finish, load, positive, show
from anchormatrix.cli.command import run
from anchormatrix.records.finding import Finding
from anchormatrix.store.codec import plain


def main() -> int:
    """Parse, analyse, print, write."""
    parser = capture_parser(__doc__)
    parser.add_argument("--layers", type=positive, metavar="L", help="layers of the model (default: figures per step)")
    parser.add_argument("--chunks", type=positive, metavar="N", help="chunks asked for (default: as seen per layer)")
    parser.add_argument(
        "--local-heads", type=positive, metavar="H", help="heads per rank, which the chunks must divide"
    )
    parser.add_argument("--fa-name", metavar="NAME", help="part of the attention kernels' name (default: as usual)")
    parser.add_argument(
        "--drain-ratio",
        type=float,
        default=DRAIN_RATIO,
        metavar="R",
        help="drain ÷ c of the estimate, 1/4 to 1/3 (default: %(default)s)",
    )
    parser.add_argument(
        "--mask-family", metavar="F", help="alltoall, allGather … or step for all communication (default: the largest)"
    )
    parser.add_argument("--mask-gid", metavar="G", help="communicator of the masked family")
    args = parser.parse_args()
    capture = load(args)
    table = decompose(capture)
    choice = choose_step(table, capture.cut)
    options = MaskOptions(
        layers=args.layers,
        chunks=args.chunks,
        attention=args.fa_name,
        drain_ratio=args.drain_ratio,
        family=args.mask_family,
        communicator=args.mask_gid,
        local_heads=args.local_heads,
    )
    found = mask_bounds(capture, table, choice.step, options)
    rows = [plain(one) for one in found]
    per = "layer" if args.layers else "step"
    show(f"Masking bound per {per} ({choice.why})", ({k: v for k, v in row.items() if k != "warnings"} for row in rows))
    for warning in dict.fromkeys(text for one in found for text in one.warnings):
        print(f"warning: {warning}")
    findings = [
        Finding("achievement", one.warnings[0], (one.rank,))
        for one in found
        if one.achievement is not None and one.achievement > 1
    ]
    values = {"step": choice.step, "why": choice.why, "arm": str(args.profile_dir), "ranks": rows}
    return finish(values, [*capture.findings, *findings], args.json)


if __name__ == "__main__":
    run(main)
