"""Random virtual hosts for the decision campaign: what each is made of follows from one number alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from anchormatrix.planning.candidates import EngineLimits, enumerate_forms, same_size_pair
from anchormatrix.planning.memory import MemoryLimits, plan_memory
from anchormatrix.records.form import Form
from anchormatrix.records.settings.things import ModelSettings
from virtualhost.host.faults import Fault, Moment, Span
from virtualhost.host.model import Behaviour, DiT, Rates, StepRule
from virtualhost.host.scenario import Cards, Health, Links, LogStyle, Residue, Scenario, Serving, Speed, Tenant, Timing
from virtualhost.host.split import refusal
from virtualhost.server.serving import parse_split

FEW, ANCHOR = 4, 10
_DOMAINS = (
    ((0, 1, 2, 3), (4, 5, 6, 7)),
    ((0, 1, 2, 3), (4, 5, 6, 7)),
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((0, 1, 2, 3, 4, 5, 6, 7),),
    ((0, 1, 2, 3),),
    (tuple(range(8)), tuple(range(8, 16))),
)


@dataclass(frozen=True)
class Experiment:
    """One host and the question asked of it: which of ``forms`` is best on ``size`` cards at ``full_steps`` steps."""

    number: int
    scenario: Scenario
    size: int
    forms: tuple[Form, ...]
    figures: ModelSettings
    full_steps: int


def draw(seed: int, number: int) -> Experiment:
    """Draw host ``number`` of a campaign: deterministic, and independent of every other host."""
    rng = random.Random(f"decision|{seed}|{number}")
    while True:
        found = _attempt(rng, number)
        if found is not None:
            return found


def _attempt(rng: random.Random, number: int) -> Experiment | None:
    domains = rng.choice(_DOMAINS)
    count = sum(map(len, domains))
    size = rng.choice([size for size in (2, 4, 4, 8, 8) if size <= count])
    dit = _model(rng)
    cards = Cards(count=count, memory_mb=rng.choice((32768, 65536, 65536, 98304)))
    forms = _forms(rng, dit, size, cards)
    if len(forms) < 2:
        return None
    scenario = Scenario(
        name=f"campaign-{number}",
        seed=rng.randrange(1 << 30),
        cards=cards,
        links=_links(rng, domains),
        health=_health(rng, count),
        tenants=_tenants(rng, domains, size),
        residue=_residue(rng, domains, size),
        timing=_timing(rng),
        dit=dit,
        rates=_rates(rng),
        behaviour=_behaviour(rng, forms),
        log=_log(rng),
        serving=Serving(startup_s=rng.uniform(25, 90)),
        faults=_faults(rng, forms),
    )
    return Experiment(number, scenario, size, forms, _figures(dit), rng.choice((20, 28, 40, 50)))


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _model(rng: random.Random) -> DiT:
    heads = rng.choice((16, 24, 32, 40, 48))
    head_dim = rng.choice((64, 128, 128))
    width = heads * head_dim
    layers = rng.choice((24, 30, 40, 48))
    weights = layers * width * width * 12 * 2 / 1e9
    return DiT(
        layers=layers,
        heads=heads,
        kv_heads=heads // rng.choice((1, 1, 1, 2, 4, 8)),
        head_dim=head_dim,
        ffn_dim=round(width * rng.choice((2.7, 4)) / 256) * 256,
        sequence_tokens=round(_log_uniform(rng, 8192, 110000) / 64) * 64,
        guidance_branches=rng.choice((1, 2, 2)),
        weights_gb=round(weights, 2),
        text_encoder_gb=rng.choice((1.0, 11.0)),
        activation_gb=rng.uniform(4, 20),
    )


def _figures(dit: DiT) -> ModelSettings:
    return ModelSettings(
        layers=dit.layers,
        heads=dit.heads,
        kv_heads=dit.kv_heads,
        head_dim=dit.head_dim,
        sequence_tokens=dit.sequence_tokens,
        ffn_dim=dit.ffn_dim,
        guidance_branches=dit.guidance_branches,
        bytes_per_value=dit.bytes_per_value,
        weights_gb=dit.weights_gb,
        text_encoder_gb=dit.text_encoder_gb,
        vae_gb=dit.vae_gb,
        activation_gb=dit.activation_gb,
    )


def _forms(rng: random.Random, dit: DiT, size: int, cards: Cards) -> tuple[Form, ...]:
    """The same-size pair and up to ten other candidates, after the memory gate (with offload where that unlocks)."""
    figures = _figures(dit)
    limits = EngineLimits(mask_chunks=(1, rng.choice((2, 4, 5, 8))))
    found = enumerate_forms(figures, size, limits, refusal=lambda form: refusal(dit, parse_split(form.name)))
    memory = MemoryLimits((cards.memory_mb - cards.driver_memory_mb) * 2**20 / 1e9, 2.0, host_gb=500.0)
    plan = plan_memory(found.forms, figures, memory)
    pair = same_size_pair(plan.forms)
    if pair is None:
        return pair or ()
    others = [form for form in plan.forms if form not in pair]
    extra = rng.sample(others, min(len(others), rng.choice((0, 1, 2, 3, 4, 6, 10))))
    return tuple(sorted({*pair, *extra}, key=plan.forms.index))


def _links(rng: random.Random, domains: tuple[tuple[int, ...], ...]) -> Links:
    fast, slow = _log_uniform(rng, 25, 180), _log_uniform(rng, 8, 45)
    return Links(
        domains=domains,
        classes={"UB": Speed(fast, rng.uniform(8, 40)), "SYS": Speed(min(slow, fast * 0.8), rng.uniform(25, 90))},
        in_model_efficiency=rng.choice((1.0, 1.0, 0.7, 0.5)),
    )


def _rates(rng: random.Random) -> Rates:
    matmul = _log_uniform(rng, 100, 420)
    return Rates(
        matmul_tflops=matmul,
        attention_tflops=matmul * rng.uniform(0.45, 0.9),
        memory_gbs=_log_uniform(rng, 500, 2500),
        half_width=rng.choice((50, 200, 400)),
        launch_gap_us=rng.uniform(1, 6),
    )


def _timing(rng: random.Random) -> Timing:
    # two hosts of three are quiet, the third is shared and noisy
    noise = _log_uniform(rng, 0.2, 1.2) if rng.random() < 2 / 3 else _log_uniform(rng, 1.2, 7.0)
    ramp = tuple(sorted(rng.uniform(0.84, 0.96) for _ in range(rng.choice((0, 1, 2, 2, 3)))))
    slope = rng.choice((0.0,) * 8 + (0.1, 0.3))
    return Timing(
        dispersion_pct=noise,
        restart_sd_pct=noise * rng.uniform(0.05, 0.25),
        step_pct=rng.uniform(0.1, 1.0),
        ramp=ramp,
        thermal_pct_per_step=slope,
        thermal_after=rng.choice((2, 6)),
        decode_jitter_pct=rng.uniform(10, 60),
    )


def _behaviour(rng: random.Random, forms: tuple[Form, ...]) -> Behaviour:
    """Exposed communication, and what makes steps of long requests differ from those of short ones."""
    rules: list[StepRule] = []
    kind = rng.random()
    if kind < 0.20:  # all forms drift alike
        rules.append(StepRule(1 + rng.uniform(0.005, 0.13), min_steps=rng.choice((6, ANCHOR))))
    elif kind < 0.40:  # one form behaves differently in long requests: orders may flip
        rules.append(StepRule(rng.uniform(0.84, 1.2), min_steps=ANCHOR, forms=(rng.choice(forms).name,)))
    elif kind < 0.50:  # one form's later steps cost more, as with a cache that stops hitting
        rules.append(
            StepRule(rng.uniform(0.92, 1.12), first_step=rng.choice((1, 2, 3)), forms=(rng.choice(forms).name,))
        )
    return Behaviour(
        reverse_after_forward=rng.random() < 0.2,
        leaked_transforms=rng.random() < 0.05,
        overlap_tensor_parallel=rng.random() < 0.2,
        step_rules=tuple(rules),
    )


def _group_of(rng: random.Random, domains: tuple[tuple[int, ...], ...], size: int) -> tuple[int, ...]:
    """An aligned group of the size, where a smaller part of the host can be spoiled and another is left."""
    domain = rng.choice(domains)
    start = rng.randrange(0, len(domain), min(size, len(domain)))
    return domain[start : start + size]


def _tenants(rng: random.Random, domains: tuple[tuple[int, ...], ...], size: int) -> tuple[Tenant, ...]:
    kind = rng.random()
    if kind < 0.08 and sum(map(len, domains)) > size:
        return (Tenant(_group_of(rng, domains, size), memory_mb=20480, slowdown=rng.uniform(1.0, 1.4)),)
    if kind < 0.16:  # comes while a session runs, and leaves again
        session, request = rng.randrange(2, 5), rng.randrange(1, 8)
        when = Span(Moment(session, request), Moment(session + 1, 0))
        return (Tenant(_group_of(rng, domains, size), memory_mb=20480, slowdown=rng.uniform(1.0, 1.6), when=when),)
    return ()


def _residue(rng: random.Random, domains: tuple[tuple[int, ...], ...], size: int) -> Residue:
    if rng.random() < 0.08 and sum(map(len, domains)) > size:
        return Residue(_group_of(rng, domains, size), factor=rng.uniform(7, 12))
    return Residue()


def _health(rng: random.Random, count: int) -> tuple[Health, ...]:
    if rng.random() < 0.06:
        return (Health((rng.randrange(count),), rng.choice(("Alarm", "Warning"))),)
    return ()


def _log(rng: random.Random) -> LogStyle:
    return LogStyle(
        pipeline=rng.choice(("Wan22Pipeline", "Magi2Pipeline")),
        diffuse_stage=rng.choice(("diffuse", "diffuse", "sampler.diffuse")),
        per_step=rng.random() < 0.15,
        progress_bar=rng.random() < 0.9,
        iterations_minus_one=rng.random() < 0.1,
        worker_tag=rng.choice(("degrees", "degrees", "fs")),
        ansi=rng.random() < 0.7,
        interleave_every=rng.choice((0, 17, 40)),
    )


def _faults(rng: random.Random, forms: tuple[Form, ...]) -> tuple[Fault, ...]:
    """Silent no-ops, forms that do not run, lost responses, one slow request."""
    found: list[Fault] = []
    form = rng.choice(forms)
    kind = rng.random()
    if kind < 0.10:
        applied = rng.choice([other.name for other in forms if other.split != form.split] or ["tp1-usp1"])
        found.append(Fault("not_applied", form=form.name, applied=applied))
    elif kind < 0.17:
        found.append(Fault(rng.choice(("crash", "oom", "comm_init")), where="load", form=form.name))
    if rng.random() < 0.15:
        found.append(Fault("lost_response", form=rng.choice(forms).name, request=rng.randrange(1, 10)))
    if rng.random() < 0.05:
        found.append(
            Fault("slow", form=form.name, form_session=1, request=rng.randrange(4, 10), factor=rng.uniform(1.02, 1.5))
        )
    return tuple(found)
