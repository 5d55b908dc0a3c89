"""The judgement of a four-step smoke: residue, straggler, slow first step and thermal slope are different findings.

All ranks and steps uniformly several times slower than expected, without a slope, is the residue state that a killed
multi-card job leaves: health still says OK and it does not heal by itself. What is expected comes from outside; without
it the smoke is ``unverified``, never silently passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median

from anchormatrix.engines.timing import Request
from anchormatrix.planning.groups import show
from anchormatrix.records.conclusions.cells import spread_pct
from anchormatrix.records.settings.policies import SmokeSettings
from anchormatrix.records.smoke import Finding, FindingKind, RankSteps, SmokeStatus

_BAR_S = 1.0  # a progress bar's clock counts whole seconds
_REJECTING = {
    FindingKind.RESIDUE,
    FindingKind.TOO_SLOW,
    FindingKind.DID_NOT_RUN,
    FindingKind.WARNING_CONFIRMED,
}


@dataclass(frozen=True)
class Expectation:
    """The step time a healthy group would show, in seconds, and where it comes from."""

    step_s: float
    source: str


@dataclass(frozen=True)
class SmokeJudgement:
    """What one request of a smoke says of the cards. ``step_s`` is its step time in seconds, when it was timed."""

    status: SmokeStatus
    findings: tuple[Finding, ...]
    step_s: float | None = None
    ranks: tuple[RankSteps, ...] = ()


def judge_smoke(
    request: Request | None,
    expectation: Expectation | None,
    limits: SmokeSettings,
    *,
    warned: Iterable[int] = (),
    cards: Sequence[int] = (),
) -> SmokeJudgement:
    """Judge one request of a smoke. ``warned`` are the cards that say Warning, ``cards`` the group's in rank order.

    A card in Warning is confirmed bad when its rank straggles or the whole group is too slow. A server that logs no
    stage times is judged by its progress bar, to a second; that it cannot be measured is not the cards' fault.
    """
    step_s = smoke_step(request)
    if request is None or step_s is None:
        finding = Finding(FindingKind.NO_TIMING, "the server logged no whole timing of the smoke, and no progress bar")
        return SmokeJudgement(SmokeStatus.UNVERIFIED, (finding,))
    ranks = rank_steps(request)
    late = _late(ranks, limits)
    found = [*_stragglers(late, limits), *_profile(ranks, request, limits)]
    if request.step_s is None:
        why = request.refused or "the server logs no stage times"
        found.append(Finding(FindingKind.NO_TIMING, f"{why}: only its progress bar is read, to a second"))
    found += _speed(step_s, ranks, expectation, limits, found)
    found += _confirmed(found, tuple(warned), {cards[rank] for rank in late if rank < len(cards)})
    if expectation is None:
        text = "nothing tells how fast this group should be: no history, no other group, no bound in the configuration"
        found.append(Finding(FindingKind.UNVERIFIED, text))
    kinds = {finding.kind for finding in found}
    status = SmokeStatus.UNVERIFIED if expectation is None else SmokeStatus.PASSED
    if kinds & _REJECTING:
        status = SmokeStatus.REJECTED
    return SmokeJudgement(status, tuple(found), step_s, ranks)


def smoke_step(request: Request | None) -> float | None:
    """Step time of a smoke in seconds: the fastest rank's, else the progress bar's; ``None`` when nothing tells."""
    if request is None or request.step_s is not None:
        return request.step_s if request else None
    steps = _bar_steps(request)
    return mean(steps) or None if steps else None


def rank_steps(request: Request) -> tuple[RankSteps, ...]:
    """Every rank's times; single steps from stage lines per step, else from the progress bar (whole seconds)."""
    bar = _bar_steps(request)
    return tuple(
        RankSteps(
            timing.rank,
            timing.diffuse_s,
            timing.stage_s if len(timing.stage_s) > 1 else bar if number == 0 else (),
        )
        for number, timing in enumerate(request.ranks)
    )


def _bar_steps(request: Request) -> tuple[float, ...]:
    ends = [0, *(elapsed for _, elapsed in request.bars)]
    complete = [done for done, _ in request.bars] == list(range(1, request.iterations + 1))
    return tuple(float(b - a) for a, b in pairwise(ends)) if complete else ()


