"""The evidence of a contract's forms: what was measured, gathered from stored results into values the gates read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from anchormatrix.attribution.hiding import bound
from anchormatrix.planning.candidates import mask_chunks
from anchormatrix.planning.model_figures import ModelFigures
from anchormatrix.records.cells import ALL, Cell
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.records.settings import ANCHOR, FEW


@dataclass(frozen=True)
class StepParts:
    """One step of a form, all in ms, from its capture. ``communication_ms`` = exposed + overlapped.

    A capture inflates computing and idle time while the seconds of exposed communication stay, so ``computing_ms`` and
    ``free_ms`` are deflated, by one factor for all forms of a contract. Both are None where no step without the
    profiler is known (a capture on the ramp): an inflated time is never compared with a deflated one.
    ``unlike_timed``: the captured step, the first of its request, was slow by itself and speaks for no timed one.
    ``exposed_share`` is the attribution's: captured exposed seconds ÷ step time without the profiler.

    ``masked_ms`` is the communication of the family that masking hides, ``mask_bound`` the share of it that could be
    hidden at best with ``mask_chunks`` chunks (of an unmasked form: with masking turned on), ``mask_measured`` the
    share that is; None where the form has no such family or no capture tells.
    """

    computing_ms: float | None
    exposed_ms: float
    overlapped_ms: float
    free_ms: float | None
    exposed_share: float | None = None
    unlike_timed: bool = False
    mask_bound: float | None = None
    mask_measured: float | None = None
    mask_chunks: int = 1
    masked_ms: float = 0.0
    mask_warnings: tuple[str, ...] = ()

    @property
    def communication_ms(self) -> float:
        """All communication of the step."""
        return self.exposed_ms + self.overlapped_ms

    @property
    def exposed_at_bound_ms(self) -> float | None:
        """Exposed communication if masking of its own family reached the bound; never above the measured."""
        if self.mask_bound is None:
            return None
        return max(0.0, min(self.exposed_ms, self.communication_ms - self.masked_ms * self.mask_bound))


@dataclass(frozen=True)
class FamilyTime:
    """One collective family of one communicator in the captured step of the slowest rank."""

    family: str
    communicator: str
    calls: int
    mean_ms: float
    union_over_sum: float | None = None


@dataclass(frozen=True)
class FormEvidence:
    """Everything known of one form on one contract. Step times are medians in seconds, unprofiled.

    ``status`` is that of its sessions, ``None`` when there is none; ``reason`` is the session's, else why its anchor
    cell may not be ranked. ``windows`` maps a window to the anchor step measured in it.
    """

    form: Form
    status: SessionStatus | None = None
    reason: str = ""
    step_few_s: float | None = None
    step_anchor_s: float | None = None
    dispersion_pct: float | None = None
    usable: bool = False
    windows: Mapping[str, float] = field(default_factory=dict)
    parts: StepParts | None = None
    families: tuple[FamilyTime, ...] = ()
    source: str = ""

    @property
    def exposed_share(self) -> float | None:
        """Share of exposed communication in the step, as the attribution says it."""
        return self.parts.exposed_share if self.parts else None

    def noise_floor_pct(self, other: FormEvidence, least: float) -> float:
        """Noise floor of a pair: the larger of ``least`` and the larger dispersion of its anchor cells."""
        return max(least, self.dispersion_pct or 0.0, other.dispersion_pct or 0.0)


@dataclass(frozen=True)
class ExtraComputing:
    """How much longer one form computes per step than another, and the noise floor below which that says nothing."""

    extra_ms: float
    floor_ms: float

    @property
    def differs(self) -> bool:
        """Whether the form computes longer, beyond the noise."""
        return self.extra_ms > self.floor_ms


def extra_computing(form: FormEvidence, other: FormEvidence, least_pct: float) -> ExtraComputing | None:
    """Compare the computing of two forms of one contract; None when either is not known without the profiler.

    One step of each is captured, and each carries its own noise: the floor is the pair's noise floor in percent of
    both computing times together.
    """
    own, others = (item.parts.computing_ms if item.parts else None for item in (form, other))
    if own is None or others is None:
        return None
    return ExtraComputing(own - others, form.noise_floor_pct(other, least_pct) / 100 * (own + others))


def gather(
    forms: Iterable[Form],
    sessions: Sequence[Session],
    cells: Sequence[Cell],
    attributions: Mapping[str, Mapping[str, Any]] | None = None,
    model: ModelFigures | None = None,
) -> tuple[FormEvidence, ...]:
    """Put sessions, cells and attributions (by form name) together per form.

    Cells are read for window ``all`` (the medians) and for the single windows of the anchor tier. ``model`` tells how
    many chunks the masking of a form could have.
    """
    names = list(dict.fromkeys([*(form.name for form in forms), *(session.form for session in sessions)]))
    found = attributions or {}
    inflation = capture_inflation(found.values())
    return tuple(
        _one(
            name,
            sessions,
            cells,
            step_parts(found.get(name), parse_form(name), model, inflation=inflation),
            family_times(found.get(name)),
        )
        for name in names
    )


_ALIKE = 1.2  # forms that the profiler stretches more unequally than this were not captured in a step like the timed
_MOST_CHUNKS = 8  # more chunks cost more calls than they hide
_BEST_FIRST = (
    SessionStatus.MEASURED,
    SessionStatus.CONTAMINATED,
    SessionStatus.VOID,
    SessionStatus.UNMEASURABLE,
    SessionStatus.DID_NOT_RUN,
    SessionStatus.SKIPPED,
)


def _one(
    name: str,
    sessions: Sequence[Session],
    cells: Sequence[Cell],
    parts: StepParts | None,
    families: tuple[FamilyTime, ...],
) -> FormEvidence:
    own = [session for session in sessions if session.form == name]
    best = min(own, key=lambda session: _BEST_FIRST.index(session.status), default=None)
    rows = [cell for cell in cells if cell.form == name]
    whole = {cell.tier: cell for cell in rows if cell.window == ALL}
    anchor, few = whole.get(ANCHOR), whole.get(FEW)
    return FormEvidence(
        form=parse_form(name),
        status=best.status if best else None,
        reason=(best.reason if best else "") or (anchor.reason if anchor else ""),
        step_few_s=few.step_s if few else None,
        step_anchor_s=anchor.step_s if anchor else None,
        dispersion_pct=anchor.dispersion_pct if anchor else None,
        usable=anchor is not None and anchor.usable,
        windows={cell.window: cell.step_s for cell in rows if cell.tier == ANCHOR and cell.window != ALL},
        parts=parts,
        families=families,
        source=", ".join(f"w{session.window}" for session in own if session.status is not SessionStatus.SKIPPED),
    )


def _number(row: Mapping[str, Any] | None, key: str) -> float | None:
    value = (row or {}).get(key)
    return None if value in (None, "") else float(value)


def capture_inflation(attributions: Iterable[Mapping[str, Any]]) -> float | None:
    """By how much the profiler stretches computing and idle time, one factor for all forms of a contract.

    The median over the forms of captured computing and idle time ÷ (step without the profiler − exposed). Each form's
    own factor would carry the noise of its few timed steps into the difference between forms. The profiler costs forms
    of one contract about the same, so a step that stands out was slow by itself and takes no part. None when no form
    has a step without the profiler.
    """
    found = [own for attribution in attributions if (own := _stretch(attribution)) is not None]
    return median(own for own in found if own <= _ALIKE * min(found)) if found else None


def _stretch(attribution: Mapping[str, Any] | None) -> float | None:
    """The form's own factor."""
    rank, unprofiled_ms = _slowest(attribution), _unprofiled_ms(attribution)
    if rank is None or unprofiled_ms is None:
        return None
    captured, rest = float(rank["computing_ms"]) + float(rank["free_ms"]), unprofiled_ms - float(rank["exposed_ms"])
    return captured / rest if captured > 0 and rest > 0 else None


