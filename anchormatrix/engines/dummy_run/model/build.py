"""Real modules with random weights: diffusers' transformer and VAE classes, a small text encoder, a scheduler.

Weights come from a seed that is set before each module is made, so every rank of every form holds the same ones.
"""

from __future__ import annotations

from typing import Any

import diffusers
import torch
from torch import Tensor, nn

from anchormatrix.engines.dummy_run.model.models import ModelSpec

_VOCABULARY = 257  # bytes and padding


def build_transformer(spec: ModelSpec, seed: int, device: torch.device) -> nn.Module:
    """Return the denoiser, whole, in inference mode."""
    return _seeded(getattr(diffusers, spec.transformer_class), spec.transformer, seed, device)


def build_vae(spec: ModelSpec, seed: int, device: torch.device) -> nn.Module:
    """Return the VAE; only its decoder is used."""
    return _seeded(getattr(diffusers, spec.vae_class), spec.vae, seed, device)


def build_text_encoder(spec: ModelSpec, seed: int, device: torch.device) -> TextEncoder:
    """Return a small transformer over the prompt's bytes."""
    arguments = {"tokens": spec.text_tokens, "dim": spec.text_dim, "layers": spec.text_layers}
    encoder = _seeded(TextEncoder, arguments, seed, device)
    assert isinstance(encoder, TextEncoder)
    return encoder


def build_scheduler(spec: ModelSpec, flow_shift: float) -> Any:
    """Return the scheduler that the pipeline of this family uses."""
    if spec.family == "wan":
        return diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=flow_shift
        )
    return diffusers.FlowMatchEulerDiscreteScheduler(shift=flow_shift)


class TextEncoder(nn.Module):
    """Prompt -> embedding of (1, tokens, dim). The prompt is cut or padded to ``tokens`` bytes."""

    def __init__(self, tokens: int, dim: int, layers: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.embedding = nn.Embedding(_VOCABULARY, dim)
        self.position = nn.Parameter(torch.randn(1, tokens, dim) * 0.1)
        layer = nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=4 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, prompt: str) -> Tensor:
        data = list(prompt.encode("utf-8")[: self.tokens])
        data += [_VOCABULARY - 1] * (self.tokens - len(data))
        ids = torch.tensor([data], device=self.position.device)
        encoded: Tensor = self.encoder(self.embedding(ids) + self.position)
        return encoded


def _seeded(make: Any, arguments: Any, seed: int, device: torch.device) -> nn.Module:
    torch.manual_seed(seed)
    module: nn.Module = make(**arguments)
    return module.to(device).eval().requires_grad_(False)
