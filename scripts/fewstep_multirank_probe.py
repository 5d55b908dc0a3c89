"""Few steps against the anchor, from serving logs that already exist: no device is touched.

Reads every NAME_serve.log in --out-dir (NAME: a form such as tp1-usp4, or any label; NAME_w2 is the second window) and
writes summary.json and evidence.md there. To measure on a host instead, run the workflow:

  snakemake --cores 1 matrix_report --configfile my-host.yaml
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.errors import ConfigError
from anchormatrix.offline.evidence import evidence_markdown
from anchormatrix.offline.reading import read_logs
from anchormatrix.store.files import write_json, write_text


def main() -> int:
    """Parse, read the logs, write."""
    args = _arguments()
    if not args.parse_only:
        raise ConfigError(
            "measuring is the workflow's work",
            where="fewstep_multirank_probe",
            expected="--parse-only",
            todo="run `snakemake --cores 1 matrix_report --configfile FILE` to measure on a host",
        )
    settings = load_settings(args.config or DEFAULT_FILE)
    few, anchor = args.steps_few or settings.matrix.tiers.few, args.steps_anchor or settings.matrix.tiers.anchor
    if not 0 < few < anchor:
        raise ConfigError(
            f"few is {few} steps and anchor is {anchor}", where="--steps-few", expected="few below anchor"
        )
    tiers = {"few": few, "anchor": anchor}
    reading = read_logs(args.out_dir, tiers, settings)
    write_json(args.out_dir / "summary.json", reading.summary())
    write_text(args.out_dir / "evidence.md", evidence_markdown(reading, tiers))
    for item in reading.logs:
        for finding in item.log.findings:
            print(f"{item.path.name}: {finding}")
    for verdict in reading.verdicts:
        print(f"{verdict.size} ranks: {verdict.status}. {verdict.reason}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out-dir", type=Path, required=True, help="folder with the logs; results are written there")
    parser.add_argument(
        "--parse-only", action="store_true", help="read existing logs (the only thing this command does)"
    )
    parser.add_argument("--steps-few", type=int, help="steps of the few tier (default: the configuration's)")
    parser.add_argument("--steps-anchor", type=int, help="steps of the anchor tier (default: the configuration's)")
    parser.add_argument("--config", type=Path, help="configuration with the limits (default: config/config.yaml)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
