"""What a worker logs of its offload: the lines of vllm-omni 0.30.0, ``vllm_omni/diffusion/offloader/``.

The distributed kind shares weights over the sequence group alone (``base.py:160``). In a form without one every rank
streams whole layers, as under the plain kind: no line names a group, and it says that it is enabled all the same
(``distributed_layerwise_backend.py:1429``, ``:1622``).
"""

from __future__ import annotations

from collections.abc import Iterator

from virtualhost.host.split import Split

Said = tuple[str, str]  # file and line, text


def offload_lines(split: Split, layers: int, rank: int) -> Iterator[Said]:
    """Yield what one rank says while it starts, for a pipeline with one transformer of so many layers."""
    blocks = -(-layers // split.pp)
    if split.offload == "cpu-offload":
        yield "__init__.py:179", "Enabling offloader backend: ModelLevelOffloadBackend"
        text = "Model-level offloading enabled: transformer <-> text_encoder (mutual exclusion)"
        yield "sequential_backend.py:382", text
    elif split.offload == "layerwise-offload":
        yield "__init__.py:179", "Enabling offloader backend: LayerWiseOffloadBackend"
        yield "layerwise_backend.py:454", "Applying layer-wise offloading on ['transformer']"
        yield "layerwise_backend.py:479", f"Layer-wise offloading enabled on {blocks} layers (blocks)"
    elif split.offload:
        yield from _distributed(split, blocks, rank)


def _distributed(split: Split, blocks: int, rank: int) -> Iterator[Said]:
    where, size = "distributed_layerwise_backend.py", split.sequence_degree
    yield "__init__.py:179", "Enabling offloader backend: DistributedLayerwiseOffloadBackend"
    if size > 1:
        group = next(ranks for ranks in split.groups("sp") if rank in ranks)
        start = "Distributed layerwise offload: "
        yield f"{where}:1404", f"{start}DP=1, using SP group (world_size={size}) for weight sharding"
        place = f"rank_in_group={group.index(rank)}, global_rank={rank}, group_ranks={list(group)}"
        yield f"{where}:1413", f"{start}dp_size={size}, {place}"
    yield f"{where}:1688", "DLO is using host tensors materialized by the ordinary loader"
    yield f"{where}:1700", "Applying distributed layer-wise offloading on ['transformer']"
    total = f"Distributed layer-wise offloading enabled on {blocks} blocks across 1 group(s)"
    yield f"{where}:1799", f"{total}, transfers={{dit: allgather}}, unified shared_buffers=2"
