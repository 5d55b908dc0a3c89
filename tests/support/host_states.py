"""Small hosts for tests: cards, links and health that can be checked by eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.records.host import SELF, Card, CardProcess, HostProbe, HostState, Stack, Topology


def blocks(sizes: Sequence[int], inside: str = "UB", between: str = "SYS", first: int = 0) -> Topology:
    """Domains of the given sizes, all-to-all inside and joined by a slow link."""
    owner = [number for number, size in enumerate(sizes) for _ in range(size)]
    cards = tuple(range(first, first + len(owner)))
    links = tuple(
        tuple(SELF if i == j else inside if owner[i] == owner[j] else between for j in range(len(owner)))
        for i in range(len(owner))
    )
    return Topology(cards, links)


def two_die_boards(boards: int) -> Topology:
    """Boards of two dies joined by SIO, all boards joined by HCCS_SW."""
    cards = tuple(range(2 * boards))
    links = tuple(tuple(SELF if i == j else "SIO" if i // 2 == j // 2 else "HCCS_SW" for j in cards) for i in cards)
    return Topology(cards, links)


def state(
    topology: Topology,
    *,
    health: Mapping[int, str] | None = None,
    tenants: Mapping[int, str] | None = None,
    used_mb: Mapping[int, int] | None = None,
    total_mb: int | None = 98304,
) -> HostState:
    """A host on which every card is OK and idle, except as given."""
    cards = tuple(
        Card(
            id=card,
            npu=card,
            chip=0,
            name="Ascend950DT",
            health=(health or {}).get(card, "OK"),
            hbm_used_mb=(used_mb or {}).get(card, 4800),
            hbm_total_mb=total_mb,
            processes=(CardProcess(4242, name, 30000),) if (name := (tenants or {}).get(card)) else (),
        )
        for card in topology.cards
    )
    return HostState(topology, cards, (("driver", "26.2.0"),))


def live(host_state: HostState) -> HostProbe:
    """The reading with a software stack."""
    return HostProbe(host_state, Stack("26.2.0", "9.0.0", "vllm-omni", "0.20.0"))
