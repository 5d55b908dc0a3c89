"""The answer of each size: what is decided, what it rests on, and what would change it.

Every sentence follows from the numbers it names; "no difference" and "not decidable, because …" are answers too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from anchormatrix.decide.fastest import bounds, why_open
from anchormatrix.planning.groups import show
from anchormatrix.records.conclusions.decision import SizeDecision
from anchormatrix.records.conclusions.selection import Selection
from anchormatrix.records.conclusions.verdict import Verdict, VerdictStatus
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.records.smoke import SmokeStatus
from anchormatrix.report.captured_steps import unlike_timed
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.words import listed

WINNER, NO_DIFFERENCE, NOT_DECIDABLE, NO_GROUP = "winner", "no difference", "not decidable", "no group"
_TRUST = {
    VerdictStatus.EXTRAPOLATES: ("may be used", True),
    VerdictStatus.DRIFT: ("may not be used: the step time drifts with the step count", False),
    VerdictStatus.ORDER_FLIP: (
        "may not be used: it ranks the forms differently from the anchor, whose order holds",
        False,
    ),
    VerdictStatus.UNSTABLE: ("may not be used: the cells are too noisy", False),
    VerdictStatus.INCOMPLETE: ("cannot be judged: the matrix is incomplete", False),
}


@dataclass(frozen=True)
class SizeAnswer:
    """What is decided for one size. ``outcome`` is one of the four constants above."""

    size: int
    outcome: str
    headline: str
    detail: str
    basis: str
    trusted: bool | None
    trust: str
    conditions: tuple[str, ...]
    unknowns: tuple[str, ...]
    changes: tuple[str, ...]
    warnings: tuple[str, ...]
    measured: Measured | None
    confidence: str = ""


def size_answers(report: Report) -> tuple[SizeAnswer, ...]:
    """The answer of every configured size, in order."""
    return tuple(_size_answer(report, size) for size in report.sizes)


def _size_answer(report: Report, size: int) -> SizeAnswer:
    measured = report.of_size(size)
    if measured is None:
        why = report.why_no_group(size)
        return _undecided(size, NO_GROUP, "no legal group", why, None)
    verdict = measured.verdict.value
    if verdict is None:
        return _undecided(size, NOT_DECIDABLE, "not decidable", measured.verdict.missing, measured)
    if damaged := report.damaged(measured):
        why = f"cards {show(damaged)} of its group are in the residue state, as the smokes of smaller groups found"
        return replace(
            _undecided(size, NOT_DECIDABLE, "not decidable", why, measured),
            basis=basis(report, measured),
            changes=("a driver reset or another group, then a new smoke",),
            warnings=_warnings(report, measured, verdict),
        )
    choice = report.decided(measured)
    words, trusted = _TRUST[verdict.status]
    if verdict.winner:
        outcome, headline, detail = WINNER, verdict.winner, _lead(verdict.selection)
    elif len(verdict.tied_with) > 1:
        outcome, headline = NO_DIFFERENCE, "no difference"
        detail = (
            f"{listed(verdict.tied_with)} differ by less than {verdict.selection.zone_pct:g} %; any of them may be used"
        )
    else:
        outcome, headline = NOT_DECIDABLE, "not decidable"
        detail = f"because {_reason(measured, verdict)}"
    return SizeAnswer(
        size=size,
        outcome=outcome,
        headline=headline,
        detail=detail,
        basis=basis(report, measured),
        trusted=trusted,
        trust=f"The {report.tiers.get(FEW, '?')}-step ranking {words}",
        conditions=choice.conditions if choice else (),
        unknowns=choice.unknowns if choice else (),
        changes=_changes(report, verdict, choice),
        warnings=_warnings(report, measured, verdict),
        measured=measured,
        confidence=choice.confidence if choice and outcome != NOT_DECIDABLE else "",
    )


def _undecided(size: int, outcome: str, headline: str, why: str, measured: Measured | None) -> SizeAnswer:
    return SizeAnswer(size, outcome, headline, f"because {why}", "", None, "", (), (), (), (), measured)


def _lead(selection: Selection) -> str:
    """How far the winner is ahead of its nearest rival, with the interval and what it rests on."""
    nearest = selection.rivals[0]
    if (nearest.low_pct or 0.0) > 0:
        return f"{nearest.behind_pct:.1f} % ahead of {nearest.form}, {bounds(nearest)}"
    within = f"the fastest or within {selection.zone_pct:g} % of it"
    return f"{within}; {nearest.form} is {nearest.behind_pct:.1f} % behind, {bounds(nearest)}"


def _reason(measured: Measured, verdict: Verdict) -> str:
    """Why nothing is decided: what is missing, else what the starts leave open."""
    if verdict.status is VerdictStatus.INCOMPLETE and verdict.missing:
        blocked = [
            f"{entry.form} {'is ' if entry.reason.startswith('void') else ''}{entry.reason}"
            for entry in verdict.did_not_run
        ]
        pair = ["this size has no pair of forms to compare"] if len(measured.measured_forms) < 2 else []
        return "; ".join([*blocked, *(f"missing is {entry}" for entry in other_missing(verdict)), *pair])
    return why_open(verdict.selection)


def other_missing(verdict: Verdict) -> list[str]:
    """What is missing besides the forms that did not run through."""
    blocked = tuple(f"form {entry.form}:" for entry in verdict.did_not_run)
    return [entry for entry in verdict.missing if not (blocked and entry.startswith(blocked))]


def basis(report: Report, measured: Measured) -> str:
    """Contract, group, tier, repeats, windows, dispersion and noise of starts: what a number stands on."""
    contract = measured.contract
    group = f"{contract.id} v{contract.version}, cards {show(contract.cards)} ({contract.link_class})"
    return f"{group}; {design(report, measured)}{_between_starts(measured)}"


def _between_starts(measured: Measured) -> str:
    verdict = measured.verdict.value
    noise = verdict.selection.noise if verdict else None
    if noise is None:
        return ""
    earlier = f", {noise.from_history:g} of them from earlier nights" if noise.from_history else ""
    return f", starts of a form differ by {noise.sd_pct:.1f} % ({noise.dof:g} degrees of freedom{earlier})"


def design(report: Report, measured: Measured) -> str:
    """Tier, repeats × windows and the largest dispersion of the anchor cells of a contract."""
    cells = [cell for form in measured.measured_forms for cell in measured.windows(form, ANCHOR)]
    tier = f"anchor tier ({report.tiers.get(ANCHOR, '?')} steps)"
    if not cells:
        return f"{tier}, nothing measured"
    repeats = sorted({cell.repeats for cell in cells})
    windows = len({cell.window for cell in cells})
    count = f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
    text = f"{tier}, {count} repeats in {'each of ' + str(windows) + ' windows' if windows > 1 else '1 window'}"
    worst = worst_dispersion(measured)
    return f"{text}, dispersion at most {worst:.1f} %" if worst is not None else text


def worst_dispersion(measured: Measured) -> float | None:
    """The largest dispersion of a contract's anchor cells in any window, in percent: a winner rests on that tier."""
    found = [
        cell.dispersion_pct
        for form in measured.measured_forms
        if (cell := measured.cell(form, ANCHOR)) and cell.dispersion_pct is not None
    ]
    return max(found, default=None)


