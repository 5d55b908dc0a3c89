"""The product on the starts of a virtual host: its planner, its design and its judgement, by the workflow's functions.

This is the one place that knows how the product's design is asked. A design says what to measure next; the campaign
serves it from the host's starts, and cells, verdict, gates and decision follow as in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from msgspec.structs import replace as with_values

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.decide.assemble import Stored, judge_contract
from anchormatrix.decide.cells import build_cells
from anchormatrix.decide.effects.features import effects, while_measuring, without_dead
from anchormatrix.decide.verdict import judge
from anchormatrix.planning.adaptive import MatrixDesign, next_order
from anchormatrix.planning.configured import candidates_of, matrix_design, memory_limits
from anchormatrix.records.conclusions.decision import DecisionOutcome
from anchormatrix.records.conclusions.gates import Gates
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.conclusions.verdict import Verdict, VerdictStatus
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.values import Design
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.sessions import TimedSession
from campaigns.captures import attributions, sweep
from campaigns.hosts import Experiment
from campaigns.rulings import Ruling
from campaigns.starts import Starts

_UNKNOWN_MODEL = "someone/another-transformer"  # of which the engine declares neither padding nor pipeline stages
_MASKING = ("--mask-chunks", "{mask_chunks}")


@dataclass(frozen=True)
class History:
    """What earlier nights say of a host: the standard deviation between starts, and its degrees of freedom."""

    restart_sd_pct: float
    freedom: int

    @property
    def noise(self) -> StartNoise:
        return StartNoise(sd_pct=self.restart_sd_pct, dof=self.freedom, from_history=self.freedom)


@dataclass(frozen=True)
class Asked:
    """One way to ask the product: its design, whether history is known, and the chance of error of a comparison (None:
    the product's own)."""

    design: str
    history: bool = False
    level: float | None = None


_LEVELS = (0.002, 0.05, 0.15)
# ways of one kind, which differ in how sure they want to be; the product's own comes first
FAMILIES: Mapping[str, Mapping[str, Asked]] = {
    "full design": {"full design": Asked("full")},
    **{
        name: {name: asked, **{f"{name}, level {level:g}": replace(asked, level=level) for level in _LEVELS}}
        for name, asked in {
            "adaptive design": Asked("adaptive"),
            "adaptive design with history": Asked("adaptive", history=True),
        }.items()
    },
}
RULES: Mapping[str, Asked] = {name: asked for family in FAMILIES.values() for name, asked in family.items()}


@lru_cache(maxsize=1)
def _defaults() -> Settings:
    return load_settings(DEFAULT_FILE)


def settings_of(experiment: Experiment, design: str) -> Settings:
    """The configuration a user of this host would write: the forms to compare, the model's figures, the design."""
    base, names = _defaults(), tuple(form.name for form in experiment.forms)
    model = base.engine.model if experiment.declared else _UNKNOWN_MODEL
    matrix = {"sizes": (experiment.size,), "forms": {experiment.size: names}, "design": Design(design)}
    return with_values(
        base,
        engine=with_values(base.engine, extra_args=_MASKING, model=model),
        model=experiment.figures,
        matrix=with_values(base.matrix, **matrix),
        selection=with_values(base.selection, host_memory_gb=experiment.scenario.serving.host_memory_gb),
    )


def planned(experiment: Experiment, settings: Settings) -> tuple[str, ...]:
    """The forms that the product would measure of those asked for."""
    found = candidates_of(settings, experiment.size, card_gb=_card_gb(experiment))
    return tuple(form.name for form in found.forms)


def decide(starts: Starts, asked: Asked, history: History) -> tuple[Ruling, Gates | None]:
    """What the product says of the host and what it took; and gates and projections, when there was a form to judge."""
    settings = settings_of(starts.experiment, asked.design)
    forms = planned(starts.experiment, settings)
    if not forms:
        return Ruling(None, 0, 0.0, text="the planner leaves no form"), None
    design = matrix_design(settings, history.noise if asked.history else None)
    if asked.level is not None:
        design = replace(design, rule=replace(design.rule, level=asked.level))
    seen, seconds = _measure(starts, forms, design)
    verdict, gates = conclude(starts, forms, seen, settings, design)
    decision = gates.decision
    no_difference = decision.outcome is DecisionOutcome.NO_DIFFERENCE
    ruling = Ruling(
        winner=decision.winner,
        starts=len(seen),
        card_s=seconds * starts.contract.size,
        tied=verdict.tied_with if no_difference else (),
        confidence=decision.confidence.value,
        extrapolates=verdict.status is VerdictStatus.EXTRAPOLATES,
        r=tuple(verdict.r),
        planned=forms,
        text=f"{verdict.status}, {decision.confidence}: {decision.sentence}",
    )
    return ruling, gates


def _measure(starts: Starts, forms: tuple[str, ...], design: MatrixDesign) -> tuple[list[TimedSession], float]:
    """The sessions that the design asks for, in its order, and their virtual seconds."""
    seen, seconds = list[TimedSession](), 0.0
    while order := next_order(forms, while_measuring(seen, starts.experiment.figures), design):
        measured = starts.session(order.form, order.window, repeats=order.repeats)
        seen.append(measured.timed)
        seconds += measured.seconds
    return seen, seconds


def conclude(
    starts: Starts, forms: tuple[str, ...], seen: Sequence[TimedSession], settings: Settings, design: MatrixDesign
) -> tuple[Verdict, Gates]:
    """Cells, verdict, gates and decision of the sessions, as the rules' commands make them.

    Masked forms are captured on every host, the others on some: without a capture no masking is proved.
    """
    contract, limits, everything = starts.contract, settings.verdict, starts.experiment.captures
    told = [timed for timed in seen if everything or parse_form(timed.session.form).mask_chunks > 1]
    captured: dict[str, Any] = {"attributions": attributions(starts, told, settings)}
    proved = effects((timed.session for timed in seen), captured["attributions"], settings.model)
    living = without_dead(seen, proved)
    cells = build_cells(living, repeats=design.repeats, dispersion_pct=limits.dispersion_pct)
    verdict = judge(contract.id, contract.size, cells, living, forms=forms, design=design, limits=limits)
    if everything:
        captured["sweep"] = sweep(starts, forms, settings)
    gates = judge_contract(
        Stored(
            contract=contract,
            forms=tuple(map(parse_form, forms)),
            sessions=[timed.session for timed in seen],
            cells=cells,
            verdict=verdict,
            model=settings.model,
            memory=memory_limits(settings, _card_gb(starts.experiment)),
            noise_floor_pct=settings.verdict.noise_floor_pct,
            **captured,
        )
    )
    return verdict, gates


def _card_gb(experiment: Experiment) -> float:
    cards = experiment.scenario.cards
    return (cards.memory_mb - cards.driver_memory_mb) * 2**20 / 1e9
