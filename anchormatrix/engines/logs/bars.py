"""Progress bars: which of a request's bars is the denoise loop's, and what its clock says.

A bar is tqdm's (4.70.1, ``std.py``, ``format_meter``): ``LABEL: 75%|███| 3/4 [ELAPSED<REMAINING, RATE]``; ``ELAPSED``
is cut to whole seconds, ``[H:]MM:SS`` (``format_interval``). vllm-omni draws the denoise loop's on rank 0 only and
without a label (``diffusion/models/progress_bar.py``). Other loops draw some too: shards loaded (vllm writes
``Completed |``), tiles of the VAE.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anchormatrix.engines.logs.lines import Worker

BAR = re.compile(
    r"\d{1,3}%(?:\|[^|]*\|| Completed \|) *(?<![\d/])(\d{1,6})/(\d{1,6}) \[(?:(\d{1,4}):)?(\d{1,3}):(\d\d)<[^\]]*\]?",
    re.ASCII,
)
_DENOISE = re.compile(r"denois|diffus|sampl|\bstep|generat|inferenc", re.IGNORECASE)
_TOTAL_OFF_BY = 2  # a bar of the denoise loop shows the requested count, or one or two fewer
_SHORT_S = 2  # a bar's clock tells nothing below


@dataclass
class Bar:
    """One run of a bar: its states (iterations done, elapsed whole seconds) and its place among the stage lines."""

    worker: Worker
    label: str
    total: int
    place: int
    states: list[tuple[int, int]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether it reached its total."""
        return any(done == self.total for done, _ in self.states)

    @property
    def elapsed_s(self) -> int:
        """What its clock showed last."""
        return max(elapsed for _, elapsed in self.states)


Bars = dict[tuple[Worker, str, int], list[Bar]]  # the runs of each bar by its writer, label and total


def draw(bars: Bars, worker: Worker, label: str, found: re.Match[str], place: int) -> None:
    """Put a bar's state to its run. A count that falls begins another; so does a jump of a whole one's clock."""
    done, total = int(found[1]), int(found[2])
    elapsed_s = int(found[3] or 0) * 3600 + int(found[4]) * 60 + int(found[5])
    runs = bars.setdefault((worker, label, total), [])
    last_done, last_s = runs[-1].states[-1] if runs else (total + 1, 0)
    if done < last_done or not runs or (last_done == total and not last_s <= elapsed_s <= last_s + 1):
        runs.append(Bar(worker, label, total, place))
    if (done, elapsed_s) not in runs[-1].states[-1:]:
        runs[-1].states.append((done, elapsed_s))


def denoise_bars(bars: Iterable[Bar], steps: int, diffuse_s: float | None) -> tuple[Bar, ...]:
    """The runs of the denoise loop's bar among all bars of a request for ``steps`` steps.

    It has no label or one of denoising. Its total is what was asked for or one or two off. Another total is only
    believed when it is the only one and its clock fits the stage, ``diffuse_s`` seconds. With ``steps`` 0 nothing tells
    what was asked for: then the only total is the loop's.
    """
    mine = [bar for bar in bars if bar.total > 0 and (not bar.label or _DENOISE.search(bar.label))]
    counts = Counter[int]()
    for bar in mine:
        counts[bar.total] += len(bar.states)
    total = _total(counts, steps) if steps else (next(iter(counts)) if len(counts) == 1 else None)
    if (
        total is None
        and len(counts) == 1
        and diffuse_s is not None
        and all(_fits(bar, steps, diffuse_s) for bar in mine)
    ):
        total = next(iter(counts))
    return tuple(bar for bar in mine if bar.total == total)


def _total(counts: Counter[int], steps: int) -> int | None:
    if steps in counts:
        return steps
    near = [total for total in counts if abs(total - steps) <= _TOTAL_OFF_BY]
    return max(near, key=lambda total: (counts[total], total)) if near else None


def _fits(bar: Bar, steps: int, diffuse_s: float) -> bool:
    """Whether a bar of another total may be the loop's: a distilled model runs fewer steps than asked for; more need a
    clock that can tell."""
    tells = bar.total < steps or bar.elapsed_s >= _SHORT_S
    return tells and bar.whole and diffuse_s / 2 - 1 <= bar.elapsed_s <= diffuse_s * 1.05 + 0.5


def contradiction(bars: Sequence[Bar], diffuse_s: float) -> str:
    """Why a diffuse time cannot be true beside the denoise loop's bars; empty when it can. A clock of whole seconds is
    given half a second and 5 % against a shorter stage, and twice its time against a longer one."""
    longest = max((bar.elapsed_s for bar in bars), default=0)
    if longest > diffuse_s * 1.05 + 0.5:
        says = f"the stage says {diffuse_s:.3g} s where the progress bar ran for {clock(longest)}"
        return f"{says}: the device was not waited for"
    whole = [bar.elapsed_s + 1 for bar in bars if bar.whole]
    if whole and len(whole) == len(bars) and diffuse_s > 2 * sum(whole) + 1:
        return f"the stage says {diffuse_s:.3g} s where the progress bar ended after {clock(sum(whole) - len(whole))}"
    return ""


def agrees(bars: Sequence[Bar], diffuse_s: float) -> bool:
    """Whether a bar that runs long enough to tell bears a diffuse time out."""
    longest = max((bar.elapsed_s for bar in bars if bar.whole), default=0)
    return longest >= _SHORT_S and not contradiction(bars, diffuse_s) and longest + 1 >= diffuse_s / 1.25


def clock(seconds: int) -> str:
    """Seconds as a bar shows them."""
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
