"""A captured request: what is known of it beside the profiler's files, and what is then to be found in them."""

from __future__ import annotations

from dataclasses import dataclass

_STEP, _ALL = 1.5, 0.95  # of a step's time, and of all steps' together
_SLACK = 2.0  # the device and the log do not begin and end together, and a capture stretches


@dataclass(frozen=True)
class Request:
    """A request of which the profiler captured ``iterations`` denoise steps.

    ``branches``: guidance branches that one rank computes one after the other; ``layers`` of the transformer;
    ``diffuse_s``: seconds of these steps as the server tells them, under the profiler.
    """

    iterations: int
    branches: int = 1
    layers: int | None = None
    diffuse_s: float | None = None

    def holds_a_step(self, span_s: float) -> bool | None:
        """Whether so much time is that of one step (True) or of the whole request (False); None for neither."""
        if self.diffuse_s is None:
            return self.iterations < 2
        if self.iterations > 1 and span_s >= _ALL * self.diffuse_s:
            return False
        a_step = span_s <= _STEP * self.diffuse_s / self.iterations
        if self.iterations == 1:
            return a_step
        # Of two steps the captured one may well take most of the time: the profiler stretches it alone.
        return True if a_step or self.iterations == 2 else None

    def may_take(self, span_s: float, whole_s: float) -> bool:
        """Whether the steps may be what takes ``span_s`` of a trace of ``whole_s``: like the server's seconds, or most
        of the trace where these are not known."""
        if self.diffuse_s is None:
            return 2 * span_s >= whole_s
        return self.diffuse_s / _SLACK <= span_s <= self.diffuse_s * _SLACK

    def off_pct(self, span_s: float) -> float:
        """How far the time of the steps is from the server's seconds, in percent; 0 where these are not known."""
        return 100 * abs(span_s / self.diffuse_s - 1) if self.diffuse_s else 0.0

    @property
    def expected(self) -> str:
        """The number of repeats in words."""
        if self.branches == 1:
            return f"{self.iterations} steps were expected"
        return f"{self.iterations} steps × {self.branches} branches = {self.iterations * self.branches} were expected"
