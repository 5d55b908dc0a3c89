"""The checks of the cards: the vendor's tools, health, groups of every size, tenants, leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anchormatrix.devices.probe import read_version
from anchormatrix.doctor.lines import Line, failed, not_checked, ok, wrong
from anchormatrix.doctor.machine import folder_state
from anchormatrix.doctor.visit import Visit
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.hosts.holdings import Holding, holdings, problems
from anchormatrix.planning.groups import resolve_groups, show, tenants
from anchormatrix.records.contract import GroupCondition
from anchormatrix.records.host import NOT_STATED, CardState, HostState

_TOOLS = {"ascend": "npu-smi", "nvidia": "nvidia-smi", "cpu": "lscpu and /proc"}
_UNREAD = "the vendor's tools did not tell"


def vendor_tools(visit: Visit) -> Iterator[Line]:
    """Whether the vendor's tools are there and their tables are read: cards, links, versions."""
    state, tool = visit.state, _TOOLS[visit.settings.device.kind]
    if not isinstance(state, HostState):
        yield failed("vendor tools", state, "run it on the host by hand and see what it prints")
        return
    models = Counter(card.name for card in state.cards)
    listed = ", ".join(f"{count} × {name}" for name, count in models.items())
    driver = dict(state.versions).get("driver", NOT_STATED)
    domains = len(state.topology.domains)
    yield ok("vendor tools", f"{tool} shows {listed}, in {domains} domain{'s'[: domains > 1]}, driver {driver}")


def toolkit(visit: Visit) -> Iterator[Line]:
    """Whether the toolkit's version, a part of every contract, can be told."""
    given = visit.settings.device.toolkit
    if given == NOT_STATED:
        yield not_checked("toolkit", "device.toolkit is not stated; with it, a new toolkit is a new contract")
        return
    try:
        yield ok("toolkit", read_version(visit.host, given, visit.settings, "device.toolkit"))
    except AnchorMatrixError as error:
        yield failed("toolkit", error, "correct device.toolkit, or give the version as text")


def health(visit: Visit) -> Iterator[Line]:
    """Which cards may not be used, and whether every size has a group."""
    state, settings = visit.state, visit.settings
    if not isinstance(state, HostState):
        yield not_checked("cards", _UNREAD)
        return
    bad = [f"card {card.id} {card.reason}" for card in state.cards if card.state is CardState.UNUSABLE]
    found = resolve_groups(state, settings.matrix.sizes, health=settings.health, groups=settings.groups, current={})
    for size, candidates in found.candidates.items():
        if candidates:
            first = candidates[0]
            yield ok(f"group of {size}", f"cards {show(first.cards)}: {first.reason}")
        else:
            cure = "repair what is named, or leave this size out of matrix.sizes"
            yield wrong(f"group of {size}", f"none: {found.why_none(size)}", cure)
    if bad:
        yield wrong("cards", "; ".join(bad), "the vendor's documents say how; other cards are used meanwhile")
    else:
        yield ok("cards", f"all {len(state.cards)} can be used")


def foreign_tenants(visit: Visit) -> Iterator[Line]:
    """Who else is on the cards; wrong where a size has no group without them."""
    state, settings = visit.state, visit.settings
    if not isinstance(state, HostState):
        yield not_checked("tenants", _UNREAD)
        return
    busy = [text for card in state.cards if (text := tenants(card, settings.health.static_memory_mb))]
    if not busy:
        yield ok("tenants", "nobody else is on the cards")
        return
    found = resolve_groups(state, settings.matrix.sizes, health=settings.health, groups=settings.groups, current={})
    hindered = [
        f"{size}"
        for size, candidates in found.candidates.items()
        if not any(one.state is not GroupCondition.BUSY for one in candidates)
    ]
    text = "; ".join(busy)
    if hindered:
        cure = "ask them to leave, or raise health.static_memory_mb where it is the driver's own memory"
        yield wrong("tenants", f"{text}; no free group of {', '.join(hindered)}", cure)
    else:
        yield ok("tenants", f"{text}; every size has a group without them")


def leases(visit: Visit) -> Iterator[Line]:
    """Who of this software holds cards, and whether the folder of locks can be used. No lease is taken."""
    folder = visit.settings.host.lease_dir
    try:
        writable, _ = folder_state(visit, folder)
        if not writable:
            cure = "correct host.lease_dir: a folder that all who share the host can write"
            yield wrong("leases", f"{folder} (host.lease_dir) cannot be written", cure)
            return
        found = holdings(visit.host)
    except AnchorMatrixError as error:
        yield failed("leases", error, "correct host.lease_dir")
        return
    held = [one for one in found if one.held]
    suspect = sorted(one.card for one in found if one.suspect)
    after = f"; cards {show(suspect)} are suspect: a smoke comes first, by itself" if suspect else ""
    after += "".join(f"; {line}" for line in problems(found))
    if held:
        cure = "wait for them, or talk to the holder; a killed holder frees its cards at once"
        yield wrong("leases", "; ".join(map(_held, held)) + after, cure)
    else:
        yield ok("leases", f"no card is held{after}")


def _held(one: Holding) -> str:
    locked = f", locked by {one.locker}" if one.locker else ""
    return (
        f"card {one.card} is held by {one.user} (pid {one.pid} on {one.origin}{locked}) since {one.since}: {one.what}"
    )
