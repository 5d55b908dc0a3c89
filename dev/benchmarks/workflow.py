"""The cost of the workflow itself: the default run, orchestration per session, memory, planning a large matrix, import.

Runs the default configuration in a fresh copy of the tracked files (a few minutes on a busy machine) and prints one
row per figure. Use: python benchmarks/workflow.py [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from anchormatrix.config.merge import build_settings, merged
from anchormatrix.planning.configured import candidates_of
from anchormatrix.records.form import OFFLOADS, Form

ROOT = Path(__file__).resolve().parents[2]

_LARGE = 500  # forms: 1,000 cells of two tiers


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it there")
    args = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="anchormatrix-benchmark.") as folder:
        project = args.keep or Path(folder) / "project"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(project)], check=True)
        wall_s = snakemake(project, "--cores", "1", "matrix_report")
        memory_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        row("default run, wall", f"{wall_s:.1f} s", "90 s")
        row("largest process of the run", f"{memory_mb:.0f} MB", "400 MB")
        row("orchestration per session", f"{orchestration_s(project):.2f} s", "2 s")
        row("default run again, nothing to do", f"{snakemake(project, '-n'):.1f} s", "")
        config = large_matrix(project)
        row(f"-n on {2 * _LARGE} cells", f"{snakemake(project, '-n', '--configfile', str(config)):.1f} s", "12 s")
    row("import anchormatrix", f"{import_ms():.1f} ms", "50 ms")


def row(what: str, measured: str, target: str) -> None:
    """Print one figure."""
    print(f"{what:<34} {measured:>10}   {f'target {target}' if target else ''}".rstrip())


def snakemake(project: Path, *args: str) -> float:
    """Run Snakemake; returns its wall-clock seconds."""
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "snakemake", *args], cwd=project, check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return time.monotonic() - started


def orchestration_s(project: Path) -> float:
    """Mean time from one session's end to the next one's start, sessions of one contract following each other.

    The mean, because starts are noted to the second: over a whole run that evens out.
    """
    sessions = [json.loads(path.read_text()) for path in project.glob("results/c*/*/w*/session.json")]
    spans = sorted((session["started_at"], session["duration_s"], session["contract"]) for session in sessions)
    gaps = [
        (datetime.fromisoformat(b[0]) - datetime.fromisoformat(a[0])).total_seconds() - a[1]
        for a, b in itertools.pairwise(spans)
        if a[2] == b[2]
    ]
    return sum(gaps) / len(gaps)


def large_matrix(project: Path) -> Path:
    """Write a configuration of many forms that the model allows."""
    values = merged([])
    values["model"] = {
        **values["model"], "heads": 240, "kv_heads": 240, "layers": 48, "sequence_tokens": 46080, "weights_gb": 4,
        "activation_gb": 2, "text_encoder_gb": 1,
    }  # fmt: skip
    values["engine"] = {**values["engine"], "extra_args": ["--mask-chunks", "{mask_chunks}"]}
    forms: dict[str, list[str]] = {}
    for size in (2, 4, 8):
        names = [form.name for form in every_form(size)]
        values["matrix"] = {**values["matrix"], "sizes": [size], "forms": {str(size): names}}
        forms[str(size)] = [form.name for form in candidates_of(build_settings(values), size, card_gb=100).forms]
    left = _LARGE
    for size in ("8", "4", "2"):
        forms[size] = forms[size][:left]
        left -= len(forms[size])
    if left:
        raise SystemExit(f"only {_LARGE - left} forms are possible, {_LARGE} are wanted")
    forms = {size: names for size, names in forms.items() if names}
    path = project / "large.json"
    matrix = {"sizes": [int(size) for size in forms], "forms": forms}
    path.write_text(json.dumps({"engine": values["engine"], "model": values["model"], "matrix": matrix}))
    return path


def every_form(size: int) -> list[Form]:
    """Every split of a size with every offload and several chunk counts."""
    degrees = [degree for degree in (1, 2, 4, 8) if degree <= size]
    splits = itertools.product(degrees, degrees, degrees, degrees, (1, 2), degrees)
    return [
        Form(*split, offload=offload, mask_chunks=chunks)
        for split in splits
        for offload in ("", *OFFLOADS)
        for chunks in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30)
        if Form(*split).cards == size
    ]


def import_ms() -> float:
    """Median time of importing the library in a fresh interpreter, the interpreter's own start taken off."""

    def median_s(code: str) -> float:
        times = []
        for _ in range(7):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
            times.append(time.perf_counter() - started)
        return sorted(times)[3]

    return max(0.0, (median_s("import anchormatrix") - median_s("pass")) * 1000)


if __name__ == "__main__":
    main()
