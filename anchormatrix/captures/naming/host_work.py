"""What a host operator's name says of its own time: computing, handing on to other operators, waiting."""

from __future__ import annotations

import enum
import re
from functools import cache, lru_cache
from pathlib import Path

_COMMUNICATION = ("c10d::", "_c10d_functional::", "c10d_functional::", "_c10d_functional_autograd::", "gloo:")
# Namespaces of torch's own machinery; an operator library's namespace is its kernels' (mkldnn::, quantized::, _C::).
_MACHINERY = ("autograd", "torch", "profiler", "inductor", "prim")
_FUSED = re.compile(r"(?:^|_)cpp_fused_")  # kernels that inductor wrote (torch/_inductor/codegen/cpp.py)
_WAITS = re.compile(
    r".*functional::wait_tensor"
    r"|<built-in (?:method|function) (?:wait|sleep|acquire|select|poll|recv\w*|synchronize|get of _queue)\b.*"
    r"|(?:.*/)?(?:threading|selectors|queue|time)\.py\(\d+\): (?:wait|select|get|sleep|acquire|join)"
    r"|(?:.*/)?concurrent/futures/thread\.py\(\d+\): _worker"  # its own time is waiting for work
)
# What a kernel may do first with its inputs and still be the kernel: bring them into one type, one layout.
_PREPARES = ("aten::copy_", "aten::fill_", "aten::zero_")


class Work(enum.Enum):
    """What an operator's own time is: that outside the operators that it calls."""

    COMPUTES = enum.auto()
    HANDS_ON = enum.auto()
    COMMUNICATES = enum.auto()
    WAITS = enum.auto()


@lru_cache(maxsize=1 << 14)
def work_of(name: str, *, python: bool = False) -> Work:
    """Return what the own time of an operator or of a Python function is.

    Whatever bears no operator's name (``PythonDispatchMode``, autograd functions, regions of compiled code) hands on.
    """
    if _WAITS.fullmatch(name):
        return Work.WAITS
    if python:
        return Work.HANDS_ON
    if name.startswith(_COMMUNICATION) or name == "record_param_comms":
        return Work.COMMUNICATES
    space, found, operator = name.partition("::")
    if not found:
        return Work.COMPUTES if _FUSED.search(name) else Work.HANDS_ON
    if space in _MACHINERY or (space == "aten" and operator in _handing_on()):
        return Work.HANDS_ON
    return Work.COMPUTES


def is_preparation(name: str) -> bool:
    """Whether an operator inside a kernel only prepares its inputs."""
    return name in _PREPARES


@cache
def _handing_on() -> frozenset[str]:
    text = (Path(__file__).parent / "handing_on.txt").read_text(encoding="utf-8")
    return frozenset(name for line in text.splitlines() if not line.startswith("#") for name in line.split())
