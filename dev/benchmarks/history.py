"""The time of the nightly page on a long history: 60 sessions per night, until there are 1,000,000 cells.

Example:
  python benchmarks/history.py --rows 1000000
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.history.nights import last_nights
from anchormatrix.history.progress import read_durations
from anchormatrix.history.review import Limits, review_night
from anchormatrix.history.store import History, check, open_history
from anchormatrix.records.contract import Contract
from anchormatrix.records.night import Place
from anchormatrix.report.nightly_page import write_nightly

ROOT = Path(__file__).resolve().parents[2]

SIZES = (2, 4, 8)
FORMS = 10
WINDOWS = (1, 2)
TIERS = ("few", "anchor")
NEW_CONTRACT_NIGHTS = 60
LAST = date(2026, 11, 30)


def main() -> None:
    """Fill a history, then time what reads it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="cells in the history (default: %(default)s)")
    args = parser.parse_args()
    settings = load_settings(DEFAULT_FILE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.sqlite"
        with open_history(file) as history:
            places = _timed("fill", lambda: _fill(history, args.rows))
        print(f"{file.stat().st_size / 1e6:.0f} MB")
        _timed("durations, as a run reads them", lambda: read_durations(file, [place.contract for place in places]))
        with open_history(file) as history:
            limits = Limits(settings.verdict.dispersion_pct, settings.verdict.noise_floor_pct)
            review = _timed("review", lambda: review_night(history, LAST.isoformat(), places, limits))
            nights = last_nights(history, 30)
            _timed("page", lambda: write_nightly(review, nights, settings, Path(folder) / "nightly"))
            page = Path(folder) / "nightly" / "index.html"
            print(f"{len(review.series)} series, page {page.stat().st_size / 1e3:.0f} kB")
        _timed("quick check", lambda: check(file))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def _timed(what: str, call: Callable[[], Any]) -> Any:
    begun, processor = time.perf_counter(), time.process_time()
    result = call()
    used = time.process_time() - processor
    print(f"{what}: {time.perf_counter() - begun:.2f} s, {used:.2f} s of processor time", flush=True)
    return result


def _contract(size: int, version: int) -> Contract:
    links = tuple(tuple("X" if a == b else "UB" for b in range(size)) for a in range(size))
    return Contract(
        host="here", cards=tuple(range(size)), links=links, one_domain=True, device_model="950DT",
        driver=f"26.{version}", toolkit="9", framework="vllm-omni", framework_version="0.26", workload={"seed": 42},
        tiers={"few": 4, "anchor": 10},
    )  # fmt: skip


def _fill(history: History, rows: int) -> list[Place]:
    """Fill from the last night backwards; returns the places of the last night."""
    generator = random.Random(1)
    per_night = len(SIZES) * FORMS * len(WINDOWS) * len(TIERS)
    connection, series, places = history.connection, {}, []
    versions = '{"driver": "26", "tool": "26"}'
    nights = -(-rows // per_night)
    with history.transaction():
        for age in range(nights):
            night = (LAST - timedelta(days=nights - 1 - age)).isoformat()
            version = age // NEW_CONTRACT_NIGHTS
            for size in SIZES:
                contract = _contract(size, version)
                identity = contract.id
                if age % NEW_CONTRACT_NIGHTS == 0:
                    row = (identity, size, version + 1, contract.canonical)
                    connection.execute("INSERT INTO contracts VALUES (?, ?, ?, ?)", row)
                for form in range(FORMS):
                    name = f"tp1-usp{size}" if form == 0 else f"tp1-usp{size}+mask{form + 1}"
                    for window in WINDOWS:
                        started = f"{night}T{20 + window}:{form:02}:{size:02}+00:00"
                        session = connection.execute(
                            "INSERT INTO sessions (contract, form, window, generation, night, status, reason,"
                            " started_at, finished_at, duration_s, health, temperature_c, tenants, load, versions)"
                            " VALUES (?, ?, ?, 0, ?, 'measured', '', ?, '', 600, 'OK', 50, 0, 1, ?)",
                            (identity, name, window, night, started, versions),
                        ).lastrowid
                        for tier in TIERS:
                            key = (identity, name, tier)
                            if key not in series:
                                series[key] = connection.execute(
                                    "INSERT INTO series (contract, form, tier) VALUES (?, ?, ?)", key
                                ).lastrowid
                            values = [2.0 * (1 + generator.gauss(0, 0.005)) for _ in range(3)]
                            cell = (series[key], night, session, sorted(values)[1], 1.0, json.dumps(values))
                            connection.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?)", cell)
                        if age == nights - 1:
                            places.append(Place(identity, name, window))
    return places


if __name__ == "__main__":
    main()
