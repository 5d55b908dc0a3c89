"""Where the difference between two captures' steps lies: Stage, Computing, exposed communication, Free, Bubble.

Subtracts column by column (slowest rank of the median step of either) and checks that the parts add up to the
difference of the stages. Read exposed and Free first, then Computing: extra Computing belongs to the form and cannot be
masked.
Exit code: 0, 1 with a finding (the parts do not close, a table breaks its identities), 2 when it cannot be analysed.

python scripts/stage_delta.py --profile-dir tp1-usp4/capture --profile-dir tp2-usp2/capture
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.attribution.differences import delta
from anchormatrix.attribution.slowest import slowest_rank
from anchormatrix.attribution.steps import choose_step, chosen_step, decompose, outside, step_findings
from anchormatrix.captures.open import load_capture
from anchormatrix.cli.analysis import add_json, add_refusals, add_request, cut_as_asked, finish, show
from anchormatrix.cli.command import run
from anchormatrix.errors import InputError
from anchormatrix.records.finding import Finding
from anchormatrix.store.codec import plain


def main() -> int:
    """Parse, subtract, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--profile-dir", type=Path, action="append", required=True, metavar="D", help="give it twice: A, then B"
    )
    add_refusals(parser)
    add_request(parser)
    add_json(parser)
    args = parser.parse_args()
    if len(args.profile_dir) != 2:
        raise InputError(f"{len(args.profile_dir)} captures given", where="--profile-dir", expected="two: A, then B")
    chosen, steps, findings = [], [], []
    for name, directory in zip("AB", args.profile_dir, strict=True):
        capture = load_capture(directory, limit_pct=args.unusable_pct, every_rank=args.every_rank)
        capture = cut_as_asked(capture, args)
        table = decompose(capture)
        choice = choose_step(table, capture.cut)
        step = chosen_step(table, choice)
        beside = [plain(row) for row in outside(capture)]
        chosen.append(slowest_rank(step.ranks) or step.ranks[0])
        steps.append({"profile_dir": str(directory), **plain(step), "outside": beside})
        said = (*capture.findings, *step_findings(capture, table, choice.step))
        findings += [Finding(one.kind, f"{name}: {one.text}", one.ranks) for one in said]
        show(f"{name} = {directory}: {choice.why}, slowest rank {steps[-1]['slowest_rank']}", steps[-1]["ranks"])
        if beside:
            show(f"{name}: outside every step", beside)
    found = delta(*chosen)
    values = plain(found)
    show("Δ = B − A, slowest ranks", [{key: value for key, value in values.items() if key != "ranks"}])
    if not found.closes:
        text = f"ΔStage and the sum of its parts differ by {found.residual_ms:+.3f} ms"
        findings.append(Finding("closure", text))
    return finish({"a": steps[0], "b": steps[1], "delta": values}, findings, args.json)


if __name__ == "__main__":
    run(main)
