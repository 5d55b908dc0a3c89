"""The card groups of a live topology: which are legal, which of them are fit, and why each other one is rejected.

A group is legal when it is an aligned block inside one interconnect domain (the whole domain, or the cards whose ids
fill one aligned quarter, half, pair …), or when it is all cards. On boards whose dies are joined by SIO, a pair is two
dies joined by SIO. Groups are read from the live links, never from card numbers in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from anchormatrix.records.contract import GroupCondition, RejectedGroup
from anchormatrix.records.host import Card, CardState, HostState, Topology
from anchormatrix.records.settings.policies import GroupsSettings, HealthSettings
from anchormatrix.records.settings.values import OnBusy

_LIST_ALL_UP_TO = 100
SECOND_BEST = "not one interconnect domain, bandwidth second-best"


@dataclass(frozen=True)
class Candidate:
    """A group that may be used. ``state`` is what its cards' health and occupancy looked like."""

    cards: tuple[int, ...]
    reason: str
    one_domain: bool
    state: GroupCondition


@dataclass(frozen=True)
class Resolution:
    """Candidates per size in order of preference, and the rejected groups with their reasons."""

    candidates: Mapping[int, tuple[Candidate, ...]]
    rejected: tuple[RejectedGroup, ...]

    def why_none(self, size: int) -> str:
        """Why a size has no candidate, in one line."""
        reasons = [f"{show(item.cards)}: {item.reason}" for item in self.rejected if item.size == size and item.cards]
        return "; ".join(reasons[:4]) or f"the host has too few cards for {size}"


def show(cards: Iterable[int]) -> str:
    """Card ids as a person writes them: ``0–3`` for a run, ``0,2`` otherwise."""
    listed = list(cards)
    if len(listed) > 2 and listed == list(range(listed[0], listed[0] + len(listed))):
        return f"{listed[0]}–{listed[-1]}"
    return ",".join(map(str, listed))


def resolve_groups(
    state: HostState,
    sizes: Sequence[int],
    *,
    health: HealthSettings,
    groups: GroupsSettings,
    current: Mapping[int, tuple[int, ...]],
) -> Resolution:
    """Return the fit groups of every size, best first, and every rejected group with its reason.

    Preference: the current contract's group (so that anchors are not lost by hopping between equal groups), then
    healthy, idle, of one model, whole-domain, lowest index.
    With ``on_busy: wait`` an occupied group is used when none is idle.
    """
    candidates: dict[int, tuple[Candidate, ...]] = {}
    rejected: list[RejectedGroup] = []
    for size in sizes:
        legal, illegal = _legal_groups(state, size, groups)
        rejected += illegal
        fit: list[tuple[tuple[bool | int, ...], Candidate]] = []
        for cards in legal:
            problem = _unfit(state, cards, health)
            if problem:
                rejected.append(RejectedGroup(size, cards, problem))
            else:
                fit.append(_ranked(state, cards, size, health, current.get(size)))
        fit.sort(key=lambda item: item[0])
        usable, occupied = _idle_first(size, [candidate for _, candidate in fit])
        candidates[size] = usable
        rejected += occupied
    return Resolution(candidates, tuple(rejected))


def tenants(card: Card, static_memory_mb: int) -> str:
    """Who else is on a card, as words; empty when nobody is.

    Memory beyond the driver's own that no visible process accounts for is a tenant in another container.
    """
    if card.processes:
        named = [f"{process.name or 'unnamed'} (pid {process.pid})" for process in card.processes]
        return f"{', '.join(named[:3])} on card {card.id}"
    if card.hbm_used_mb is not None and card.hbm_used_mb > static_memory_mb:
        return f"{card.hbm_used_mb} MB used on card {card.id} by a process that is not visible here"
    return ""


def models_of(state: HostState, cards: Iterable[int]) -> tuple[str, ...]:
    """The models of the cards that can be used, each once."""
    return tuple(sorted({card.name for card in map(state.card, cards) if card.state is not CardState.UNUSABLE}))


def _mixed(state: HostState, cards: Iterable[int]) -> str:
    """The models of a group that has several, in words; empty for a group of one."""
    models = models_of(state, cards)
    return f"mixes models {' and '.join(models)}" if len(models) > 1 else ""


def _legal_groups(
    state: HostState, size: int, groups: GroupsSettings
) -> tuple[list[tuple[int, ...]], list[RejectedGroup]]:
    topology = state.topology
    cards = topology.cards
    if size > len(cards):
        return [], [RejectedGroup(size, (), f"the host shows {len(cards)} cards")]
    pinned = tuple(sorted(groups.pinned.get(size, ())))
    legal: list[tuple[int, ...]] = []
    rejected: list[RejectedGroup] = []
    listed = _groups_to_judge(state, size)
    for group in listed:
        reason = _illegal(state, group)
        if reason and groups.allow_cross_domain and pinned == group:
            reason = ""
        mixed = _mixed(state, group)
        if not reason and mixed and not groups.allow_mixed_models:
            reason = f"{mixed}: groups.allow_mixed_models is off"
        if not reason and pinned and group != pinned:
            reason = f"groups.pinned asks for {show(pinned)}"
        if reason:
            rejected.append(RejectedGroup(size, group, reason))
        else:
            legal.append(group)
    if not legal and groups.allow_cross_domain and not pinned:
        one_model = [group for group in listed if groups.allow_mixed_models or not _mixed(state, group)]
        legal, rejected = _second_best(size, one_model, rejected)
    unlisted = comb(len(cards), size) - len(listed)
    if unlisted > 0:
        rejected.append(
            RejectedGroup(size, (), f"{unlisted} other sets of {size} cards are no aligned block of one domain")
        )
    return legal, rejected


