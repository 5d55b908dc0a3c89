"""Files of several devices: which rank each device is, and what a person should know of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anchormatrix.captures.kineto import TraceFile
from anchormatrix.captures.table import MOST_RANKS
from anchormatrix.errors import InputError
from anchormatrix.records.finding import Finding


def ranks_of_devices(held: Mapping[Path, TraceFile], findings: list[Finding]) -> dict[Path, tuple[int, ...]]:
    """Return the ranks of a file with several devices, each of which is a rank."""
    several = {path: one.devices for path, one in held.items() if len(one.devices) > 1}
    for path, devices in several.items():
        if len(held) > 1:
            raise InputError(
                f"holds kernels of {len(devices)} devices ({', '.join(devices)}) beside {len(held) - 1} other traces",
                where=str(path),
                expected="one device per file, or one file with all devices",
                todo="give this file alone, or capture one file per rank",
            )
        numbers = [int(one) if one.isdecimal() and int(one) <= MOST_RANKS else None for one in devices]
        known = [number for number in numbers if number is not None]
        ranks = tuple(known) if len(set(known)) == len(devices) else tuple(range(len(devices)))
        pairs = ", ".join(f"device {device} is rank {rank}" for device, rank in zip(devices, ranks, strict=True))
        findings.append(Finding("several_devices", f"{path} holds {len(devices)} devices: {pairs}", ranks))
        return {path: ranks}
    return {}


def findings_of(path: Path, one: TraceFile, ranks: tuple[int, ...]) -> list[Finding]:
    """Return what a person should know of one file, of some ranks."""
    findings = []
    if one.replaced:
        text = f"{one.replaced} invalid bytes (not UTF-8) in {path} were replaced"
        findings.append(Finding("replaced_bytes", text, ranks))
    if one.unknown:
        listed = ", ".join(f"{category} ({count})" for category, count in sorted(one.unknown.items()))
        text = f"{path} holds events of categories that are not known and look like device activity: {listed}; not read"
        findings.append(Finding("unknown_category", text, ranks))
    return findings
