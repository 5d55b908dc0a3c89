"""The figures of a model as its own files tell them, each with the file it is from or with what was not found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from anchormatrix.model_files.families import family_of
from anchormatrix.model_files.folder import ModelFolder
from anchormatrix.model_files.guidance import guidance_branches
from anchormatrix.model_files.latent import compression
from anchormatrix.model_files.values import ModelFile, NotFound
from anchormatrix.model_files.weights import Weights, weights_of
from anchormatrix.records.settings.things import WorkloadSettings

Value = int | float | bool


@dataclass(frozen=True)
class Figure:
    """One figure under its key in the section ``model``: its value and where it is from, or else what is missing."""

    key: str
    value: Value | None
    source: str
    missing: str = ""


@dataclass(frozen=True)
class Figures:
    """What a model's files tell under one workload."""

    figures: tuple[Figure, ...]

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures)

    def of(self, key: str) -> Figure:
        """The figure under a key of the section ``model``."""
        return next(figure for figure in self.figures if figure.key == key)

    @property
    def found(self) -> Mapping[str, Value]:
        """The values that were found, by key."""
        return {figure.key: figure.value for figure in self.figures if figure.value is not None}


def read_figures(folder: ModelFolder, workload: WorkloadSettings, bytes_per_value: float) -> Figures:
    """Read every figure of the section ``model`` that files can tell; ``bytes_per_value`` are those of the engine.

    What only running tells is no part of it: the memory of activations, masks, sparsity.
    """
    parts = folder.parts("transformer")
    first = parts[0] if parts else "transformer"
    transformer = folder.file(f"{first}/config.json")
    name = transformer.name
    vae = folder.file("vae/config.json")
    sized = f"{name}, {vae.name}, {workload.width} × {workload.height}, frames {workload.frames}"

    def layers() -> Value:
        keys = family_of(transformer).layers
        found = sum(transformer.count_or_none(key) for key in keys)
        if not found:
            raise NotFound(f"not found in {name}: key {' + '.join(keys)} is 0")
        return found

    def heads() -> int:
        return transformer.count(family_of(transformer).heads)

    def kv_heads() -> Value:
        key = family_of(transformer).kv_heads
        return transformer.count(key) if key else heads()

    def head_dim() -> int:
        return family_of(transformer).head_dim(transformer)

    def ffn_dim() -> Value:
        return family_of(transformer).ffn(transformer, heads() * head_dim())

    def branches() -> Value:
        return guidance_branches(folder.index, workload)

    def weights() -> Value:
        served = [weights_of(folder, part).served_gb(bytes_per_value) for part in _required(parts, "transformer")]
        return _three_digits(max(served))

    def encoders() -> Value:
        parts = _required(folder.parts("text_encoder"), "text_encoder")
        return _total([weights_of(folder, part) for part in parts], bytes_per_value)

    def autoencoder() -> Value:
        return _total([weights_of(folder, part) for part in _required(folder.parts("vae"), "vae")], bytes_per_value)

    rows: tuple[tuple[str, Callable[[], Value], str], ...] = (
        ("layers", layers, name),
        ("heads", heads, name),
        ("kv_heads", kv_heads, name),
        ("head_dim", head_dim, name),
        ("ffn_dim", ffn_dim, name),
        ("sequence_tokens", lambda: tokens(transformer, vae, workload), sized),
        ("guidance_branches", branches, f"{folder.index.name}, the workload's guidance"),
        ("cross_attention", lambda: family_of(transformer).cross_attention, f"{name}, its class"),
        ("transformers", lambda: len(_required(parts, "transformer")), folder.index.name),
        ("weights_gb", weights, f"{first}/*.safetensors"),
        ("text_encoder_gb", encoders, "text_encoder*/*.safetensors"),
        ("vae_gb", autoencoder, "vae/*.safetensors"),
    )
    return Figures(tuple(_figure(*row) for row in rows))


def tokens(transformer: ModelFile, vae: ModelFile, workload: WorkloadSettings) -> int:
    """Tokens of the picture or video; those of the text are not counted.

    The first frame is a latent frame of its own, the others are grouped: ``(frames - 1) // n + 1``, as
    pipelines/wan/pipeline_wan.py:341 of diffusers 0.42.1 and the others say. Where n does not divide ``frames - 1``,
    Wan's pipeline renders up to n more frames (:494-498), and CogVideoX's fills the last patch (:685-687).
    Raises :class:`NotFound`.
    """
    family = family_of(transformer)
    group, side = compression(vae)
    patch_frames, rows, columns = family.patch(transformer)
    latent = (workload.frames - 1) // group + 1
    if transformer.kind == "WanTransformer3DModel":
        latent = workload.frames // group + 1 if group > 1 else workload.frames
    frames = -(-latent // patch_frames) if family.partial_frames else latent // patch_frames
    found = frames * (workload.height // (side * rows)) * (workload.width // (side * columns))
    if not found:
        raise NotFound(f"{workload.width} × {workload.height}, frames {workload.frames} is less than one token")
    return -(-found // family.multiple) * family.multiple


def _figure(key: str, read: Callable[[], Value], source: str) -> Figure:
    try:
        return Figure(key, read(), source)
    except NotFound as missing:
        text = "".join(char if char.isprintable() else " " for char in str(missing))
        return Figure(key, None, source, text)


def _required(parts: tuple[str, ...], what: str) -> tuple[str, ...]:
    if not parts:
        raise NotFound(f"not found in model_index.json: key {what}")
    return parts


def _total(found: list[Weights], bytes_per_value: float) -> float:
    return _three_digits(sum(weights.served_gb(bytes_per_value) for weights in found))


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
