"""The names of kernels, and what they say: core class, family of the collective, communicator."""

from __future__ import annotations

import re

COMPUTE, COMMUNICATION, AI_CPU, COPY, OTHER = CORES = ("compute", "communication", "ai_cpu", "copy", "other")

_ASCEND_CORES = {
    "AI_CORE": COMPUTE,
    "AI_VECTOR_CORE": COMPUTE,
    "MIX_AIC": COMPUTE,
    "MIX_AIV": COMPUTE,
    "HCCL": COMMUNICATION,
    "COMMUNICATION": COMMUNICATION,
    "AI_CPU": AI_CPU,
    "SDMA": COPY,
    "SDMA_SQE": COPY,
    "PCIE_DMA_SQE": COPY,
}
_FAMILIES = {
    key.lower(): key
    for key in (
        *("allGather", "allReduce", "alltoall", "alltoallv", "alltoallvc", "reduceScatter", "broadcast"),
        *("sendRecv", "batchSendRecv", "send", "receive", "reduce", "scatter", "gather", "barrier"),
    )
} | {"recv": "receive", "alltoallbase": "alltoall", "allgatherbase": "allGather", "reducescatterbase": "reduceScatter"}
_OPERATION = (
    "all_?gather|all_?reduce|all_?to_?allvc|all_?to_?allv|all_?to_?all|reduce_?scatter|broadcast"
    "|batch_?send_?recv|send_?recv|send|receive|recv|reduce|scatter|gather|barrier"
)
# hcom_allReduce__503_96_4 · hcom_allGather_AicpuKernel_527_0_1 · hcom_broadcast__445_0 · HcclAllGather: the
# communicator follows one or two underscores; a name that is not recognised would vanish from its family.
_NUMBERS = r"(?:_+(?P<communicator>[0-9A-Za-z]+))?(?:_+[0-9]+)*_*$"
ASCEND_COLLECTIVE = rf"^(?i:hcom|hccl)_?(?P<family>(?i:{_OPERATION}))(?:_?(?i:aicpukernel))?{_NUMBERS}"
# allgatherAicpuKernel: the AI-CPU kernel of a collective, without prefix and without communicator.
ASCEND_AICPU_COLLECTIVE = rf"^(?P<family>(?i:{_OPERATION}))_?(?i:aicpukernel){_NUMBERS}"
UNRECOGNISED = "unrecognised"

_NCCL = re.compile(r"nccl(?:Dev)?Kernel_(?P<family>[A-Za-z]+)")
_GLOO = re.compile(r"gloo:_?(?P<family>[A-Za-z_]+)")


def ascend_core(accelerator_core: str) -> str:
    """Return the core class of an ``Accelerator Core`` value; an unknown engine (``DSA_SQE``) is ``other``."""
    return _ASCEND_CORES.get(accelerator_core.strip().upper(), OTHER)


def canonical_family(operation: str) -> str:
    """Return one spelling for an operation: ``all_to_all`` -> ``alltoall``, ``AllGather`` -> ``allGather``."""
    key = operation.replace("_", "").lower()
    return _FAMILIES.get(key, operation or UNRECOGNISED)


def torch_family(name: str, collective_name: str = "") -> str:
    """Return the family of a torch trace's event, or ``""`` when it is no collective.

    NCCL runs an all-to-all as grouped send/receive, so the kernel's name says ``SendRecv``; the event's own
    "Collective name" is believed first when the trace has one.
    """
    match = _NCCL.match(name) or _GLOO.match(name)
    if not match:
        return UNRECOGNISED if name.lower().startswith("nccl") else ""
    stated = canonical_family(collective_name.strip("_"))
    return stated if stated in _FAMILIES.values() else canonical_family(match["family"])
