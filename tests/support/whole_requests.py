"""Traces of whole requests with known steps: a text encoder, denoise steps around layers, and a decoder in tiles.

What is drawn is what real ones differ in: layers and tiles as many as steps, names that all parts share, guidance
branches, a scheduler that starts and ends otherwise, caches, a first step that allocates, graphs with one launch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Names = list[str]
_SHARED = ["elementwise_add", "elementwise_mul", "elementwise_cast", "gemm_64x64", "copy_strided"]
_ENCODER = ["gemm_t5", "softmax_t5", "rms_norm_t5"]
_DENOISER = ["gemm_128x256", "layer_norm", "rope", "gelu_tanh", "modulate"]
_DECODER = ["conv3d", "group_norm", "silu", "upsample"]
_ATTENTION = "flash_fwd_kernel"
_EXCHANGE = "ncclDevKernel_SendRecv(x)"


@dataclass(frozen=True)
class Request:
    """What a drawn request is made of. ``different_ends``: the scheduler of the first and the last step has other
    kernels; ``hits``: steps whose layers a cache left out; ``extra``: chance of a kernel more, in any step and in the
    first."""

    steps: int
    branches: int
    layers: int
    encoder_layers: int
    tiles: int
    different_ends: bool = False
    hits: frozenset[int] = frozenset()
    extra: float = 0.0
    extra_first: float = 0.0
    graph: bool = False


@dataclass
class Kernel:
    """A kernel in the order of launches: times in µs, and the step it belongs to (−1: none)."""

    name: str
    step: int
    stream: int
    launched: int
    start: int
    end: int


@dataclass
class Trace:
    """The kernels of one rank; ``calls``: when each call of the transformer began and ended on the host, in µs."""

    kernels: list[Kernel] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)

    @property
    def main(self) -> list[Kernel]:
        """The kernels of the compute stream."""
        return [one for one in self.kernels if one.stream == 7]

    def begins(self) -> list[int]:
        """When each step begins on the device, and the end of the last: in µs, by the kernels of the compute stream."""
        steps = sorted({one.step for one in self.main} - {-1})
        last = max(one.end for one in self.main if one.step == steps[-1])
        return [min(one.start for one in self.main if one.step == step) for step in steps] + [last]


def drawn(seed: int) -> tuple[Request, random.Random]:
    """Draw what a request is made of."""
    draw = random.Random(seed)
    steps = draw.randrange(3, 11)
    hits = (
        frozenset(step for step in range(1, steps - 1) if draw.random() < 0.3) if draw.random() < 0.25 else frozenset()
    )
    return (
        Request(
            steps=steps,
            branches=draw.choice((1, 1, 2)),
            layers=draw.randrange(4, 20),
            encoder_layers=draw.choice((steps, draw.randrange(2, 13))),
            tiles=draw.choice((steps, 1, draw.randrange(2, 10))),
            different_ends=draw.random() < 0.3,
            hits=hits if len(hits) < (steps - 1) // 2 else frozenset(),
            extra=draw.choice((0.0, 0.0, 0.002)),
            extra_first=draw.choice((0.0, 0.01, 0.04)),
            graph=draw.random() < 0.2,
        ),
        draw,
    )


def made(request: Request, draw: random.Random) -> Trace:
    """Run the request: every kernel in the order of launches, the host ahead of the device."""
    clock = _Clock(draw)
    part = lambda own, least, most: draw.choices(own + _SHARED, k=draw.randrange(least, most))  # noqa: E731
    encoder = part(_ENCODER, 5, 9)
    clock.run(part(_ENCODER, 1, 6) + encoder * request.encoder_layers + part(_ENCODER, 1, 5))
    head, tail = part(_DENOISER, 4, 12), part(_DENOISER, 2, 8)
    layer = [*part(_DENOISER, 3, 7), _EXCHANGE, _ATTENTION, _EXCHANGE, *part(_DENOISER, 3, 7)]
    before, after, scheduler = part([], 0, 3), part([], 0, 3), part([], 3, 9)
    first, last = part([], 1, 6), part([], 1, 6)
    for step in range(request.steps):
        clock.step = step
        ends = request.different_ends and step in (0, request.steps - 1)
        clock.run(_noisy(before, request, draw, step))
        for _ in range(request.branches):
            layers = layer * (1 if step in request.hits else request.layers)
            clock.call(_noisy(head + layers + tail, request, draw, step), graph=request.graph)
        own = scheduler if not ends else first if step == 0 else last
        clock.run(_noisy((after if request.branches > 1 else []) + own, request, draw, step))
    clock.step = -1
    tile = part(_DECODER, 6, 14)
    clock.run(part(_DECODER, 1, 6) + tile * request.tiles + part(_DECODER, 1, 4))
    return clock.trace


def _noisy(names: Names, request: Request, draw: random.Random, step: int) -> Names:
    """Insert kernels between others: one before all that the steps share could as well be the encoder's."""
    chance = request.extra + (request.extra_first if step == 0 else 0.0)
    found = list(names[:1])
    for one in names[1:]:
        if draw.random() < chance:
            found += [more for more in [draw.choice(["fill", *_SHARED])] if more not in (one, found[-1])]
        found.append(one)
    return found


