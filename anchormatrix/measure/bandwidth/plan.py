"""The plan of a size sweep, and how a collective test's output becomes points of a sweep."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from anchormatrix.errors import ConfigError, InputError, quoted_line
from anchormatrix.measure.bandwidth.curve import wire_bytes
from anchormatrix.planning.collective_calls import collectives, link_class, rank_groups
from anchormatrix.planning.collective_calls import concurrency as at_once
from anchormatrix.records.bandwidth import CollectiveKind, SweepPoint
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.settings.things import ModelSettings

# The names vendors' collective tests use for what the field calls all-to-all, all-gather, all-reduce, send/receive.
TEST_NAMES = {"all_to_all": "alltoall", "all_gather": "all_gather", "all_reduce": "all_reduce", "send_recv": "sendrecv"}


@dataclass(frozen=True, order=True)
class SweepOrder:
    """One sweep to run: a collective over some cards, by so many communicators over the same cards at once.

    ``sizes`` are bytes one rank hands to a call.
    """

    collective: str
    cards: tuple[int, ...]
    link_class: str
    concurrency: int
    sizes: tuple[int, ...]
    repeats: int

    @property
    def ranks(self) -> int:
        """Ranks of the group."""
        return len(self.cards)


def plan_sweep(
    forms: Iterable[Form],
    model: ModelSettings,
    contract: Contract,
    *,
    sizes_mb: Sequence[float],
    concurrency: Sequence[int],
    repeats: int,
) -> tuple[SweepOrder, ...]:
    """The sweeps that the forms' collectives need on this group, without repetition.

    Every collective of a form is swept over a group of its ranks as placed, one per link class: with the configured
    numbers of communicators at once, and with the form's own, so that implied and isolated bandwidth can be compared at
    equal concurrency. All-to-all, all-gather and all-reduce over the whole group are always included.
    """
    sizes = tuple(sorted({round(size * 1e6) for size in sizes_mb}))
    if not sizes or sizes[0] < 1:
        raise ConfigError(f"sizes {list(sizes_mb)} MB", where="selection.bandwidth.sizes_mb", expected="positive sizes")
    topology = contract.topology
    wanted: set[tuple[str, tuple[int, ...], str, int]] = set()
    if contract.size > 1:
        for name in ("all_to_all", "all_gather", "all_reduce"):
            wanted |= {(name, contract.cards, contract.link_class, count) for count in {1, *concurrency}}
    for form in forms:
        for call in collectives(form, model):
            for ranks in rank_groups(form, call.dimension):
                cards = tuple(contract.cards[rank] for rank in ranks)
                kind = link_class(ranks, contract.cards, topology)
                wanted |= {(call.kind, cards, kind, count) for count in {1, *concurrency, at_once(form)}}
    found: dict[tuple[str, str, int, int], SweepOrder] = {}
    for name, cards, kind, count in sorted(wanted):  # the first cards stand for their like
        found.setdefault((name, kind, len(cards), count), SweepOrder(name, cards, kind, count, sizes, repeats))
    return tuple(sorted(found.values(), key=lambda order: (order.collective, order.ranks, order.concurrency)))


def test_argv(command: Sequence[str], order: SweepOrder) -> list[str]:
    """Fill a configured collective test's command.

    ``{collective} {ranks} {cards} {min_bytes} {max_bytes} {repeats} {concurrency}`` are replaced where they stand in a
    word. Raises :class:`ConfigError` for another name in braces.
    """
    values = {
        "collective": TEST_NAMES[order.collective],
        "ranks": str(order.ranks),
        "cards": ",".join(map(str, order.cards)),
        "min_bytes": str(order.sizes[0]),
        "max_bytes": str(order.sizes[-1]),
        "repeats": str(order.repeats),
        "concurrency": str(order.concurrency),
    }

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ConfigError(
                f"{{{match[1]}}} is not known",
                where="device.collective_test",
                expected=", ".join(f"{{{name}}}" for name in values),
            )
        return values[match[1]]

    return [re.sub(r"\{(\w+)\}", filled, word) for word in command]


def can_be_run(command: Sequence[str], order: SweepOrder) -> bool:
    """Whether a configured test can run the order: several communicators only where its command has a place for it."""
    return order.concurrency == 1 or not command or any("{concurrency}" in word for word in command)


def points_of(order: SweepOrder, measured: Iterable[tuple[int, float]]) -> tuple[SweepPoint, ...]:
    """Points from (bytes, µs) pairs."""
    return tuple(
        SweepPoint(
            CollectiveKind(order.collective),
            order.link_class,
            order.ranks,
            size,
            order.concurrency,
            time_us,
            wire_bytes(order.collective, order.ranks, size) / (time_us * 1e-6) / 1e9,
        )
        for size, time_us in measured
    )


_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def parse_collective_test(text: str, *, command: str) -> tuple[tuple[int, float], ...]:
    """Read (bytes, µs) from the table of a collective test: the vendor's ``|`` table or the common ``#`` table.

    The header names the columns: one with ``size`` in bytes and one with ``time``. A row whose check failed, an empty
    table or a number that is none is an error that shows the line.
    """
    columns: tuple[int, int, float] | None = None
    rows: list[tuple[int, float]] = []
    for line in text.splitlines():
        cells = _cells(line)
        found = _header(cells)
        if found:
            columns = found
        elif columns and cells and re.fullmatch(r"\d+", cells[0]):
            rows.append(_row(line, cells, columns, command))
    if not rows:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        raise InputError(
            f"no row of a collective test in its output; last line {quoted_line(last)}",
            where=command,
            expected="a table with a size and a time column",
            todo="run the command by hand; a port bind error there means the device was not set before init",
        )
    return tuple(rows)


def _cells(line: str) -> list[str]:
    line = line.lstrip("# ")
    return [cell.strip() for cell in line.split("|")] if "|" in line else line.split()


def _header(cells: Sequence[str]) -> tuple[int, int, float] | None:
    """(index of size, index of time, µs per unit), or None when the line is no header."""
    names = [cell.lower() for cell in cells]
    size = next((i for i, name in enumerate(names) if "size" in name), None)
    time = next((i for i, name in enumerate(names) if "time" in name), None)
    if size is None or time is None or any(name[:1].isdigit() for name in names):
        return None
    unit = re.search(r"\((us|ms|s)\)", names[time])
    return size, time, _UNITS[unit[1]] if unit else 1.0


def _row(line: str, cells: Sequence[str], columns: tuple[int, int, float], command: str) -> tuple[int, float]:
    size_at, time_at, scale = columns
    try:
        size, time_us = int(cells[size_at]), float(cells[time_at]) * scale
    except (IndexError, ValueError):
        raise InputError(f"unreadable row {quoted_line(line)}", where=command) from None
    if not (size > 0 and math.isfinite(time_us) and time_us > 0):
        raise InputError(f"impossible row {quoted_line(line)}", where=command)
    if any(cell.lower() in ("failed", "fail", "error") for cell in cells):
        raise InputError(f"the test's own result check failed: {quoted_line(line)}", where=command)
    return size, time_us


def parse_bench(text: str, *, command: str) -> tuple[tuple[int, float], ...]:
    """Read the micro-benchmark's lines: ``{"bytes": n, "times_us": [t, …]}``, one per size; other lines are ignored.

    The median counts: a shared host's stray slow call is not the link.
    """
    rows: list[tuple[int, float]] = []
    for line in text.splitlines():
        if not line.startswith('{"bytes"'):
            continue
        try:
            values = json.loads(line)
            times = [float(time) for time in values["times_us"]]
            size = int(values["bytes"])
        except (ValueError, TypeError, KeyError):
            raise InputError(f"unreadable line {quoted_line(line)}", where=command) from None
        if size <= 0 or not times or not all(math.isfinite(time) and time > 0 for time in times):
            raise InputError(f"impossible line {quoted_line(line)}", where=command)
        rows.append((size, median(times)))
    if not rows:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        raise InputError(f"the micro-benchmark printed no result; last line {quoted_line(last)}", where=command)
    return tuple(rows)


def bench_order(order: SweepOrder, *, device: str, backend: str) -> str:
    """The argument of ``collective_bench.py``; only the order's cards are visible to it, numbered from 0."""
    values = {
        "collective": order.collective,
        "ranks": order.ranks,
        "communicators": order.concurrency,
        "sizes": list(order.sizes),
        "repeats": order.repeats,
        "device": device,
        "backend": backend,
    }
    return json.dumps(values, separators=(",", ":"))
