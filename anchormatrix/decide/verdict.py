"""The verdict of a contract: may the few-step ranking be used, and which form wins on the anchor tier.

r(form) = step(anchor) ÷ step(few). In this order:

- a cell's dispersion above the limit, or windows that contradict each other: ``unstable``, no ranking claim;
- a form, tier or window is missing: ``incomplete``;
- the tiers rank two forms in opposite order, both beyond the noise floor: ``order_flip``, the anchor's order holds;
- some |r − 1| above the limit: ``drift``;
- otherwise ``extrapolates``: next time the few-step tier alone may be used.

The noise floor of a pair is the larger of the configured floor and the difference that the noise between its server
starts could make; a difference within it is "no difference", and a flip within it is a tie.

Which form is fastest at the anchor is a question of its own (:mod:`anchormatrix.planning.ranking`): a form may win on
noisy cells when enough starts say so, and the few-step ranking is still not to be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from anchormatrix.decide.cells import mixed_tiers, only_short, order_of, sign_of
from anchormatrix.decide.fastest import Fastest, fastest, windows_agree
from anchormatrix.decide.left_out import left_out
from anchormatrix.errors import ConfigError
from anchormatrix.planning.adaptive import MatrixDesign, due, starts_of
from anchormatrix.planning.ranking import Starts, half_width_pct, select
from anchormatrix.records.conclusions.cells import ALL, Cell
from anchormatrix.records.conclusions.verdict import Drift, NotRun, Verdict, VerdictStatus
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.policies import VerdictSettings
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.store.sessions import TimedSession

_BLOCKING = {
    SessionStatus.DID_NOT_RUN,
    SessionStatus.VOID,
    SessionStatus.CONTAMINATED,
    SessionStatus.UNMEASURABLE,
}


def judge(
    contract: str,
    size: int,
    cells: Iterable[Cell],
    sessions: Iterable[TimedSession],
    *,
    forms: Sequence[str],
    design: MatrixDesign,
    limits: VerdictSettings,
) -> Verdict:
    """Judge the cells of one contract. ``forms`` are those planned, ``design`` how they were measured."""
    return _Judge(contract, size, tuple(cells), tuple(sessions), tuple(forms), design, limits).verdict()


class _Judge:
    """The facts of one contract while they are weighed."""

    def __init__(
        self,
        contract: str,
        size: int,
        cells: tuple[Cell, ...],
        sessions: tuple[TimedSession, ...],
        forms: tuple[str, ...],
        design: MatrixDesign,
        limits: VerdictSettings,
    ) -> None:
        self.contract, self.size = contract, size
        self.sessions = tuple(timed.session for timed in sessions)
        self.forms, self.rule, self.limits = forms, design.rule, limits
        self.cells = {(c.form, c.tier, c.window): c for c in cells if c.form in forms}
        self.due = due(forms, sessions, design)
        own, mixed = [timed for timed in sessions if timed.session.form in forms], mixed_tiers(sessions)
        alike = [tier for tier in (FEW, ANCHOR) if tier not in mixed]
        self.starts: dict[str, Starts] = {tier: starts_of(own, design.repeats, tier) for tier in alike}
        self.selection = select(self.starts.get(ANCHOR, {}), self.rule)
        self.numbers = sorted({int(window) for _, _, window in self.cells if window != ALL})

    def verdict(self) -> Verdict:
        anchor, few = self._tier(ANCHOR, ALL), self._tier(FEW, ALL)
        drifts, stands = self._drifts(), self._stands()
        missing, unstable = self._missing(), self._unstable()
        if stands is False:
            unstable.append("the windows name different winners")
        r = {form: anchor[form].step_s / few[form].step_s for form in self.forms if form in anchor and form in few}
        flips = self._flips(few, anchor)
        status, reason = self._status(unstable, missing, flips, r)
        best, open_forms = fastest(self.selection), self._left_out()
        decided = self.selection.decided
        notes = [reason, best.text, self._doubt(anchor, best), *open_forms]
        notes += [self._drift_note(drifts, stands, decided=decided), self._blur_note(few, anchor)]
        return Verdict(
            contract=self.contract,
            size=self.size,
            status=status,
            reason=". ".join(note for note in notes if note),
            r=r,
            order_few=order_of(few, self._floor),
            order_anchor=order_of(anchor, self._floor),
            ties=self._ties(anchor),
            winner=best.winner,
            tied_with=best.tied,
            margin_pct=best.margin_pct,
            window_drift=drifts,
            conclusion_stands=bool(stands and decided) if any(drift.exceeds for drift in drifts) else None,
            did_not_run=self._did_not_run(),
            left_out=open_forms,
            missing=tuple(missing),
            cure=_CURES[status],
            limits=self.limits,
            selection=self.selection,
            windows_agree=windows_agree(self.selection, self.starts.get(ANCHOR, {})),
        )

    def _tier(self, tier: str, window: str) -> dict[str, Cell]:
        return {form: self.cells[key] for form in self.forms if (key := (form, tier, window)) in self.cells}

    def _floor(self, a: Cell, b: Cell) -> float:
        windows = None if a.window == ALL else 1
        noise = half_width_pct(self.starts.get(a.tier, {}), a.form, b.form, self.rule, windows=windows)
        return max(self.limits.noise_floor_pct, *((a.dispersion_pct, b.dispersion_pct) if noise is None else (noise,)))

    def _unstable(self) -> list[str]:
        """Cells whose noise forbids a ranking; too few repeats is something missing, not noise."""
        return [
            f"{cell.form}/{cell.tier}: {cell.reason}"
            for (_, _, window), cell in sorted(self.cells.items())
            if window == ALL and cell.reason and not only_short(cell.reason)
        ]

    def _missing(self) -> list[str]:
        failed = self._did_not_run()
        gone = [f"form {item.form}: {item.reason}" for item in failed]
        blocked = {item.form for item in failed}
        for form in self.forms:
            if form in blocked:
                continue
            for tier in (FEW, ANCHOR):
                lacking = [str(w) for w in self.due[form] if (form, tier, str(w)) not in self.cells]
                if lacking:
                    gone.append(f"{form}/{tier} in window {', '.join(lacking)}{self._why_lacking(form, lacking)}")
                elif only_short(self.cells[form, tier, ALL].reason):
                    gone.append(f"{form}/{tier}: {self.cells[form, tier, ALL].reason}")
        if len({_split(form) for form in self.forms}) < 2 and self.size > 1:
            gone.append(f"a pair of forms with {self.size} cards and different splits")
        return gone

    def _why_lacking(self, form: str, windows: Sequence[str]) -> str:
        reasons = [s.reason for s in self.sessions if s.form == form and str(s.window) in windows and s.reason]
        return f" ({reasons[0]})" if reasons else ""

    def _did_not_run(self) -> tuple[NotRun, ...]:
        """Forms without a single measured session although at least one was tried."""
        found = []
        for form in self.forms:
            own = [session for session in self.sessions if session.form == form]
            tried = [session for session in own if session.status is not SessionStatus.SKIPPED]
            if tried and all(session.status in _BLOCKING for session in tried):
                first = tried[0]
                word = "did not run through" if first.status is SessionStatus.DID_NOT_RUN else first.status
                found.append(NotRun(form, f"{word}: {first.reason}"))
        return tuple(found)

    def _flips(self, few: Mapping[str, Cell], anchor: Mapping[str, Cell]) -> list[tuple[str, str]]:
        flips = []
        for a, b in combinations([form for form in self.forms if form in few and form in anchor], 2):
            orders = sign_of(few[a], few[b], self._floor), sign_of(anchor[a], anchor[b], self._floor)
            if orders[0] * orders[1] < 0:
                flips.append((a, b) if orders[1] < 0 else (b, a))
        return flips

    def _status(
        self, unstable: Sequence[str], missing: Sequence[str], flips: Sequence[tuple[str, str]], r: Mapping[str, float]
    ) -> tuple[VerdictStatus, str]:
        limit = self.limits.drift_pct
        drifted = [f"{form} {(value - 1) * 100:+.1f} %" for form, value in r.items() if abs(value - 1) * 100 > limit]
        if unstable:
            return VerdictStatus.UNSTABLE, "; ".join(unstable)
        if missing:
            return VerdictStatus.INCOMPLETE, "missing: " + "; ".join(missing)
        if flips:
            text = "; ".join(f"{a} is faster than {b} at the anchor and slower at few steps" for a, b in flips)
            return VerdictStatus.ORDER_FLIP, text
        if drifted:
            return VerdictStatus.DRIFT, f"step time changes by more than {limit:g} %: {', '.join(drifted)}"
        most = max((abs(value - 1) * 100 for value in r.values()), default=0.0)
        return VerdictStatus.EXTRAPOLATES, f"both tiers agree and no step time changes by more than {most:.1f} %"

    def _doubt(self, anchor: Mapping[str, Cell], best: Fastest) -> str:
        """What lowers the confidence in a winner: its cell, or that of its nearest rival, disperses too much."""
        pair = (best.winner, self.selection.rivals[0].form) if best.winner else ()
        noisy = [f"{form}/anchor: {anchor[form].reason}" for form in pair if form in anchor and anchor[form].reason]
        return f"This choice has low confidence: {'; '.join(noisy)}" if noisy else ""

    def _left_out(self) -> tuple[str, ...]:
        """Planned forms outside the ranking whose repeats cannot rule them out."""
        leader, floor = self.selection.leader, self.limits.noise_floor_pct
        ranked = self.selection.starts
        found = left_out(self.forms, self.cells.values(), self.sessions, ranked=ranked, leader=leader, floor_pct=floor)
        return tuple(item.text for item in found if item.lead_s and item.values_s and not item.ruled_out)

    def _ties(self, anchor: Mapping[str, Cell]) -> tuple[tuple[str, str, float], ...]:
        pairs = combinations(anchor.values(), 2)
        return tuple((a.form, b.form, self._floor(a, b)) for a, b in pairs if not sign_of(a, b, self._floor))

    def _drifts(self) -> tuple[Drift, ...]:
        """Cold against hot: the first window a cell was measured in against the last."""
        found = []
        for form in self.forms:
            for tier in (FEW, ANCHOR):
                have = [self.cells[key] for w in self.numbers if (key := (form, tier, str(w))) in self.cells]
                if len(have) > 1:
                    drift = (have[-1].step_s / have[0].step_s - 1) * 100
                    found.append(Drift(form, tier, drift, abs(drift) > self.limits.window_drift_pct))
        return tuple(found)

    def _stands(self) -> bool | None:
        """Whether no window contradicts another: some form is among the best of every window at the anchor."""
        best = []
        for window in self.numbers:
            tier = self._tier(ANCHOR, str(window))
            if len(tier) > 1:
                best.append(set(order_of(tier, self._floor)[0]))
        return bool(set.intersection(*best)) if len(best) > 1 else None

    def _drift_note(self, drifts: Iterable[Drift], stands: bool | None, *, decided: bool) -> str:
        over = [f"{d.form}/{d.tier} {d.drift_pct:+.1f} %" for d in drifts if d.exceeds]
        if not over:
            return ""
        if not decided and stands:  # no conclusion that could stand
            return f"Between the windows {', '.join(over)}"
        outcome = (
            "the conclusion still stands: every window names the same winner"
            if stands
            else "the conclusion does not stand"
        )
        return f"Between the windows {', '.join(over)}: {outcome}"

    def _blur_note(self, few: Mapping[str, Cell], anchor: Mapping[str, Cell]) -> str:
        blurred = [
            f"{a} and {b}"
            for a, b in combinations([form for form in self.forms if form in few and form in anchor], 2)
            if sign_of(anchor[a], anchor[b], self._floor) and not sign_of(few[a], few[b], self._floor)
        ]
        return f"Few steps cannot tell apart what the anchor can: {', '.join(blurred)}" if blurred else ""


_CURES = {
    VerdictStatus.UNSTABLE: (
        "fix the noise first: more repeats, another window or another card group; the few-step ranking may not be used"
    ),
    VerdictStatus.INCOMPLETE: "measure what is missing, or leave it out of matrix.forms and say why",
    VerdictStatus.ORDER_FLIP: "use the anchor's order; few steps mislead for this workload on these cards",
    VerdictStatus.DRIFT: "measure at the anchor or higher before choosing",
    VerdictStatus.EXTRAPOLATES: "the few-step ranking may be used; next time the few-step tier alone is enough",
}


def _split(form: str) -> object:
    """What a form splits over its cards; a label that is no form's name counts as a split of its own."""
    try:
        return parse_form(form).split
    except ConfigError:
        return form
