"""Forms that were planned and take no part in the ranking: what is known of each, and whether it could be the fastest.

A form leaves a comparison for many reasons: it failed, it was noisy, it was stopped early. None of them says that it is
slow. Only its own repeats can: a form is ruled out when even the fastest of them was slower than the form that leads,
beyond the noise floor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from anchormatrix.records.conclusions.cells import ALL, Cell
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.records.settings.values import ANCHOR

_UNTRIED = "it was never started"
_LITTLE = "too little was measured of it"
_WORDS = {
    SessionStatus.DID_NOT_RUN: "did not run through",
    SessionStatus.VOID: "ran without taking effect",
    SessionStatus.CONTAMINATED: "was disturbed by other processes",
    SessionStatus.UNMEASURABLE: "logged no times",
    SessionStatus.SKIPPED: "was not measured further",
}


@dataclass(frozen=True)
class LeftOut:
    """A planned form outside the ranking, held against the form that leads it.

    ``values_s`` are its anchor steps, over all windows, in seconds; ``lead_s`` is the leading form's step (``None``
    when nothing is ranked); within ``floor_pct`` of it no step is faster or slower.
    """

    form: str
    reason: str
    values_s: tuple[float, ...]
    leader: str | None
    lead_s: float | None
    floor_pct: float

    @property
    def least_s(self) -> float | None:
        """The smallest anchor step seen: the best lower bound there is."""
        return min(self.values_s, default=None)

    @property
    def faster_s(self) -> tuple[float, ...]:
        """Its repeats that beat the leading form's step beyond the noise floor."""
        lead = self.lead_s or 0.0
        return tuple(value for value in self.values_s if lead > value * (1 + self.floor_pct / 100))

    @property
    def ruled_out(self) -> bool:
        """Whether even its fastest repeat was slower than the leading form, beyond the noise floor."""
        least, lead = self.least_s, self.lead_s
        return least is not None and lead is not None and least > lead * (1 + self.floor_pct / 100)

    @property
    def text(self) -> str:
        """A clause of the sentence: what it is, why it is not ranked, and what its repeats say."""
        return f"{self.form} is not ranked ({self.reason}){self._against()}"

    def _against(self) -> str:
        if self.least_s is None:
            return "; without an anchor step it cannot be ruled out"
        if self.lead_s is None:
            return f"; its fastest repeat took {self.least_s:.4g} s per step"
        if self.faster_s:
            by = (self.lead_s / median(self.faster_s) - 1) * 100
            count = f"{len(self.faster_s)} of {len(self.values_s)} repeats"
            return f"; it was {by:.1f} % faster than {self.leader} in {count} and cannot be ruled out"
        if self.ruled_out:
            by = (self.least_s / self.lead_s - 1) * 100
            return f"; even its fastest repeat was {by:.1f} % slower than {self.leader}, which rules it out"
        return (
            f"; its fastest repeat lies within the noise floor of {self.floor_pct:.1f} % of {self.leader}, so it "
            "cannot be ruled out"
        )


def left_out(
    forms: Sequence[str],
    cells: Iterable[Cell],
    sessions: Iterable[Session],
    *,
    ranked: Collection[str],
    leader: str | None,
    floor_pct: float,
) -> tuple[LeftOut, ...]:
    """Every one of the planned ``forms`` that is not ``ranked``, in the order planned.

    ``cells`` and ``sessions`` are those of one contract; ``leader`` is the winner, or the fastest that is ranked.
    """
    anchor = {cell.form: cell for cell in cells if cell.tier == ANCHOR and cell.window == ALL}
    reasons = _reasons(sessions) | {form: cell.reason or _LITTLE for form, cell in anchor.items()}
    values_s = {form: cell.values_s for form, cell in anchor.items()}
    lead_s = anchor[leader].step_s if leader in anchor else None
    return tuple(
        LeftOut(form, reasons.get(form, _UNTRIED), values_s.get(form, ()), leader, lead_s, floor_pct)
        for form in forms
        if form not in ranked
    )


def _reasons(sessions: Iterable[Session]) -> dict[str, str]:
    """Why each form has no usable anchor step: what its last session that was not measured says."""
    return {
        session.form: f"it {_WORDS[session.status]}" + (f": {session.reason}" if session.reason else "")
        for session in sessions
        if session.status in _WORDS
    }
