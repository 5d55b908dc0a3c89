"""Proof of effect: a configuration counts when the start-up log shows its ranks and its group sizes, not "enabled"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anchormatrix.measure.serve_log import ServeLog


@dataclass(frozen=True)
class Proof:
    """Ranks and group sizes asked for and seen. ``unproven`` are sizes above 1 that this engine's log does not tell."""

    ok: bool
    ranks_expected: int
    ranks_seen: int
    groups_expected: Mapping[str, int]
    groups_seen: Mapping[str, int | str]
    failures: tuple[str, ...]
    unproven: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The proof as ``session.json`` holds it."""
        return asdict(self)


def prove(log: ServeLog, expected: Mapping[str, int]) -> Proof:
    """Hold the log against the sizes that the form must have; ``expected["world"]`` is the number of ranks.

    A size that the log contradicts is a failure. So is a sequence group that the log does not mention: without it the
    sequence is not split. Other sizes the log does not tell are listed as unproven.
    """
    groups = {name: size for name, size in expected.items() if name != "world"}
    failures: list[str] = []
    unproven: list[str] = []
    if len(log.ranks) != expected["world"]:
        failures.append(f"{len(log.ranks)} of {expected['world']} ranks seen")
    for name, size in groups.items():
        seen = log.groups.get(name)
        if seen is None and size > 1:
            (failures if name == "sp_size" else unproven).append(f"{name} {size} asked for, not in the log")
        elif seen is not None and seen != (size,):
            failures.append(f"{name} is {_sizes(seen)}, {size} asked for")
    timed = {len(request.ranks) for request in log.requests if request.ranks}
    if timed and max(timed) > expected["world"]:
        failures.append(f"{max(timed)} ranks timed a request, {expected['world']} asked for")
    return Proof(
        ok=not failures,
        ranks_expected=expected["world"],
        ranks_seen=len(log.ranks),
        groups_expected=groups,
        groups_seen={name: seen[0] if len(seen) == 1 else _sizes(seen) for name, seen in log.groups.items()},
        failures=tuple(failures),
        unproven=tuple(unproven),
    )


def _sizes(sizes: tuple[int, ...]) -> str:
    return "/".join(map(str, sizes))
