"""Decisions against the truth: what would have been the best form at full step count, and whether it could be known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from campaigns.hosts import ANCHOR, FEW, Experiment
from campaigns.measuring import LIMITS, Outcome, run_adaptive, run_full
from virtualhost.host.split import step_factor
from virtualhost.server.serving import parse_split
from virtualhost.step.timeline import SplitError, simulate_step

RIGHT, WRONG = "right", "wrong"
RIGHTLY_DECLINED, WRONGLY_DECLINED = "rightly declined", "wrongly declined"
_RANGE_OF_THREE = 1.693  # expected (max − min) of three normal draws, in standard deviations


@dataclass(frozen=True)
class Truth:
    """True step times (s) by form at full, anchor and few step counts, of the forms that can really be had.

    ``noise_pct`` is the dispersion that three repeats have on this host on average.
    """

    full_s: dict[str, float]
    anchor_s: dict[str, float]
    few_s: dict[str, float]
    noise_pct: float

    @property
    def best(self) -> str | None:
        """The fastest form at full step count."""
        return min(self.full_s, key=lambda name: self.full_s[name], default=None)

    def loss_pct(self, form: str) -> float:
        """How much slower a form truly is than the best at full step count."""
        best = self.best
        if best is None or form not in self.full_s:
            return float("inf")
        return 100 * (self.full_s[form] / self.full_s[best] - 1)

    @property
    def margin_pct(self) -> float:
        """The best form's true margin over the second."""
        ranked = sorted(self.full_s.values())
        return 100 * (ranked[1] / ranked[0] - 1) if len(ranked) > 1 else 0.0


def truth_of(experiment: Experiment, cards: tuple[int, ...]) -> Truth:
    """The truth on a group: forms that crash, do not fit or silently become another form are not to be had."""
    scenario = experiment.scenario
    gone = {fault.form for fault in scenario.faults if fault.kind in ("crash", "oom", "comm_init", "not_applied")}
    times: dict[str, dict[int, float]] = {}
    for form in experiment.forms:
        if form.name in gone:
            continue
        split = parse_split(form.name)
        try:
            base = simulate_step(scenario.host_model(), split, cards).step_ns / 1e9
        except SplitError:
            continue
        times[form.name] = {
            steps: base * sum(step_factor(scenario.behaviour, split, i, steps) for i in range(steps)) / steps
            for steps in (FEW, ANCHOR, experiment.full_steps)
        }
    at = {
        steps: {name: found[steps] for name, found in times.items()} for steps in (FEW, ANCHOR, experiment.full_steps)
    }
    return Truth(at[experiment.full_steps], at[ANCHOR], at[FEW], scenario.timing.dispersion_pct)


@lru_cache(maxsize=32)
def expected_worst(cells: int) -> float:
    """Median of the largest dispersion among so many cells of three repeats, for noise of average dispersion 1 %."""
    rng = random.Random(5)
    worst = []
    for _ in range(600):
        draws = ([max(-2.5, min(2.5, rng.gauss(0, 1))) for _ in range(3)] for _ in range(cells))
        worst.append(max(max(three) - min(three) for three in draws) / _RANGE_OF_THREE)
    return median(worst)


def decidable(truth: Truth) -> bool:
    """Whether the rules, on average luck, let this host be decided at all by its best pair in two windows.

    The dispersion of the pair's eight cells stays within the limit, and the true margin is above the noise floor, which
    is the larger of the configured floor and the largest dispersion of the pair's four anchor cells.
    """
    if len(truth.full_s) < 2 or truth.noise_pct * expected_worst(8) > LIMITS.dispersion_pct:
        return False
    return truth.margin_pct > max(LIMITS.noise_floor_pct, truth.noise_pct * expected_worst(4))


def strictly_decidable(truth: Truth) -> bool:
    """The stricter reading: the host's average dispersion is within the limit and below the true margin."""
    if len(truth.full_s) < 2 or truth.noise_pct > LIMITS.dispersion_pct:
        return False
    return truth.margin_pct > max(LIMITS.noise_floor_pct, truth.noise_pct)


def judged(outcome: Outcome, truth: Truth) -> str:
    """Right, wrong, or declined rightly or wrongly.

    A named form is right when it is the best or slower by no more than the noise floor. "No difference" is right when
    there truly is none beyond what the rules can resolve, else the host was wrongly declined.
    """
    if outcome.winner is not None:
        return RIGHT if truth.loss_pct(outcome.winner) <= LIMITS.noise_floor_pct else WRONG
    if outcome.kind == "no_difference" and outcome.verdict is not None:
        floor = max(LIMITS.noise_floor_pct, truth.noise_pct * expected_worst(4))
        if all(truth.loss_pct(form) <= floor for form in outcome.verdict.tied_with):
            return RIGHT
    return WRONGLY_DECLINED if decidable(truth) else RIGHTLY_DECLINED