def _slowest(attribution: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    ranks = ((attribution or {}).get("steps") or {}).get("ranks", [])
    return max(ranks, key=lambda rank: float(rank["stage_ms"]), default=None)


def _unprofiled_ms(attribution: Mapping[str, Any] | None) -> float | None:
    step_s = _number((attribution or {}).get("steps"), "unprofiled_step_s")
    return None if step_s is None else step_s * 1e3


def step_parts(
    attribution: Mapping[str, Any] | None,
    form: Form | None = None,
    model: ModelFigures | None = None,
    *,
    inflation: float | None = None,
) -> StepParts | None:
    """The step decomposition of the slowest rank of an ``attribution.json``, or None when there is none.

    ``inflation`` is :func:`capture_inflation` of the contract.
    """
    slowest = _slowest(attribution)
    if slowest is None:
        return None
    exposed, computing, free = (float(slowest[f"{name}_ms"]) for name in ("exposed", "computing", "free"))
    own = _stretch(attribution)
    unlike = inflation is not None and own is not None and own > _ALIKE * inflation
    deflation = 1 / inflation if inflation and own is not None and not unlike else None
    masking = (attribution or {}).get("masking") or {}
    found: Mapping[str, Any] = next((row for row in masking.get("ranks", []) if row["rank"] == slowest["rank"]), {})
    mask_bound, chunks = _bound(found, form, model)
    return StepParts(
        computing_ms=None if deflation is None else computing * deflation,
        exposed_ms=exposed,
        overlapped_ms=float(slowest["overlapped_ms"]),
        free_ms=None if deflation is None else free * deflation,
        exposed_share=_number((attribution or {}).get("steps"), "exposed_share"),
        unlike_timed=unlike,
        mask_bound=mask_bound,
        mask_measured=_number(found, "measured"),
        mask_chunks=chunks,
        masked_ms=_family_ms(attribution or {}, found),
        mask_warnings=tuple(map(str, found.get("warnings", ()))) if int(found.get("chunks", 1)) > 1 else (),
    )


def _family_ms(attribution: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """Time of the family that a masking row speaks of, on its rank."""
    ranks = (attribution.get("collectives") or {}).get("ranks", [])
    families: list[Mapping[str, Any]] = next(
        (rank["families"] for rank in ranks if rank["rank"] == found.get("rank")), []
    )
    wanted = found.get("family"), found.get("communicator")
    return sum(float(row["sum_ms"]) for row in families if (row["family"], row["communicator"]) == wanted)


def _bound(found: Mapping[str, Any], form: Form | None, model: ModelFigures | None) -> tuple[float | None, int]:
    """The masking bound and its chunks: as it is, or, of a form that could be masked and is not, as it could be.

    Attention is as long as in the step without the profiler, where that is known: the captured one hides too much.
    """
    chunks = int(found.get("chunks", 1) or 1)
    if chunks > 1:
        timed = _number(found, "bound_timed")
        return (_number(found, "bound") if timed is None else timed), chunks
    total, hiding = _number(found, "C_ms"), _number(found, "F_timed_ms") or _number(found, "F_ms")
    if form is None or model is None or form.usp * form.ag == 1 or form.ring > 1 or not total or hiding is None:
        return None, 1
    chunks = mask_chunks(form, model, _MOST_CHUNKS)
    return bound(total, hiding, chunks), chunks


def family_times(attribution: Mapping[str, Any] | None) -> tuple[FamilyTime, ...]:
    """The collective families of the first listed rank of an ``attribution.json``."""
    ranks = list((attribution or {}).get("collectives", {}).get("ranks", []))
    if not ranks:
        return ()
    return tuple(
        FamilyTime(
            str(row["family"]),
            str(row["communicator"]),
            int(row["calls"]),
            float(row["mean_ms"]),
            _number(row, "union_over_sum"),
        )
        for row in ranks[0].get("families", [])
    )
