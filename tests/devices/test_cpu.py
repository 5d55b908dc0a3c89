"""A CPU becomes cards: disjoint whole cores, linked by caches and memory nodes, busy when others use them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchormatrix.devices.cpu import CpuDevice, core_sets, links_of, parse_load, parse_lscpu
from anchormatrix.errors import HostError, InputError
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.host import CardProcess
from anchormatrix.records.settings.things import HostSettings

# Two sockets, two cores each, two threads a core; one L3 per socket.
TWO_SOCKETS = """\
# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,2,1,1,,2,2,2,1
3,3,1,1,,3,3,3,1
4,0,0,0,,0,0,0,0
5,1,0,0,,1,1,1,0
6,2,1,1,,2,2,2,1
7,3,1,1,,3,3,3,1
"""
WITH_COLONS = "# CPU,Core,Socket,Node,Cache\n0,0,0,0,0:0:0:0\n1,1,0,0,1:1:1:0\n"
WITHOUT_L3_AND_NODE = "# CPU,Core,Socket,Node,,L1d,L1i,L2\n0,0,0,,,0,0,0\n1,1,0,,,1,1,1\n"


def stat(pid: int, tid: int, name: str, ticks: int, cpu: int, flags: int = 4194304) -> str:
    fields = ["1", "1", "1", "0", "-1", str(flags), "0", "0", "0", "0", str(ticks), "0", "0", "0", "20", "0", "1", "0"]
    fields += ["100", "5000000", "2560", *["0"] * 14, str(cpu), "0", "0", "0", "0"]
    return f"/proc/{pid}/task/{tid}/stat:{tid} ({name}) R {' '.join(fields)}"


def load(before: list[str], after: list[str]) -> str:
    return "\n".join(["100", "4096", *before, "====", *after, ""])


def test_a_card_is_made_of_whole_cores_with_all_their_threads():
    cpus = parse_lscpu(TWO_SOCKETS)
    assert core_sets(cpus, 4, 1) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert core_sets(cpus, 2, 2) == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_cards_that_share_a_cache_are_linked_by_it_and_others_by_their_memory():
    cpus = parse_lscpu(TWO_SOCKETS)
    topology = links_of(cpus, core_sets(cpus, 4, 1))
    assert topology.links[0] == ("X", "L3", "SYS", "SYS")
    assert topology.domains == ((0, 1), (2, 3))


def test_both_ways_of_printing_caches_are_read():
    cpus = parse_lscpu(WITH_COLONS)
    assert links_of(cpus, core_sets(cpus, 2, 1)).link(0, 1) == "L3"


def test_without_a_shared_cache_cards_of_one_memory_node_are_linked_by_it():
    cpus = parse_lscpu(WITHOUT_L3_AND_NODE)
    assert links_of(cpus, core_sets(cpus, 2, 1)).link(0, 1) == "NUMA"


def test_too_few_cores_are_an_error():
    with pytest.raises(HostError, match="4 cores are too few for 3 cards of 2"):
        core_sets(parse_lscpu(TWO_SOCKETS), 3, 2)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_core_sets_are_disjoint_and_of_the_size_asked_for(cores, caches, cards, per_card):
    rows = [f"{i},{i},0,0,,{i},{i},{i},{i * caches // cores}" for i in range(cores)]
    cpus = parse_lscpu("# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n" + "\n".join(rows))
    if cards * per_card > cores:
        with pytest.raises(HostError):
            core_sets(cpus, cards, per_card)
    else:
        sets = core_sets(cpus, cards, per_card)
        assert [len(cores) for cores in sets] == [per_card] * cards
        assert len({cpu for cores in sets for cpu in cores}) == cards * per_card


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "# CPU,Core,Socket,Node\n", "# CPU,Core,Socket,Node\n0,0\n", WITH_COLONS + "0,0,0,0,0:0:0:0\n"],
)
def test_a_damaged_listing_is_an_error_that_names_the_command(text: str):
    with pytest.raises(InputError, match="lscpu -p"):
        parse_lscpu(text)


def test_who_used_a_quarter_of_a_core_keeps_it_busy():
    before = [stat(10, 10, "idle", 5, 0), stat(11, 11, "busy one", 100, 1), stat(11, 12, "busy one", 100, 0)]
    after = [stat(10, 10, "idle", 6, 0), stat(11, 11, "busy one", 101, 1), stat(11, 12, "busy one", 140, 0)]
    assert parse_load(load(before, after), 0.5) == {0: (CardProcess(11, "busy one", 10),)}


def test_kernel_threads_and_broken_lines_are_passed_over():
    before = [stat(2, 2, "kworker", 0, 0, flags=0x200000), "torn in"]
    after = [stat(2, 2, "kworker", 50, 0, flags=0x200000), "half)"]
    assert parse_load(load(before, after), 0.5) == {}


@pytest.mark.parametrize("text", ["", "100\n4096\n", "x\n4096\n====\n"])
def test_a_load_that_is_cut_off_is_an_error(text: str):
    with pytest.raises(InputError):
        parse_load(text)


def test_this_machine_is_a_host_of_one_card():
    device = CpuDevice(1, 1)
    with pytest.raises(HostError, match="the host read first"):
        device.visible_env([0])
    state = device.read(LocalHost(HostSettings("here")), timeout_s=20)
    assert state.topology.cards == (0,)
    assert state.cards[0].hbm_total_mb > 0
    assert "driver" in dict(state.versions)
    assert device.visible_env([0])["ANCHORMATRIX_CARD_CORES"]
