"""The evidence of a contract's forms: what was measured, gathered from stored results into values the gates read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anchormatrix.decide.captured import StepParts, capture_inflation, family_times, step_parts
from anchormatrix.decide.cells import only_short
from anchormatrix.decide.effects.features import dead, effects, voided
from anchormatrix.records.attribution import Attribution, Family
from anchormatrix.records.conclusions.cells import ALL, Cell
from anchormatrix.records.conclusions.gates import FeatureEffect
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.records.settings.things import ModelSettings
from anchormatrix.records.settings.values import ANCHOR, FEW


@dataclass(frozen=True)
class FormEvidence:
    """Everything known of one form on one contract, and what of it may be read. Step times are medians in seconds,
    unprofiled.

    ``status`` is that of its sessions, ``None`` when there is none; ``reason`` is the session's, else why its anchor
    cell may not be ranked. ``windows`` maps a window to the anchor step measured in it. ``usable``: the anchor cell may
    be ranked among cells, ``few_doubt``: why the few-step cell may not. ``ranked``: the selection ranks the form at the
    anchor; None: nothing was selected, so its cell decides. ``cell_doubt``: why the repeats beside the capture, in the
    same start of the server, may not be read. Gates, projections and scaling read ``ranked_s`` and ``captured``, None
    where the evidence may not be read, and triggers what no ``…_doubt`` speaks against.
    ``effects`` are those of its launch features; a dead one makes its status void.
    """

    form: Form
    status: SessionStatus | None = None
    reason: str = ""
    step_few_s: float | None = None
    step_anchor_s: float | None = None
    dispersion_pct: float | None = None
    usable: bool = False
    few_doubt: str = ""
    ranked: bool | None = None
    cell_doubt: str = ""
    windows: Mapping[str, float] = field(default_factory=dict)
    parts: StepParts | None = None
    families: tuple[Family, ...] = ()
    source: str = ""
    effects: tuple[FeatureEffect, ...] = ()

    @property
    def ranked_s(self) -> float | None:
        """The anchor step, where it may be ranked."""
        return None if self.rank_doubt else self.step_anchor_s

    @property
    def rank_doubt(self) -> str:
        """Why the anchor step may not be ranked; nothing when it may."""
        if self.step_anchor_s is None:
            return "not measured"
        may = self.usable if self.ranked is None else self.ranked
        return "" if may else f"may not be ranked: {self.reason or 'its cells are too noisy'}"

    @property
    def drift_doubt(self) -> str:
        """Why the two tiers may not be compared; nothing when they may."""
        if self.step_anchor_s is None or not self.usable:
            return f"anchor: {self.reason or 'not measured'}"
        return f"few steps: {self.few_doubt}" if self.few_doubt else ""

    @property
    def captured(self) -> StepParts | None:
        """The captured step, where it speaks for the timed ones."""
        return None if self.capture_doubt else self.parts

    @property
    def capture_doubt(self) -> str:
        """Why the capture speaks for no timed step; nothing when it does. It was made in a few-step request."""
        if self.parts is None:
            void = self.status is SessionStatus.VOID
            return "what was captured is not this form (void)" if void else "no capture of this form"
        cell = f"the cell it was captured in may not be read: {self.cell_doubt}" if self.cell_doubt else ""
        return self.parts.doubt or cell

    @property
    def exposed_share(self) -> float | None:
        """Share of exposed communication in the step, where the capture may be read."""
        return self.captured.exposed_share if self.captured else None

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
    """Compare the computing of two forms of one contract; None when the capture of either may not be read.

    One step of each is captured, and each carries its own noise: the floor is the pair's noise floor in percent of
    both computing times together.
    """
    own, others = (item.captured.computing_ms if item.captured else None for item in (form, other))
    if own is None or others is None:
        return None
    return ExtraComputing(own - others, form.noise_floor_pct(other, least_pct) / 100 * (own + others))


def least_computing(evidence: Iterable[FormEvidence]) -> FormEvidence | None:
    """The form that computes least per step, of those whose capture may be read."""
    found = {item.captured.computing_ms: item for item in evidence if item.captured and item.captured.computing_ms}
    return found[min(found)] if found else None


def gather(
    forms: Iterable[Form],
    sessions: Sequence[Session],
    cells: Sequence[Cell],
    attributions: Mapping[str, Attribution] | None = None,
    model: ModelSettings | None = None,
    verdict: Verdict | None = None,
) -> tuple[FormEvidence, ...]:
    """Put sessions, cells and attributions (by form name) together per form.

    Cells are read for window ``all`` (the medians) and for the single windows of the anchor tier. ``model`` tells how
    many chunks the masking of a form could have, ``verdict`` which forms are ranked and how far a cell may disperse.
    """
    names = list(dict.fromkeys([*(form.name for form in forms), *(session.form for session in sessions)]))
    proved = effects(sessions, attributions or {}, model)
    counted = [voided(session, proved) for session in sessions]
    found = {name: one for name, one in (attributions or {}).items() if not dead(proved.get(name, ()))}
    inflation = capture_inflation(found.values())
    return tuple(
        replace(
            _one(
                name,
                counted,
                cells,
                step_parts(found.get(name), parse_form(name), model, inflation=inflation),
                family_times(found.get(name)),
            ),
            effects=proved.get(name, ()),
            ranked=None if verdict is None else name in verdict.selection.ranked,
            cell_doubt=_doubt_beside(found.get(name), name, cells, verdict),
        )
        for name in names
    )


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
    families: tuple[Family, ...],
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
        few_doubt=_doubt_of(few),
        windows={cell.window: cell.step_s for cell in rows if cell.tier == ANCHOR and cell.window != ALL},
        parts=parts,
        families=families,
        source=", ".join(f"w{session.window}" for session in own if session.status is not SessionStatus.SKIPPED),
    )


def _doubt_of(cell: Cell | None) -> str:
    """Why a cell may not be read; nothing when it may."""
    if cell is None:
        return "not measured"
    return "" if cell.usable else cell.reason


def _doubt_beside(attribution: Attribution | None, name: str, cells: Sequence[Cell], verdict: Verdict | None) -> str:
    """Why the few-step repeats of the server start that was captured may not be read; few repeats are no reason."""
    window = str(attribution.window) if attribution and attribution.window is not None else ALL
    found = {cell.window: cell for cell in cells if (cell.form, cell.tier) == (name, FEW)}
    cell = found.get(window, found.get(ALL))
    if cell is None:
        return "not measured"
    if verdict and cell.dispersion_pct > verdict.limits.dispersion_pct:
        return f"dispersion {cell.dispersion_pct:.1f} % is above {verdict.limits.dispersion_pct:g} %"
    return "" if cell.usable or only_short(cell.reason) else cell.reason
