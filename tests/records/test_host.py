"""Domains come from the links, and only from all-to-all ones."""

import pytest
from host_states import blocks, two_die_boards

from anchormatrix.errors import InputError
from anchormatrix.records.host import Topology, is_fast


def test_two_quads_are_two_domains():
    assert blocks([4, 4]).domains == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_a_full_mesh_is_one_domain_and_a_pcie_host_has_none_larger_than_a_card():
    assert blocks([8], inside="HCCS").domains == (tuple(range(8)),)
    assert blocks([2, 2], inside="SYS").domains == ((0,), (1,), (2,), (3,))


def test_dies_and_switch_together_are_one_domain():
    assert two_die_boards(8).domains == (tuple(range(16)),)


def test_a_chain_of_fast_links_is_not_one_domain():
    chain = Topology((0, 1, 2), (("X", "UB", "SYS"), ("UB", "X", "UB"), ("SYS", "UB", "X")))
    assert chain.domains == ((0, 1), (2,))
    assert not chain.all_to_all((0, 1, 2))


def test_cards_keep_the_ids_a_container_shows():
    assert blocks([2], first=5).domains == ((5, 6),)


@pytest.mark.parametrize("link", ["UB", "HCCS", "HCCS_SW", "SIO", "NV1", "NV18", "L3", "NUMA"])
def test_fast_links(link):
    assert is_fast(link)


@pytest.mark.parametrize("link", ["SYS", "PHB", "PIX", "PXB", "NODE", "NA", "X", "NV", "UBX"])
def test_slow_or_unknown_links(link):
    assert not is_fast(link)


@pytest.mark.parametrize(
    ("cards", "links", "words"),
    [
        ((), (), "no card"),
        ((1, 0), (("X", "UB"), ("UB", "X")), "not ascending"),
        ((0, 1), (("X", "UB"),), "not 2 × 2"),
        ((0, 1), (("X", "UB"), ("SYS", "X")), "link 0–1 is UB one way and SYS the other"),
    ],
)
def test_a_matrix_that_contradicts_itself_is_refused(cards, links, words):
    with pytest.raises(InputError) as caught:
        Topology(cards, links)
    assert words in str(caught.value)