def _changes(report: Report, verdict: Verdict, choice: SizeDecision | None) -> tuple[str, ...]:
    """What would change the answer of a size."""
    found = [_first_sentence(text) for text in choice.reversal[:1]] if choice and verdict.winner else []
    if cure := remedy(verdict):
        found.append(cure)
    if verdict.r and verdict.status is VerdictStatus.EXTRAPOLATES:
        form, ratio = max(verdict.r.items(), key=lambda item: abs(item[1] - 1))
        found.append(
            f"r beyond ±{report.limits.drift_pct:g} % would withdraw the few-step ranking; "
            f"the nearest is {form} with r = {ratio:.3f}"
        )
    return tuple(found)


def _first_sentence(text: str) -> str:
    return re.split(r"\. (?=[A-Z])", text, maxsplit=1)[0].rstrip(".")


def _warnings(report: Report, measured: Measured, verdict: Verdict) -> tuple[str, ...]:
    found = [note] if (note := report.note(measured)) else []
    smoke = measured.smoke.value
    if smoke is None or smoke.status is SmokeStatus.UNVERIFIED:
        found.append(f"the group's smoke is unverified: {measured.smoke.missing or 'nothing to compare it with'}")
    drifted = [f"{drift.form} {drift.tier} {drift.drift_pct:+.1f} %" for drift in verdict.window_drift if drift.exceeds]
    if drifted:
        moved = f"cells moved between the windows ({', '.join(drifted)})"
        if verdict.winner or verdict.tied_with:
            moved += f"; the conclusion {'still stands' if verdict.conclusion_stands else 'does not stand'}"
        found.append(moved)
    if verdict.did_not_run:
        found.append(f"without a number: {listed([entry.form for entry in verdict.did_not_run])}")
    if blurred := _blurred(verdict):
        found.append(f"few steps alone cannot tell {listed(blurred)} apart; the anchor can")
    if unlike := unlike_timed(measured):
        found.append(
            f"the captured step of {listed(unlike)} is not like the timed ones: "
            "its exposed communication, and what is projected from it, is unsafe"
        )
    return tuple(found)


def _blurred(verdict: Verdict) -> tuple[str, ...]:
    """The winner with the forms that the few-step tier alone cannot tell from it."""
    tied = next((tied for tied in verdict.order_few if verdict.winner in tied), ())
    return tied if len(tied) > 1 and not set(tied) & set(verdict.tied_with) - {verdict.winner} else ()


def remedy(verdict: Verdict) -> str:
    """What would settle a doubtful verdict; nothing when there is no doubt or the anchor settles it (an order flip)."""
    return "" if verdict.status in (VerdictStatus.EXTRAPOLATES, VerdictStatus.ORDER_FLIP) else verdict.cure
