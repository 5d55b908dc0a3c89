"""The transformers whose configuration can be read: under which keys each class keeps its figures.

Key names, and what the files leave to the code, are those of diffusers 0.42.1, below ``models/transformers/``;
``source`` names the constructor of each class. A class that is not listed is not read: its keys may mean something
else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anchormatrix.model_files.values import ModelFile, NotFound

Patch = tuple[int, int, int]
"""Latent frames, rows and columns that make one token."""


@dataclass(frozen=True)
class Family:
    """How the figures of one transformer class are read. ``layers`` are keys whose numbers are added.

    ``cross_attention``: layers attend to the text apart from the picture. ``multiple``: tokens are filled up to a
    multiple of it. ``partial_frames``: latent frames that fill no patch are filled up, not left out.
    """

    source: str
    layers: tuple[str, ...]
    patch: Callable[[ModelFile], Patch]
    ffn: Callable[[ModelFile, int], int]
    heads: str = "num_attention_heads"
    head_dim: Callable[[ModelFile], int] = lambda file: file.count("attention_head_dim")
    kv_heads: str = ""
    cross_attention: bool = False
    multiple: int = 1
    partial_frames: bool = False


def family_of(transformer: ModelFile) -> Family:
    """The family of a transformer's configuration. Raises :class:`NotFound` for a class without rules."""
    if transformer.problem:
        raise NotFound(f"{transformer.name} {transformer.problem}")
    family = FAMILIES.get(transformer.kind)
    if family is None:
        known = f"known are {', '.join(sorted(FAMILIES))}"
        raise NotFound(
            f"{transformer.name}: no rule is known for the class {transformer.kind or '(none is named)'}; {known}"
        )
    return family


def _four_times(_: ModelFile, width: int) -> int:
    """``FeedForward`` without an inner width: four times the width (models/attention.py:1700)."""
    return 4 * width


def _ratio(file: ModelFile, width: int) -> int:
    return int(width * file.number("mlp_ratio"))


def _flat(file: ModelFile) -> Patch:
    side = file.count("patch_size")
    return 1, side, side


def _packed(_: ModelFile) -> Patch:
    """The pipeline packs two by two latents into a token, whatever ``patch_size`` says (``_pack_latents``)."""
    return 1, 2, 2


def _cube(file: ModelFile) -> Patch:
    frames, rows, columns = file.counts("patch_size", 3)
    if not frames * rows * columns:
        raise NotFound(f"not found in {file.name}: key patch_size holds a zero")
    return frames, rows, columns


def _apart(file: ModelFile) -> Patch:
    side = file.count("patch_size")
    return file.count("patch_size_t"), side, side


def _cogvideo(file: ModelFile) -> Patch:
    """Release 1.0 has no ``patch_size_t``: a latent frame each (cogvideox_transformer_3d.py:462-464)."""
    return _apart(file) if file.has("patch_size_t") else _flat(file)


def _first_of_all(file: ModelFile) -> Patch:
    """The smallest of the patches that a file lists; the pipeline asks for the first."""
    side, frames = file.counts("all_patch_size")[0], file.counts("all_f_patch_size")[0]
    if not side * frames:
        raise NotFound(f"not found in {file.name}: key all_patch_size holds a zero")
    return frames, side, side


FAMILIES: Mapping[str, Family] = {
    "WanTransformer3DModel": Family(
        source="transformer_wan.py:572",
        layers=("num_layers",),
        patch=_cube,
        ffn=lambda file, _: file.count("ffn_dim"),
        cross_attention=True,
    ),
    "QwenImageTransformer2DModel": Family(
        source="transformer_qwenimage.py:817, pipelines/qwenimage/pipeline_qwenimage.py:333",
        layers=("num_layers",),
        patch=_packed,
        ffn=_four_times,
    ),
    "FluxTransformer2DModel": Family(
        source="transformer_flux.py:613, pipelines/flux/pipeline_flux.py:522",
        layers=("num_layers", "num_single_layers"),
        patch=_packed,
        ffn=_four_times,
    ),
    "Flux2Transformer2DModel": Family(
        source="transformer_flux2.py:1142, pipelines/flux2/pipeline_flux2.py:457",
        layers=("num_layers", "num_single_layers"),
        patch=_packed,
        ffn=_ratio,
    ),
    "HunyuanVideoTransformer3DModel": Family(
        source="transformer_hunyuan_video.py:904",
        layers=("num_layers", "num_single_layers"),
        patch=_apart,
        ffn=_ratio,
    ),
    "ZImageTransformer2DModel": Family(
        source="transformer_z_image.py:368, feed-forward :215, filling up :35",
        layers=("n_layers",),
        patch=_first_of_all,
        ffn=lambda _, width: int(width / 3 * 8),
        heads="n_heads",
        head_dim=lambda file: file.count("dim") // file.count("n_heads"),
        kv_heads="n_kv_heads",
        multiple=32,
    ),
    "LTXVideoTransformer3DModel": Family(
        source="transformer_ltx.py:431",
        layers=("num_layers",),
        patch=_apart,
        ffn=_four_times,
        cross_attention=True,
    ),
    "SD3Transformer2DModel": Family(
        source="transformer_sd3.py:120",
        layers=("num_layers",),
        patch=_flat,
        ffn=_four_times,
    ),
    "PixArtTransformer2DModel": Family(
        source="pixart_transformer_2d.py:85",
        layers=("num_layers",),
        patch=_flat,
        ffn=_four_times,
        cross_attention=True,
    ),
    "SanaTransformer2DModel": Family(
        source="sana_transformer.py:342, feed-forward :49",
        layers=("num_layers",),
        patch=_flat,
        ffn=_ratio,
        cross_attention=True,
    ),
    "CogVideoXTransformer3DModel": Family(
        source="cogvideox_transformer_3d.py:221",
        layers=("num_layers",),
        patch=_cogvideo,
        ffn=_four_times,
        partial_frames=True,
    ),
    "MochiTransformer3DModel": Family(
        source="transformer_mochi.py:343, feed-forward :154",
        layers=("num_layers",),
        patch=_flat,
        ffn=lambda _, width: 4 * width * 2 // 3,
    ),
}
