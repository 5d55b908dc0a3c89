"""The progress bar of the first rank: the states that tqdm 4.70.1 writes to a stream that is no terminal.

``tqdm/std.py``: a state begins with a carriage return (``status_printer``), the bar is 10 wide with eighths of a block
(``Bar``), the rate is an average that forgets (``EMA``), and closing draws the last state once more with the mean rate
and a newline. ``s/it`` is therefore not the step time.
"""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = " ▏▎▍▌▋▊▉█"
_WIDTH = 10
_SMOOTHING = 0.3
_MIN_INTERVAL_S = 0.1


def states(steps_s: Sequence[float]) -> list[tuple[int, str]]:
    """The states of the bar of a loop with these steps, each with the number of steps done before it is written."""
    total, elapsed, last, shown = len(steps_s), 0.0, 0.0, 0
    drawn = [(0, _state(0, total, 0.0, 0.0))]
    rate_steps, rate_s = _Average(), _Average()
    for done, step_s in enumerate(steps_s, 1):
        elapsed += step_s
        if elapsed - last < _MIN_INTERVAL_S:
            continue
        each_s = rate_s.add(elapsed - last) / rate_steps.add(done - shown)
        drawn.append((done, _state(done, total, elapsed, each_s)))
        last, shown = elapsed, done
    drawn.append((total, _state(total, total, elapsed, elapsed / max(1, total)) + "\n"))
    return drawn


class _Average:
    def __init__(self) -> None:
        self._last, self._kept = 0.0, 1.0

    def add(self, value: float) -> float:
        self._last = _SMOOTHING * value + (1 - _SMOOTHING) * self._last
        self._kept *= 1 - _SMOOTHING
        return self._last / (1 - self._kept)


def _state(done: int, total: int, elapsed_s: float, each_s: float) -> str:
    share = done / total
    whole, eighth = divmod(int(share * _WIDTH * 8), 8)
    bar = ("█" * whole + (_BLOCKS[eighth] if whole < _WIDTH else "")).ljust(_WIDTH)
    rate, left = "?it/s", "?"
    if each_s:
        rate = f"{1 / each_s:5.2f}it/s" if each_s <= 1 else f"{each_s:5.2f}s/it"
        left = _clock(each_s * (total - done))
    return f"\r{share * 100:3.0f}%|{bar}| {done}/{total} [{_clock(elapsed_s)}<{left}, {rate}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
