"""The two sentences that the report opens with: what to use, and whether few steps may be trusted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from anchormatrix.records.settings.values import FEW
from anchormatrix.report.answer import (
    NO_DIFFERENCE,
    NO_GROUP,
    NOT_DECIDABLE,
    WINNER,
    SizeAnswer,
    design,
    remedy,
    worst_dispersion,
)
from anchormatrix.report.model import Report
from anchormatrix.report.words import capital, count_of, listed


def opening(report: Report, answers: Sequence[SizeAnswer]) -> tuple[str, str]:
    """The two sentences the report opens with: what to use and what it rests on; whether few steps may be trusted."""
    return _what_to_use(report, answers), _whether_to_trust(report, answers)


def _what_to_use(report: Report, answers: Sequence[SizeAnswer]) -> str:
    parts = []
    decided = [answer for answer in answers if answer.outcome == WINNER]
    equal = [answer for answer in answers if answer.outcome == NO_DIFFERENCE]
    if decided:
        parts.append("use " + listed(f"{one.headline} on {count_of(one.size)} ({one.detail})" for one in decided))
    parts += [f"on {count_of(one.size)} there is no difference: {one.detail}" for one in equal]
    rests = _rests_on(report, [*decided, *equal])
    if rests:
        parts[-1] += f", which rests on {rests}"
    for answer in answers:
        if answer.outcome == NOT_DECIDABLE:
            parts.append(
                f"{count_of(answer.size)} {'is' if answer.size == 1 else 'are'} not decidable, {answer.detail}"
            )
        elif answer.outcome == NO_GROUP:
            parts.append(
                f"{count_of(answer.size)} {'has' if answer.size == 1 else 'have'} no legal group, {answer.detail}"
            )
    return capital("; ".join(parts)) + "." if parts else "Nothing was asked for: the configuration names no size."


def _rests_on(report: Report, answers: Sequence[SizeAnswer]) -> str:
    designs: dict[str, list[int]] = {}
    measured = [answer.measured for answer in answers if answer.measured]
    for one in measured:
        designs.setdefault(design(report, one).split(", dispersion")[0], []).append(one.contract.size)
    worst = max((value for one in measured if (value := worst_dispersion(one)) is not None), default=None)
    text = "; ".join(words + (f" ({_cards(sizes)})" if len(designs) > 1 else "") for words, sizes in designs.items())
    return f"the {text}, dispersion at most {worst:.1f} %" if text and worst is not None else text


def _whether_to_trust(report: Report, answers: Sequence[SizeAnswer]) -> str:
    few = report.tiers.get(FEW, "?")
    trusted = [answer for answer in answers if answer.trusted]
    reasons: dict[str, list[SizeAnswer]] = {}
    for answer in answers:
        if answer.trusted is False:
            reasons.setdefault(answer.trust.removeprefix(f"The {few}-step ranking "), []).append(answer)
    if not trusted and not reasons:
        return f"Whether a {few}-step ranking may be trusted was not measured."
    parts = [f"the {few}-step ranking may be trusted on {_cards(one.size for one in trusted)}"] if trusted else []
    for reason, found in reasons.items():
        subject = "it" if parts else f"the {few}-step ranking"
        parts.append(f"on {_cards(one.size for one in found)} {subject} {reason}")
    return capital("; ".join(parts)) + f"; {_what_changes_it(trusted, reasons.values())}."


def _what_changes_it(trusted: Sequence[SizeAnswer], distrusted: Collection[Sequence[SizeAnswer]]) -> str:
    cures: dict[str, list[SizeAnswer]] = {}
    for answer in (answer for found in distrusted for answer in found):
        if cure := _cure(answer):
            cures.setdefault(cure, []).append(answer)
    if len(cures) == 1 and not trusted and len(next(iter(cures.values()))) == sum(map(len, distrusted)):
        return f"so {next(iter(cures))}"
    if cures:
        return "so " + "; ".join(f"{cure} ({_cards(one.size for one in found)})" for cure, found in cures.items())
    return "another card group, software version or workload starts a new contract and asks the question again"


def _cure(answer: SizeAnswer) -> str:
    verdict = answer.measured.verdict.value if answer.measured else None
    return remedy(verdict).rstrip(".") if verdict else ""


def _cards(sizes: Iterable[int]) -> str:
    found = list(sizes)
    return count_of(found[0]) if len(found) == 1 else f"{listed(map(str, found))} cards"
