"""Vendor texts that refused a whole host: each card is known, partly known or unusable, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormatrix.devices.saved import saved_listing, saved_topology

VENDOR = Path(__file__).resolve().parents[3] / "shared" / "cases" / "vendor"

pytestmark = pytest.mark.skipif(not VENDOR.is_dir(), reason="../shared/cases is not here")


def cards_of(name: str) -> list[tuple[int, str, str, bool]]:
    """Id, health, state and whether somebody is on it, of each card."""
    return [
        (card.id, card.health, card.state.value, bool(card.processes)) for card in saved_listing(VENDOR / name).cards
    ]


def test_a_process_table_of_busy_cards_only():
    assert [(card, health, busy) for card, health, _, busy in cards_of("npu-smi-busy-only.txt")] == [
        (0, "Alarm", True),
        (1, "OK", False),
    ]


def test_memory_that_is_not_told():
    (card,) = saved_listing(VENDOR / "nvidia-unified-memory.csv").cards
    assert (card.hbm_total_mb, card.state.value) == (None, "partly known")


def test_a_lost_card_leaves_the_other():
    assert [(card, state) for card, _, state, _ in cards_of("nvidia-lost-card.csv")] == [(0, "known"), (1, "unusable")]


def test_two_models():
    cards = saved_listing(VENDOR / "nvidia-mixed-models.csv").cards
    assert [card.state.value for card in cards] == ["known"] * 4
    assert len({card.name for card in cards}) == 2


def test_a_heading_before_the_matrix():
    topology = saved_topology(VENDOR / "npu-topology-heading.txt")
    assert (topology.cards, topology.link(4, 5)) == ((4, 5), "SIO")
