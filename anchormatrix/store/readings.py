"""The stored readings of a host (topology.json, health.json) as values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchormatrix.errors import InputError
from anchormatrix.records.host import Card, CardProcess, HostState, Live, Stack, Topology


def topology_as_dict(topology: Topology) -> dict[str, Any]:
    """``{"cards":[id],"links":[[name]],"domains":[[id]]}``."""
    return {
        "cards": list(topology.cards),
        "links": [list(row) for row in topology.links],
        "domains": [list(domain) for domain in topology.domains],
    }


def topology_from_dict(values: Mapping[str, Any], where: str) -> Topology:
    """Rebuild a topology; the domains are derived from the links, never read. Raises :class:`InputError`."""
    try:
        cards = tuple(_whole(card) for card in values["cards"])
        links = tuple(tuple(_text(link) for link in row) for row in values["links"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"not a stored topology ({error!r})", where=where, todo="make it with scripts/rules/probe_topology.py"
        ) from None
    return Topology(cards, links)


def cards_as_list(cards: Sequence[Card]) -> list[dict[str, Any]]:
    """One entry per card, as ``health.json`` holds them. Every process seen by a probe is somebody else's."""
    return [
        {
            "id": card.id,
            "npu": card.npu,
            "chip": card.chip,
            "name": card.name,
            "health": card.health,
            "hbm_used_mb": card.hbm_used_mb,
            "hbm_total_mb": card.hbm_total_mb,
            "temperature_c": card.temperature_c,
            "power_w": card.power_w,
            "processes": [
                {"pid": process.pid, "name": process.name, "memory_mb": process.memory_mb} for process in card.processes
            ],
        }
        for card in cards
    ]


def health_as_dict(live: Live) -> dict[str, Any]:
    """``{"cards":[…],"versions":{"driver","toolkit","framework","framework_version"}}``."""
    stack = live.stack
    return {
        "cards": cards_as_list(live.state.cards),
        "versions": {
            "driver": stack.driver,
            "toolkit": stack.toolkit,
            "framework": stack.framework,
            "framework_version": stack.framework_version,
        },
    }


def live_from_dicts(topology: Mapping[str, Any], health: Mapping[str, Any], where: str) -> Live:
    """Rebuild a reading of a host from its two stored halves. Raises :class:`InputError`."""
    try:
        cards = tuple(_card(values) for values in health["cards"])
        versions = health.get("versions", {})
        stack = Stack(
            **{
                key: _text(versions.get(key, "not stated"))
                for key in ("driver", "toolkit", "framework", "framework_version")
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"not a stored health reading ({error!r})", where=where, todo="make it with scripts/rules/probe_health.py"
        ) from None
    ids = [card.id for card in cards]
    if len(set(ids)) != len(ids):
        raise InputError(
            f"card ids {ids} are not unique", where=where, todo="make it with scripts/rules/probe_health.py"
        )
    return Live(HostState(topology_from_dict(topology, where), cards), stack)


def _card(values: Mapping[str, Any]) -> Card:
    return Card(
        id=_whole(values["id"]),
        npu=_whole(values["npu"]),
        chip=_whole(values["chip"]),
        name=_text(values["name"]),
        health=_text(values["health"]),
        hbm_used_mb=_whole(values["hbm_used_mb"]),
        hbm_total_mb=_whole(values["hbm_total_mb"]),
        processes=tuple(
            CardProcess(_whole(item["pid"]), _text(item["name"]), _whole(item["memory_mb"]))
            for item in values["processes"]
        ),
        temperature_c=_measured(values.get("temperature_c")),
        power_w=_measured(values.get("power_w")),
    )


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is not a whole number from 0 on")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _measured(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r} is not a number")
    return value
