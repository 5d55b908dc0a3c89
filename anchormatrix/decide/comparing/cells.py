"""Two runs against each other, cell by cell: which is faster, by how much, and how sure that is.

A cell's starts are those of two runs on different days, so no window is shared and all starts of each side count:

    Δ = mean log(step of B) − mean log(step of A),    variance = σ²_A ÷ starts of A + σ²_B ÷ starts of B

σ² is each run's own noise between starts (:mod:`anchormatrix.planning.ranking`); a quiet host says nothing of the
noise of another. The sum has the degrees of freedom of the noise that is known worse, which never errs more often than
asked (the bound of the Behrens-Fisher problem by Hsu and Scheffé); with Welch's, two starts on a far noisier side erred
in 2.7 % of 20,000 pairs of equal runs where 1.5 % were asked, with these in 0.2 to 1.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchormatrix.decide.comparing.facts import differences, unknown
from anchormatrix.decide.comparing.stored_run import StoredContractRun, read_run
from anchormatrix.planning.ranking import MeanStep, Rule, mean_step, t_quantile
from anchormatrix.records.conclusions.comparison import (
    Bearing,
    CellComparison,
    CellOutcome,
    CellSide,
    FactDifference,
    LackingCell,
    RunComparison,
    SizeComparison,
)
from anchormatrix.records.settings.values import Tier

_LEAST_STARTS = 2


def compare_runs(a: Path, b: Path, *, zone_pct: float | None = None) -> RunComparison:
    """Compare the runs of two results folders.

    ``zone_pct`` is the difference below which there is none (default: the larger noise floor of the two runs). Raises
    :class:`InputError` for a folder that holds no run, and for a file in it that cannot be used.
    """
    runs = read_run(a), read_run(b)
    known = max(one.zone_pct for run in runs for one in run.values())
    zone = known if zone_pct is None else zone_pct
    rule = Rule(zone_pct=zone)
    shared = sorted(runs[0].keys() & runs[1].keys())
    lacking = [
        f"{size} cards: only {name} measured them"
        for name, own, other in (("A", runs[0], runs[1]), ("B", runs[1], runs[0]))
        for size in sorted(own.keys() - other.keys())
    ]
    sizes = tuple(_size(runs[0][size], runs[1][size], rule) for size in shared)
    return RunComparison(str(a), str(b), zone, rule.level, sizes, tuple(lacking))


def _size(a: StoredContractRun, b: StoredContractRun, rule: Rule) -> SizeComparison:
    found, open_facts = differences(a, b), unknown(a, b)
    cells: list[CellComparison] = []
    lacking: list[LackingCell] = []
    for tier in Tier:
        own = [{form for form, at in run.cells if at == tier} for run in (a, b)]
        pair = _Pair(a, b, tier, rule, len(own[0] & own[1]), forbidden(found, tier), bool(open_facts))
        cells += [pair.compare(form) for form in sorted(own[0] & own[1])]
        lacking += [LackingCell(form, tier, "b", b.why_missing(form)) for form in sorted(own[0] - own[1])]
        lacking += [LackingCell(form, tier, "a", a.why_missing(form)) for form in sorted(own[1] - own[0])]
    return SizeComparison(
        a.contract.size, a.contract.id, b.contract.id, found, open_facts, tuple(cells), tuple(lacking)
    )


def forbidden(found: Iterable[FactDifference], tier: str) -> str:
    """Why no cell of a tier may be compared; nothing when it may."""
    bars: dict[str, list[str]] = {}
    for one in found:
        if one.bearing is Bearing.FORBIDS and one.tier in ("", tier):
            bars.setdefault(one.why, []).append(one.name)
    return "; ".join(f"{why} ({', '.join(names)})" for why, names in bars.items())


@dataclass(frozen=True)
class _Pair:
    """One tier of two contracts. ``comparisons`` share the chance of error."""

    a: StoredContractRun
    b: StoredContractRun
    tier: Tier
    rule: Rule
    comparisons: int
    bar: str
    weak: bool  # something that must agree is not known to

    def compare(self, form: str) -> CellComparison:
        """One cell of both runs."""
        a, b = self._side(self.a, form), self._side(self.b, form)
        gap = low = high = None
        if not self.bar:
            gap, low, high = self._gap(form, (a, b))
        outcome, text = self._outcome(form, (a, b), gap, low, high)
        steps = self.a.contract.tiers.get(self.tier, 0)
        return CellComparison(form, self.tier, steps, a, b, gap, low, high, outcome, text)

    def _side(self, run: StoredContractRun, form: str) -> CellSide:
        cell = run.cells[form, self.tier]
        starts = len(run.starts(self.tier).get(form, ()))
        return CellSide(cell.step_s, cell.dispersion_pct, cell.repeats, starts, cell.reason)

    def _gap(self, form: str, sides: Sequence[CellSide]) -> tuple[float | None, float | None, float | None]:
        """``b`` against ``a`` in percent with its bounds, which are None while a single start stands on a side."""
        if not all(side.starts for side in sides):
            return None, None, None
        if self._same_starts(form):
            return 0.0, 0.0, 0.0
        a, b = (mean_step(run.starts(self.tier), form, self.rule) for run in (self.a, self.b))
        gap = b.value - a.value
        if min(a.starts, b.starts) < _LEAST_STARTS:
            return _pct(gap), None, None
        error = self._error(a, b)
        return _pct(gap), _pct(gap - error), _pct(gap + error)

    def _error(self, a: MeanStep, b: MeanStep) -> float:
        total = a.variance + b.variance
        if not total:
            return 0.0
        return t_quantile(min(a.dof, b.dof), self.rule.level / max(1, self.comparisons)) * math.sqrt(total)

    def _same_starts(self, form: str) -> bool:
        """Whether both sides hold the very same server starts: one run, or a copy of it."""
        own = [
            [
                (timed.session.contract, timed.session.window, timed.session.started_at, timed.values_s.get(self.tier))
                for timed in run.sessions
                if timed.session.form == form
            ]
            for run in (self.a, self.b)
        ]
        return own[0] == own[1]

    def _outcome(
        self, form: str, sides: Sequence[CellSide], gap: float | None, low: float | None, high: float | None
    ) -> tuple[CellOutcome, str]:
        zone = self.rule.zone_pct
        if self.bar:
            return CellOutcome.NOT_COMPARABLE, f"not comparable: {self.bar}"
        if gap is None or low is None or high is None:
            return CellOutcome.NOT_DECIDABLE, f"not decidable, because {self._too_few(sides)}"
        if -zone <= low and high <= zone:
            same = ": both are the same server starts" if self._same_starts(form) else ""
            return CellOutcome.NO_DIFFERENCE, self._weakened(f"no difference within {zone:g} %") + same
        if low > 0:
            return CellOutcome.A_FASTER, self._weakened("A faster")
        if high < 0:
            return CellOutcome.B_FASTER, self._weakened("B faster")
        cure = "more starts of both (matrix.windows) narrow it"
        return CellOutcome.NOT_DECIDABLE, f"not decidable, because the interval holds 0 and exceeds {zone:g} %: {cure}"

    def _weakened(self, text: str) -> str:
        return f"{text}, as measured" if self.weak else text

    def _too_few(self, sides: Sequence[CellSide]) -> str:
        few = [(name, side) for name, side in zip("AB", sides, strict=True) if side.starts < _LEAST_STARTS]
        said = [f"{name} has {_starts(side.starts)} that may be compared" for name, side in few]
        doubts = [side.doubt for _, side in few if side.doubt and not side.starts]
        return " and ".join(said) + (f" ({'; '.join(doubts)})" if doubts else "")


def _starts(count: int) -> str:
    return {0: "no start", 1: "a single start"}.get(count, f"{count} starts")


def _pct(logarithm: float) -> float:
    return 100 * math.expm1(logarithm)
