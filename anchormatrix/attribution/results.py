"""The tables of steps and collectives as records: times in ms, shares of one."""

from __future__ import annotations

from typing import Any

import pandas as pd

from anchormatrix.attribution.collectives import collectives, overlap_matrix, streams
from anchormatrix.attribution.intervals import ms, optional
from anchormatrix.attribution.steps import StepChoice, slowest, spread_pct
from anchormatrix.captures.table import Capture
from anchormatrix.records.attribution import ChosenStep, Collectives, Family, Overlap, RankCollectives, StepRow, Stream


def chosen_step(table: pd.DataFrame, choice: StepChoice) -> ChosenStep:
    """The chosen step of every rank, the slowest rank, and the spread across ranks."""
    chosen = table[table["step"] == choice.step]
    return ChosenStep(
        step=choice.step,
        why=choice.why,
        ranks=step_rows(chosen),
        slowest_rank=slowest(chosen)["rank"],
        spread_pct=round(spread_pct(chosen["stage_ns"]), 4),
    )


def step_rows(table: pd.DataFrame, *, numbered: bool = False) -> tuple[StepRow, ...]:
    """The rows of a decomposition, ``numbered`` with their step."""
    return tuple(
        StepRow(
            step=int(row["step"]) if numbered else None,
            rank=int(row["rank"]),
            source=row.get("source", ""),
            **{f"{key.removesuffix('_ns')}_ms": ms(value) for key, value in row.items() if key.endswith("_ns")},
        )
        for row in _records(table)
    )


def all_collectives(capture: Capture, *, layers: int | None = None, steps: int | None = None) -> Collectives:
    """Families, overlap matrix and streams of every rank."""
    families = collectives(capture, layers=layers, steps=steps)
    overlap, stream = overlap_matrix(capture), streams(capture)
    return Collectives(
        ranks=tuple(
            RankCollectives(
                rank=rank,
                families=tuple(_family(row) for row in _of_rank(families, rank)),
                overlap=tuple(
                    Overlap(a=row["a"], b=row["b"], share=round(row["share"], 6)) for row in _of_rank(overlap, rank)
                ),
                streams=tuple(
                    Stream(
                        stream=row["stream"],
                        core=row["core"],
                        kernels=int(row["kernels"]),
                        total_ms=ms(row["total_ns"]),
                    )
                    for row in _of_rank(stream, rank)
                ),
            )
            for rank in capture.ranks
        ),
        rows_read=capture.rows_read,
        rows_unusable=capture.unusable,
        unusable_causes=dict(capture.rows_unusable),
        notes=tuple(capture.notes),
    )


def _of_rank(table: pd.DataFrame, rank: int) -> list[dict[str, Any]]:
    return _records(table[table["rank"] == rank])


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _family(row: Any) -> Family:
    return Family(
        family=row["family"],
        communicator=row["communicator"],
        calls=int(row["calls"]),
        calls_per_layer=optional(row["calls_per_layer"]),
        sum_ms=ms(row["sum_ns"]),
        mean_ms=ms(row["mean_ns"]),
        median_ms=ms(row["median_ns"]),
        max_ms=ms(row["max_ns"]),
        union_ms=ms(row["union_ns"]),
        union_over_sum=optional(row["union_over_sum"]),
    )
