"""Releases: which of an engine's known ones a version is, and what is said of one that is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence

_VERSION = re.compile(r"(?<![\d.])(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_LONGEST = 60  # of a version that is shown
Number = tuple[int, ...]


def number_of(version: str) -> Number | None:
    """The first version number in a text such as ``vllm 0.30.0+cu13``; ``None`` where there is none."""
    found = _VERSION.search(version)
    return tuple(int(part) for part in found.groups(default="0")) if found else None


def nearest(version: str, known: Sequence[Number]) -> tuple[Number, bool]:
    """The newest of the ``known`` releases (rising) that is not newer than a version, and whether it is that one.

    A known release of two parts stands for all its patches. A version without a number, or older than all, is tried as
    the newest or as the oldest.
    """
    number = number_of(version)
    if number is None:
        return known[-1], False
    older = [release for release in known if release <= number]
    found = older[-1] if older else known[0]
    return found, number[: len(found)] == found


def caution(engine: str, version: str, taken: Number, *, same: bool) -> str:
    """What a person must know of a version that is not known; empty when it is."""
    if same:
        return ""
    name, version = ".".join(map(str, taken)), version[:_LONGEST]
    if number_of(version) is None:
        return f"no version number in {version!r}: taken as {engine} {name}"
    return f"{engine} {version} is not known here: taken as {name}"
