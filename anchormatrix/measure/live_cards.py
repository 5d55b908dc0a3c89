"""The live cards of a contract: still the same, still fit, still alone; and what a session keeps of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from anchormatrix.devices.base import Device
from anchormatrix.errors import BusyError, ContractError, InputError
from anchormatrix.hosts.base import Host
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract
from anchormatrix.records.host import Card, CardState, HostState, mb
from anchormatrix.records.session import SeenCard, SeenCards, SeenProcess
from anchormatrix.records.settings.values import OnBusy
from anchormatrix.records.settings.whole import Settings

_LOOK_AGAIN_S = 2.0


def read_fit(
    contract: Contract, host: Host, device: Device, settings: Settings, say: Callable[[str], None]
) -> HostState:
    """Read the host and check that it still is the contract's: cards, links, driver, health, nobody else on the cards.

    With ``health.on_busy: wait`` a tenant is waited for, at most ``health.busy_wait_s``. Raises :class:`ContractError`
    naming what differs, :class:`BusyError` naming who is there.
    """
    deadline = time.monotonic() + settings.health.busy_wait_s
    while True:
        state = device.read(host, timeout_s=settings.host.command_timeout_s)
        changes = [*changed(contract, state), *unfit(contract.cards, state)]
        if changes:
            raise ContractError(
                f"the live host is no longer the contract's: {'; '.join(changes)}",
                where=f"contract {contract.id}",
                todo="run the workflow again: it resolves groups and contracts from the live host",
            )
        others = tenants(contract.cards, state, host.own_pids(), settings.health.static_memory_mb)
        if not others:
            return state
        left_s = deadline - time.monotonic()
        if settings.health.on_busy != OnBusy.WAIT or left_s <= 0:
            waited = f" for {settings.health.busy_wait_s:g} s" if settings.health.on_busy == OnBusy.WAIT else ""
            raise BusyError(
                f"in use by somebody else{waited}: {'; '.join(others)}",
                where=f"cards {show(contract.cards)} of {host.alias}",
                todo="wait until they leave, raise health.busy_wait_s, or let health.on_busy skip to another group",
            )
        say(f"waiting up to {left_s:.0f} s for {'; '.join(others)}")
        time.sleep(min(_LOOK_AGAIN_S, max(left_s, 0.05)))


def changed(contract: Contract, state: HostState) -> list[str]:
    """Facts of the contract that the live host contradicts, as phrases."""
    gone = [card for card in contract.cards if card not in state.topology.cards]
    if gone:
        return [f"card {show(gone)} is no longer there"]
    links = tuple(tuple(state.topology.link(a, b) for b in contract.cards) for a in contract.cards)
    found = []
    if links != contract.links:
        found.append(f"links between {show(contract.cards)} changed")
    models = "+".join(sorted({_card(state, card).name for card in contract.cards}))
    if models != contract.device_model:
        found.append(f"cards are {models}, not {contract.device_model}")
    driver = dict(state.versions).get("driver", contract.driver)
    if driver != contract.driver:
        found.append(f"driver is {driver}, not {contract.driver}")
    return found


def unfit(cards: Iterable[int], state: HostState) -> list[str]:
    """Cards whose health forbids measuring on them, as phrases; a warning is for the smoke to confirm."""
    readings = [_card(state, card) for card in cards]
    return [f"card {card.id} {card.reason}" for card in readings if card.state is CardState.UNUSABLE]


def warned(cards: Iterable[int], state: HostState) -> tuple[int, ...]:
    """Cards that say ``Warning``."""
    return tuple(card for card in cards if _card(state, card).health.upper() == "WARNING")


def tenants(cards: Iterable[int], state: HostState, own: Iterable[int], static_memory_mb: int) -> list[str]:
    """Who else is on the cards, as phrases. ``own`` are the process ids of this program and of what it started.

    Memory beyond the driver's own that no listed process accounts for belongs to a process of another container.
    """
    ours, found = set(own), []
    for card in (_card(state, card_id) for card_id in cards):
        foreign = [process for process in card.processes if process.pid not in ours]
        for process in foreign:
            found.append(f"{process.name or 'unnamed'} (pid {process.pid}, {mb(process.memory_mb)}) on card {card.id}")
        if not card.processes and card.hbm_used_mb is not None and card.hbm_used_mb > static_memory_mb:
            found.append(f"{card.hbm_used_mb} MB on card {card.id} of a process that is not visible here")
    return found


def seen(cards: Iterable[int], state: HostState) -> SeenCards:
    """What a session keeps of its cards."""
    return SeenCards(
        tuple(
            SeenCard(
                card.id,
                card.health,
                card.hbm_used_mb,
                card.temperature_c,
                card.power_w,
                tuple(SeenProcess(process.pid, process.name, process.memory_mb) for process in card.processes),
            )
            for card in (_card(state, card_id) for card_id in cards)
        )
    )


def _card(state: HostState, card_id: int) -> Card:
    try:
        return state.card(card_id)
    except InputError as error:
        raise ContractError(error.what, todo="look at the vendor's tool on the host") from None


def load(host: Host, settings: Settings) -> float | None:
    """The host's load average over one minute, where it has one."""
    done = host.run(("cat", "/proc/loadavg"), timeout_s=settings.host.command_timeout_s, check=False)
    try:
        return float(done.stdout.split()[0])
    except (IndexError, ValueError):
        return None
