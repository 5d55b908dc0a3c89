"""Named small configurations: diffusers' own transformer classes, sized so that a few CPU cores can run them.

Plain data: the server checks names and geometry without torch; the ranks build the model from the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelSpec:
    """One named configuration with random weights.

    ``transformer`` and ``vae`` are the constructor arguments of the diffusers classes named beside them.
    ``branches`` is the number of forwards that one denoise step needs under classifier-free guidance: 1 for models
    whose guidance is an input of the transformer. ``vae_frames`` limits how many latent frames the decode stage
    decodes: the stage is excluded from every figure, so it only has to be real, not long.
    """

    name: str
    family: str  # wan | flux | qwen-image
    pipeline: str  # the class that vllm-omni 0.30.0 serves the family with (diffusion/registry.py:36)
    transformer_class: str
    transformer: Mapping[str, Any]
    vae_class: str
    vae: Mapping[str, Any]
    branches: int
    latent_channels: int = 16
    spatial_ratio: int = 8
    temporal_ratio: int = 4
    text_tokens: int = 64
    text_dim: int = 256
    text_layers: int = 2
    vae_frames: int = 1
    pooled_dim: int = 0

    @property
    def bar(self) -> bool:
        """Whether vllm-omni 0.30.0 draws a progress bar for the pipeline; FLUX.1's has none."""
        return self.family != "flux"

    @property
    def is_video(self) -> bool:
        """Whether the model makes several frames."""
        return self.family == "wan"

    def latent_shape(self, width: int, height: int, frames: int) -> tuple[int, int, int]:
        """Latent frames, rows and columns of an output of ``frames`` × ``height`` × ``width``.

        Raises :class:`ValueError` when a side is not a multiple of the VAE's ratio times the patch (16), or the frames
        are not 4·n + 1 (the causal VAE keeps the first frame and groups the others by four).
        """
        grid = self.spatial_ratio * 2
        for name, side in (("width", width), ("height", height)):
            if side < grid or side % grid:
                raise ValueError(f"{name} {side} is not a positive multiple of {grid}, as {self.name} needs")
        if not self.is_video:
            return 1, height // self.spatial_ratio, width // self.spatial_ratio
        if frames < 1 or (frames - 1) % self.temporal_ratio:
            raise ValueError(f"num_frames {frames} is not {self.temporal_ratio}·n + 1, as {self.name} needs")
        return 1 + (frames - 1) // self.temporal_ratio, height // self.spatial_ratio, width // self.spatial_ratio


def _wan(name: str, *, heads: int, head_dim: int, layers: int, ffn_dim: int) -> ModelSpec:
    return ModelSpec(
        name=name,
        family="wan",
        pipeline="Wan22Pipeline",
        transformer_class="WanTransformer3DModel",
        transformer={
            "num_attention_heads": heads,
            "attention_head_dim": head_dim,
            "num_layers": layers,
            "ffn_dim": ffn_dim,
            "text_dim": 256,
            "rope_max_seq_len": 256,
        },
        vae_class="AutoencoderKLWan",
        vae={"base_dim": 8, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 1},
        branches=2,
    )


def _flux(name: str, *, heads: int, layers: int, single_layers: int) -> ModelSpec:
    return ModelSpec(
        name=name,
        family="flux",
        pipeline="FluxPipeline",
        transformer_class="FluxTransformer2DModel",
        transformer={
            "num_attention_heads": heads,
            "attention_head_dim": 64,
            "axes_dims_rope": (8, 28, 28),
            "num_layers": layers,
            "num_single_layers": single_layers,
            "joint_attention_dim": 256,
            "pooled_projection_dim": 256,
            "guidance_embeds": True,
        },
        vae_class="AutoencoderKL",
        vae=_IMAGE_VAE,
        branches=1,
        pooled_dim=256,
    )


def _qwen(name: str, *, heads: int, layers: int) -> ModelSpec:
    return ModelSpec(
        name=name,
        family="qwen-image",
        pipeline="QwenImagePipeline",
        transformer_class="QwenImageTransformer2DModel",
        transformer={
            "num_attention_heads": heads,
            "attention_head_dim": 64,
            "axes_dims_rope": (8, 28, 28),
            "num_layers": layers,
            "joint_attention_dim": 256,
        },
        vae_class="AutoencoderKL",
        vae=_IMAGE_VAE,
        branches=2,
    )


_IMAGE_VAE = {
    "latent_channels": 16,
    "block_out_channels": (16, 16, 32, 32),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "norm_num_groups": 8,
}

MODELS: Mapping[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _wan("wan-tiny", heads=8, head_dim=48, layers=4, ffn_dim=1536),
        _wan("wan-small", heads=16, head_dim=96, layers=16, ffn_dim=6144),
        _flux("flux-tiny", heads=6, layers=2, single_layers=4),
        _qwen("qwen-image-tiny", heads=6, layers=4),
    )
}