def false_extrapolates(outcome: Outcome, truth: Truth) -> bool:
    """Whether ``extrapolates`` was said although choosing at few steps would truly have been a mistake.

    That is: the form fastest at few steps is beyond the noise floor slower at full step count, or a step truly drifts
    between the tiers by more than the limit.
    """
    if outcome.verdict is None or outcome.verdict.status != "extrapolates":
        return False
    judged_forms = [form for form in outcome.verdict.r if form in truth.few_s]
    if not judged_forms:
        return False
    chosen = min(judged_forms, key=lambda form: truth.few_s[form])
    if truth.loss_pct(chosen) > LIMITS.noise_floor_pct and not _blurred(chosen, truth, judged_forms):
        return True
    drift = max(abs(truth.anchor_s[form] / truth.few_s[form] - 1) * 100 for form in judged_forms)
    return drift > LIMITS.drift_pct


def _blurred(chosen: str, truth: Truth, forms: Sequence[str]) -> bool:
    """Whether few steps could not tell the chosen form from the best: then they name no order that could mislead."""
    best = min(forms, key=lambda form: truth.full_s[form])
    apart = 100 * (truth.few_s[best] / truth.few_s[chosen] - 1)
    return apart <= max(LIMITS.noise_floor_pct, truth.noise_pct)


@dataclass(frozen=True)
class HostResult:
    """One host under both designs."""

    number: int
    forms: int
    noise_pct: float
    margin_pct: float
    judgement: tuple[str, str]
    false_extrapolates: tuple[bool, bool]
    strict: tuple[bool, bool]
    card_s: tuple[float, float]
    text: tuple[str, str]


def run_host(experiment: Experiment) -> HostResult:
    """Both designs on one host, and how each compares with the truth."""
    outcomes = (run_full(experiment), run_adaptive(experiment))
    truths = [truth_of(experiment, o.cards) if o.cards else Truth({}, {}, {}, 0.0) for o in outcomes]
    first = truths[0]
    return HostResult(
        number=experiment.number,
        forms=len(experiment.forms),
        noise_pct=experiment.scenario.timing.dispersion_pct,
        margin_pct=first.margin_pct,
        judgement=_pair(judged(o, t) for o, t in zip(outcomes, truths, strict=True)),
        false_extrapolates=_pair(false_extrapolates(o, t) for o, t in zip(outcomes, truths, strict=True)),
        strict=_pair(_declined(o, t) and strictly_decidable(t) for o, t in zip(outcomes, truths, strict=True)),
        card_s=_pair(outcome.card_s for outcome in outcomes),
        text=_pair(_said(outcome) for outcome in outcomes),
    )


def _declined(outcome: Outcome, truth: Truth) -> bool:
    return judged(outcome, truth) in (RIGHTLY_DECLINED, WRONGLY_DECLINED)


def _said(outcome: Outcome) -> str:
    if outcome.verdict is None:
        return outcome.why_nothing
    return f"{outcome.verdict.status}: {outcome.winner or outcome.kind} ({outcome.verdict.reason[:160]})"


def _pair(values: Iterable) -> tuple:
    first, second = values
    return first, second


def table(results: Sequence[HostResult]) -> str:
    """The campaign's table: one line per figure, full and adaptive design side by side."""
    total = len(results)
    counts = [Counter(result.judgement[design] for result in results) for design in (0, 1)]
    lines = [f"{'':<34}{'full':>16}{'adaptive':>16}"]
    for kind in (RIGHT, RIGHTLY_DECLINED, WRONG, WRONGLY_DECLINED):
        lines.append(f"{kind:<34}" + "".join(_share(counts[design][kind], total) for design in (0, 1)))
    false = [sum(result.false_extrapolates[design] for result in results) for design in (0, 1)]
    lines.append(f"{'false extrapolates':<34}" + "".join(_share(count, total) for count in false))
    strict = [sum(result.strict[design] for result in results) for design in (0, 1)]
    lines.append(
        f"{'declined, average noise within limit':<34}"[:34] + "".join(_share(count, total) for count in strict)
    )
    hours = [sum(result.card_s[design] for result in results) / 3600 for design in (0, 1)]
    lines.append(f"{'card time, h':<34}{hours[0]:>16.1f}{hours[1]:>16.1f}")
    lines.append(f"{'card time, share of full':<34}{100.0:>15.1f}%{100 * hours[1] / hours[0]:>15.1f}%")
    return "\n".join(lines)


def _share(count: int, total: int) -> str:
    return f"{count:>8} {100 * count / total:>5.1f} %"
