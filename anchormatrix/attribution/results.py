"""Analyses as plain JSON values: the shapes that commands write and other tools read. Times in ms, shares of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from anchormatrix.attribution.bubbles import RankBubbles
from anchormatrix.attribution.collectives import collectives, overlap_matrix, streams
from anchormatrix.attribution.masking import MaskBound
from anchormatrix.attribution.steps import StageDelta, StepChoice, slowest, spread_pct
from anchormatrix.attribution.timeline import EMPTY_GAP, IN_FLIGHT, RELEASED, LayerTimeline
from anchormatrix.captures.table import Capture

_GAP_KINDS = {RELEASED: "gap_released", IN_FLIGHT: "gap_collective", EMPTY_GAP: "gap_empty"}


def ms(ns: float) -> float:
    """Return nanoseconds as milliseconds; six decimals are exact for integers."""
    return round(float(ns) / 1e6, 6)


def _optional(value: float | None, digits: int = 6) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), digits)


def rows_json(capture: Capture) -> dict[str, Any]:
    """``rows_read`` and ``rows_unusable`` as counts, and ``unusable_causes``."""
    return {
        "rows_read": capture.rows_read,
        "rows_unusable": capture.unusable,
        "unusable_causes": dict(capture.rows_unusable),
        "notes": list(capture.notes),
    }


def steps_json(table: pd.DataFrame, choice: StepChoice) -> dict[str, Any]:
    """The chosen step of every rank, the slowest rank, and the spread across ranks."""
    chosen = table[table["step"] == choice.step]
    return {
        "step": choice.step,
        "why": choice.why,
        "ranks": [step_row(row) for row in chosen.to_dict("records")],
        "slowest_rank": slowest(chosen)["rank"],
        "spread_pct": round(spread_pct(chosen["stage_ns"]), 4),
    }


def step_row(row: Any) -> dict[str, Any]:
    """One row of the decomposition."""
    times = {f"{key.removesuffix('_ns')}_ms": ms(value) for key, value in row.items() if str(key).endswith("_ns")}
    return {"rank": int(row["rank"]), **times} | ({"source": row["source"]} if "source" in row else {})


def collectives_json(capture: Capture, *, layers: int | None = None, steps: int | None = None) -> dict[str, Any]:
    """Families, overlap matrix and streams of every rank."""
    families, overlap, stream = (
        collectives(capture, layers=layers, steps=steps),
        overlap_matrix(capture),
        streams(capture),
    )
    ranks = [
        {
            "rank": rank,
            "families": [_family(row) for row in families[families["rank"] == rank].to_dict("records")],
            "overlap": [
                {"a": row["a"], "b": row["b"], "share": round(row["share"], 6)}
                for row in overlap[overlap["rank"] == rank].to_dict("records")
            ],
            "streams": [
                {
                    "stream": row["stream"],
                    "core": row["core"],
                    "kernels": int(row["kernels"]),
                    "total_ms": ms(row["total_ns"]),
                }
                for row in stream[stream["rank"] == rank].to_dict("records")
            ],
        }
        for rank in capture.ranks
    ]
    return {"ranks": ranks, **rows_json(capture)}


def _family(row: Any) -> dict[str, Any]:
    return {
        "family": row["family"],
        "communicator": row["communicator"],
        "calls": int(row["calls"]),
        "calls_per_layer": _optional(row["calls_per_layer"]),
        **{f"{name}_ms": ms(row[f"{name}_ns"]) for name in ("sum", "mean", "median", "max", "union")},
        "union_over_sum": _optional(row["union_over_sum"]),
    }


def bound_json(found: MaskBound) -> dict[str, Any]:
    """The masking bound of one rank."""
    return {
        "rank": found.rank,
        "family": found.family,
        "communicator": found.communicator,
        "chunks": found.chunks,
        "C_ms": ms(found.c_total_ns),
        "F_ms": ms(found.f_total_ns),
        "c_ms": ms(found.c_ns),
        "f_ms": ms(found.f_ns),
        "c_over_f": _optional(found.c_over_f),
        "ideal": round(found.ideal, 6),
        "bound": round(found.bound, 6),
        "measured": round(found.measured, 6),
        "measured_family": _optional(found.measured_family),
        "achievement": _optional(found.achievement),
        "exposed_ms": ms(found.exposed_ns),
        "warnings": list(found.warnings),
    }


def bubbles_json(found: RankBubbles) -> dict[str, Any]:
    """The three tests on one rank; the producer lag's median in ms."""
    groups = [
        {
            "group": row["group"],
            "calls": int(row["calls"]),
            "total_ms": ms(row["total_ns"]),
            "exposed_ms": ms(row["exposed_ns"]),
            "exposed_share": round(row["exposed_share"], 6),
            "overlap_attention_ms": ms(row["overlap_attention_ns"]),
        }
        for row in found.groups.to_dict("records")
    ]
    times = ("span", "busy", "gap", "gap_with_collective", "gap_empty", "gap_released")
    return {
        "rank": found.rank,
        **{f"{name}_ms": ms(getattr(found, f"{name}_ns")) for name in times},
        "groups": groups,
        "producer_lag_ms": {
            "median": None if found.lag_median_ns is None else ms(found.lag_median_ns),
            "within_100us_share": _optional(found.lag_close_share),
        },
        "findings": [finding.as_dict() for finding in found.findings],
    }


def delta_json(found: StageDelta) -> dict[str, Any]:
    """Δ of two steps with its closure."""
    return {
        "ranks": list(found.ranks),
        **{
            f"{name}_ms": ms(getattr(found, f"{name}_ns"))
            for name in ("stage", "computing", "exposed", "overlapped", "free", "bubble", "residual")
        },
        "closes": found.closes,
    }


def timeline_json(found: LayerTimeline, step: int, layer: str) -> dict[str, Any]:
    """One layer as lanes of segments, in ms from the layer's start, for a picture.

    The compute lane holds kernels and gaps by cause; each (family, communicator) has a lane, in which the time that
    compute hides is a segment of its own.
    """
    start, end = found.span
    compute = [(a, b, "compute", name) for a, b, name in found.compute]
    gaps = [(a, b, _GAP_KINDS.get(cause, "other"), cause) for a, b, cause in found.gaps]
    lanes = [("compute", sorted([*compute, *gaps]))]
    groups: dict[str, list[tuple[int, int, str, str]]] = {}
    for first, last, hidden, family, communicator in found.pieces:
        label = f"{family}:{communicator}" if communicator else family
        groups.setdefault(label, []).append((first, last, "hidden" if hidden else "communication", label))
    lanes += sorted(groups.items())
    return {
        "rank": found.rank,
        "step": step,
        "layer": layer,
        "duration_ms": ms(end - start),
        "lanes": [{"name": name, "segments": list(_segments(pieces, start, end))} for name, pieces in lanes],
    }


def _segments(pieces: Iterable[tuple[int, int, str, str]], start: int, end: int) -> Iterable[dict[str, Any]]:
    for whole_first, whole_last, kind, name in pieces:
        first, last = max(whole_first, start), min(whole_last, end)
        if last > first:
            yield {"start_ms": ms(first - start), "duration_ms": ms(last - first), "kind": kind, "name": name}
