"""The captured step as torch's profiler writes it: one Chrome trace per rank, of a GPU (NCCL) or a CPU (Gloo) run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from virtualhost.server.profiler import EPOCH_NS, STREAM_IDS, microseconds
from virtualhost.step.simulator import AI_CPU, COPY, Op
from virtualhost.step.timeline import Kernel, StepTimeline

_NCCL = {
    "alltoall": ("SendRecv", "all_to_all"),
    "alltoallv": ("SendRecv", "all_to_allv"),
    "batchSendRecv": ("SendRecv", "coalesced"),
    "send": ("SendRecv", "send"),
    "receive": ("SendRecv", "recv"),
    "allGather": ("AllGather_RING_LL", "_allgather_base"),
    "allReduce": ("AllReduce_Sum_bf16_RING_LL", "allreduce"),
    "broadcast": ("Broadcast_RING_LL", "broadcast"),
}
_GLOO = {
    "alltoall": "gloo:all_to_all",
    "alltoallv": "gloo:all_to_all",
    "batchSendRecv": "gloo:send",
    "send": "gloo:send",
    "receive": "gloo:recv",
    "allGather": "gloo:all_gather",
    "allReduce": "gloo:all_reduce",
    "broadcast": "gloo:broadcast",
}
_GPU_KERNELS = {
    "MatMulV2": "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x3_tn",
    "FlashAttentionScore": "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(Flash_fwd_params)",
    "LayerNormV3": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
    "SoftmaxV2": "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, float, 9, false, false>",
    "Transpose": "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>",
}
_ATEN = {
    "MatMulV2": "aten::mm",
    "FlashAttentionScore": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "LayerNormV3": "aten::native_layer_norm",
    "SoftmaxV2": "aten::_softmax",
    "Transpose": "aten::copy_",
}


def write_kineto(
    timeline: StepTimeline,
    directory: Path,
    *,
    backend: str = "nccl",
    compress: bool = True,
    annotation: str = "ProfilerStep#1",
    name_of: Callable[[int], str] = "vllm-omni-rank-{}.pt.trace.json".format,
    start_ns: int = EPOCH_NS,
) -> list[Path]:
    """Write one trace per rank, ``name_of`` it; return the files.

    ``backend`` is ``nccl`` (kernels on GPU streams, copies listed) or ``gloo`` (operators and collectives on threads of
    a CPU process). One ``annotation`` spans all of a rank's kernels.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for rank in timeline.ranks:
        head = {"backend": backend, "rank": rank, "world_size": timeline.split.world}
        lines = _gpu_events(timeline, rank, start_ns) if backend == "nccl" else _cpu_events(timeline, rank, start_ns)
        span = (
            f'{{"ph":"X","cat":"user_annotation","name":"{annotation}","pid":{4000 + rank},"tid":{4000 + rank},'
            f'"ts":{microseconds(start_ns)},"dur":{microseconds(timeline.stage_ns[rank])},"args":{{}}}}'
        )
        text = (
            f'{{"schemaVersion":1,"distributedInfo":{json.dumps(head)},"traceEvents":[\n'
            + ",\n".join([span, *lines])
            + "\n]}\n"
        )
        path = directory / (f"{name_of(rank)}.gz" if compress else name_of(rank))
        path.write_bytes(gzip.compress(text.encode(), 1, mtime=0) if compress else text.encode())
        files.append(path)
    return files


def _times(kernel: Kernel, start_ns: int) -> str:
    return f'"ts":{microseconds(start_ns + kernel.start_ns)},"dur":{microseconds(kernel.dur_ns)}'


def _gpu_name(op: Op) -> str:
    if op.family:
        return f"ncclDevKernel_{_NCCL[op.family][0]}(ncclDevKernelArgsStorage<4096ul>)"
    functor = f"void at::native::vectorized_elementwise_kernel<4, at::native::{op.type}Functor<c10::BFloat16> >"
    return _GPU_KERNELS.get(op.type, functor)


def _gpu_events(timeline: StepTimeline, rank: int, start_ns: int) -> Iterator[str]:
    """Yield the kernels and copies of one rank on the streams of its device; a GPU has no AI-CPU kernels."""
    for number, kernel in enumerate(timeline.kernels(rank)):
        op = kernel.op
        if op.stream == AI_CPU:
            continue
        stream = 18 if op.stream == COPY else STREAM_IDS[op.stream]
        args = f'"device":{rank},"context":1,"stream":{stream},"correlation":{number}'
        category, name = "kernel", _gpu_name(op)
        if op.stream == COPY:
            category, name = "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"
        if op.family:
            group = timeline.group(rank, op.stream)
            args += (
                f',"Collective name":"{_NCCL[op.family][1]}","Process Group Name":"{group.gid}",'
                f'"Process Group Description":"{group.kind}","Group size":{len(group.ranks)},"dtype":"BFloat16"'
            )
        yield (
            f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{rank},"tid":{stream},'
            f'{_times(kernel, start_ns)},"args":{{{args}}}}}'
        )


def _cpu_events(timeline: StepTimeline, rank: int, start_ns: int) -> Iterator[str]:
    """Yield the operators of one rank's main thread and its collectives on a thread of each communicator."""
    process = 4000 + rank
    for number, kernel in enumerate(timeline.kernels(rank)):
        op = kernel.op
        if op.stream in (AI_CPU, COPY):
            continue
        if op.family:
            category, name, thread = "user_annotation", _GLOO[op.family], process + STREAM_IDS[op.stream]
        else:
            category, name, thread = "cpu_op", _ATEN.get(op.type, f"aten::{op.type.lower()}"), process
        yield (
            f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{process},"tid":{thread},'
            f'{_times(kernel, start_ns)},"args":{{"External id":{number}}}}}'
        )
