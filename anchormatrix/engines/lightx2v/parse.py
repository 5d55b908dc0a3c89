"""From a LightX2V server's log to timed requests, ranks and group sizes.

- Every rank times every step, between two waits for the device: ``Run Dit every step`` where a runner has it, else the
  step's three parts. Their sum is the denoise time; their number is the steps executed.
- A request that executed another number of steps than it asked for is not used.
- The whole pipeline's span and the clock of the log's own lines both bound that sum. The span is no forward: it also
  holds the saving of the output and a garbage collection (``models/runners/z_image/z_image_runner.py:406``).
- Groups are told by the device mesh that rank 0 made, and by the switches that say whether the model uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.engines.client import Response
from anchormatrix.engines.lightx2v.grammar import RawLog, Segment, read_log
from anchormatrix.engines.pairing import one_for_each
from anchormatrix.engines.timing import RankTiming, Request, ServeLog
from anchormatrix.records.requests import Basis
from anchormatrix.records.session import OffloadSeen

_STEP = "Run Dit every step"
_PARTS = ("step_pre", "🚀 infer_main", "step_post")
_ENCODE = ("Run Text Encoder", "Run Image Encoder", "Run VAE Encoder")
_DECODE = ("Run VAE Decoder", "Run VAE Decoder Stream")
_WHOLE = "RUN pipeline"
_SLACK_S = 0.05
_Spans = Sequence[tuple[str, float]]


def parse_log(text: str, responses: Sequence[Response] = ()) -> ServeLog:
    """Parse a log (stdout and stderr in one text) with the answers in the order they were sent. Never raises."""
    raw = read_log(text)
    requests = [_request(segment, later=number < len(raw.segments)) for number, segment in enumerate(raw.segments, 1)]
    groups, denied, unproven = _groups(raw)
    return ServeLog(
        requests=one_for_each(requests, responses),
        ranks=tuple(f"Rank {rank}" for rank in sorted(raw.ranks)),
        groups=groups,
        applied=(),
        lines=raw.lines,
        unusable_lines=raw.spoiled.total(),
        stage_lines=raw.spans,
        offload=_offload(raw),
        denied=denied,
        unproven=unproven,
        spoiled=dict(raw.spoiled),
    )


def _request(segment: Segment, *, later: bool) -> Request:
    """A request; its times count once its end is logged, or another one began."""
    ended = segment.end == "completed successfully" or (later and not segment.end)
    timed = {rank: _steps(spans) for rank, spans in segment.spans.items()} if ended else {}
    ranks = tuple(RankTiming(rank, f"Rank {rank}", sum(steps), steps) for rank, steps in sorted(timed.items()) if steps)
    fastest = min(ranks, key=lambda timing: timing.diffuse_s, default=None)
    spans = segment.spans.get(fastest.rank, []) if fastest else []
    executed = len(fastest.stage_s) if fastest else 0
    refused = _doubt(segment, ranks, _sum(spans, (_WHOLE,))) if fastest else ""
    usable = fastest is not None and not refused
    notes = [f"rank {rank} did not time whole steps" for rank, steps in sorted(timed.items()) if not steps]
    return Request(
        index=0,
        steps=segment.steps,
        iterations=executed or segment.announced or max(1, segment.steps),
        denominator="bar" if executed else "requested",
        diffuse_s=fastest.diffuse_s if fastest is not None and usable else None,
        encode_s=_sum(spans, _ENCODE),
        decode_s=_sum(spans, _DECODE),
        forward_s=None,
        ranks=ranks if usable else (),
        bars=(),
        response={"": "unknown", "completed successfully": "sent"}.get(segment.end, "error"),
        notes=tuple([*notes, refused] if refused else notes),
        refused=refused,
        steps_s=fastest.stage_s if fastest is not None and usable else (),
        basis=Basis.STEPS,
    )


def _steps(spans: _Spans) -> tuple[float, ...]:
    """Seconds of each step of one rank; nothing when a part of a step is missing."""
    each = tuple(seconds for name, seconds in spans if name == _STEP)
    if each:
        return each
    parts = [[seconds for name, seconds in spans if name == part] for part in _PARTS]
    if len({len(part) for part in parts}) != 1:
        return ()
    return tuple(map(sum, zip(*parts, strict=True)))


def _doubt(segment: Segment, ranks: Sequence[RankTiming], whole_s: float | None) -> str:
    """Why times cannot be those of the request: the steps asked for, the other ranks, the pipeline, the log's clock."""
    counted = sorted({len(timing.stage_s) for timing in ranks})
    against = []
    if len(counted) > 1:
        against.append(f"ranks timed {counted[0]} to {counted[-1]} steps of one request")
    elif segment.steps and counted != [segment.steps]:
        against.append(f"{counted[0]} steps were executed where {segment.steps} were asked for")
    if segment.announced and segment.announced != counted[-1]:
        against.append(f"{counted[-1]} steps are timed where {segment.announced} were announced")
    diffuse_s = min(timing.diffuse_s for timing in ranks)
    clock_s = (segment.ended - segment.began).total_seconds() if segment.began and segment.ended else None
    for outer_s, what in ((whole_s, "the whole pipeline"), (clock_s, "the log's clock")):
        if outer_s is not None and diffuse_s > outer_s * 1.02 + _SLACK_S:
            against.append(f"the steps say {diffuse_s:.4g} s and {what} {outer_s:.4g} s")
    return "; ".join(against)


def _sum(spans: _Spans, names: Sequence[str]) -> float | None:
    times = [seconds for name, seconds in spans if name in names]
    return sum(times) if times else None


def _groups(raw: RawLog) -> tuple[dict[str, tuple[int, ...]], dict[str, str], dict[str, str]]:
    """Group sizes, what speaks against one, and why one is not proved."""
    if not raw.told:
        return {}, {}, {}
    sequence, guidance = raw.mesh.get("seq_p", 1), raw.mesh.get("cfg_p", 1)
    kind = raw.settings.get("seq_p_attn_type", "ulysses")
    sizes = {
        "sp_size": sequence,
        "ulysses_degree": sequence if kind == "ulysses" else 1,
        "ring_degree": sequence if kind == "ring" else 1,
        "tp_size": raw.mesh.get("tensor_p", 1),
        "cfg_size": guidance,
    }
    used = {"sp_size": "seq_parallel", "tp_size": "tensor_parallel", "cfg_size": "cfg_parallel"}
    denied = {
        name: f"the ranks are grouped, but {switch} is off"
        for name, switch in used.items()
        if sizes[name] > 1 and raw.settings.get(switch) != "True"
    }
    unproven = {}
    if sequence > 1:
        unproven[f"{kind}_degree"] = (
            "the configuration names the exchange; no line of a layer does, and nothing captures"
        )
    return {name: (size,) for name, size in sizes.items()}, denied, unproven


def _offload(raw: RawLog) -> OffloadSeen | None:
    """The offload of the resolved configuration; ``None`` without one."""
    switches: Mapping[str, str] = raw.settings
    if switches.get("cpu_offload") != "True":
        return None
    kind = "cpu-offload" if switches.get("offload_granularity") == "model" else "layerwise-offload"
    return OffloadSeen(kind=kind, ranks=len(raw.ranks), blocks=0, group=1, refusal="")
