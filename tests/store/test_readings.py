"""Stored readings of a host are either what a probe wrote, or refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from anchormatrix.devices.saved import saved_topology
from anchormatrix.errors import InputError
from anchormatrix.store.readings import live_from_dicts

TOPOLOGY: dict[str, Any] = {"cards": [0, 1], "links": [["X", "UB"], ["UB", "X"]]}
CARD: dict[str, Any] = {
    "id": 0, "npu": 0, "chip": 0, "name": "A", "health": "OK", "hbm_used_mb": 1, "hbm_total_mb": 2, "processes": [],
}  # fmt: skip
HEALTH: dict[str, Any] = {"cards": [CARD, CARD | {"id": 1}], "versions": {"driver": "1"}}


def read(topology: Any, health: Any):
    return live_from_dicts(topology, health, "health.json")


def test_a_reading_is_rebuilt():
    live = read(TOPOLOGY, HEALTH)
    assert (live.state.topology.cards, live.state.card(1).hbm_total_mb, live.stack.driver) == ((0, 1), 2, "1")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "0"),
        ("id", -1),
        ("id", 0.5),
        ("id", True),
        ("id", None),
        ("id", 1),
        ("health", None),
        ("health", ["OK"]),
        ("name", 910),
        ("hbm_used_mb", float("inf")),
        ("temperature_c", "40"),
        ("processes", {"pid": 1}),
        ("processes", [{"pid": "1", "name": "", "memory_mb": 0}]),
    ],
)
def test_a_card_that_no_probe_wrote_is_refused(key, value):
    health = copy.deepcopy(HEALTH)
    health["cards"][0][key] = value
    with pytest.raises(InputError, match=r"health\.json"):
        read(TOPOLOGY, health)


@pytest.mark.parametrize(
    "topology",
    [
        {},
        {"cards": [], "links": []},
        {"cards": ["0", "1"], "links": TOPOLOGY["links"]},
        {"cards": [0, -1], "links": TOPOLOGY["links"]},
        {"cards": [0, 0], "links": TOPOLOGY["links"]},
        {"cards": [0, 1], "links": [["X", "UB"], ["SYS", "X"]]},
        {"cards": [0, 1], "links": [["X", None], [None, "X"]]},
        {"cards": [0, 1], "links": [["X", "UB"]]},
        {"cards": [0, 1], "links": 5},
    ],
)
def test_links_that_no_probe_wrote_are_refused(topology):
    with pytest.raises(InputError):
        read(topology, HEALTH)


def test_a_saved_output_has_a_size(tmp_path):
    path = tmp_path / "topo.txt"
    path.write_bytes(b" " * (4 * 2**20 + 1))
    with pytest.raises(InputError, match="is larger than 4 MiB; expected a vendor tool's output"):
        saved_topology(path)
