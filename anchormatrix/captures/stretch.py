"""The profiler's stretch of a captured step, and which captured step stands out among those of a contract.

A capture makes computing and idle time longer while the seconds of exposed communication stay. It costs forms of one
contract about the same, so a step that stands out was slow by itself: a capture takes the first step of its request,
which need not be like the steps that were timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

_SLOW = 1.5  # with no other form to compare with: the profiler's usual third, times what may scatter
_ALIKE = 1.2  # step times scatter by a few percent, the profiler's cost by some more


def stretch(rest_ms: float, exposed_ms: float, timed_ms: float) -> float | None:
    """Captured computing and idle time ÷ (step without the profiler − exposed); None where nothing would be left."""
    timed_rest = timed_ms - exposed_ms
    return rest_ms / timed_rest if rest_ms > 0 and timed_rest > 0 else None


def usual_stretch(found: Iterable[float]) -> float | None:
    """The median over the forms of a contract, of those that are like the least stretched."""
    every = sorted(found)
    return median(one for one in every if one <= _ALIKE * every[0]) if every else None


def stands_out(own: float, usual: float) -> bool:
    """Whether a step was stretched by more than the profiler does."""
    return own > _ALIKE * usual


def slow_by_itself(captured_s: float | None, timed_s: Sequence[float]) -> bool:
    """Whether a captured step is so much longer than the timed ones that another capture is worth its request."""
    return captured_s is not None and bool(timed_s) and captured_s > _SLOW * median(timed_s)
