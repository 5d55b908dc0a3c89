"""Answers beside the log: which request is whose, and whether what the answer times is what the ranks logged.

An answer tells rank 0's stages, in seconds under ``<Class>.<path>`` and summed over the request (0.30.0,
``diffusion/profiler/diffusion_pipeline_profiler.py`` and ``worker/diffusion_worker.py``); beside them stand
milliseconds of the server's own (``entrypoints/omni_base.py:614-628``), which are not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anchormatrix.engines.client import Response, Told
from anchormatrix.engines.pairing import ambiguous, one_for_each
from anchormatrix.engines.timing import RankTiming, Request
from anchormatrix.engines.vllm_omni.loop import remainder
from anchormatrix.engines.vllm_omni.segments import Segment
from anchormatrix.engines.vllm_omni.stages import is_decode, is_diffuse, is_encode, is_forward
from anchormatrix.records.requests import Basis, Witness

_ROUNDED_S = 2e-6  # a line rounds to microseconds what an answer tells in full
_APART = 0.01  # beyond this share log and answer tell of different things


def give_steps(segments: Sequence[Segment], responses: Sequence[Response]) -> None:
    """Give requests that nothing announced the steps that were asked for.

    They are taken in order where the log has as many as were answered, one without an answer yet beside them. Else an
    answer that tells stage times finds its request by them, and of the others nothing tells whose is whose.
    """
    silent = [segment for segment in segments if not segment.announced]
    waiting = 1 if silent and silent[-1].status is None else 0
    in_order = len(silent) - len(responses) in (0, waiting)
    place = 0
    for response in responses if silent else ():
        found: int | None = place
        if not in_order:
            told = response.told if response.told and response.told.stages_s else None
            found = next((i for i in range(place, len(silent)) if told and _is_of(silent[i], told)), None)
        if found is not None:
            silent[found].steps = response.steps
            place = found + 1


def with_answers(requests: Sequence[Request], responses: Sequence[Response]) -> tuple[Request, ...]:
    """One request for each answer, in their order, then those not answered yet.

    Where both tell a time they must agree; where the log lost it, the answer's stands alone, as one rank's word.
    """
    found = one_for_each(requests, responses)
    unsure = ambiguous([one.steps for one in responses], [one.steps for one in requests])
    merged = (_merged(*pair, unsure=place in unsure) for place, pair in enumerate(zip(found, responses, strict=False)))
    return (*merged, *found[len(responses) :])


def _merged(request: Request, response: Response, *, unsure: bool) -> Request:
    """A request with what its answer tells; ``unsure``: by its steps alone it may as well be another."""
    told_s, basis = _loop_s(response.told)
    if request.refused:
        return request
    if told_s is None:
        if request.diffuse_s is None or not unsure:
            return request
        why = f"the log's requests for {request.steps} steps are not those answered, and no answer tells which is its"
        return _without_time(request, why)
    if request.diffuse_s is None:
        return _by_answer(request, response, told_s, basis)
    if request.basis is Basis.BAR:
        return replace(_by_answer(request, response, told_s, basis), witness=Witness.ANSWER)
    first = min((timing.diffuse_s for timing in request.ranks if timing.rank == 0), default=request.diffuse_s)
    if abs(first - told_s) > _APART * told_s + _ROUNDED_S:
        why = f"the answer says {told_s:.4g} s and the log {first:.4g} s"
        return _without_time(request, why)
    return replace(request, witness=Witness.BOTH)


def _without_time(request: Request, why: str) -> Request:
    return replace(request, diffuse_s=None, ranks=(), refused=why, notes=(*request.notes, why))


def _by_answer(request: Request, response: Response, told_s: float, basis: Basis) -> Request:
    """The request by its answer alone; its wall clock must hold what it tells."""
    if told_s > response.latency_s * 1.02 + 0.05:
        why = f"the answer says {told_s:.4g} s and came after {response.latency_s:.4g} s"
        return replace(request, refused=why, notes=(*request.notes, why))
    stages = response.told.stages_s if response.told else {}
    return replace(
        request,
        diffuse_s=told_s,
        encode_s=_sum(stages, is_encode),
        decode_s=_sum(stages, is_decode),
        forward_s=_sum(stages, is_forward),
        ranks=(RankTiming(0, "", told_s, (told_s,)),),
        basis=basis,
        witness=Witness.ANSWER,
        notes=(*request.notes, "timed by the answer: the log has no whole timing"),
    )


def _loop_s(told: Told | None) -> tuple[float | None, Basis]:
    stages = told.stages_s if told else {}
    own = {name: seconds for name, seconds in stages.items() if is_diffuse(name)}
    if own:
        depth = min(name.count(".") for name in own)
        return sum(seconds for name, seconds in own.items() if name.count(".") == depth), Basis.DIFFUSE
    return remainder({name: (seconds,) for name, seconds in stages.items()}), Basis.REMAINDER


def _sum(stages: Mapping[str, float], kind: Callable[[str], bool]) -> float | None:
    return sum(seconds for name, seconds in stages.items() if kind(name)) or None


def _is_of(segment: Segment, told: Told) -> bool:
    """Whether a rank of a logged request has the times that an answer tells."""
    by_rank: dict[object, dict[str, float]] = {}
    for line in segment.stages:
        times = by_rank.setdefault(line.worker, {})
        times[line.name] = times.get(line.name, 0.0) + line.seconds
    return any(_alike(times, told.stages_s) for times in by_rank.values())


def _alike(times: Mapping[str, float], told: Mapping[str, float]) -> bool:
    shared = [name for name in told if name in times]
    return bool(shared) and all(abs(times[name] - told[name]) <= 10 * _ROUNDED_S for name in shared)


def stages_of(told: object) -> Told | None:
    """Stage times of an answer's JSON value: seconds under ``<Class>.<path>``; anything else tells nothing."""
    if not isinstance(told, dict):
        return None
    found = {str(name): float(value) for name, value in told.items() if _is_stage(name, value)}
    return Told(found) if found else None


def _is_stage(name: object, value: object) -> bool:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9
    return isinstance(name, str) and usable and name[:1].isupper() and "." in name and len(name) <= 200
