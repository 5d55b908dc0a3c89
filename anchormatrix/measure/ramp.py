"""The ramp: the first requests after a start are often faster than the steady state and must not be timed.

Only requests at the head can be the ramp, and only because they are faster than most that follow. A request that stands
out anywhere else is noise and counts as such. A running session and the log of an older one are judged alike.
An engine that tells single steps shows also the ramp inside one request.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from statistics import fmean, median

from anchormatrix.records.session import Ramp

_FEWEST_STEPS = 4  # that can have a beginning and an end


def first_steady(
    step_s: Sequence[float],
    tolerance_pct: float,
    steps: Sequence[int] | None = None,
    longest: int | None = None,
) -> int | None:
    """Index of the first request of the steady state; ``None`` when the ramp goes on to the end or beyond ``longest``.

    The first request is never steady. A later one is on the ramp while it and all before it are faster, by more than
    ``tolerance_pct``, than more than half of the later requests with as many ``steps`` (default: all alike). Tiers are
    compared only within themselves, since a step of one tier may truly cost more than a step of another.
    """
    kinds = [0] * len(step_s) if steps is None else steps
    behind: dict[int, list[float]] = {}  # the values behind a request, sorted, by kind: grown from the end
    found = None
    last = len(step_s) - 1
    for index in range(last, 0, -1):
        later = behind.setdefault(kinds[index], [])
        limit_s = step_s[index] * (1 + tolerance_pct / 100)
        if index < last and (not later or limit_s >= later[(len(later) - 1) // 2]):
            found = index
        insort(later, step_s[index])
    return found if longest is None or found is None or found <= longest else None


def warmed_up(step_s: Sequence[float], tolerance_pct: float) -> bool:
    """Whether warm-ups of one tier have reached the steady state: the ramp is over, and the latest rise no more.

    A slow ramp passes every comparison of neighbours, so the latest two are held against the steady ones before them,
    two at most: they may be slower by a third of ``tolerance_pct``.
    """
    start = first_steady(step_s, tolerance_pct)
    steady = [] if start is None else step_s[start:]
    before, latest = steady[-4:-2], steady[-2:]
    return bool(before) and fmean(latest) <= fmean(before) * (1 + tolerance_pct / 300)


def judge_ramp(step_s: Sequence[float], steps: Sequence[int], *, warmups: int, longest: int, steady_pct: float) -> Ramp:
    """The ramp of a session: ``warmups`` excluded requests, then the repeats. It may last for ``longest`` requests.

    Repeats that are slower than the steady warm-ups mean that these were not steady yet.
    """
    start = first_steady(step_s, steady_pct, steps, longest)
    if start is None:
        why = f"no steady state within {longest} requests: up to the last each is faster than those behind it"
        return Ramp(warmups, None, False, why)
    why = f"from request {start + 1} on none is more than {steady_pct:g} % faster than those behind it"
    before, after = (
        [value for value, kind in zip(step_s[part], steps[part], strict=True) if kind == steps[0]]
        for part in (slice(start, warmups), slice(warmups, None))
    )
    moved = (median(after) / median(before) - 1) * 100 if before and after else 0.0
    if moved <= steady_pct:
        return Ramp(warmups, start + 1, True, why)
    return Ramp(warmups, start + 1, False, f"{why}, but the repeats are {moved:.1f} % slower: the ramp went on")


def ramp_inside(told_s: Sequence[Sequence[float]], tolerance_pct: float) -> str:
    """The ramp inside the longest requests in words, from their single steps; empty when none of them stands out.

    It matters because a short request holds the first steps to a larger share than a long one. The steps of all those
    requests are laid over each other. Steady is the median of the later half; the head are the first steps up to the
    last one of the first half that is off by more than ``tolerance_pct``.
    """
    longest = max(map(len, told_s), default=0)
    if longest < _FEWEST_STEPS:
        return ""
    steps = [median(column) for column in zip(*(one for one in told_s if len(one) == longest), strict=True)]
    half = longest // 2
    steady_s = median(steps[half:])
    off_pct = [(step / steady_s - 1) * 100 for step in steps[:half]]
    head = max((place for place, off in enumerate(off_pct, start=1) if abs(off) > tolerance_pct), default=0)
    if not head:
        return ""
    which = "the first step takes" if head == 1 else f"the first {head} steps take"
    listed = ", ".join(f"{off:+.0f} %" for off in off_pct[:head])
    return f"inside a request of {longest} steps {which} {listed} against the {steady_s:.3g} s of the later ones"
