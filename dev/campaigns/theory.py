"""Gates and projections against the truth: what the host itself does when the one thing is really changed.

A gate fails falsely when the form it fails could do what the gate denies. A projection is contradicted when the order
that it names is beyond doubt the other one on a host where its fix was made. Beyond doubt: by more than the
indifference zone and two standard deviations of a difference of two starts, since a projection starts from measured
steps, which are not the true ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from anchormatrix.records.conclusions.gates import Fix, Gates, GateStatus, Projection
from campaigns.hosts import Experiment
from campaigns.noise import RANGE_OF_THREE
from campaigns.rulings import ZONE_PCT, Theory
from campaigns.truth import Truth, at_work, scale
from virtualhost.host.model import HostModel
from virtualhost.host.split import Split, mask_chunks
from virtualhost.server.exchange import parse_split
from virtualhost.step.steptable import step_figures
from virtualhost.step.timeline import simulate_step

_JUDGED = ("G3", "G4", "G5", "G7")
_CHUNKS = range(2, 17)


def judge_theory(gates: Gates, experiment: Experiment, cards: tuple[int, ...], truth: Truth) -> Theory:
    """Compare every failed gate of G3 to G5 and G7, and every projection that can be carried out, with the truth."""
    bench = _Bench(experiment, cards, truth)
    failed = [gate for gate in gates.gates if gate.gate in _JUDGED and gate.status is GateStatus.FAILED]
    false = [f"{gate.gate} of {gate.form}: {why}" for gate in failed if (why := bench.denied(gate.gate, gate.form))]
    tried = [item for item in gates.projections if bench.fixed_s(item) is not None]
    return Theory(
        failures=len(failed),
        false_failures=tuple(false),
        projections=len(tried),
        contradicted=tuple(text for item in tried if (text := bench.contradiction(item))),
    )


class _Bench:
    """The host with one thing changed. Steps are those of an anchor request, which the gates speak of."""

    def __init__(self, experiment: Experiment, cards: tuple[int, ...], truth: Truth) -> None:
        self.experiment, self.cards, self.truth = experiment, cards, truth
        self.scenario = experiment.scenario
        timing = self.scenario.timing
        request = timing.dispersion_pct / RANGE_OF_THREE
        start = (timing.restart_sd_pct**2 + request**2 / 3) ** 0.5
        self.doubt_pct = ZONE_PCT + 2 * start * 2**0.5

    @cached_property
    def best_s(self) -> float:
        """The true anchor step of the fastest form that can be had."""
        return min(self.truth.anchor_s.values())

    def step_s(self, form: str, model: HostModel, split: Split | None = None) -> float:
        """The anchor step of a form, by its own rules, when the host is as the model says."""
        own = parse_split(form)
        plain = simulate_step(model, split or at_work(self.scenario, own), self.cards).step_ns / 1e9
        return plain * scale(self.scenario, own, 10)

    def denied(self, gate: str, form: str) -> str:
        """Why a failure of the gate is false; empty when it is right, or says nothing that can be tried."""
        if form not in self.truth.anchor_s:
            return ""
        if gate == "G3":
            return "it runs, and as it says"
        if gate == "G4":
            timeline = simulate_step(self.scenario.host_model(), parse_split(form), self.cards)
            computing = max(step_figures(timeline, rank).computing_ns for rank in timeline.ranks) / 1e9
            return self._faster("its computing alone takes", computing * scale(self.scenario, parse_split(form), 10))
        if gate == "G5":
            masked = self._masked_s(form)
            return self._faster("masked it takes", masked) if masked is not None else ""
        return ""

    def _faster(self, words: str, step_s: float) -> str:
        ahead = 100 * (self.best_s / step_s - 1)
        return f"{words} {step_s:.4g} s, the best form {self.best_s:.4g} s" if ahead > self.doubt_pct else ""

    def _masked_s(self, form: str) -> float | None:
        """The form's best step with any number of masking chunks; None where nothing can be masked."""
        own = parse_split(form)
        tried = [replace(own, mask_chunks=n) for n in _CHUNKS]
        able = [split for split in tried if mask_chunks(self.scenario.dit, split) == split.mask_chunks]
        model = self.scenario.host_model()
        return min((self.step_s(form, model, split) for split in able), default=None)

    def fixed_s(self, item: Projection) -> float | None:
        """The form's step when the fix is made on the host; None for a fix that no host can be given."""
        if item.form not in self.truth.anchor_s or item.against not in self.truth.anchor_s:
            return None
        links, model = self.scenario.links, self.scenario.host_model()
        if item.fix is Fix.EXPOSED_TO_BOUND:
            return self._masked_s(item.form)
        if item.fix is Fix.BANDWIDTH_ISOLATED and links.in_model_efficiency < 1:
            faster = replace(model.fabric, in_model_efficiency=1.0)
        elif item.fix is Fix.PAYLOAD_HALVED:  # half the bytes take as long as all of them over links twice as fast
            faster = replace(model.fabric, in_model_efficiency=2 * links.in_model_efficiency)
        else:
            return None
        return self.step_s(item.form, replace(model, fabric=faster))

    def contradiction(self, item: Projection) -> str:
        """How the truth contradicts the order a projection names; empty when it does not beyond doubt.

        A bound is no promise, so a form that masking brings less far than its bound contradicts nothing.
        """
        fixed, against = self.fixed_s(item), self.truth.anchor_s[item.against]
        if fixed is None:
            return ""
        ahead = 100 * (against / fixed - 1)
        missed = not item.reverses and ahead > self.doubt_pct
        invented = item.reverses and ahead < -self.doubt_pct and item.fix is not Fix.EXPOSED_TO_BOUND
        said = "would reverse" if item.reverses else "would not reverse"
        words = f"{item.fix} of {item.form}: said it {said} the order, and it takes {fixed:.4g} s"
        return f"{words} against {against:.4g} s" if missed or invented else ""
