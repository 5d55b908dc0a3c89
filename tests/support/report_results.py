"""A small but complete results folder for the report's tests: what the workflow writes, with numbers seen by eye."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from measured import request_row, timed_session
from msgspec.structs import replace

from anchormatrix.config.merge import load_settings
from anchormatrix.decide.cells import build_cells, write_cells
from anchormatrix.decide.verdict import judge
from anchormatrix.planning.configured import matrix_design
from anchormatrix.records.contract import Contract
from anchormatrix.records.requests import RequestRow, RequestStatus, Role
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import plain, write_record, write_table
from anchormatrix.store.files import write_json

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = '<script>alert("x")</script> & | `code` [a](http://b) \x1b[31m \u202eright-to-left'
QUADS = [["X" if a == b else "UB" if a // 4 == b // 4 else "SYS" for b in range(8)] for a in range(8)]

# Step times at the few-step tier in seconds, and how the anchor differs from them.
STEPS = {
    "tp1-usp1": 3.6,
    "tp1-usp2": 2.0,
    "tp2-usp1": 2.2,
    "tp1-usp4": 1.0,
    "tp2-usp2": 1.1,
    "tp1-usp8": 0.62,
    "tp2-usp4": 0.60,
}
WORK = (("measured", "few", 4), ("measured", "anchor", 10))
WOBBLE = (0.0, 0.004, -0.003)


@lru_cache
def settings() -> Settings:
    """The default configuration."""
    return load_settings(ROOT / "config" / "config.yaml")


def contract(cards: tuple[int, ...], host: str = "virtual-ascend", driver: str = "25.2.0") -> Contract:
    """A contract on some cards of two quads."""
    return Contract(
        host=host,
        cards=cards,
        links=tuple(tuple(QUADS[a][b] for b in cards) for a in cards),
        one_domain=len({card // 4 for card in cards}) == 1,
        device_model="950DT",
        driver=driver,
        toolkit="8.3.RC1",
        framework="vllm-omni",
        framework_version="0.11.0",
        workload={"prompt": "A lighthouse", "seed": 42, "width": 832, "height": 480, "frames": 81},
        tiers={"few": 4, "anchor": 10},
    )


def write_results(
    root: Path,
    *,
    noise: float = 1.0,
    anchor: dict[str, float] | None = None,
    failed: tuple[str, ...] = (),
    no_group: int | None = None,
    retired: bool = False,
    reject_first: int | None = None,
    attribution: bool = True,
    selection: bool = True,
    text: str = "",
    sizes: tuple[int, ...] = (2, 4, 8),
    prints: dict[str, str] | None = None,
    distances: dict[str, float] | None = None,
) -> dict[int, str]:
    """Write a results folder and return the current contract of each size.

    ``noise`` scales the spread of repeats (1: 0.7 %), ``anchor`` maps a form to its r, ``failed`` forms crash at start,
    ``prints`` maps a form to what its fingerprints begin with (empty: none; ``*``: every request another),
    ``distances`` to what the engine's check of its result finds (above 1e-5 it fails),
    ``no_group`` is a size without a legal group, ``reject_first`` a size whose first candidate fails its smoke, and
    ``text`` is put wherever text from outside can stand.
    """
    groups = {1: (0,), 2: (0, 1), 4: (0, 1, 2, 3), 8: tuple(range(8))}
    write_json(
        root / "topology.json", {"cards": list(range(8)), "links": QUADS, "domains": [[0, 1, 2, 3], [4, 5, 6, 7]]}
    )
    write_json(root / "health.json", _health(text))
    entries, ledger, current = [], [], {}
    for size in sizes:
        if size == no_group:
            continue
        candidates = [groups[size]] + ([(4, 5, 6, 7)] if reject_first == size == 4 else [])
        for rank, cards in enumerate(candidates):
            one = contract(cards)
            reason = "whole domain, healthy, idle, lowest index" + text
            entries.append({**plain(one), "version": 1, "reason": reason, "rank": rank, "state": "fit"})
            ledger.append(_entry(one, 1, [], text))
            rejected = reject_first == size and rank == 0
            _write_smoke(root, one.id, rejected=rejected, text=text)
            if rejected:
                continue
            current[size] = one.id
            _write_measurements(root, one, noise, anchor or {}, failed, text)
            _write_outputs(root, one, failed, prints or {}, distances or {})
            if attribution:
                _write_attribution(root, one.id, size, failed, text)
            if selection:
                write_json(root / one.id / "gates.json", _gates(one.id, size, text))
                write_json(root / "bandwidth" / f"{one.id}.json", _bandwidth(one.id))
    if retired:
        old = contract((4, 5, 6, 7))
        ledger.insert(0, _entry(old, 1, [], text))
        change = {"field": "cards", "before": [4, 5, 6, 7], "after": [0, 1, 2, 3]}
        ledger[-2 if len(sizes) == 3 else -1].update(version=2, changed=[change], why="card 5 says Alarm")
    write_json(
        root / "contracts.json",
        {
            "contracts": entries,
            "rejected": [{"cards": [2, 3, 4, 5], "size": 4, "reason": "mixes two domains"}],
            "unavailable": [{"size": no_group, "reason": "card 1 says Alarm" + text}] if no_group else [],
        },
    )
    lines = "".join(json.dumps({"schema": 1, **entry}) + "\n" for entry in ledger)
    (root / "contracts.jsonl").write_text(lines, encoding="utf-8")
    if selection:
        write_json(root / "matrix_report" / "decision.json", _decision(current, text))
    return current


def _health(text: str) -> dict[str, Any]:
    cards = [
        {
            "id": card,
            "npu": card,
            "chip": 0,
            "name": "950DT" + text,
            "health": "OK",
            "hbm_used_mb": 3100,
            "hbm_total_mb": 114688,
            "temperature_c": 41 + card,
            "power_w": 180,
            "processes": [],
        }
        for card in range(8)
    ]
    cards[5]["health"] = "Alarm"
    cards[7]["processes"] = [{"pid": 77, "name": "train" + text, "memory_mb": 52000}]
    return {"cards": cards, "versions": {"driver": "25.2.0", "toolkit": "26.2" + text}}


def _entry(one: Contract, version: int, changed: list[Any], text: str) -> dict[str, Any]:
    return {
        "id": one.id,
        "size": one.size,
        "version": version,
        "cards": list(one.cards),
        "changed": changed,
        "contract": plain(one),
        "when": "2025-11-30T02:00:00+00:00",
        "why": "first contract of this size" + text,
    }


def _write_smoke(root: Path, identity: str, *, rejected: bool, text: str) -> None:
    finding = {"kind": "residue", "text": "all ranks and steps 10.2 times slower than expected" + text, "value": 10.2}
    write_json(
        root / identity / "smoke.json",
        {
            "contract": identity,
            "status": "rejected" if rejected else "passed",
            "findings": [finding] if rejected else [],
            "step_s": 10.2 if rejected else 1.01,
            "expected_s": 1.0,
            "expected_source": "this contract's own history",
            "ranks": [],
            "form": "tp1-usp4",
            "command": ["vllm", "serve"],
            "started_at": "2025-11-30T02:01:00+00:00",
            "evidence": [],
            "state": "fit",
            "generation": 0,
            "night": "",
        },
    )


def _write_measurements(
    root: Path, one: Contract, noise: float, ratio: dict[str, float], failed: tuple[str, ...], text: str
) -> None:
    forms = [form for form in STEPS if _cards_of(form) == one.size]
    sessions = []
    for form, window in product(forms, (1, 2)):
        step = STEPS[form] * (1 + 0.002 * (window - 1))
        factor = ratio.get(form, 1.01)
        values = {
            "few": tuple(step * (1 + noise * w) for w in WOBBLE),
            "anchor": tuple(step * factor * (1 + noise * w) for w in reversed(WOBBLE)),
        }
        dead = form in failed
        status, reason = ("did_not_run", "crashed at start: out of memory" + text) if dead else ("measured", "")
        repeats = {} if dead else values
        sessions.append(timed_session(form, window, repeats, status, contract=one.id, reason=reason))
        write_json(
            root / one.id / form / f"w{window}" / "session.json", _session(one, form, window, dead, reason, text)
        )
    limits = settings().verdict
    cells = build_cells(sessions, repeats=3, dispersion_pct=limits.dispersion_pct)
    write_cells(root / one.id / "cells.csv", cells)
    verdict = judge(one.id, one.size, cells, sessions, forms=forms, design=matrix_design(settings()), limits=limits)
    write_record(root / one.id / "verdict.json", verdict)


def _write_outputs(
    root: Path, one: Contract, failed: tuple[str, ...], prints: dict[str, str], distances: dict[str, float]
) -> None:
    """``requests.csv`` of every session: two warm-ups, three repeats of each tier, a capture with another output."""
    for form, window in product([form for form in STEPS if _cards_of(form) == one.size], (1, 2)):
        folder = root / one.id / form / f"w{window}"
        start, rows = prints.get(form, "same"), []
        for role, tier, steps in (*(("ramp", "few", 4),) * 2, *(WORK * 3 if form not in failed else ())):
            mark = f"w{window}r{len(rows)}" if start == "*" else start and f"{start}{steps}"
            rows.append(_sent(len(rows), tier, role=Role(role), steps=steps, fingerprint=mark or None))
        rows.append(_sent(len(rows), "few", role=Role.CAPTURE, fingerprint="captured"))
        rows.append(_sent(len(rows), "few", status=RequestStatus.ERROR, fingerprint="refused"))
        write_table(folder / "requests.csv", RequestRow, rows)
        if form in distances:
            session = json.loads((folder / "session.json").read_text())
            ok = distances[form] <= 1e-5
            session["proof"]["check"] = {
                "ok": ok, "what": "one step", "relative_distance": distances[form], "limit": 1e-5, "ranks": one.size,
            }  # fmt: skip
            session["status"] = session["status"] if ok else "void"
            write_json(folder / "session.json", {key: value for key, value in session.items() if key != "schema"})


def _sent(before: int, tier: str, **facts: Any) -> RequestRow:
    return request_row(before + 1, tier, None, **facts)


def _cards_of(form: str) -> int:
    tp, usp = form.split("-")
    return int(tp[2:]) * int(usp[3:])


def _session(one: Contract, form: str, window: int, dead: bool, reason: str, text: str) -> dict[str, Any]:
    seen = {"health": "OK", "hbm_used_mb": 3100, "power_w": 180, "processes": []}
    reading = {"cards": [{"id": card, "temperature_c": 45 + card, **seen} for card in one.cards]}
    tp, usp = form.split("-")
    evidence = ["RuntimeError: NPU out of memory. Tried to allocate 28.00 GiB" + text] if dead else []
    return {
        "contract": one.id,
        "form": form,
        "window": window,
        "status": "did_not_run" if dead else "measured",
        "reason": reason,
        "evidence": evidence,
        **({"failure": {"id": "x", "cause": "full", "check": f"npu-smi{text}", "cure": "split it"}} if dead else {}),
        "command": [
            "vllm", "serve", "Wan-AI/Wan2.2-T2V-A14B-Diffusers" + text, "--omni", "--host", "127.0.0.1",
            "--port", "40123", "--num-gpus", str(one.size), "--tensor-parallel-size", tp[2:], "--usp", usp[3:],
            "--enable-diffusion-pipeline-profiler",
        ],
        "env": {"ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, one.cards)), "HF_TOKEN": "hf_should_not_show"},
        "started_at": f"2025-11-30T02:0{window}:00+00:00",
        "finished_at": f"2025-11-30T02:0{window}:09+00:00",
        "duration_s": 9.1,
        "proof": {
            "ok": not dead, "ranks_expected": one.size, "ranks_seen": 0 if dead else one.size,
            "groups_expected": {}, "groups_seen": {}, "failures": [], "unproven": [],
        },
        "ramp": {"requests": 3, "first_steady": 3, "steady": True, "why": "neighbours differ by 0.4 %"},
        "log": {
            "lines": 900, "unusable_lines": 1, "stage_lines": 96, "lost_responses": 0, "denominators": {"bar": 8},
            "closure_pct": None,
        },
        "capture": {"status": "captured" if window == 1 else "off", "request": 10, "why": "after the last repeat"},
        "stop": {"how": "sigint", "seconds": 0.4, "exit_code": 0, "survivors": 0},
        "circumstances": {"before": reading, "after": reading, "load": 0.4, "versions": {}},
        "tries": [],
        "generation": 0,
        "night": "",
    }  # fmt: skip


def _write_attribution(root: Path, identity: str, size: int, failed: tuple[str, ...], text: str) -> None:
    for form in STEPS:
        if _cards_of(form) == size and form not in failed:
            write_json(root / identity / form / "attribution.json", attribution(identity, form, size, text))


def attribution(identity: str, form: str, size: int, text: str = "") -> dict[str, Any]:
    """An ``attribution.json``: computing 60 %, exposed 30 % and free 10 % of the step, tp forms with more exposed."""
    step_ms = 1000 * STEPS[form]
    exposed = (0.30 if form.startswith("tp1") else 0.36) * step_ms
    free = 0.05 * step_ms
    computing = step_ms - exposed - free
    layer_ms = step_ms / 40
    compute, wait = 0.30 * layer_ms, 0.15 * layer_ms
    marks = [
        ("compute", 0.0, compute, "QKV" + text),
        ("gap_released", compute, wait, ""),
        ("compute", compute + wait, compute, "FlashAttention"),
        ("gap_collective", 2 * compute + wait, wait / 2, ""),
        ("compute", 2 * compute + 1.5 * wait, layer_ms - 2 * compute - 2 * wait, "FFN"),
        ("gap_empty", layer_ms - wait / 2, wait / 2, ""),
    ]
    calls = [
        ("hidden", 0.6 * compute, 0.4 * compute, "hcom_alltoall"),
        ("communication", compute, wait, "hcom_alltoall"),
        ("communication", 2 * compute + wait, 0.4 * wait, "hcom_allReduce"),
    ]
    return {
        "contract": identity,
        "form": form,
        "status": "analysed",
        "family": "ascend",
        "capture": {"request": 10, "why": "after the last repeat, steady since request 3", "status": "captured"},
        "rows_read": 6400,
        "rows_unusable": {"columns": 3},
        "steps": {
            "step": 1,
            "why": "the only one",
            "slowest_rank": 0,
            "spread_pct": 0.0,
            "agreement": None,
            "all": [],
            "whole_trace": [],
            "unprofiled_step_s": STEPS[form],
            "exposed_share": exposed / step_ms,
            "ranks": [
                {
                    "rank": rank,
                    "computing_ms": computing + rank * 0.4,
                    "exposed_ms": exposed - rank * 0.4,
                    "overlapped_ms": 0.1 * step_ms,
                    "communication_ms": exposed + 0.1 * step_ms,
                    "free_ms": free,
                    "bubble_ms": 0,
                    "preparing_ms": 0,
                    "stage_ms": step_ms,
                }
                for rank in range(size)
            ],
        },
        "collectives": {
            "ranks": [
                {
                    "rank": rank,
                    "families": [
                        {
                            "family": "alltoall" + text,
                            "communicator": "445",
                            "calls": 160,
                            "calls_per_layer": 4,
                            "sum_ms": exposed + rank,
                            "mean_ms": exposed / 160,
                            "median_ms": exposed / 160,
                            "max_ms": exposed / 100,
                            "union_ms": exposed,
                            "union_over_sum": 1.0,
                        }
                    ],
                    "overlap": [],
                    "streams": [],
                }
                for rank in range(size)
            ],
            "rows_read": 6400,
            "rows_unusable": 3,
            "unusable_causes": {"columns": 3},
            "notes": [],
        },
        "masking": {
            "ranks": [
                {
                    "rank": rank,
                    "family": "alltoall",
                    "communicator": "445",
                    "chunks": 4,
                    "C_ms": 8.0,
                    "F_ms": 6.0,
                    "c_ms": 2.0,
                    "f_ms": 1.5,
                    "c_over_f": 1.3333,
                    "ideal": 0.75,
                    "bound": 0.75,
                    "estimate": 0.5,
                    "measured": 0.25,
                    "measured_family": None,
                    "under_attention": 0.375,
                    "achievement": 0.5,
                    "exposed_ms": exposed,
                    "warnings": [],
                }
                for rank in range(size)
            ]
        },
        "bubbles": {
            "ranks": [
                {
                    "rank": rank,
                    "span_ms": step_ms,
                    "busy_ms": 0.65 * step_ms,
                    "gap_ms": 0.35 * step_ms,
                    "gap_with_collective_ms": 0.3 * step_ms,
                    "gap_empty_ms": 0.05 * step_ms,
                    "gap_released_ms": 0.28 * step_ms,
                    "groups": [],
                    "producer_lag_ms": {"median": None, "within_100us_share": None},
                    "findings": [],
                }
                for rank in range(size)
            ]
        },
        "effect": {"ok": True, "checks": [{"name": "all-to-all present", "ok": True, "text": "160 calls" + text}]},
        "timeline": {
            "rank": 0,
            "step": 1,
            "layer": "a middle layer",
            "duration_ms": layer_ms,
            "lanes": [
                {"name": name, "segments": [_segment(*mark) for mark in lane]}
                for name, lane in (("compute stream 47", marks), ("collectives 445", calls))
            ],
        },
    }


def _segment(kind: str, start_ms: float, duration_ms: float, name: str) -> dict[str, Any]:
    return {"kind": kind, "start_ms": start_ms, "duration_ms": duration_ms, "name": name}


def _gates(identity: str, size: int, text: str) -> dict[str, Any]:
    statuses = ("passed", "passed", "passed", "unknown", "passed", "passed", "unknown")
    return {
        "contract": identity,
        "size": size,
        "bytes": [],
        "decision": _size_decision(size, identity, text),
        "gates": [
            {
                "gate": f"G{i}",
                "name": f"gate {i}",
                "form": form,
                "status": status,
                "number": 1.0,
                "unit": "",
                "source": "session.json (w1, w2)",
                "text": "runs through and proved its form" + text,
            }
            for form in STEPS
            if _cards_of(form) == size
            for i, status in enumerate(statuses, start=1)
        ],
        "unexplained": [
            {
                "form": "tp1-usp4",
                "family": "alltoall",
                "communicator": "445",
                "implied_gb_s": 80.0,
                "isolated_gb_s": 95.0,
                "concurrency": 1,
                "text": "alltoall moves 80 GB/s in the model and 95 GB/s in isolation" + text,
                "isolated_over_implied": 95 / 80,
            }
        ],
        "projections": [
            {
                "projection": True,
                "fix": "exposed_to_bound",
                "form": "tp2-usp2",
                "against": "tp1-usp4",
                "measured_s": 1.1,
                "step_s": 0.9,
                "against_s": 1.0,
                "quantity": "exposed communication per step",
                "unit": "ms",
                "level": 36.0,
                "projected_level": 10.0,
                "threshold": 20.0,
                "reverses": True,
                "against_step_s": 0.85,
                "both_reverse": False,
                "text": "if exposed communication were at its bound, tp2-usp2 would win",
            }
        ],
    }


def _bandwidth(identity: str) -> dict[str, Any]:
    point = {"collective": "all_to_all", "link_class": "UB", "ranks": 4, "concurrency": 1}
    return {
        "contract": identity,
        "points": [{**point, "bytes": 1048576 * n, "time_us": 20.0 * n, "gb_s": 52.4} for n in (1, 4, 16)],
        "source": "torch",
    }


def _size_decision(size: int, identity: str, text: str) -> dict[str, Any]:
    return {
        "size": size,
        "contract": identity,
        "outcome": "winner",
        "winner": {1: None, 2: "tp1-usp2", 4: "tp1-usp4", 8: None}[size],
        "runner_up": None,
        "margin_pct": 10.0,
        "margin_low_pct": None,
        "margin_high_pct": None,
        "tied_with": [],
        "basis": "2 forms at the anchor tier" + text,
        "sentence": "On these cards …",
        "conditions": ["When exposed communication of tp2 is above 20 ms, tp1 wins, else tp2; measured 36 ms." + text],
        "unknowns": ["whether a larger message would help; the size sweep would tell" + text],
        "reversal": ["when exposed communication of the tp2 form falls below 20 ms per step" + text],
        "confidence": "high",
    }


def _decision(current: dict[int, str], text: str) -> dict[str, Any]:
    scaling = {
        "text": "tp1-uspN from 4 to 8 cards: 1.61 times faster, efficiency 81 %", "arm": "tp1", "form_from": "tp1-usp4",
        "form_to": "tp1-usp8", "cards_from": 4, "cards_to": 8, "speedup": 1.61, "efficiency": 0.81,
        "exposed_share_from": None, "exposed_share_to": None, "links_from": "UB", "links_to": "SYS+UB",
    }  # fmt: skip
    return {
        "sizes": {str(size): _size_decision(size, identity, text) for size, identity in current.items()},
        "size": 4, "winner": None, "runner_up": None, "margin_pct": None, "margin_low_pct": None,
        "margin_high_pct": None, "basis": "", "conditions": [], "unknowns": [],
        "reversal": [], "confidence": "high", "sentence": None,
        "reverify_triggers": [
            {"size": 4, "trigger": "order flip", "fired": False, "text": "both tiers rank the forms alike" + text},
            {"size": 4, "trigger": "new fixed cost", "fired": True, "text": "decode 0.40 s → 0.80 s"},
        ],
        "scaling": [scaling],
        "skipped": [], "excluded": [], "pairs": [],
    }  # fmt: skip


def with_text(text: str) -> Settings:
    """The default configuration with ``text`` where a person's words stand."""
    base = settings()
    return replace(
        base,
        host=replace(base.host, alias="host " + text),
        engine=replace(base.engine, model="model " + text),
        report=replace(base.report, title="title " + text),
        workload=replace(base.workload, prompt="prompt " + text),
    )
