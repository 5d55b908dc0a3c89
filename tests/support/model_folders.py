"""Folders of models in diffusers' layout: the keys that their published configurations hold, weights of a few bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IMAGE_VAE = {"_class_name": "AutoencoderKL", "block_out_channels": [128, 256, 512, 512]}
WAN_VAE = {"_class_name": "AutoencoderKLWan", "temperal_downsample": [False, True, True], "z_dim": 16}


@dataclass(frozen=True)
class Model:
    """A pipeline: its class, the configuration of its transformer and of its VAE, and its further parts."""

    pipeline: str
    transformer: Mapping[str, Any]
    vae: Mapping[str, Any]
    parts: tuple[str, ...] = ("text_encoder",)
    index: Mapping[str, Any] = field(default_factory=dict)


def _dit(kind: str, layers: int, heads: int, head_dim: int, **more: Any) -> dict[str, Any]:
    named = {"num_layers": layers, "num_attention_heads": heads, "attention_head_dim": head_dim}
    return {"_class_name": kind, **named, **more}


WAN = _dit("WanTransformer3DModel", 40, 40, 128, ffn_dim=13824, patch_size=[1, 2, 2], in_channels=16)
MODELS: Mapping[str, Model] = {
    "wan2.1-14b": Model("WanPipeline", WAN, WAN_VAE),
    "wan2.2-a14b": Model("WanPipeline", WAN, WAN_VAE, parts=("text_encoder", "transformer_2")),
    "wan2.2-5b": Model(
        "WanPipeline",
        _dit("WanTransformer3DModel", 30, 24, 128, ffn_dim=14336, patch_size=[1, 2, 2], in_channels=48),
        {**WAN_VAE, "patch_size": 2, "scale_factor_temporal": 4, "scale_factor_spatial": 16},
        index={"transformer_2": [None, None]},
    ),
    "qwen-image": Model(
        "QwenImagePipeline",
        _dit("QwenImageTransformer2DModel", 60, 24, 128, patch_size=2, in_channels=64, guidance_embeds=False),
        {"_class_name": "AutoencoderKLQwenImage", "temperal_downsample": [False, True, True]},
    ),
    "flux.1": Model(
        "FluxPipeline",
        _dit("FluxTransformer2DModel", 19, 24, 128, num_single_layers=38, patch_size=1, in_channels=64),
        IMAGE_VAE,
        parts=("text_encoder", "text_encoder_2"),
    ),
    "flux.2": Model(
        "Flux2Pipeline",
        _dit("Flux2Transformer2DModel", 8, 48, 128, num_single_layers=48, patch_size=1, mlp_ratio=3.0),
        {**IMAGE_VAE, "_class_name": "AutoencoderKLFlux2", "patch_size": [2, 2]},
    ),
    "hunyuan-video": Model(
        "HunyuanVideoPipeline",
        _dit(
            "HunyuanVideoTransformer3DModel",
            20,
            24,
            128,
            num_single_layers=40,
            mlp_ratio=4.0,
            patch_size=2,
            patch_size_t=1,
        ),
        {"_class_name": "AutoencoderKLHunyuanVideo", "spatial_compression_ratio": 8, "temporal_compression_ratio": 4},
        parts=("text_encoder", "text_encoder_2"),
    ),
    "z-image": Model(
        "ZImagePipeline",
        {
            "_class_name": "ZImageTransformer2DModel",
            "dim": 3840,
            "n_layers": 30,
            "n_heads": 30,
            "n_kv_heads": 30,
            "all_patch_size": [2],
            "all_f_patch_size": [1],
        },
        IMAGE_VAE,
    ),
    "ltx": Model(
        "LTXPipeline",
        _dit("LTXVideoTransformer3DModel", 28, 32, 64, patch_size=1, patch_size_t=1),
        {
            "_class_name": "AutoencoderKLLTXVideo",
            "patch_size": 4,
            "patch_size_t": 1,
            "spatio_temporal_scaling": [True, True, True, False],
        },
    ),
    "sd3": Model(
        "StableDiffusion3Pipeline",
        _dit("SD3Transformer2DModel", 24, 24, 64, patch_size=2),
        IMAGE_VAE,
        parts=("text_encoder", "text_encoder_2", "text_encoder_3"),
    ),
    "pixart-sigma": Model("PixArtSigmaPipeline", _dit("PixArtTransformer2DModel", 28, 16, 72, patch_size=2), IMAGE_VAE),
    "sana": Model(
        "SanaPipeline",
        _dit("SanaTransformer2DModel", 20, 70, 32, patch_size=1, mlp_ratio=2.5),
        {"_class_name": "AutoencoderDC", "encoder_block_out_channels": [128, 256, 512, 512, 1024, 1024]},
    ),
    "cogvideox-5b": Model(
        "CogVideoXPipeline",
        _dit("CogVideoXTransformer3DModel", 42, 48, 64, patch_size=2, patch_size_t=None),
        {
            "_class_name": "AutoencoderKLCogVideoX",
            "block_out_channels": [128, 256, 256, 512],
            "temporal_compression_ratio": 4,
        },
    ),
    "cogvideox-1.5": Model(
        "CogVideoXPipeline",
        _dit("CogVideoXTransformer3DModel", 42, 48, 64, patch_size=2, patch_size_t=2),
        {
            "_class_name": "AutoencoderKLCogVideoX",
            "block_out_channels": [128, 256, 256, 512],
            "temporal_compression_ratio": 4,
        },
    ),
    "mochi": Model(
        "MochiPipeline",
        _dit("MochiTransformer3DModel", 48, 24, 128, patch_size=2),
        {"_class_name": "AutoencoderKLMochi", "temporal_expansions": [1, 2, 3], "spatial_expansions": [2, 2, 2]},
    ),
}


def write_model(folder: Path, model: Model) -> Path:
    """Write a model's folder: every part with a weight file of 1000 values in bfloat16."""
    write_json(folder / "model_index.json", model_index(model))
    for part in ("transformer", "vae", *model.parts):
        name = "model" if part.startswith("text_encoder") else "diffusion_pytorch_model"
        write_weights(folder / part / f"{name}.safetensors", {"w": ("BF16", [10, 100])})
    for part in ("transformer", *(part for part in model.parts if part.startswith("transformer"))):
        write_json(folder / part / "config.json", model.transformer)
    write_json(folder / "vae" / "config.json", model.vae)
    return folder


def model_index(model: Model) -> dict[str, Any]:
    """``model_index.json``: the pipeline's class, and library and class of every part."""
    parts: dict[str, Any] = {part: ["transformers", "AnEncoder"] for part in model.parts}
    named = ["diffusers", model.transformer["_class_name"]]
    parts |= {"transformer": named, **{part: named for part in model.parts if part.startswith("transformer")}}
    parts |= {"vae": ["diffusers", model.vae["_class_name"]], "scheduler": ["diffusers", "AScheduler"]}
    return {"_class_name": model.pipeline, **parts, **model.index}


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file and the folder it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")


def write_weights(path: Path, tensors: Mapping[str, tuple[str, list[int]]], *, cut: int = 0) -> None:
    """Write a safetensors file whose tensors are holes: a file of any size takes no room. ``cut`` bytes are missing."""
    sizes = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I8": 1}
    header, end = {}, 0
    for name, (kind, shape) in tensors.items():
        size = sizes[kind]
        for side in shape:
            size *= side
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end - cut)
