"""The time of a session before anything was timed: reckoned from the model's figures and two assumed rates.

A start loads every weight and then renders requests; a step computes each layer for every guidance branch, shared by
the cards. What a card computes in a second (``device.tflops``) and how long a start takes (``engine.load_s``) are
assumed where the configuration does not state them. A reckoning is right by a factor of two at best: it is there to
tell minutes from hours, and the first smoke replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass

from anchormatrix.records.settings.values import DeviceKind
from anchormatrix.records.settings.whole import Settings

START_S = 30.0  # a start without its weights: interpreters, imports, communicators; a size sweep is no more than that
LOAD_GB_S = 1.0  # weights from a local disk to the cards
TFLOPS = {DeviceKind.ASCEND: 150.0, DeviceKind.NVIDIA: 300.0, DeviceKind.CPU: 0.05}
DECODE_GFLOP = 120.0  # of the VAE, on one card: for a token and a GB of its weights


@dataclass(frozen=True)
class Reckoning:
    """What a configuration asks of its cards: ``load_s`` for each start, ``step_flop`` for each denoise step of all
    branches, ``decode_flop`` for each request, at ``flops`` per card and second.
    """

    load_gb: float
    load_s: float
    step_flop: float
    decode_flop: float
    flops: float

    def step_s(self, size: int) -> float:
        """A denoise step on so many cards."""
        return self.step_flop / (size * self.flops)

    @property
    def decode_s(self) -> float:
        """What a request takes beside its steps."""
        return self.decode_flop / self.flops

    @property
    def words(self) -> str:
        """What it rests on, such as ``starts of 99 s (69 GB at 1 GB/s), steps of 3.6 PFLOP at 150 TFLOP/s a card``."""
        step = f"{self.step_flop / 1e15:.2g} PFLOP" if self.step_flop >= 1e14 else f"{self.step_flop / 1e12:.2g} TFLOP"
        return (
            f"starts of {self.load_s:.0f} s for {self.load_gb:.3g} GB of weights, steps of {step}"
            f" at {self.flops / 1e12:g} TFLOP/s a card"
        )


def reckon(settings: Settings) -> Reckoning:
    """The reckoning of a configuration.

    A forward takes two operations per weight and token, and attention four per pair of tokens, channel and layer.
    """
    model, kind = settings.model, settings.device.kind
    load_gb = model.weights_gb * model.transformers + model.text_encoder_gb + model.vae_gb
    load_s = settings.engine.load_s or START_S + load_gb / LOAD_GB_S
    weights = model.weights_gb * 1e9 / model.bytes_per_value
    tokens = model.sequence_tokens
    forward = 2 * weights * tokens + 4 * tokens**2 * model.width * model.layers
    return Reckoning(
        load_gb=load_gb,
        load_s=load_s,
        step_flop=model.guidance_branches * forward,
        decode_flop=DECODE_GFLOP * 1e9 * tokens * model.vae_gb,
        flops=1e12 * (settings.device.tflops or TFLOPS[kind]),
    )


def session_s(settings: Settings, step_s: float, reckoned: Reckoning) -> float:
    """A session whose steps take so long: its start, the fewest warm-ups, the repeats, and a captured request."""
    matrix = settings.matrix
    few, anchor = matrix.tiers.few, matrix.tiers.anchor
    warm, captured = matrix.warmups.min, int(settings.capture.enabled)
    steps = (warm + captured) * few + matrix.repeats * (few + anchor)
    requests = warm + captured + 2 * matrix.repeats
    return reckoned.load_s + steps * step_s + requests * reckoned.decode_s


def smoke_s(settings: Settings, step_s: float, reckoned: Reckoning) -> float:
    """A smoke: its start and one short request."""
    return reckoned.load_s + settings.smoke.steps * step_s + reckoned.decode_s


def sweep_s(reckoned: Reckoning) -> float:
    """A size sweep of a card group: a start that loads nothing, and seconds of calls."""
    return min(START_S, reckoned.load_s)
