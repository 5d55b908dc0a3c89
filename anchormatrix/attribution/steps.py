"""Step decomposition: compute, exposed and overlapped communication, idle time, of every rank and step.

From the profiler's own step table where there is one, else from the kernels by the same definitions:
Communication = union of all collectives, Overlapped = its intersection with the union of compute, exposed = the rest,
Free = the part of the stage in which neither runs. Compute is what the AI cores (or the GPU's kernels) do: copies,
AI-CPU kernels and other engines run in Free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormatrix.attribution.differences import IDENTITY_TOLERANCE
from anchormatrix.attribution.findings import by_text
from anchormatrix.attribution.intervals import ms, union_of
from anchormatrix.attribution.slowest import slowest
from anchormatrix.captures.names import COMPUTE
from anchormatrix.captures.table import STEP_COLUMNS, Capture, is_collective, is_core
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import ChosenStep, StepRow
from anchormatrix.records.finding import Finding

PARTS = ("computing_ns", "exposed_ns", "free_ns")
AGREEMENT_TOLERANCE = 0.005
_SLACK_NS = 1000
_STRAGGLER_PCT = 5.0


@dataclass(frozen=True)
class StepChoice:
    """The step that stands for the capture, and why."""

    step: int
    why: str


def decompose(capture: Capture) -> pd.DataFrame:
    """Return ``STEP_COLUMNS`` and ``source`` for every rank and step; ``source`` is ``step table`` or ``kernels``."""
    found = []
    tabled: set[int] = set()
    if capture.steps is not None:
        found.append(capture.steps.assign(source="step table"))
        tabled = set(capture.steps["rank"].tolist())
    left = [rank for rank in capture.ranks if rank not in tabled]
    if left:
        kernels = decompose_kernels(capture)
        found.append(kernels[kernels["rank"].isin(left)].assign(source="kernels"))
    return pd.concat(found, ignore_index=True)[[*STEP_COLUMNS, "source"]]


def decompose_kernels(capture: Capture) -> pd.DataFrame:
    """Return ``STEP_COLUMNS`` computed from the kernel table alone.

    The stage of an annotated step is its annotation, extended to its last kernel and begun no earlier than the last
    kernel of the step before it; without an annotation it runs from the step's first kernel to its last. ``bubble_ns``
    is the exposed time of receives: it is part of ``exposed_ns``. ``preparing_ns`` is the annotated time before the
    first kernel.
    """
    rows = []
    for rank, kernels in capture.per_rank():
        annotated = capture.windows[capture.windows["rank"] == rank]
        windows = {step: (start, end) for _, step, start, end in annotated.itertuples(index=False)}
        busy_until = np.iinfo(np.int64).min
        steps = [step for step in capture.step_ids if (kernels["step"].to_numpy() == step).any()]
        for step in steps:
            mine = capture.of_rank(rank, step)
            first, last = _span(mine)
            start, end = first, last
            if step in windows:
                start, end = max(windows[step][0], busy_until), max(windows[step][1], last)
            busy_until = max(busy_until, last)
            rows.append({"rank": rank, "step": step, **_parts(mine, start, end), "preparing_ns": max(0, first - start)})
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS))


def whole_trace(capture: Capture) -> pd.DataFrame:
    """Return the same parts over everything captured, first kernel to last, per rank; ``step`` says nothing there."""
    rows = [
        {"rank": rank, "step": -1, **_parts(kernels, *_span(kernels)), "preparing_ns": 0}
        for rank, kernels in capture.per_rank()
    ]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS))


def _span(kernels: pd.DataFrame) -> tuple[int, int]:
    start, dur = kernels["start_ns"].to_numpy(), kernels["dur_ns"].to_numpy()
    return int(start.min()), int((start + dur).max())


def compute_mask(kernels: pd.DataFrame) -> np.ndarray:
    """Return which kernels count as Computing: those on compute cores that are no collectives."""
    return is_core(kernels, COMPUTE) & ~is_collective(kernels)


def _parts(kernels: pd.DataFrame, start: int, end: int) -> dict[str, int]:
    collective = is_collective(kernels)
    compute = union_of(kernels, compute_mask(kernels)).clip(start, end)
    communication = union_of(kernels, collective).clip(start, end)
    exposed = communication - compute
    receives = collective & kernels["family"].isin(["receive"]).to_numpy()
    bubble = (union_of(kernels, receives) & exposed).total if receives.any() else 0
    return {
        "stage_ns": end - start,
        "computing_ns": compute.total,
        "exposed_ns": exposed.total,
        "overlapped_ns": communication.total - exposed.total,
        "communication_ns": communication.total,
        "free_ns": end - start - compute.total - exposed.total,
        "bubble_ns": bubble,
    }


def choose_step(table: pd.DataFrame) -> StepChoice:
    """Return the median step by Stage (that of the slowest rank); of an even number, the shorter of the middle two.

    Only steps that every rank has are candidates. Raises :class:`InputError` when there is none.
    """
    ranks = table["rank"].nunique()
    stages = table.groupby("step")["stage_ns"].agg(["max", "size"])
    complete = stages[stages["size"] == ranks]["max"].sort_values(kind="stable")
    if complete.empty:
        raise InputError("no step was captured on every rank", where="capture", todo="capture again")
    step = int(complete.index[(len(complete) - 1) // 2])
    if len(complete) == 1:
        return StepChoice(step, f"step {step}, the only one captured on every rank")
    return StepChoice(step, f"step {step}, the median of {len(complete)} by Stage")


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
            **{f"{key.removesuffix('_ns')}_ms": ms(row[key]) for key in STEP_COLUMNS if key.endswith("_ns")},
        )
        for row in table.to_dict("records")
    )


def check_identities(table: pd.DataFrame) -> list[Finding]:
    """Check Communication = exposed + Overlapped and Stage = Computing + exposed + Free (+ Bubble) on every row.

    Tolerance: 0.1 % of the left side, at least 1 µs.
    """
    found = []
    for row in table.to_dict("records"):
        for name, left, right in (
            ("Communication = exposed + Overlapped", "communication_ns", ("exposed_ns", "overlapped_ns")),
            ("Stage = Computing + exposed + Free", "stage_ns", PARTS),
        ):
            residual = row[left] - sum(row[part] for part in right)
            allowed = max(_SLACK_NS, IDENTITY_TOLERANCE * row[left])
            with_bubble = residual - row["bubble_ns"] if left == "stage_ns" else residual
            if min(abs(residual), abs(with_bubble)) > allowed:
                text = f"{name} does not hold: {residual / 1e6:+.3f} ms are unaccounted for"
                found.append(Finding("identity", f"step {row['step']}: {text}", (row["rank"],)))
    return found


def check_agreement(capture: Capture) -> tuple[float | None, list[Finding]]:
    """Compare the step table with the kernels; return the largest difference as a share of Stage, and findings > 0.5 %.

    ``None`` when the capture has only one of the two.
    """
    if capture.steps is None or not len(capture.kernels):
        return None, []
    parts = ["stage_ns", "computing_ns", "exposed_ns", "overlapped_ns", "communication_ns", "free_ns"]
    both = capture.steps.merge(decompose_kernels(capture), on=["rank", "step"], suffixes=("", "_kernels"))
    if both.empty:
        return None, [Finding("agreement", "the step table names no step that the kernel table has")]
    worst, found = 0.0, []
    for part in parts:
        difference = (both[part] - both[f"{part}_kernels"]).abs() / both["stage_ns"].clip(lower=1)
        worst = max(worst, float(difference.max()))
        ranks = tuple(sorted(set(both.loc[difference > AGREEMENT_TOLERANCE, "rank"].tolist())))
        if ranks:
            text = f"{part.removesuffix('_ns')} of the step table and of the kernels differ by more than 0.5 % of Stage"
            found.append(Finding("agreement", text, ranks))
    return worst, found


def check_stragglers(table: pd.DataFrame) -> list[Finding]:
    """Find ranks whose own time (Stage − exposed) is more than 5 % above the median: the others wait for them."""
    own = (table["stage_ns"] - table["exposed_ns"]).to_numpy()
    median = float(np.median(own)) if len(own) else 0.0
    return [
        Finding(
            "straggler", f"rank {rank} works {100 * (mine / median - 1):.1f} % longer than the median rank", (rank,)
        )
        for rank, mine in zip(table["rank"].tolist(), own.tolist(), strict=True)
        if median > 0 and mine > median * (1 + _STRAGGLER_PCT / 100) and len(own) > 1
    ]


def spread_pct(values: pd.Series) -> float:
    """Return (max − min) ÷ median across ranks, in percent."""
    median = float(values.median())
    return 100 * float(values.max() - values.min()) / median if median else 0.0


def step_findings(capture: Capture, table: pd.DataFrame, step: int) -> list[Finding]:
    """Return every finding of the step tables: identities, agreement with the kernels, stragglers."""
    chosen = table[table["step"] == step]
    return by_text([*check_identities(table), *check_agreement(capture)[1], *check_stragglers(chosen)])