def _groups_to_judge(state: HostState, size: int) -> list[tuple[int, ...]]:
    """Every set of cards where that is a readable list; on larger boards every run of neighbours and whole domain.

    Where models are mixed, neighbours are those of one model in one domain, too.
    """
    topology = state.topology
    cards = topology.cards
    if comb(len(cards), size) <= _LIST_ALL_UP_TO:
        return list(combinations(cards, size))
    runs = {cards[start : start + size] for start in range(len(cards) - size + 1)}
    runs |= {domain for domain in topology.domains if len(domain) == size}
    for alike in {_alike(state, card) for card in cards if len(models_of(state, cards)) > 1}:
        runs |= {alike[start : start + size] for start in range(len(alike) - size + 1)}
    return sorted(runs)


def _alike(state: HostState, card: int) -> tuple[int, ...]:
    """The cards of a card's domain that have its model."""
    model = state.card(card).name
    return tuple(other for other in state.topology.domain_of(card) if state.card(other).name == model)


def _illegal(state: HostState, group: tuple[int, ...]) -> str:
    """Why the links forbid a group; empty when it is legal.

    In a domain of several models, a group of one is aligned among the cards of that model.
    """
    topology = state.topology
    if group == topology.cards or len(group) == 1:
        return ""
    domain = topology.domain_of(group[0])
    outside = [card for card in group if card not in domain]
    if outside:
        link = topology.link(group[0], outside[0])
        return f"mixes domains: {group[0]} and {outside[0]} are joined by {link}"
    size = len(group)
    if size == 2 and _has_sio(topology, domain) and topology.link(*group) != "SIO":
        return f"crosses pairs: {group[0]} and {group[1]} are not the two dies of one board"
    if group == domain or (group[0] % size == 0 and group[-1] - group[0] == size - 1):
        return ""
    alike = _alike(state, group[0])
    if _mixed(state, domain) and set(group) <= set(alike):
        place = alike.index(group[0])
        if group == alike[place : place + size] and (group == alike or place % size == 0):
            return ""
    return f"crosses pairs: not an aligned block of {size} in domain {show(domain)}"


def _has_sio(topology: Topology, domain: tuple[int, ...]) -> bool:
    return any(topology.link(a, b) == "SIO" for a, b in combinations(domain, 2))


def _second_best(
    size: int, listed: list[tuple[int, ...]], rejected: list[RejectedGroup]
) -> tuple[list[tuple[int, ...]], list[RejectedGroup]]:
    """With the explicit override and no legal group: the aligned blocks that cross domains."""
    crossing = [group for group in listed if group[0] % size == 0 and group[-1] - group[0] == size - 1]
    return crossing, [item for item in rejected if item.cards not in crossing]


def _unfit(state: HostState, cards: tuple[int, ...], health: HealthSettings) -> str:
    for card_id in cards:
        card = state.card(card_id)
        if card.state is CardState.UNUSABLE:
            return f"card {card_id} {card.reason}"
        tenant = tenants(card, health.static_memory_mb)
        if tenant and health.on_busy != OnBusy.WAIT:
            return f"occupied: {tenant}"
    return ""


def _idle_first(size: int, fit: list[Candidate]) -> tuple[tuple[Candidate, ...], list[RejectedGroup]]:
    """Waiting for a tenant to leave is worth it only where no other group is free."""
    idle = tuple(candidate for candidate in fit if candidate.state is not GroupCondition.BUSY)
    if not idle:
        return tuple(fit), []
    return idle, [RejectedGroup(size, item.cards, item.reason) for item in fit if item.state is GroupCondition.BUSY]


def _ranked(
    state: HostState, cards: tuple[int, ...], size: int, health: HealthSettings, current: tuple[int, ...] | None
) -> tuple[tuple[bool | int, ...], Candidate]:
    topology = state.topology
    warned = [card for card in cards if state.card(card).health.upper() == "WARNING"]
    busy = [text for card in cards if (text := tenants(state.card(card), health.static_memory_mb))]
    one_domain = topology.all_to_all(cards)
    whole = cards in topology.domains
    words = ["all cards"] if cards == topology.cards else ["whole domain" if whole else "aligned block of one domain"]
    if size > 1 and not one_domain:
        words += [f"crosses domains over {'+'.join(topology.group_links(cards))}", SECOND_BEST]
    mixed = _mixed(state, cards)
    words += [mixed] if mixed else []
    words += ["current contract's group"] if cards == current else []
    words += [f"card {show(warned)} in Warning: counts only after the smoke"] if warned else []
    words += [f"card {card} {state.card(card).reason}" for card in cards if state.card(card).state is CardState.PARTLY]
    words += [f"occupied: {busy[0]}"] if busy else []
    condition = GroupCondition.BUSY if busy else GroupCondition.WARNING if warned else GroupCondition.FIT
    order = (bool(busy), bool(mixed), cards != current, bool(warned), not whole, cards[0])
    return order, Candidate(cards, ", ".join(words), one_domain, condition)
