"""A whole request on every rank: the text encoder, all denoise steps and the decoder, as a profiler sees it that is
switched on for requests.

vllm-omni 0.30.0 calls its profiler's ``step()`` once a request (``diffusion/worker/diffusion_worker.py:697-741``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from virtualhost.step.simulator import COMPUTE, Op
from virtualhost.step.timeline import Kernel, StepTimeline

_GAP_NS = 2_000  # between two kernels outside the steps
_TEXT_LAYERS, _TILES = 24, 12
_MATMUL, _VECTOR = "AI_CORE", "AI_VECTOR_CORE"
_TEXT_FIRST = (("GatherV2", _VECTOR),)
_TEXT_LAYER = (
    ("RmsNorm", _VECTOR),
    ("BatchMatMulV2", _MATMUL),
    ("SoftmaxV2", _VECTOR),
    ("BatchMatMulV2", _MATMUL),
    ("GeluV2", _VECTOR),
    ("BatchMatMulV2", _MATMUL),
)
_TEXT_LAST = (("RmsNorm", _VECTOR), ("PadV3", _VECTOR))
_NOISE = (("StatelessRandomNormalV3", _VECTOR),)
_TILE = (("Conv3DV2", _MATMUL), ("GroupNormV2", _VECTOR), ("Swish", _VECTOR), ("Conv3DV2", _MATMUL))
_DECODE_LAST = (("ConcatV2", _VECTOR), ("ClipByValueV2", _VECTOR))
_TEXT = (*_TEXT_FIRST, *_TEXT_LAYER * _TEXT_LAYERS, *_TEXT_LAST)
_DECODE = (*_TILE * _TILES, *_DECODE_LAST)


class Captured(NamedTuple):
    """A request under the profiler: one of its steps, how many times as long each step took, and what the texts and the
    decoder took in seconds."""

    step: StepTimeline
    ratios: tuple[float, ...]
    encodes_s: tuple[float, ...]
    decode_s: float


def whole_request(
    step: StepTimeline, ratios: Sequence[float], encodes_s: Sequence[float], decode_s: float
) -> StepTimeline:
    """Return the timeline of a request whose steps are ``step``, each with its times multiplied by its ratio.

    It begins with the first text that is encoded and ends with the decoder.
    """
    parts = [*(_evenly(_TEXT, seconds) for seconds in encodes_s), _evenly(_NOISE, 20e-6)]
    kernels, stages = [], []
    for rank in step.ranks:
        found, at_ns = [], 0
        for part in parts:
            found += _shifted(part, at_ns)
            at_ns = found[-1].end_ns + _GAP_NS
        mine = step.kernels(rank)
        calls = {
            stream: 1 + max(kernel.call for kernel in mine if kernel.op.stream == stream)
            for stream in {kernel.op.stream for kernel in mine if kernel.op.family}
        }
        for number, ratio in enumerate(ratios):
            found += _repeated(mine, ratio, at_ns, number, calls)
            at_ns += round(step.stage_ns[rank] * ratio)
        found += _shifted(_evenly(_DECODE, decode_s), at_ns)
        kernels.append(tuple(found))
        stages.append(found[-1].end_ns)
    return replace(step, stage_ns=tuple(stages), warped=tuple(kernels))


def _evenly(kinds: Sequence[tuple[str, str]], seconds: float) -> list[Kernel]:
    """Kernels of these names that take so long together."""
    each_ns = max(1_000, round(seconds * 1e9 / len(kinds)))
    ops = {kind: Op(kind[0], kind[0], kind[1], COMPUTE) for kind in kinds}
    return [Kernel(ops[kind], number * each_ns, max(1, each_ns - _GAP_NS), -1, -1) for number, kind in enumerate(kinds)]


def _shifted(kernels: Sequence[Kernel], by_ns: int) -> list[Kernel]:
    return [kernel._replace(start_ns=kernel.start_ns + by_ns) for kernel in kernels]


def _repeated(
    kernels: Sequence[Kernel], ratio: float, at_ns: int, number: int, calls: dict[str, int]
) -> Iterator[Kernel]:
    """The kernels of one step of several; the calls of each communicator are numbered on."""
    for op, start, took, call, ready in kernels:
        begin, end = at_ns + round(start * ratio), at_ns + round((start + took) * ratio)
        again = call + number * calls[op.stream] if op.family else call
        yield Kernel(op, begin, end - begin, again, at_ns + round(ready * ratio) if ready >= 0 else -1)
