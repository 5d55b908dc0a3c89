"""The campaign's tables: every rule on the same hosts, by margin and by hardness, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from scipy.special import ndtri

from anchormatrix.planning.ranking import Rule
from campaigns.rulings import BIG_PCT, DEAD, DECLINED, RIGHT, WRONG, ZONE_PCT, HostResult
from campaigns.starts import REPEATS

MARGINS = ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.5), (4.5, 100.0))
MEDIAN_OF_THREE = 1.35  # the variance of its median ÷ that of the mean, for normal draws
_NEEDED = ((0, 2), (2, 4), (4, 8), (8, 16), (16, 1e9))
_Z95 = 1.959964


def wilson(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson 1927, Journal of the American Statistical Association 22, 209–212)."""
    if not total:
        return 0.0, 1.0
    share, z2 = count / total, _Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z95 / (1 + z2 / total) * sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return max(0.0, middle - half), min(1.0, middle + half)


class Score:
    """One rule over some hosts. Wins of dead features are decided, and counted apart from other wrong decisions."""

    def __init__(self, results: Sequence[HostResult], rule: str) -> None:
        hosts = [result for result in results if result.choice]
        kinds = [result.judgements[rule] for result in hosts]
        self.hosts, self.rule = len(hosts), rule
        self.wrong, self.dead = kinds.count(WRONG), kinds.count(DEAD)
        self.decided = len(kinds) - kinds.count(DECLINED)
        big = [kind for result, kind in zip(hosts, kinds, strict=True) if result.margin_pct > BIG_PCT]
        self.big, self.decided_big = len(big), len(big) - big.count(DECLINED)
        self.card_time = sum(result.card_time(rule) for result in hosts) / max(1, self.hosts)
        self.hours = sum(result.rulings[rule].card_s for result in hosts) / 3600
        self.false_extrapolates = sum(result.false_extrapolates[rule] for result in hosts)
        missing = [kind for result, kind in zip(hosts, kinds, strict=True) if result.left_out(rule)]
        self.left_out, self.left_out_wrong = len(missing), missing.count(WRONG)
        theory = [result.theory[rule] for result in results if rule in result.theory]
        self.gates = sum(item.failures for item in theory), sum(len(item.false_failures) for item in theory)
        self.projections = sum(item.projections for item in theory), sum(len(item.contradicted) for item in theory)
        sure = [k for r, k in zip(hosts, kinds, strict=True) if r.rulings[rule].confidence == "high" and k != DECLINED]
        self.high, self.high_wrong = len(sure), len(sure) - sure.count(RIGHT)

    @property
    def line(self) -> str:
        """The rule's line of :func:`rules_table`."""
        (least, most), (low, high) = wilson(self.decided, self.hosts), wilson(self.wrong, self.decided)
        return (
            f"{self.rule:<41} {_share(self.decided, self.hosts):>7} {f'{100 * least:.0f}–{100 * most:.0f}':>7} "
            f"{_share(self.wrong, self.decided, 2):>8} {f'{100 * low:.2f}–{100 * high:.2f}':>12} "
            f"{self.dead:>5} {_share(self.decided_big, self.big):>9} {self.card_time:>9.2f} {self.hours:>8.0f}"
        )


def report(results: Sequence[HostResult], rules: Sequence[str], shown: Sequence[str], own: Sequence[str]) -> str:
    """All tables: every rule, what only the product's (``own``) say; by margin, starts needed and hardness."""
    without = sum(not result.choice for result in results)
    parts = [
        f"{len(results)} hosts, {without} of them leave nothing to choose and are not counted",
        rules_table(results, rules),
        product_lines(results, own),
        margin_table(results, shown),
        needed_table(results, own),
        *(hardness_table(results, rule) for rule in own),
    ]
    return "\n\n".join(part for part in parts if part)


def rules_table(results: Sequence[HostResult], rules: Sequence[str]) -> str:
    """One line for each rule: decided, wrong of decided, each with its 95 % interval, dead features won, card time."""
    head = (
        f"{'rule':<41} {'decided':>7} {'95 %':>7} {'wrong':>8} {'95 %':>12} {'dead':>5} {'of big':>9} {'card time':>9} "
        f"{'hours':>8}"
    )
    return "\n".join([head, *(Score(results, rule).line for rule in rules)])


