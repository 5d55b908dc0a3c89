"""Cells of ``nvidia-smi --format=csv``: names of columns, values that are not told, amounts, GPUs without a handle."""

from __future__ import annotations

import re

from anchormatrix.devices.text import Line, Source
from anchormatrix.errors import quoted_line

_ABSENT = (
    "",
    "-",
    "NA",
    "[N/A]",
    "N/A",
    "Not Supported",
    "[Not Supported]",
    "[Not Found]",
    "[Insufficient Permissions]",
)
# a GPU off the bus, alone or beside the rows: NVIDIA/dcgm-exporter issue 604, cihlab/fics-cluster-guide issue 53 (no
# blank before the bus id), JosephKJ/OWOD issue 81 (`GPU is lost. Reboot the system …`)
NO_HANDLE = re.compile(
    r"Unable to de\w+ the device handle for GPU\s*(?:(\d{1,2}): )?\s*([0-9A-F]{3,8}:[0-9A-F:.]+): (.+)", re.IGNORECASE
)
_UNIT = re.compile(r"^(.*?)\s*\[(KiB|MiB|GiB|MB|GB|W|%|C)\]$")
_MIB = {"KiB": 1 / 1024, "MiB": 1, "MB": 1, "GiB": 1024, "GB": 1024}  # the tool's MB and GB are powers of two
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*(KiB|MiB|MB|GiB|GB)?")


def column(cell: str) -> str:
    """A column's name, without the unit behind it."""
    clean = cell.strip()
    match = _UNIT.match(clean)
    return match[1] if match else clean


def is_absent(cell: str) -> bool:
    """Whether the tool does not tell this value."""
    return cell in _ABSENT


def mib(found: Source, line: Line, cell: str, what: str) -> int:
    """An amount of memory in MiB. Raises :class:`InputError`."""
    match = _MEMORY.fullmatch(cell)
    if not match:
        raise found.error(line, f"{what} is {quoted_line(cell)} in", "a number of MiB")
    return round(float(match[1]) * _MIB[match[2] or "MiB"])
