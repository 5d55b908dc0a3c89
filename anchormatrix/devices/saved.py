"""Vendor tools' outputs that were saved in a file: which tool wrote it is seen from its content."""

from __future__ import annotations

import re
from pathlib import Path

from anchormatrix.devices import ascend, nvidia
from anchormatrix.devices.text import Listing, uncoloured
from anchormatrix.errors import InputError, quoted_line
from anchormatrix.records.host import Topology

_LARGEST_BYTES = 4 * 2**20
_ASCEND_TOPOLOGY = re.compile(r"^\s*(NPU|Phy-ID)\d", re.MULTILINE)
_NVIDIA_TOPOLOGY = re.compile(r"^\s*(\x1b\[\d*m)?GPU\d", re.MULTILINE)
_ASCEND_INFO = re.compile(r"^\s*\|?\s*npu-smi\s", re.MULTILINE)
_NVIDIA_QUERY = re.compile(r"^\s*(index|uuid|name|timestamp)\s*,", re.MULTILINE)


def saved_topology(path: Path) -> Topology:
    """The link matrix in a file written by ``npu-smi info -t topo`` or ``nvidia-smi topo -m``.

    Raises :class:`InputError` naming the file, the command and the line.
    """
    text = _text(path)
    try:
        if _ASCEND_TOPOLOGY.search(text):
            return ascend.parse_topology(text)
        if _NVIDIA_TOPOLOGY.search(text):
            return nvidia.parse_topology(text)
        raise _unknown(text, "`npu-smi info -t topo` or `nvidia-smi topo -m`")
    except InputError as error:
        raise _in_file(path, error) from None


def saved_listing(path: Path) -> Listing:
    """Cards and the tool's further words in a file of ``npu-smi info`` or ``nvidia-smi --query-gpu=… --format=csv``.

    The latter may be followed by the output of ``--query-compute-apps``. Raises :class:`InputError` naming the file,
    the command and the line.
    """
    text = _text(path)
    try:
        if _ASCEND_INFO.search(text):
            return ascend.read_info(text)
        if _NVIDIA_QUERY.search(text):
            return nvidia.parse_health(text)
        raise _unknown(text, "`npu-smi info` or `nvidia-smi --query-gpu=index,uuid,name,… --format=csv`")
    except InputError as error:
        raise _in_file(path, error) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from None
    if len(data) > _LARGEST_BYTES:
        raise InputError(
            f"is larger than {_LARGEST_BYTES >> 20} MiB", where=str(path), expected="a vendor tool's output"
        )
    return uncoloured(data.decode("utf-8-sig", "replace"))


def _unknown(text: str, expected: str) -> InputError:
    first = next((line for line in text.splitlines() if line.strip()), "")
    what = f"is no output of a known tool, it starts {quoted_line(first)}" if first else "is empty"
    return InputError(what, expected=f"the output of {expected}")


def _in_file(path: Path, error: InputError) -> InputError:
    where = f"{path}, {error.where}" if error.where else str(path)
    return InputError(error.what, where=where, expected=error.expected, todo=error.todo)
