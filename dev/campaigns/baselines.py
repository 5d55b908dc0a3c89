"""Rules that anybody could use instead, on the same server starts: each replication is the mean of a start's requests.

Two are procedures of the literature, with an indifference zone of 1 % of the smallest first-stage mean. Both are cut
off at ``CAP`` starts of a form, where they decline: their guarantee speaks of as many starts as they ask for.

- Rinott, Y. (1978): On two-stage selection procedures and related probability-inequalities. Communications in
  Statistics, Theory and Methods 7 (8), 799–811.
- Kim, S.-H. and Nelson, B. L. (2001): A fully sequential procedure for indifference-zone selection in simulation. ACM
  Transactions on Modeling and Computer Simulation 11 (3), 251–273.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import combinations
from statistics import fmean, variance

import numpy as np
from scipy.special import chdtri, ndtr, stdtrit

from campaigns.rulings import ZONE_PCT, Ruling
from campaigns.starts import Starts

CAP = 8  # starts of one form at most
Rule = Callable[[Starts], Ruling]


class Replications:
    """The start means of a host's forms, as far as a rule has asked for them."""

    def __init__(self, starts: Starts, tier: str = "anchor") -> None:
        self.starts, self.tier = starts, tier
        self.values: dict[str, list[float]] = {form.name: [] for form in starts.experiment.forms}
        self.asked = 0
        self.seconds = 0.0

    def more(self, forms: Sequence[str], count: int = 1) -> None:
        """Start each form again so often; one that brings no number leaves."""
        for form in forms:
            while form in self.values and count > len(self.values[form]):
                window = len(self.values[form]) + 1
                self.asked += 1
                self.seconds += self.starts.session(form, window).seconds
                mean = self.starts.mean(form, window, self.tier)
                if mean is None:
                    del self.values[form]
                else:
                    self.values[form].append(mean)

    def ranked(self, forms: Sequence[str] = ()) -> list[str]:
        """Forms by their mean, fastest first."""
        return sorted(forms or self.values, key=lambda form: fmean(self.values[form]))

    def behind_pct(self, form: str, best: str) -> float:
        """How much slower a form is than another, by the means."""
        return 100 * (fmean(self.values[form]) / fmean(self.values[best]) - 1)

    def ruling(self, winner: str | None, text: str = "") -> Ruling:
        """What the rule decided, with what it cost."""
        return Ruling(winner, self.asked, self.seconds * self.starts.contract.size, text=text)


def lowest_mean(starts: Starts, *, tier: str = "anchor", floor_pct: float = 0.0) -> Ruling:
    """The lowest mean of two starts; declined when the second is not further behind than the floor."""
    seen = Replications(starts, tier)
    seen.more(tuple(seen.values), 2)
    ranked = seen.ranked()
    if not ranked:
        return seen.ruling(None, "no form runs")
    near = len(ranked) > 1 and seen.behind_pct(ranked[1], ranked[0]) < floor_pct
    return seen.ruling(None if near else ranked[0])


def rinott(starts: Starts, *, first: int, confidence: float) -> Ruling:
    """Rinott's two stages: ``first`` starts of each form, then as many as its own variance asks for."""
    seen = Replications(starts)
    seen.more(tuple(seen.values), first)
    forms = tuple(seen.values)
    if len(forms) < 2:
        return seen.ruling(next(iter(forms), None))
    zone = ZONE_PCT / 100 * fmean(seen.values[seen.ranked()[0]])
    h = rinott_h(len(forms), first, confidence)
    wanted = {form: max(first, math.ceil(h * h * variance(seen.values[form]) / zone**2)) for form in forms}
    if max(wanted.values()) > CAP:
        return seen.ruling(None, f"needs {max(wanted.values())} starts of a form")
    for form, count in wanted.items():
        seen.more((form,), count)
    return seen.ruling(seen.ranked()[0])


@lru_cache(maxsize=256)
def rinott_h(forms: int, first: int, confidence: float) -> float:
    """Rinott's constant: the h for which E[E[Φ(h ÷ √((n₀−1)(1/X + 1/Y))) | Y]^(k−1)] is the confidence, where X and Y
    are independent χ² with n₀−1 degrees of freedom. Found by bisection over a Gauss–Legendre sum in the cube root of
    their probability, since all depends on what happens near zero."""
    dof = first - 1
    roots, weights = np.polynomial.legendre.leggauss(120)
    places = (roots + 1) / 2
    weights = 1.5 * weights * places**2
    inverse = 1 / chdtri(dof, 1 - places**3)
    spread = np.sqrt(dof * (inverse[:, None] + inverse[None, :]))
    low, high = 0.0, 1000.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        inner = weights @ ndtr(middle / spread)
        low, high = (middle, high) if weights @ inner ** (forms - 1) < confidence else (low, middle)
    return high