def product_lines(results: Sequence[HostResult], rules: Sequence[str]) -> str:
    """What only the product says: confidence, ``extrapolates``, exclusions, gates and projections."""
    lines = []
    for rule in rules:
        score = Score(results, rule)
        high, false = _share(score.high_wrong, score.high, 2), _share(score.false_extrapolates, score.hosts, 2)
        lines.append(
            f"{rule:<30} high {score.high}, of them wrong {score.high_wrong} ({high}); "
            f"false extrapolates {score.false_extrapolates} ({false})\n"
            f"{'':<30} planner left out the best form of {score.left_out} hosts, {score.left_out_wrong} then wrong\n"
            f"{'':<30} gates failed {score.gates[0]}, falsely {score.gates[1]}; "
            f"projections tried {score.projections[0]}, contradicted {score.projections[1]}"
        )
    return "\n".join(lines)


def margin_table(results: Sequence[HostResult], rules: Sequence[str]) -> str:
    """Decided, wrong of decided and card time of each rule by the true margin."""
    lines = [f"{'true margin, %':<30} " + " ".join(f"{between(low, high):>18}" for low, high in MARGINS)]
    for rule in rules:
        parts = [[r for r in results if low < r.margin_pct <= high] for low, high in MARGINS]
        lines.append(f"{rule:<30} " + " ".join(f"{_cell(Score(part, rule)):>18}" for part in parts))
    return "\n".join([*lines, "(decided / wrong of decided / card time)"])


def starts_needed(result: HostResult) -> float:
    """How many starts of each tell the two best forms apart on a host whose noise is known.

    They are apart when the bound of their difference is smaller than margin and indifference zone together; with the
    deviation σ of a start's median, n starts of both leave z σ √(2 ÷ n), where z is the quantile at the product's
    chance of error, shared among the comparisons. A rule that errs no more often and must learn σ needs more.
    """
    variance = result.restart_sd_pct**2 + MEDIAN_OF_THREE * result.request_sd_pct**2 / REPEATS
    quantile = float(ndtri(1 - Rule.level / max(1, result.forms - 1)))
    return 2 * variance * (quantile / (result.margin_pct + ZONE_PCT)) ** 2


def needed_table(results: Sequence[HostResult], rules: Sequence[str]) -> str:
    """What each rule makes of the hosts by the starts that they need; a form gets at most eight."""
    parts = [[r for r in results if low < starts_needed(r) <= high] for low, high in _NEEDED]
    lines = [f"{'starts of a form needed':<30} " + " ".join(f"{between(low, high):>18}" for low, high in _NEEDED)]
    lines.append(f"{'hosts':<30} " + " ".join(f"{sum(r.choice for r in part):>18}" for part in parts))
    lines += [f"{rule:<30} " + " ".join(f"{_cell(Score(part, rule)):>18}" for part in parts) for rule in rules]
    return "\n".join(lines)


def hardness_table(results: Sequence[HostResult], rule: str) -> str:
    """One rule on the hosts that have a hardness, and on those that have not.

    ``undecided``: of the hosts with it, how many the rule leaves undecided; ``more``: how many more these are than if
    hosts with it were decided as often as those without.
    """
    names = sorted({name for result in results for name in _traits(result)})
    lines = [f"{rule:<30} {'hosts with':>10} {'':>18} {'without':>10} {'':>18} {'undecided':>10} {'more':>6}"]
    for name in names:
        those = Score([r for r in results if name in _traits(r)], rule)
        others = Score([r for r in results if name not in _traits(r)], rule)
        undecided = those.hosts - those.decided
        more = f"{round(undecided - those.hosts * (1 - others.decided / others.hosts)):+d}" if others.hosts else "–"
        lines.append(
            f"{name:<30} {those.hosts:>10} {_cell(those):>18} {others.hosts:>10} {_cell(others):>18} "
            f"{undecided:>10} {more:>6}"
        )
    return "\n".join(lines)


def _traits(result: HostResult) -> tuple[str, ...]:
    """A host's hardnesses, a small margin among them."""
    return (*result.hardnesses, *(["margin below 2 %"] if result.margin_pct < 2 else []))


def _cell(score: Score) -> str:
    if not score.hosts:
        return "–"
    return f"{_share(score.decided, score.hosts, 0)} {_share(score.wrong, score.decided, 2)} {score.card_time:.2f}"


def between(low: float, high: float) -> str:
    """A class of numbers in words."""
    return f"{low:g}–{high:g}" if high < 100 else f"above {low:g}"


def _share(count: int, total: int, digits: int = 1) -> str:
    return f"{100 * count / total:.{digits}f} %" if total else "–"
