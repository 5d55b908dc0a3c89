"""The truth of a virtual host: what each form takes at any step count, and which forms cannot be had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split, step_factor
from virtualhost.server.exchange import parse_split
from virtualhost.step.timeline import SplitError, simulate_step
from virtualhost.truth.forms import fits

_ENDS = ("crash", "oom", "comm_init")
_DEAD = ("dead_masking", "dead_offload")


def dead_forms(scenario: Scenario) -> frozenset[str]:
    """Forms that name a feature which silently does nothing."""
    return frozenset(fault.form for fault in scenario.faults if fault.form and fault.kind in _DEAD)


def taken_away(scenario: Scenario) -> frozenset[str]:
    """Forms that cannot be had: they end with an error, silently become another form, or name a dead feature."""
    ended = (fault.form for fault in scenario.faults if fault.form and fault.kind in (*_ENDS, "not_applied"))
    return dead_forms(scenario) | frozenset(ended)


def at_work(scenario: Scenario, form: Split) -> Split:
    """The form whose step is really computed: without a dead feature."""
    kinds = {fault.kind for fault in scenario.faults if fault.form == form.name}
    chunks = 1 if "dead_masking" in kinds else form.mask_chunks
    return replace(form, mask_chunks=chunks, offload="" if "dead_offload" in kinds else form.offload)


def scale(scenario: Scenario, form: Split, steps: int) -> float:
    """How many times the plain step the mean step of a request of so many steps takes."""
    return sum(step_factor(scenario.behaviour, form, index, steps) for index in range(steps)) / steps


def full_step(scenario: Scenario, form: Split, cards: tuple[int, ...], steps: int) -> float:
    """Mean seconds of a step in a request of so many steps, without any noise. Raises :class:`SplitError`."""
    plain = simulate_step(scenario.host_model(), at_work(scenario, form), cards).step_ns / 1e9
    return plain * scale(scenario, form, steps)


@dataclass(frozen=True)
class Truth:
    """True mean steps (s) of the forms that can really be had, by form, at full, anchor and few step counts.

    ``dead`` are forms that name a feature which does nothing. ``variants_s`` holds the steps at full and anchor step
    counts of forms that are no candidates but may be measured in a candidate's place.
    """

    full_s: Mapping[str, float]
    anchor_s: Mapping[str, float]
    few_s: Mapping[str, float]
    dead: frozenset[str] = frozenset()
    variants_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The fastest form at full step count."""
        return min(self.full_s, key=lambda name: self.full_s[name], default=None)

    def loss_pct(self, form: str) -> float:
        """How much slower a form truly is than the best at full step count; infinite for one that cannot be had."""
        step = self.full_s.get(form) or self.variants_s.get(form, (None, None))[0]
        return 100 * (step / self.full_s[self.best] - 1) if step and self.best else float("inf")

    def anchor_loss_pct(self, form: str) -> float:
        """How much slower a form is at the anchor than the best at full step count; negative where it is faster."""
        step = self.anchor_s.get(form) or self.variants_s.get(form, (None, None))[1]
        return 100 * (step / self.anchor_s[self.best] - 1) if step and self.best else float("inf")

    @property
    def margin_pct(self) -> float:
        """The best form's true margin over the second."""
        ranked = sorted(self.full_s.values())
        return 100 * (ranked[1] / ranked[0] - 1) if len(ranked) > 1 else 0.0


def truth_on(
    scenario: Scenario,
    forms: Iterable[str],
    cards: tuple[int, ...],
    *,
    few: int,
    anchor: int,
    full: int,
    variants: Iterable[str] = (),
) -> Truth:
    """The truth on a group of cards."""
    gone, times = taken_away(scenario), dict[str, tuple[float, float, float]]()
    candidates = tuple(forms)
    for name in {*candidates, *variants} - gone:
        split = parse_split(name)
        if not fits(scenario, split):
            continue
        try:
            few_s, anchor_s, full_s = (full_step(scenario, split, cards, steps) for steps in (few, anchor, full))
        except SplitError:
            continue
        times[name] = few_s, anchor_s, full_s
    at = [{name: times[name][tier] for name in candidates if name in times} for tier in range(3)]
    others = {name: (full_s, anchor_s) for name, (_, anchor_s, full_s) in times.items() if name not in candidates}
    return Truth(at[2], at[1], at[0], dead_forms(scenario), others)