class _Clock:
    """The host launches one kernel after the other; two streams of the device follow."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.trace = draw, Trace()
        self.host, self.free, self.step = 1000, {7: 0, 20: 0}, -1

    def run(self, names: Sequence[str], *, graph: bool = False) -> None:
        """Launch kernels; of a graph all share one launch. Compute waits for an exchange and the reverse."""
        self.host += 3
        for name in names:
            self.host += 0 if graph else self.draw.randrange(2, 5)
            stream = 20 if name == _EXCHANGE else 7
            long = {_ATTENTION: 60, _EXCHANGE: 30}.get(name, 10)
            start = max(self.host + 2, self.free[stream])
            if _EXCHANGE in (name, self.trace.kernels[-1].name if self.trace.kernels else ""):
                start = max(start, *self.free.values())
            end = start + self.draw.randrange(long, long + long // 2)
            self.free[stream] = end
            self.trace.kernels.append(Kernel(name, self.step, stream, self.host, start, end))

    def call(self, names: Sequence[str], *, graph: bool) -> None:
        """A call of the transformer: its module is on the host for as long as it launches."""
        began = self.host = self.host + 5
        self.run(names, graph=graph)
        self.host += 3
        self.trace.calls.append((began, self.host))


def events(
    trace: Trace, *, launches: bool = True, annotation: str = "", modules: bool = False
) -> Iterator[dict[str, object]]:
    """The events of a torch trace; ``annotation`` spans all of it, ``modules``: with the transformer's calls."""
    for begin, end in trace.calls if modules else ():
        name = "nn.Module: SmallTransformer3DModel_0"
        yield {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": end - begin}
    if annotation:
        end = max(one.end for one in trace.kernels) + 50
        yield {"ph": "X", "cat": "user_annotation", "name": annotation, "pid": 1, "tid": 1, "ts": 0, "dur": end}
    launched: dict[int, int] = {}
    for number, one in enumerate(trace.kernels):
        first = launched.setdefault(one.launched, number)
        if launches and first == number:
            name = "cudaLaunchKernel"
            yield {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": one.launched, "dur": 1} | {
                "args": {"correlation": first}
            }
        yield {"ph": "X", "cat": "kernel", "name": one.name, "pid": 0, "tid": one.stream, "ts": one.start} | {
            "dur": one.end - one.start,
            "args": {"stream": one.stream, "correlation": first},
        }


def write(trace: Trace, folder: Path, rank: int = 0, **how: object) -> None:
    """Write a trace as the torch trace of one rank."""
    text = json.dumps({"traceEvents": list(events(trace, **how)), "distributedInfo": {"rank": rank}})  # type: ignore[arg-type]
    (folder / f"rank{rank}.json").write_text(text)
