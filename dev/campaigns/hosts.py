"""Random virtual hosts for the decision campaign: what each is made of follows from one number and the hardness."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.things import ModelSettings
from campaigns.hardness import HARD, Hardness
from campaigns.margins import dead_feature, with_margin
from campaigns.noise import SMOKES, log_uniform, step_rules, timing
from campaigns.trouble import Domains, degrees, form_trouble, host_trouble, missing_padding
from virtualhost.host.model import Behaviour, DiT, Rates
from virtualhost.host.scenario import Cards, Links, Scenario, Serving, Speed
from virtualhost.host.split import Split
from virtualhost.truth.forms import startable

_QUADS: Domains = ((0, 1, 2, 3), (4, 5, 6, 7))
_DOMAINS: tuple[Domains, ...] = (
    _QUADS,
    _QUADS,
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((0, 1, 2, 3, 4, 5, 6, 7),),
    ((0, 1, 2, 3),),
    (tuple(range(8)), tuple(range(8, 16))),
)

# of a sequence that needs padding: the engine pads; it does not and says so; it does not although it says it does
_PADDING = ("padded", "missing", "wrong")


@dataclass(frozen=True)
class Experiment:
    """One host and the question asked of it: which of ``forms`` is best on ``size`` cards at ``full_steps`` steps.

    ``declared``: whether the product knows of the model that its engine pads the sequence and has pipeline stages.
    """

    number: int
    scenario: Scenario
    size: int
    forms: tuple[Form, ...]
    figures: ModelSettings
    full_steps: int
    captures: bool = False
    declared: bool = True

    def session_number(self, form: str, window: int) -> int:
        """Which start on the host the one of a form in a window is, whatever else is measured; even windows reverse."""
        names = [known.name for known in self.forms]
        place = names.index(form) if form in names else 0
        place = place if window % 2 else len(names) - 1 - place
        return SMOKES + (window - 1) * len(names) + place + 1


class _Numbers(dict[str, random.Random]):
    """Random numbers by what they are for: what one thing draws leaves every other as it is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, key: str) -> random.Random:
        self[key] = random.Random(f"{self.name}|{key}")
        return self[key]


def draw(seed: int, number: int, hard: Hardness = HARD) -> Experiment:
    """Draw host ``number`` of a campaign: deterministic, and independent of every other host."""
    for attempt in range(1000):
        found = _attempt(_Numbers(f"decision|{seed}|{number}|{attempt}"), number, hard)
        if found is not None:
            return found
    raise ValueError(f"host {number} of seed {seed}: no attempt brought two forms of different splits")


def _attempt(rngs: _Numbers, number: int, hard: Hardness) -> Experiment | None:
    rng = rngs["host"]
    plain = rng.random() >= hard.any_model
    domains = _QUADS if plain else rng.choice(_DOMAINS)
    size = rng.choice((4, 8) if plain else [size for size in (2, 4, 4, 8, 8) if _group(domains, size)])
    padded = rngs["padding"].random() < hard.padding
    dit = DiT() if plain else _model(rng, rngs["padding"].choice((1, 2, 4)) if padded else 0)
    behaviour = Behaviour() if plain else _behaviour(rng)
    scenario = Scenario(
        name=f"campaign-{number}",
        seed=rng.randrange(1 << 30),
        cards=Cards(sum(map(len, domains)), memory_mb=98304 if plain else rng.choice((32768, 65536, 65536, 98304))),
        links=Links(domains) if plain else _links(rng, domains),
        dit=dit,
        rates=Rates() if plain else _rates(rng),
        behaviour=behaviour,
        serving=Serving(startup_s=rng.uniform(25, 90)),
    )
    padding = rngs["padding"].choice(_PADDING) if padded else ""
    forms = _forms(rngs["forms"], scenario, size, pipelined=padding != "missing")
    if len({degrees(form) for form in forms}) < 2:
        return None
    names = tuple(form.name for form in forms)
    troubled = rngs["trouble"].random() < hard.trouble
    faults = form_trouble(rngs["faults"], forms) if troubled else ()
    if padding in ("missing", "wrong"):
        faults += missing_padding(dit, forms)
    scenario = replace(
        scenario,
        timing=timing(hard, rngs, len(forms)),
        behaviour=replace(behaviour, step_rules=step_rules(rngs["rules"], hard.step_rules, names)),
        faults=faults,
        **(host_trouble(rngs["trouble"], domains, size) if troubled else {}),
    )
    full = rng.choice((20, 28, 40, 50))
    dead = dead_feature(rngs["dead"], scenario, forms) if rngs["dead"].random() < hard.dead_features else None
    if dead is not None:
        fault, forms = dead
        scenario = replace(scenario, faults=(*scenario.faults, fault))
    scenario = with_margin(rngs["margin"], hard, scenario, forms, _group(domains, size), full)
    return Experiment(
        number=number,
        scenario=scenario,
        size=size,
        forms=tuple(parse_form(form.name) for form in forms),
        figures=_figures(dit),
        full_steps=full,
        captures=rngs["captures"].random() < hard.captures,
        declared=padding != "missing",
    )


def _group(domains: Domains, size: int) -> tuple[int, ...]:
    """A legal group of the size, for its times: every other one is like it. Empty when there is none."""
    cards = sum(domains, ())
    return cards[:size] if size <= len(domains[0]) or size == len(cards) else ()


def _forms(rng: random.Random, scenario: Scenario, size: int, *, pipelined: bool) -> tuple[Split, ...]:
    """Two to eight of the forms that start on the host, in the order of their enumeration."""
    able = startable(scenario, size, chunks=(1, rng.choice((2, 4, 5, 8))))
    found = [form for form in able if pipelined or form.pp == 1]
    count = min(len(found), rng.randint(2, 8))
    return tuple(sorted(rng.sample(found, count), key=found.index))


def _model(rng: random.Random, uneven_tokens: int) -> DiT:
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
        sequence_tokens=round(log_uniform(rng, 8192, 110000) / 64) * 64 + uneven_tokens,
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


def _links(rng: random.Random, domains: Domains) -> Links:
    fast, slow = log_uniform(rng, 25, 180), log_uniform(rng, 8, 45)
    return Links(
        domains=domains,
        classes={"UB": Speed(fast, rng.uniform(8, 40)), "SYS": Speed(min(slow, fast * 0.8), rng.uniform(25, 90))},
        in_model_efficiency=rng.choice((1.0, 1.0, 0.7, 0.5)),
    )


def _rates(rng: random.Random) -> Rates:
    matmul = log_uniform(rng, 100, 420)
    return Rates(
        matmul_tflops=matmul,
        attention_tflops=matmul * rng.uniform(0.45, 0.9),
        memory_gbs=log_uniform(rng, 500, 2500),
        half_width=rng.choice((50, 200, 400)),
        launch_gap_us=rng.uniform(1, 6),
    )


def _behaviour(rng: random.Random) -> Behaviour:
    """What leaves communication exposed."""
    return Behaviour(
        reverse_after_forward=rng.random() < 0.2,
        leaked_transforms=rng.random() < 0.05,
        overlap_tensor_parallel=rng.random() < 0.2,
    )
