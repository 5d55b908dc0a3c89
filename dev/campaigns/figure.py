"""The campaign's figure: wrong against decided and against card time, and the product by true margin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from campaigns.rulings import HostResult
from campaigns.tables import MARGINS, Score, between, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

# rules of one kind that differ in how sure they want to be are one line; colours are told apart by all eyes
COLOURS = ("#000000", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#009e73")

_WRONG_PCT = (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def draw_figure(
    path: Path, results: Sequence[HostResult], families: Mapping[str, Sequence[str]], own: Sequence[str]
) -> None:
    """Write the figure; the file's name says in which format. ``families`` name the rules of each line."""
    import matplotlib as mpl  # noqa: PLC0415 - slow, and only this needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "campaign", "font.size": 9}):
        page = Figure(figsize=(13, 4.2), layout="constrained")
        left, middle, right = page.subplots(1, 3)
        curves = {name: [Score(results, rule) for rule in rules] for name, rules in families.items()}
        curves = {name: points for name, scores in curves.items() if (points := _decided(scores))}
        for (name, scores), colour in zip(curves.items(), cycle(COLOURS), strict=False):
            _line(left, name, scores, [100 * score.decided / score.hosts for score in scores], colour, name in own)
            _line(middle, name, scores, [score.card_time for score in scores], colour, name in own)
        left.set(
            xlabel="decided, % of hosts",
            ylabel="wrong, % of decided (dead features apart)",
            title="wrong against decided",
        )
        middle.set(xlabel="card time: starts ÷ (2 × forms)", title="wrong against card time")
        for axes in (left, middle):
            axes.set_yscale("symlog", linthresh=0.5)
            axes.set_yticks(_WRONG_PCT, [f"{value:g}" for value in _WRONG_PCT])
            axes.minorticks_off()
            axes.axhline(0.5, color="#999999", linewidth=0.8, linestyle=":")
        left.legend(frameon=False, fontsize=7, loc="upper left")
        _by_margin(right, results, own)
        page.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def _decided(scores: Iterable[Score]) -> list[Score]:
    """The points of a line in the order of how much they decide; a rule that decides nothing is no point."""
    return sorted((score for score in scores if score.decided), key=lambda score: score.decided)


def _line(axes: Axes, name: str, scores: Sequence[Score], places: Sequence[float], colour: str, own: bool) -> None:
    """A rule's points, joined; the product's with their 95 % intervals."""
    wrong = [100 * score.wrong / score.decided for score in scores]
    axes.plot(places, wrong, marker="o", markersize=4, linewidth=2 if own else 1, color=colour, label=name)
    for place, middle, score in zip(places, wrong, scores, strict=True) if own else ():
        low, high = (100 * limit for limit in wilson(score.wrong, score.decided))
        axes.errorbar(place, middle, [[max(0.0, middle - low)], [high - middle]], color=colour, linewidth=0.7)


def _by_margin(axes: Axes, results: Sequence[HostResult], own: Sequence[str]) -> None:
    """Decided, in bars with intervals, and wrong of decided as numbers above them."""
    width = 0.8 / max(1, len(own))
    drawn: dict[str, BarContainer] = {}
    for number, (rule, colour) in enumerate(zip(own, COLOURS, strict=False)):
        for place, (low, high) in enumerate(MARGINS):
            score = Score([result for result in results if low < result.margin_pct <= high], rule)
            if not score.hosts:
                continue
            share, limits = score.decided / score.hosts, wilson(score.decided, score.hosts)
            x, reach = place + (number - (len(own) - 1) / 2) * width, [[share - limits[0]], [limits[1] - share]]
            reach = [[100 * max(0.0, value) for value in side] for side in reach]
            bar = axes.bar(x, 100 * share, width, yerr=reach, color=colour, alpha=0.6, error_kw={"linewidth": 0.7})
            drawn.setdefault(rule, bar)
            axes.text(x, 3, f"{score.wrong}", ha="center", fontsize=7, color="white")
    axes.set_xticks(range(len(MARGINS)), [between(low, high) for low, high in MARGINS])
    axes.set(
        xlabel="true margin, %", ylabel="decided, % of hosts", title="by margin; in the bars: hosts decided wrongly"
    )
    axes.set_ylim(0, 115)
    axes.legend(list(drawn.values()), list(drawn), frameon=False, fontsize=7, loc="upper left", ncols=2)