def _late(ranks: Sequence[RankSteps], limits: SmokeSettings) -> dict[int, float]:
    """Ranks that are slower than the others by more than the limit, and by how much, in percent."""
    late = {}
    for rank in ranks:
        others = [other.diffuse_s for other in ranks if other is not rank]
        behind = (rank.diffuse_s / median(others) - 1) * 100 if others else 0.0
        if behind > limits.straggler_pct:
            late[rank.rank] = behind
    return late


def _stragglers(late: Mapping[int, float], limits: SmokeSettings) -> Iterable[Finding]:
    for rank, behind in late.items():
        text = f"rank {rank} is {behind:.0f} % slower than the others"
        yield Finding(FindingKind.STRAGGLER, text, round(behind, 3), limits.straggler_pct)


def _profile(ranks: Sequence[RankSteps], request: Request, limits: SmokeSettings) -> Iterable[Finding]:
    """Slow first step and rising slope, on the median over the ranks that tell their steps."""
    told = [rank.step_s for rank in ranks if rank.step_s]
    if not told or len(told[0]) < 3:
        return
    steps = [median(column) for column in zip(*told, strict=False)]
    # Differences of a clock that counts whole seconds are only real beyond one second each way.
    doubt_s = 0.0 if any(len(timing.stage_s) > 1 for timing in request.ranks) else 2 * _BAR_S
    rest = steps[1:]
    late = (steps[0] / median(rest) - 1) * 100 if median(rest) else 0.0
    if late > limits.first_step_pct and steps[0] - median(rest) > doubt_s:
        text = f"the first step takes {late:.0f} % longer than the others: warm-up"
        yield Finding(FindingKind.SLOW_FIRST_STEP, text, round(late, 3), limits.first_step_pct)
    rise = _slope_pct(rest)
    if rise > limits.slope_pct and rest[-1] - rest[0] > doubt_s:
        text = f"steps grow by {rise:.0f} % from the second to the last: thermal"
        yield Finding(FindingKind.THERMAL_SLOPE, text, round(rise, 3), limits.slope_pct)


def _slope_pct(steps: Sequence[float]) -> float:
    """Rise of the least-squares line over all steps, in percent of their mean; 0 for fewer than two."""
    n, level = len(steps), mean(steps)
    if n < 2 or not level:
        return 0.0
    middle = (n - 1) / 2
    slope = sum((i - middle) * (step - level) for i, step in enumerate(steps)) / sum(
        (i - middle) ** 2 for i in range(n)
    )
    return slope * (n - 1) / level * 100


def _speed(
    step_s: float,
    ranks: Sequence[RankSteps],
    expectation: Expectation | None,
    limits: SmokeSettings,
    found: Sequence[Finding],
) -> Iterable[Finding]:
    if expectation is None:
        return
    factor = step_s / expectation.step_s
    said = f"a step takes {step_s:.3g} s, {factor:.1f} times the {expectation.step_s:.3g} s of {expectation.source}"
    if factor >= limits.residue_factor:
        uneven = {FindingKind.STRAGGLER, FindingKind.THERMAL_SLOPE} & {finding.kind for finding in found}
        if not uneven and spread_pct([rank.diffuse_s for rank in ranks]) <= limits.straggler_pct:
            text = f"{said}, alike on all ranks and without a slope: the residue state"
            cure = "reset the driver or use another group"
            yield Finding(FindingKind.RESIDUE, f"{text}; {cure}", round(factor, 3), limits.residue_factor)
        else:
            yield Finding(FindingKind.TOO_SLOW, said, round(factor, 3), limits.residue_factor)
    elif factor * limits.residue_factor <= 1:
        text = f"{said}: the group it is compared with is the slow one"
        yield Finding(FindingKind.REFERENCE_SLOW, text, round(factor, 3), round(1 / limits.residue_factor, 3))


def _confirmed(found: Sequence[Finding], warned: Sequence[int], late: Iterable[int]) -> Iterable[Finding]:
    slow = any(finding.kind in (FindingKind.RESIDUE, FindingKind.TOO_SLOW) for finding in found)
    bad = list(warned) if slow else sorted(set(warned) & set(late))
    if bad:
        yield Finding(FindingKind.WARNING_CONFIRMED, f"card {show(bad)} says Warning, and the smoke confirms it")
