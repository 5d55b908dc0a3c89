"""What workers log of their launch features: which weights they hooked for an offload, whether attention was sparse.

The lines are vllm-omni's (0.30.0, ``vllm_omni/diffusion``): ``offloader/layerwise_backend.py:479``,
``offloader/sequential_backend.py:312`` and ``:382``, ``offloader/distributed_layerwise_backend.py:1413`` and ``:1799``;
the refusals ``offloader/__init__.py:123``, ``sequential_backend.py:349`` and ``:354``, ``block_discovery.py:46``;
``attention/backends/rainfusion_attn.py:374`` and ``fastvideo_vsa.py:396`` at the first sparse call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from anchormatrix.engines.logs.lines import Worker
from anchormatrix.records.session import OffloadSeen, SparseSeen

Line = tuple[Worker, str]

_KINDS = (
    ("cpu-offload", re.compile(r"Model-level offloading enabled\b")),
    ("layerwise-offload", re.compile(r"Layer-wise offloading enabled on (\d{1,5}) layers")),
    ("distributed-layerwise-offload", re.compile(r"Distributed layer-wise offloading enabled on (\d{1,5}) blocks")),
)
_GROUP = re.compile(r"Distributed layerwise offload: dp_size=(\d{1,5}), rank_in_group=")
_REFUSAL = re.compile(r"(?:Skipping|skipping) (?:model-level )?offloading|No DiT/transformer modules found|, skipping")
_ACTIVE = re.compile(r"RAINFUSION_ATTN active|FASTVIDEO_VSA routing: .*route=VSA\b(?!_)")
_DENSE = re.compile(
    r"RAINFUSION_ATTN staying dense|FASTVIDEO_VSA falling back|FASTVIDEO_VSA routing: .*route=VSA_ALL_BLOCKS"
)


_HEADER = re.compile(r"^.*?\[[\w./<>-]{1,160}:\d{1,6}\] ")
# Words of lines on launch features, whichever way they went
_MARKS = re.compile(
    r"ffload|RAINFUSION_ATTN|FASTVIDEO_VSA|SP hooks|sequence parallelism|CFG parallel|idle for CFG|Cache|ache-dit"
    r"|ache backend|attention backend|quantization|MindIE-SD|HSDP|a2a_permute|RequestBatch"
)
# Where workers say that a split is not in effect: registry.py:625-631, distributed/cfg_parallel.py:313 and :496-500
_DENIALS = (
    ("sp_size", re.compile(r"SP hooks not applied|Failed to apply sequence parallelism|Continuing without SP hooks")),
    ("cfg_size", re.compile(r"CFG parallel is NOT working correctly|GPU\(s\) will be idle for CFG")),
)


def tells_of_features(line: str) -> bool:
    """Whether a worker's line says anything of a launch feature."""
    return _MARKS.search(line) is not None


def is_denial(line: str) -> bool:
    """Whether a worker's line says that a split is not in effect: the sizes in it prove nothing."""
    return any(pattern.search(line) for _, pattern in _DENIALS)


def said(line: str) -> str:
    """A worker's line without what its logger put before it."""
    return _HEADER.sub("", line).strip()


def denials(lines: Iterable[Line]) -> dict[str, str]:
    """What workers say against a split, by the name of the group: the first line of each."""
    found: dict[str, str] = {}
    for _, line in lines:
        for group, pattern in _DENIALS:
            if group not in found and pattern.search(line):
                found[group] = said(line)
    return found


def offload_seen(lines: Iterable[Line]) -> OffloadSeen | None:
    """What the workers said of offload while they started, or ``None`` when none said anything."""
    kinds: dict[str, dict[str, int]] = {}
    groups: set[int] = set()
    refusal = ""
    for (_, process), line in lines:
        if match := _GROUP.search(line):
            groups.add(int(match[1]))
        for kind, pattern in _KINDS:
            if match := pattern.search(line):
                blocks = kinds.setdefault(kind, {})
                blocks[process] = blocks.get(process, 0) + (int(match[1]) if pattern.groups else 0)
        if not refusal and _REFUSAL.search(line):
            refusal = said(line)
    if not (kinds or groups or refusal):
        return None
    kind = max(kinds, key=lambda name: len(kinds[name]), default="")
    hooked = kinds.get(kind, {})
    return OffloadSeen(
        kind=kind,
        ranks=len(hooked),
        blocks=min(hooked.values(), default=0),
        group=max(groups, default=1),
        refusal=refusal,
    )


def sparse_seen(lines: Iterable[Line]) -> SparseSeen | None:
    """What the workers said of sparse attention, or ``None`` when none said anything."""
    said = list(lines)
    active = {process for (_, process), line in said if _ACTIVE.search(line)}
    dense = {process for (_, process), line in said if _DENSE.search(line)}
    return SparseSeen(active=len(active), dense=len(dense)) if active or dense else None
