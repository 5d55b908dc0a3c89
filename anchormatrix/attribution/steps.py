"""Step decomposition: compute, exposed and overlapped communication, idle time, of every rank and step.

From the profiler's own step table where there is one, else from the kernels by the same definitions:
Communication = union of all collectives, Overlapped = its intersection with the union of compute, exposed = the rest,
Free = the part of the stage in which neither runs. Compute is what the AI cores (or the GPU's kernels) do: copies,
AI-CPU kernels and other engines run in Free. In a trace without a device, host overhead is what wrappers take for
themselves while neither compute nor communication runs; it is a part of its own, not of Free.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from anchormatrix.attribution.device.spans import step_spans
from anchormatrix.attribution.device.times import times_of, whole
from anchormatrix.attribution.differences import IDENTITY_TOLERANCE
from anchormatrix.attribution.findings import by_text
from anchormatrix.attribution.intervals import ms, union
from anchormatrix.attribution.slowest import check_imbalance, check_stragglers, slowest
from anchormatrix.captures.table import OUTSIDE, STEP_COLUMNS, Capture
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import ChosenStep, OutsideRow, StepRow
from anchormatrix.records.finding import Finding

PART_COLUMNS = (*STEP_COLUMNS, "copy_ns", "host_ns")
PARTS = ("computing_ns", "exposed_ns", "host_ns", "free_ns")
AGREEMENT_TOLERANCE = 0.005
_SLACK_NS = 1000


@dataclass(frozen=True)
class StepChoice:
    """The step that stands for the capture, and why."""

    step: int
    why: str


def decompose(capture: Capture) -> pd.DataFrame:
    """Return ``PART_COLUMNS`` and ``source`` for every rank and step; ``source`` is ``step table`` or ``kernels``.

    A row of the step table that breaks an identity is not used: the kernels say that step, where there are any. Raises
    :class:`InputError` when no step is left.
    """
    if capture.steps is None:
        table = decompose_kernels(capture).assign(source="kernels")
    else:
        table = _with_step_table(capture, capture.steps)
    if table.empty:
        raise InputError(
            f"all {len(capture.kernels)} kernels are outside the annotated steps",
            where="capture",
            expected="steps that hold the launches of kernels",
            todo="start the profiler before the step it is to capture, or capture without annotations",
        )
    return table[[*PART_COLUMNS, "source"]]


def _with_step_table(capture: Capture, tabled: pd.DataFrame) -> pd.DataFrame:
    broken = np.asarray([any(_breaches(row)) for row in tabled.to_dict("records")], dtype=bool)
    table = tabled[~broken].assign(source="step table", copy_ns=0, host_ns=0)
    ranks, again = set(tabled["rank"]), {(row.rank, row.step) for row in tabled[broken].itertuples()}
    if again or not ranks.issuperset(capture.ranks):
        kernels = decompose_kernels(capture).assign(source="kernels")
        wanted = [row.rank not in ranks or (row.rank, row.step) in again for row in kernels.itertuples()]
        table = pd.concat([table, kernels[np.asarray(wanted, dtype=bool)]], ignore_index=True)
    if table.empty and again:
        text = check_identities(tabled)[0].text
        raise InputError(f"no row of the step table adds up, and no kernel says its step ({text})", where="capture")
    return table


def decompose_kernels(capture: Capture) -> pd.DataFrame:
    """Return ``PART_COLUMNS`` computed from the kernel table alone.

    Where a step lies on the device is what :mod:`anchormatrix.attribution.device.spans` says. Annotated steps divide
    its time: a kernel that outlasts its step counts in each for as long as it runs there. Without annotations a step is
    its own kernels. ``bubble_ns`` is the exposed time of receives: it is part of ``exposed_ns``. ``preparing_ns`` is
    the step's time before its first kernel.
    """
    found = []
    for rank, kernels in capture.per_rank():
        windows = capture.windows[capture.windows["rank"] == rank]
        spans = step_spans(kernels, windows)
        if len(windows):
            owned = kernels[(kernels["step"] != OUTSIDE).to_numpy()]
            rows = times_of(owned).within(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())
        else:
            each = [whole(capture.of_rank(rank, step)) for step in spans["step"].tolist()]
            rows = pd.concat(each, ignore_index=True) if each else whole(kernels).iloc[:0]
        preparing = np.clip(spans["first_ns"] - spans["start_ns"], 0, spans["end_ns"] - spans["start_ns"])
        found.append(rows.assign(rank=rank, step=spans["step"], preparing_ns=preparing))
    if not found:
        return pd.DataFrame(columns=list(PART_COLUMNS))
    table = pd.concat(found, ignore_index=True)[list(PART_COLUMNS)]
    return table.sort_values(["rank", "step"], kind="stable", ignore_index=True)


def outside(capture: Capture) -> tuple[OutsideRow, ...]:
    """What the device did outside every step, of each rank that did: the time of kernels that belong to no step, and
    of others what lies beyond the steps' times."""
    found = []
    for rank, kernels in capture.per_rank():
        windows = capture.windows[capture.windows["rank"] == rank]
        owned = (kernels["step"] != OUTSIDE).to_numpy()
        spans = step_spans(kernels, windows)
        inside = union(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())
        left, cut = times_of(kernels[~owned]), times_of(kernels[owned])
        times = {
            f"{part}_ms": ms((getattr(left, part) | (getattr(cut, part) - inside)).total)
            for part in ("computing", "communication", "copy", "other")
        }
        if not owned.all() or any(times.values()):
            found.append(OutsideRow(rank=rank, kernels=int((~owned).sum()), **times))
    return tuple(found)


