"""From SGLang's log and the dumps of its requests to timed requests, ranks and group sizes.

- A dump is the measurement: one stage ``…DenoisingStage`` and the time of each step, of rank 0. It counts for the
  request of the log that shows the same stages with the same times, to the log's four digits: dump and log must agree.
- Without a dump the log's line times the stage.
- The progress bar's clock and the client's own bound both.
- Ranks and groups are told by the process group that rank 0 joined and by the server's resolved arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchormatrix.engines.client import Response, Told
from anchormatrix.engines.logs.bars import Bar, contradiction, denoise_bars
from anchormatrix.engines.logs.nearest import nearest_lines
from anchormatrix.engines.pairing import one_for_each
from anchormatrix.engines.sglang.dump import WHOLE
from anchormatrix.engines.sglang.grammar import RawLog, Segment, read_log
from anchormatrix.engines.timing import RankTiming, Request, ServeLog
from anchormatrix.records.requests import Witness
from anchormatrix.records.session import OffloadSeen

_ROUNDED_S = 0.00005 + 1e-9  # the log's lines have four digits
_SLACK_S = 0.05
_GROUPS = {
    "sp_size": "sp_degree",
    "ulysses_degree": "ulysses_degree",
    "ring_degree": "ring_degree",
    "allgather_degree": "kv_gather_degree",
    "tp_size": "tp_size",
    "cfg_size": "cfg_parallel_degree",
    "dp_size": "dp_size",
}


def parse_log(text: str, responses: Sequence[Response] = ()) -> ServeLog:
    """Parse a log (stdout and stderr in one text) with the answers in the order they were sent. Never raises."""
    raw = read_log(text)
    dumps = _matched(raw.segments, responses)
    requests = tuple(
        _request(index, segment, dumps.get(index), whole=segment.ended or index + 1 < len(raw.segments))
        for index, segment in enumerate(raw.segments)
    )
    unmatched = sum(response.told is not None for response in responses) - len(dumps)
    findings = []
    if unmatched:
        findings.append(f"{unmatched} performance dumps agree with no request of the log, and are not used")
    if raw.unsplit:
        findings.append(f"the server says: {raw.unsplit}")
    return ServeLog(
        requests=one_for_each(requests, responses),
        ranks=tuple(f"rank {rank}" for rank in range(raw.world)),
        groups=_groups(raw),
        applied=(),
        lines=raw.lines,
        unusable_lines=raw.spoiled.total(),
        stage_lines=sum(len(segment.stages) for segment in raw.segments),
        offload=_offload(raw.arguments, raw.world),
        bars=raw.early_bars + sum(len(runs) for segment in raw.segments for runs in segment.bars.values()),
        spoiled=dict(raw.spoiled),
        nearest=() if any(segment.stages for segment in raw.segments) else nearest_lines(text),
        findings=tuple(findings),
    )


def _matched(segments: Sequence[Segment], responses: Sequence[Response]) -> dict[int, tuple[Told, float]]:
    """The dump and the client's latency of each request of the log, both in their order."""
    found: dict[int, tuple[Told, float]] = {}
    place = 0
    for response in responses:
        if response.told is None:
            continue
        fits = (i for i in range(place, len(segments)) if _agree(segments[i], response.told))
        index = next(fits, None)
        if index is not None:
            found[index] = (response.told, response.latency_s)
            place = index + 1
    return found


def _agree(segment: Segment, told: Told) -> bool:
    """Whether a dump has exactly the stages of a request of the log, with the same times."""
    logged: dict[str, float] = {}
    lines: dict[str, int] = {}
    for name, seconds in segment.stages:
        logged[name] = logged.get(name, 0.0) + seconds
        lines[name] = lines.get(name, 0) + 1
    names = told.stages_s.keys() - {WHOLE}
    return logged.keys() == names and all(
        abs(told.stages_s[name] - logged[name]) <= lines[name] * _ROUNDED_S for name in names
    )


