"""The state of a contract's cards by their smokes, as far as a decision on them depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.measure.smokes.residue import damaged_within
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract
from anchormatrix.records.smoke import Smoke, SmokeStatus
from anchormatrix.store.codec import read_record


@dataclass(frozen=True)
class GroupState:
    """``damage``: why nothing measured on the cards decides anything, else empty. ``doubts``: what is not known of
    them, one sentence each. ``links``: what about their links a decision holds for, else empty.
    """

    damage: str = ""
    doubts: tuple[str, ...] = ()
    links: str = ""


UNKNOWN_GROUP = GroupState()


def group_state(results: Path, contract: Contract) -> GroupState:
    """Read the group's own smoke, and those of groups inside it when its own did not pass.

    A group whose smoke had nothing to be compared with may be as damaged as any: every card can say OK all the same.
    """
    cards, links = show(contract.cards), ""
    if contract.size > 1 and not contract.one_domain:
        links = (
            f"Cards {cards} are not one interconnect domain, bandwidth second-best: this holds for groups joined by "
            f"{contract.link_class} only."
        )
    if contract.mixed_models:
        mixed = f"Cards {cards} are of several models ({contract.mixed_models}): the slowest model sets the pace."
        links = f"{links} {mixed}".strip()
    try:
        status = read_record(results / contract.id / "smoke.json", Smoke).status
    except InputError:
        status = None
    if status is SmokeStatus.PASSED:
        return GroupState(links=links)
    if damaged := damaged_within(contract, results):
        return GroupState(damage="; ".join(item.text for item in damaged), links=links)
    why = "their smoke had nothing to compare with (unverified)" if status else "no smoke of them is stored"
    doubt = f"Whether cards {cards} are as fast as they should be: {why}; smoke.expected_step_s would settle it."
    return GroupState(doubts=(doubt,), links=links)