def whole_trace(capture: Capture) -> pd.DataFrame:
    """Return the same parts over everything captured, first kernel to last, per rank; ``step`` says nothing there."""
    rows = [whole(kernels).assign(rank=rank, step=OUTSIDE, preparing_ns=0) for rank, kernels in capture.per_rank()]
    return pd.concat(rows, ignore_index=True)[list(PART_COLUMNS)] if rows else pd.DataFrame(columns=list(PART_COLUMNS))


def choose_step(table: pd.DataFrame, cut: str = "") -> StepChoice:
    """Return the median step by Stage (that of the slowest rank); of an even number, the shorter of the middle two.

    Only steps that every rank has are candidates. ``cut`` says by what the steps were cut out of a request, if they
    were. Raises :class:`InputError` when there is none.
    """
    how = f", {cut}" if cut else ""
    ranks = table["rank"].nunique()
    stages = table.groupby("step")["stage_ns"].agg(["max", "size"])
    complete = stages[stages["size"] == ranks]["max"].sort_values(kind="stable")
    if complete.empty:
        raise InputError("no step was captured on every rank", where="capture", todo="capture again")
    step = int(complete.index[(len(complete) - 1) // 2])
    if len(complete) == 1:
        return StepChoice(step, f"step {step}, the only one captured on every rank{how}")
    return StepChoice(step, f"step {step}, the median of {len(complete)} by Stage{how}")


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
            **{
                f"{key.removesuffix('_ns')}_ms": ms(row[key])
                for key in PART_COLUMNS
                if key in row and key.endswith("_ns")
            },
        )
        for row in table.to_dict("records")
    )


def check_identities(table: pd.DataFrame) -> list[Finding]:
    """Check Communication = exposed + Overlapped and Stage = Computing + exposed + host + Free (+ Bubble) on every row,
    and that no part is negative.

    Tolerance: 0.1 % of the left side, at least 1 µs.
    """
    return [
        Finding("identity", f"step {row['step']}: {text}", (row["rank"],))
        for row in table.to_dict("records")
        for text in _breaches(row)
    ]


def _breaches(row: Mapping[Hashable, Any]) -> Iterator[str]:
    for name, left, right in (
        ("Communication = exposed + Overlapped", "communication_ns", ("exposed_ns", "overlapped_ns")),
        ("Stage = Computing + exposed + Free", "stage_ns", PARTS),
    ):
        residual = row[left] - sum(row.get(part, 0) for part in right)  # a step table has no host time
        allowed = max(_SLACK_NS, IDENTITY_TOLERANCE * row[left])
        with_bubble = residual - row["bubble_ns"] if left == "stage_ns" else residual
        if min(abs(residual), abs(with_bubble)) > allowed:
            yield f"{name} does not hold: {residual / 1e6:+.3f} ms are unaccounted for"
    for part in ("stage_ns", *PARTS, "overlapped_ns", "communication_ns"):
        if row.get(part, 0) < -_SLACK_NS:
            yield f"{part.removesuffix('_ns')} is negative: {row[part] / 1e6:.3f} ms"


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


def spread_pct(values: pd.Series) -> float:
    """Return (max − min) ÷ median across ranks, in percent."""
    median = float(values.median())
    return 100 * float(values.max() - values.min()) / median if median else 0.0


def check_overlap(capture: Capture, table: pd.DataFrame) -> list[Finding]:
    """Find steps that overlap. Annotated ones share out their time, and what the earlier one does after the later one
    has begun is not seen as its own. Others are their own kernels, so this time is in both, and what hides a collective
    of one step in the other is not seen."""
    found = []
    by_kernels = set(table.loc[table["source"] == "kernels", "rank"].tolist())
    for rank, kernels in capture.per_rank():
        windows = capture.windows[capture.windows["rank"] == rank]
        if len(windows):
            spans, which, so = windows, "annotated steps", "each is counted up to where the next begins"
        else:
            spans = step_spans(kernels, windows) if rank in by_kernels else windows
            which, so = "steps", "that time is counted in both, each with its own kernels"
        ordered = spans.sort_values("start_ns", kind="stable")
        over = ordered["end_ns"].cummax().shift(fill_value=0).iloc[1:] - ordered["start_ns"].iloc[1:]
        if len(over) and over.max() > _SLACK_NS:
            text = f"{which} overlap by up to {over.max() / 1e6:.3f} ms: {so}"
            found.append(Finding("overlapping_steps", text, (rank,)))
    return found


def step_findings(capture: Capture, table: pd.DataFrame, step: int) -> list[Finding]:
    """Return every finding of the steps: overlap, identities, agreement with the kernels, stragglers, imbalance."""
    chosen = table[table["step"] == step]
    told = [] if capture.steps is None else check_identities(capture.steps)
    unused = [Finding(one.kind, f"{one.text}; this row of the step table is not used", one.ranks) for one in told]
    uneven = [*check_stragglers(chosen), *check_imbalance(chosen)]
    told_by = [*check_overlap(capture, table), *unused, *check_identities(table), *check_agreement(capture)[1]]
    return by_text([*told_by, *uneven])
