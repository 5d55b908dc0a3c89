"""The fastest form of a contract, in words: the winner with its margin, a tie, or why neither can be said."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from anchormatrix.planning.ranking import Starts
from anchormatrix.records.conclusions.selection import Rival, Selection, Standing


@dataclass(frozen=True)
class Fastest:
    """What a selection amounts to. ``tied`` are the forms that are no different, the leader among them."""

    winner: str | None
    tied: tuple[str, ...]
    margin_pct: float | None
    text: str


def fastest(selection: Selection) -> Fastest:
    """The outcome of a selection: a difference within the indifference zone is no difference."""
    nearest = selection.rivals[0] if selection.rivals else None
    if nearest is None or not selection.decided:
        return Fastest(None, (), None, f"No winner: {why_open(selection)}")
    if selection.tied:
        names = (selection.leader or "", *selection.tied)
        text = f"No difference between {' and '.join(names)}: {interval(selection.ties[-1])} apart"
        text += f", differences below {selection.zone_pct:g} % count as none"
        return Fastest(None, names, nearest.behind_pct, text)
    text = f"{selection.leader} {won_by(selection)} at the anchor"
    return Fastest(selection.leader, (), nearest.behind_pct, text)


def interval(rival: Rival) -> str:
    """A margin with its interval and what it rests on: ``5.2 % (4.1 … 6.3 %, 2 starts each)``."""
    return f"{rival.behind_pct:.1f} % ({bounds(rival)})"


def bounds(rival: Rival) -> str:
    """Between what a margin lies and what that rests on: ``4.1 … 6.3 %, 2 starts each``."""
    starts = f"{rival.starts} start{'s' if rival.starts != 1 else ''} each"
    if rival.low_pct is None or rival.high_pct is None:
        return starts
    return f"{_tenths(rival.low_pct)} … {_tenths(rival.high_pct)} %, {starts}"


def _tenths(pct: float) -> str:
    return f"{round(pct, 1) + 0.0:.1f}"  # no "-0.0"


def won_by(selection: Selection) -> str:
    """What a decided leader did to its nearest rival: it won, or it is no slower by more than the zone."""
    nearest = selection.rivals[0]
    if nearest.low_pct is not None and nearest.low_pct <= 0:
        behind = f"{nearest.form} is {interval(nearest)} behind"
        return f"is the fastest or within {selection.zone_pct:g} % of it ({behind})"
    return f"wins by {interval(nearest)} over {nearest.form}"


def windows_agree(selection: Selection, starts: Starts) -> bool:
    """Whether the leader was the faster one of it and its nearest rival in every window that holds both."""
    if selection.leader is None or not selection.rivals:
        return False
    own, other = starts[selection.leader], starts[selection.rivals[0].form]
    return all(median(own[window]) < median(other[window]) for window in own.keys() & other.keys())


def why_open(selection: Selection) -> str:
    """Why no form can be chosen."""
    if selection.unheard:
        has = "has" if len(selection.unheard) == 1 else "have"
        return (
            f"{' and '.join(selection.unheard)} ran and {has} no server start that may be compared, so the fastest "
            "form may be missing"
        )
    if not selection.rivals:
        return "fewer than two forms can be compared at the anchor"
    if selection.noise is None:
        return "a single window never decides"
    still = [rival for rival in selection.rivals if rival.standing is Standing.OPEN]
    nearest = still[0]
    text = f"{selection.leader} leads {nearest.form} by {interval(nearest)}"
    more = f" and {len(still) - 1} more" if len(still) > 1 else ""
    noise = selection.noise
    return (
        f"{text}; {nearest.form}{more} may still be faster by more than {selection.zone_pct:g} %, because starts of "
        f"one form differ by {noise.sd_pct:.1f} % (standard deviation, {noise.dof:g} degrees of freedom)"
    )
