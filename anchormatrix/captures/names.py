"""The names of kernels, and what they say: core class, family of the collective, communicator.

Which kernels are communication stands in ``naming/kernel_names.tsv``, with the source of each pattern.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from anchormatrix.captures.naming.mangled import qualified_name

COMPUTE, COMMUNICATION, AI_CPU, COPY, OTHER, HOST = CORES = (
    *("compute", "communication", "ai_cpu", "copy", "other"),
    "host",  # a wrapper's own time on the host, in traces without a device
)

_ASCEND_CORES = {
    "AI_CORE": COMPUTE,
    "AI_VECTOR_CORE": COMPUTE,
    "MIX_AIC": COMPUTE,
    "MIX_AIV": COMPUTE,
    "HCCL": COMMUNICATION,
    "COMMUNICATION": COMMUNICATION,
    # Task types of the device's tasks, of older and newer profilers.
    "KERNEL_AICORE": COMPUTE,
    "KERNEL_AIVEC": COMPUTE,
    "KERNEL_MIX_AIC": COMPUTE,
    "KERNEL_MIX_AIV": COMPUTE,
    "KERNEL_AICPU": AI_CPU,
    "AI_CPU": AI_CPU,
    "SDMA": COPY,
    "SDMA_SQE": COPY,
    "PCIE_DMA_SQE": COPY,
}
_FAMILIES = {
    key.lower(): key
    for key in (
        *("allGather", "allGatherV", "allReduce", "alltoall", "alltoallv", "alltoallvc", "reduceScatter"),
        *("reduceScatterV", "broadcast", "sendRecv", "batchSendRecv", "send", "receive", "reduce", "scatter"),
        *("gather", "barrier"),
    )
} | {"recv": "receive", "bcast": "broadcast"}
_OPERATION = (
    "all_?gather_?v|all_?gather|all_?reduce|all_?to_?allvc|all_?to_?allv|all_?to_?all|reduce_?scatter_?v"
    "|reduce_?scatter|broadcast|batch_?send_?recv|send_?recv|send|receive|recv|reduce|scatter|gather|barrier"
)
# hcom_allReduce__503_96_4 · hcom_allGather_AicpuKernel_527_0_1 · hcom_broadcast__445_0 · HcclAllGather: the
# communicator follows one or two underscores; a name that is not recognised would vanish from its family.
_NUMBERS = r"(?:_+(?P<communicator>[0-9A-Za-z]+))?(?:_+[0-9]+)*_*$"
ASCEND_COLLECTIVE = rf"^(?i:hcom|hccl)_?(?P<family>(?i:{_OPERATION}))(?:_?(?i:aicpukernel))?{_NUMBERS}"
# allgatherAicpuKernel: the AI-CPU kernel of a collective, without prefix and without communicator.
ASCEND_AICPU_COLLECTIVE = rf"^(?P<family>(?i:{_OPERATION}))_?(?i:aicpukernel){_NUMBERS}"
UNRECOGNISED = "unrecognised"

# Words of a collective's name. A reduce, a gather, a scatter or a broadcast alone is an ordinary operation on rows.
LOOKS_COLLECTIVE = (
    r"all_?reduce|all_?gather|all_?to_?all|all2all|(?:^|[_:])a2a(?:_|$)|reduce_?scatter|send_?recv"
    r"|cross_device|multimem|userbuffers|(?:^|[_:])(?:[a-z]?[nrhmx]ccl|bkcl|cncl|flagcx|mscclp*)|(?:nv|roc|i)shmem"
)
_LOOKS_COLLECTIVE = re.compile(LOOKS_COLLECTIVE)
# Of many names, those that may mean communication or are mangled; the others need not be asked one by one.
ASKED = rf"(?i){LOOKS_COLLECTIVE}|dispatch|combine|publish|^aiv_|^_z"
_PLAIN = re.compile(r"i?(send|recv|receive|reduce|scatter|gather|broadcast|bcast|barrier)")
_COMPOUND = re.compile(
    r"(allgatherv(?!ec)|allgather|allreduce|alltoallvc|alltoallv|alltoall|reducescatterv(?!ec)|reducescatter"
    r"|batchisendirecv|batchsendrecv|sendrecv)"
)
# Namespaces of operators and prefixes of titles under which a plain "reduce" or "send" is a collective
# (pytorch torch/csrc/distributed/c10d/Ops.cpp, Functional.cpp, symm_mem/SymmetricMemory.cpp).
_OF_COLLECTIVES = (
    *("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "dist"),
    *("nccl", "rccl", "hccl", "hcom", "gloo", "mpi", "pmpi", "ucc", "xccl", "oneccl", "ccl", "torch_ccl"),
    "oneccl_bindings_for_pytorch",
)
_PREFIXED = re.compile(r"(p?mpi|hccl|hcom|oneccl|ccl)_?(\w+)")
_NO_COLLECTIVES = ("aten", "prims", "prim", "torchvision", "inductor")

SURE, FUSED, UNKNOWN_FAMILY, LOOKALIKE = "", "fused", "unknown_family", "lookalike"


class Meaning(NamedTuple):
    """What a kernel's name says. ``family`` is empty for computing; ``doubt`` is

    ``SURE``; ``FUSED``: a collective with computing inside, or the reverse; ``UNKNOWN_FAMILY``: communication, nothing
    says of which family; ``LOOKALIKE``: the name looks like a collective and nothing explains it, so it counts as
    computing.
    """

    family: str
    doubt: str = SURE


class _Row(NamedTuple):
    family: str
    doubt: str


def ascend_core(accelerator_core: str) -> str:
    """Return the core class of an ``Accelerator Core`` value; an unknown engine (``DSA_SQE``) is ``other``."""
    return _ASCEND_CORES.get(accelerator_core.strip().upper(), OTHER)


def canonical_family(operation: str) -> str:
    """Return one spelling for an operation: ``all_to_all`` -> ``alltoall``, ``AllGather`` -> ``allGather``."""
    key = operation.replace("_", "").lower()
    return _FAMILIES.get(key, operation or UNRECOGNISED)


@lru_cache(maxsize=1 << 12)
def stated_family(operation: str) -> str:
    """Return the family of an operation that a trace states (``_allgather_base``, ``all_to_allv``), or ``""``."""
    word = operation.lower().replace("_", "")
    match = _COMPOUND.match(word) or _PLAIN.match(word)
    if not match:
        return ""
    found = match[1].replace("batchisendirecv", "batchsendrecv")
    return _FAMILIES[found]


@lru_cache(maxsize=1 << 14)
def operator_family(operator: str) -> str:
    """Return the family of the collective that a host operator performs, or ``""``.

    ``c10d::allreduce_``, ``symm_mem::multimem_all_reduce_``, ``nccl:all_reduce``, ``vllm::all_reduce``,
    ``MPI_Iallgather``; ``aten::scatter_reduce`` is none.
    """
    lowered = operator.strip().lower()
    space, _, last = lowered.replace("::", ":").rpartition(":")
    if prefixed := _PREFIXED.match(last):
        space, last = prefixed[1], prefixed[2]
    first = space.partition(":")[0]
    if first in _NO_COLLECTIVES:
        return ""
    word = last.replace("_", "")
    match = _COMPOUND.search(word) or (_PLAIN.match(word) if first in _OF_COLLECTIVES else None)
    return _FAMILIES[match[1].replace("batchisendirecv", "batchsendrecv")] if match else ""


@lru_cache(maxsize=1 << 16)
def meaning(name: str, stated: str = "", operator: str = "") -> Meaning:
    """Return what a kernel is, from its name, the "Collective name" that its event states, and its launching operator.

    NCCL runs an all-to-all as grouped send/receive and several collectives as one generic kernel, so what the trace
    states is believed before the name, and the operator where the name does not say.
    """
    row = _row(name)
    if row is None:
        if not _LOOKS_COLLECTIVE.search(qualified_name(name)):
            return Meaning("")
        family = stated_family(stated) or operator_family(operator)
        return Meaning(family) if family else Meaning("", LOOKALIKE)
    if not row.family:
        return Meaning("", row.doubt)
    by_event = stated_family(stated)
    if row.family in ("operator", "sendRecv"):
        by_event = by_event or operator_family(operator)
    family = by_event or row.family
    return Meaning(UNRECOGNISED, UNKNOWN_FAMILY) if family == "operator" else Meaning(family, row.doubt)


def torch_family(name: str, collective_name: str = "", operator: str = "") -> str:
    """Return the family of a torch trace's event, or ``""`` when it is no collective."""
    return meaning(name, collective_name, operator).family


def asks_operator(name: str) -> bool:
    """Whether the operator that launched a kernel may say more of it than its name."""
    found = meaning(name)
    return found.doubt in (UNKNOWN_FAMILY, LOOKALIKE) or found.family == "sendRecv"


def _row(name: str) -> _Row | None:
    qualified = qualified_name(name)
    pattern, rows = _table()
    match = pattern.search(qualified)
    if not match or not match.lastgroup:
        return None
    row = rows[int(match.lastgroup[1:])]
    return row._replace(family=operator_family(qualified) or "operator") if row.family == "own" else row


@cache
def _table() -> tuple[re.Pattern[str], tuple[_Row, ...]]:
    text = (Path(__file__).parent / "naming" / "kernel_names.tsv").read_text(encoding="utf-8")
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")][1:]
    rows = tuple(
        _Row("" if family == "computing" else family, FUSED if fused == "yes" else SURE)
        for _, family, fused, _ in lines
    )
    each = "|".join(f"(?P<r{number}>{pattern})" for number, (pattern, *_) in enumerate(lines))
    return re.compile(rf"(?:^|::)(?:{each})$"), rows
