"""Check how sequence parallelism, sparse attention and communication masking are put together.

Every rule that applies to the form is ok, broken or unknown. What the configuration does not say (the order of
gathering and sparsifying, window offset, scope of masks, launch order of collectives) is given as options.

Examples:
  python scripts/check_seams.py --config config/config.yaml --form tp1-usp4 --tokens 32768 --sparse-block 128 \\
      --order gather-then-sparsify --mask-scope per-head
  python scripts/check_seams.py --config config/config.yaml --form tp1-usp2-ag2+mask2 --issued usp,usp,ag,ag
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from anchormatrix.cli.command import FINDING, run
from anchormatrix.config.merge import load_settings
from anchormatrix.planning.seams import SeamFacts, check_seams
from anchormatrix.records.form import parse_form
from anchormatrix.store.files import write_json


def main() -> int:
    """Parse, check, print; exit 1 when a rule is broken."""
    args = _arguments()
    facts = SeamFacts(
        order=args.order,
        window_offset=args.window_offset,
        kv_length=args.kv_length,
        q_length=args.q_length,
        joint=args.joint,
        mask_scope=args.mask_scope,
        same_as_dense=None if args.same_as_dense is None else args.same_as_dense == "yes",
        issued=tuple(name.strip() for name in args.issued.split(",") if name.strip()),
    )
    model = load_settings(args.config).model
    given = {"sequence_tokens": args.tokens, "sparse_block": args.sparse_block}
    model = msgspec.structs.replace(model, **{key: value for key, value in given.items() if value is not None})
    findings = check_seams(parse_form(args.form), model, facts)
    if args.json:
        write_json(args.json, {"form": args.form, "findings": [finding.as_dict() for finding in findings]})
    for finding in findings:
        print(f"{finding.status:<8} {finding.rule}: {finding.text}")
    if not findings:
        print(f"no seam in {args.form}: neither sparse attention nor masking is in use")
    return FINDING if any(finding.status == "broken" for finding in findings) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file; its model section is used")
    parser.add_argument("--form", required=True, help="parallel form, such as tp1-usp4+mask4")
    parser.add_argument("--tokens", type=int, help="sequence length in tokens (default: the configuration's)")
    parser.add_argument("--sparse-block", type=int, help="block of sparse attention in tokens (default: the same)")
    parser.add_argument("--order", choices=("gather-then-sparsify", "sparsify-then-gather"))
    parser.add_argument("--window-offset", type=int, help="offset of a rank's window, in tokens")
    parser.add_argument("--kv-length", type=int, help="full length of K and V, in tokens")
    parser.add_argument("--q-length", type=int, help="this rank's logical length of Q, in tokens")
    parser.add_argument("--joint", action="store_true", help="joint (text) tensors are part of the sequence")
    parser.add_argument("--mask-scope", choices=("per-head", "shared-across-shards"))
    parser.add_argument("--same-as-dense", choices=("yes", "no"), help="is the output identical to the dense one?")
    parser.add_argument(
        "--issued", default="", help="communicators of one layer's collectives in launch order, by commas"
    )
    parser.add_argument("--json", type=Path, help="also write the findings to this file")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
