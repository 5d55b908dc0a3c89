"""What was measured of the forms of one contract, gathered from the stored results into values the gates read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchormatrix.forms import Form, parse_form


@dataclass(frozen=True)
class StepParts:
    """The captured step of one form, all in ms. ``communication_ms`` = exposed + overlapped.

    ``mask_bound`` is the share of its masked family's communication that could be hidden at best and ``mask_measured``
    the share that is; None where the form has no such family or no capture tells.
    """

    computing_ms: float
    exposed_ms: float
    overlapped_ms: float
    free_ms: float
    mask_bound: float | None = None
    mask_measured: float | None = None
    mask_warnings: tuple[str, ...] = ()

    @property
    def communication_ms(self) -> float:
        """All communication of the step."""
        return self.exposed_ms + self.overlapped_ms

    @property
    def exposed_at_bound_ms(self) -> float | None:
        """Exposed communication if masking reached its bound: communication × (1 − bound), never above the measured."""
        if self.mask_bound is None:
            return None
        return min(self.exposed_ms, self.communication_ms * (1.0 - self.mask_bound))


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

    ``status`` is that of its sessions: ``measured``, ``did_not_run``, ``void``, ``contaminated``, ``unmeasurable``,
    ``skipped`` or ``missing``. ``windows`` maps a window to the anchor step measured in it.
    """

    form: Form
    status: str = "missing"
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
        """Captured exposed seconds ÷ unprofiled step time."""
        if self.parts is None or not self.step_anchor_s:
            return None
        return self.parts.exposed_ms / 1e3 / self.step_anchor_s


def gather(
    forms: Iterable[Form],
    sessions: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    attributions: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[FormEvidence, ...]:
    """Put sessions (``session.json``), cells (rows of ``cells.csv``) and attributions (by form name) together per form.

    Cells are read for window ``all`` (the medians) and for the single windows of the anchor tier.
    """
    names = list(dict.fromkeys([*(form.name for form in forms), *(str(s["form"]) for s in sessions)]))
    return tuple(_one(name, sessions, cells, (attributions or {}).get(name)) for name in names)


_BEST_FIRST = ("measured", "contaminated", "void", "unmeasurable", "did_not_run", "skipped")


def _one(
    name: str,
    sessions: Sequence[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
    attribution: Mapping[str, Any] | None,
) -> FormEvidence:
    own = [session for session in sessions if session["form"] == name]
    best = min(own, key=lambda s: _BEST_FIRST.index(s["status"]) if s["status"] in _BEST_FIRST else 99, default=None)
    rows = [row for row in cells if row["form"] == name]
    anchors = [row for row in rows if row["tier"] == "anchor"]
    whole = {row["tier"]: row for row in rows if str(row["window"]) == "all"}
    anchor, few = whole.get("anchor"), whole.get("few")
    return FormEvidence(
        form=parse_form(name),
        status=str(best["status"]) if best else "missing",
        reason=str((best or {}).get("reason") or ""),
        step_few_s=_number(few, "step_s"),
        step_anchor_s=_number(anchor, "step_s"),
        dispersion_pct=_number(anchor, "dispersion_pct"),
        usable=anchor is not None and _truth(anchor.get("usable")),
        windows={
            str(row["window"]): step
            for row in anchors
            if str(row["window"]) != "all" and (step := _number(row, "step_s")) is not None
        },
        parts=step_parts(attribution),
        families=family_times(attribution),
        source=", ".join(f"w{session['window']}" for session in own),
    )


def _number(row: Mapping[str, Any] | None, key: str) -> float | None:
    value = (row or {}).get(key)
    return None if value in (None, "") else float(value)


def _truth(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes")


def step_parts(attribution: Mapping[str, Any] | None) -> StepParts | None:
    """The step decomposition of the slowest rank of an ``attribution.json``, or None when there is none."""
    ranks = list((attribution or {}).get("steps", {}).get("ranks", []))
    if not ranks:
        return None
    slowest = max(ranks, key=lambda rank: float(rank["stage_ms"]))
    bounds = [b for b in (attribution or {}).get("masking", {}).get("ranks", []) if b.get("rank") == slowest["rank"]]
    bound = bounds[0] if bounds else {}
    return StepParts(
        computing_ms=float(slowest["computing_ms"]),
        exposed_ms=float(slowest["exposed_ms"]),
        overlapped_ms=float(slowest["overlapped_ms"]),
        free_ms=float(slowest["free_ms"]),
        mask_bound=_number(bound, "bound"),
        mask_measured=_number(bound, "measured"),
        mask_warnings=tuple(map(str, bound.get("warnings", ()))),
    )


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