def kim_nelson(starts: Starts, *, first: int, confidence: float) -> Ruling:
    """Kim and Nelson's fully sequential elimination, with c = 1 and independent starts."""
    seen = Replications(starts)
    seen.more(tuple(seen.values), first)
    alive = tuple(seen.values)
    if len(alive) < 2:
        return seen.ruling(next(iter(alive), None))
    zone = ZONE_PCT / 100 * fmean(seen.values[seen.ranked()[0]])
    eta = 0.5 * ((2 * (1 - confidence) / (len(alive) - 1)) ** (-2 / (first - 1)) - 1)
    reach = {
        frozenset(pair): 2 * eta * (first - 1) * _variance_of_difference(seen, *pair) / zone**2
        for pair in combinations(alive, 2)
    }
    rounds = first
    while True:
        alive = tuple(
            form
            for form in alive
            if all(_within(seen, form, other, reach, rounds, zone) for other in alive if other != form)
        )
        if len(alive) == 1 or rounds > max(map(math.floor, reach.values())):
            return seen.ruling(seen.ranked(alive)[0])
        if rounds == CAP:
            return seen.ruling(None, f"{len(alive)} forms are left after {CAP} starts")
        rounds += 1
        seen.more(alive, rounds)
        alive = tuple(form for form in alive if form in seen.values)
        if not alive:
            return seen.ruling(None, "no form runs any more")


def _within(seen: Replications, form: str, other: str, reach: dict, rounds: int, zone: float) -> bool:
    """Whether a form's mean is not above the other's by more than the continuation region allows."""
    allowed = max(0.0, zone / (2 * rounds) * (reach[frozenset((form, other))] - rounds))
    return fmean(seen.values[form][:rounds]) <= fmean(seen.values[other][:rounds]) + allowed


def _variance_of_difference(seen: Replications, one: str, other: str) -> float:
    return variance(a - b for a, b in zip(seen.values[one], seen.values[other], strict=True))


def pooled_sequential(starts: Starts, *, error: float = 0.005, first: int = 2) -> Ruling:
    """The plain reference: elimination by t bounds on start means, with the variance between starts pooled over forms.

    Each round starts every form that is left. A form leaves when it is surely slower than the best; the best is named
    when it is surely within the zone of every other one left.
    """
    seen = Replications(starts)
    alive = tuple(seen.values)
    for rounds in range(1, CAP + 1):
        seen.more(alive, rounds)
        alive = tuple(form for form in alive if form in seen.values)
        if len(alive) < 2:
            return seen.ruling(next(iter(alive), None))
        if rounds < first:
            continue
        best = seen.ranked(alive)[0]
        freedom = sum(len(values) - 1 for values in seen.values.values())
        scale = fmean(seen.values[best])
        squares = sum(variance(v) * (len(v) - 1) / fmean(v) ** 2 for v in seen.values.values() if len(v) > 1)
        bound = (
            float(stdtrit(freedom, 1 - error / (len(alive) - 1))) * scale * math.sqrt(2 * squares / freedom / rounds)
        )
        low = {form: fmean(seen.values[form]) - scale - bound for form in alive if form != best}
        alive = (best, *(form for form in low if low[form] <= 0))
        if all(low[form] > -ZONE_PCT / 100 * scale for form in alive[1:]):
            return seen.ruling(best)
    return seen.ruling(None, f"{len(alive)} forms are left after {CAP} starts")


def always_decline(starts: Starts) -> Ruling:
    """Never measures, never errs."""
    return Replications(starts).ruling(None)


# rules of one kind, which differ in how sure they want to be
FAMILIES: Mapping[str, Mapping[str, Rule]] = {
    "always decline": {"always decline": always_decline},
    "lowest anchor mean": {
        "lowest anchor mean": lowest_mean,
        **{
            f"lowest anchor mean, {floor:g} % floor": partial(lowest_mean, floor_pct=floor)
            for floor in (0.5, 1.0, 2.0, 3.0, 4.0)
        },
    },
    "lowest few mean": {
        "lowest few mean": partial(lowest_mean, tier="few"),
        **{
            f"lowest few mean, {floor:g} % floor": partial(lowest_mean, tier="few", floor_pct=floor)
            for floor in (1.0, 2.0, 4.0)
        },
    },
    "Rinott": {f"Rinott {p:g}": partial(rinott, first=3, confidence=p) for p in (0.6, 0.8, 0.95, 0.995)},
    "Kim-Nelson": {f"Kim-Nelson {p:g}": partial(kim_nelson, first=3, confidence=p) for p in (0.6, 0.8, 0.95, 0.995)},
    "plain sequential": {
        "plain sequential": pooled_sequential,
        **{
            f"plain sequential, error {error:g}": partial(pooled_sequential, error=error)
            for error in (0.001, 0.02, 0.05, 0.2)
        },
    },
}
RULES: Mapping[str, Rule] = {name: rule for family in FAMILIES.values() for name, rule in family.items()}