def _request(index: int, segment: Segment, dump: tuple[Told, float] | None, *, whole: bool) -> Request:
    told, latency_s = dump if dump else (None, None)
    stages = list(told.stages_s.items()) if told else segment.stages
    diffuse_s = _sum(stages, "Denoising") if whole and not segment.failed else None
    bars = denoise_bars((bar for runs in segment.bars.values() for bar in runs), segment.steps, diffuse_s)
    forward_s = told.stages_s[WHOLE] if told else None
    steps_s = told.steps_s if told else ()
    refused = "" if diffuse_s is None else _doubt(diffuse_s, steps_s, bars, forward_s, latency_s)
    notes = ["rank 0 alone tells times"] if diffuse_s is not None else []
    if segment.failed:
        notes.append(f"{segment.failed} broke off")
    if diffuse_s is not None and told is None:
        notes.append("no performance dump agrees with it: the log's own line times it")
    used = None if refused else diffuse_s
    return Request(
        index=index,
        steps=segment.steps,
        iterations=bars[0].total if bars else len(steps_s) or max(1, segment.steps),
        denominator="bar" if bars or steps_s else "requested",
        diffuse_s=used,
        encode_s=_sum(stages, "Encoding"),
        decode_s=_sum(stages, "Decoding"),
        forward_s=forward_s,
        ranks=() if used is None else (RankTiming(0, "rank 0", used, steps_s or (used,)),),
        bars=_states(bars),
        response=_response(segment),
        notes=tuple([*notes, refused] if refused else notes),
        profiled=segment.profiled,
        refused=refused,
        steps_s=steps_s,
        witness=Witness.BOTH if told else Witness.LOG,
    )


def _doubt(
    diffuse_s: float, steps_s: Sequence[float], bars: Sequence[Bar], forward_s: float | None, latency_s: float | None
) -> str:
    """Why a time cannot be true beside the bar, its own steps, the whole request and the client's clock."""
    against = [contradiction(bars, diffuse_s)]
    if steps_s and bars and len(steps_s) != bars[0].total:
        against.append(f"{len(steps_s)} steps are timed where the progress bar counts {bars[0].total}")
    if sum(steps_s) > diffuse_s * 1.02 + _SLACK_S:
        against.append(f"the stage says {diffuse_s:.4g} s and its steps {sum(steps_s):.4g} s together")
    for outer_s, what in ((forward_s, "the whole request"), (latency_s, "the client's clock")):
        if outer_s is not None and diffuse_s > outer_s * 1.02 + _SLACK_S:
            against.append(f"the stage says {diffuse_s:.4g} s and {what} {outer_s:.4g} s")
    return "; ".join(filter(None, against))


def _sum(stages: Iterable[tuple[str, float]], kind: str) -> float | None:
    """The time of all stages of a kind, by their names: ``TextEncodingStage``, ``LTX2DenoisingStage`` …"""
    times = [seconds for name, seconds in stages if kind in name and name.endswith("Stage")]
    return sum(times) if times else None


def _states(bars: Sequence[Bar]) -> tuple[tuple[int, int], ...]:
    drawn: dict[int, int] = {}
    for bar in bars:
        for done, elapsed_s in bar.states:
            drawn.setdefault(done, elapsed_s)
    return tuple(sorted(state for state in drawn.items() if state[0] > 0))


def _response(segment: Segment) -> str:
    if segment.status is None:
        return "unknown"
    return "error" if segment.status >= 400 or segment.failed else "sent"


def _groups(raw: RawLog) -> dict[str, tuple[int, ...]]:
    """The sizes of the server's own resolved arguments. All-gather-KV uses the Ulysses groups under their name
    (``server_args.py:1785-1790``), so that degree says nothing then."""
    sizes = {group: raw.arguments.get(name) for group, name in _GROUPS.items()}
    if isinstance(sizes["allgather_degree"], int) and sizes["allgather_degree"] > 1:
        sizes["ulysses_degree"] = 1
    if raw.unsplit:
        sizes["sp_size"] = 1
    return {group: (size,) for group, size in sizes.items() if isinstance(size, int)}


def _offload(arguments: Mapping[str, Any], world: int) -> OffloadSeen | None:
    """Which offload of the transformer the resolved arguments have; ``None`` without arguments."""
    if "dit_layerwise_offload" not in arguments:
        return None
    kinds = {"dit_layerwise_offload": "layerwise-offload", "dit_cpu_offload": "cpu-offload"}
    kind = next((kind for name, kind in kinds.items() if arguments.get(name) is True), "")
    return OffloadSeen(kind=kind, ranks=world, blocks=0, group=1, refusal="") if kind else None
