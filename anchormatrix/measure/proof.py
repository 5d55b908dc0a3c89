"""Proof of effect: a configuration counts when the start-up log shows its ranks and its group sizes, not "enabled"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite

from anchormatrix.engines.timing import ServeLog
from anchormatrix.records.session import Check, Proof


def prove(log: ServeLog, expected: Mapping[str, int], peaks_mb: Iterable[float | None] = ()) -> Proof:
    """Hold the log against the sizes that the form must have; ``expected["world"]`` is the number of ranks.

    ``peaks_mb`` is the device memory that the answers tell of. What is told of features is kept and judged later, with
    the captures.

    A size that the log contradicts is a failure. So is a sequence group that the log does not mention: without it the
    sequence is not split. Other sizes the log does not tell are listed as unproven. A check of its own result that the
    engine logs and that fails is a failure: the form computes something else.
    """
    groups = {name: size for name, size in expected.items() if name != "world"}
    failures: list[str] = []
    unproven: list[str] = []
    if len(log.ranks) != expected["world"]:
        failures.append(f"{len(log.ranks)} of {expected['world']} ranks seen")
    asked = {name: f"{name} {size}" for name, size in groups.items() if size > 1}
    for name, why in log.denied.items():
        if name in asked or name not in groups:
            failures.append(f"{asked.get(name, name)} is not in effect: {why}")
    unproven += [f"{name}: {why}" for name, why in log.unproven.items()]
    for name, size in groups.items():
        seen = log.groups.get(name)
        if seen is None and size > 1:
            (failures if name == "sp_size" else unproven).append(f"{name} {size} asked for, not in the log")
        elif seen is not None and seen != (size,):
            failures.append(f"{name} is {_sizes(seen)}, {size} asked for")
    timed = {len(request.ranks) for request in log.requests if request.ranks}
    if timed and max(timed) > expected["world"]:
        failures.append(f"{max(timed)} ranks timed a request, {expected['world']} asked for")
    check = _check(log)
    if check and not check.ok:
        failures.append(check.words)
    return Proof(
        ok=not failures,
        ranks_expected=expected["world"],
        ranks_seen=len(log.ranks),
        groups_expected=groups,
        groups_seen={name: seen[0] if len(seen) == 1 else _sizes(seen) for name, seen in log.groups.items()},
        failures=tuple(failures),
        unproven=tuple(unproven),
        check=check,
        offload=log.offload,
        sparse=log.sparse,
        peak_memory_mb=max((peak for peak in peaks_mb if peak), default=None),
    )


def _check(log: ServeLog) -> Check | None:
    """The worst check of all ranks: a failed one first, then the largest distance."""
    if not log.checks:
        return None
    found = [(not distance <= limit, distance, limit, what) for what, distance, limit in log.checks]
    failed, distance, limit, what = max(found, key=lambda one: (one[0], one[1] if isfinite(one[1]) else inf))
    return Check(not failed, what, distance if isfinite(distance) else None, limit, len(found))


def _sizes(sizes: tuple[int, ...]) -> str:
    return "/".join(map(str, sizes))
