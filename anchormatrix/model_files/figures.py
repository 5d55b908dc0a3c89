"""The figures of a model as its own files tell them, each with the file it is from or with what was not found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from anchormatrix.model_files.families import Family, family_of
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
    read = _Reading(folder, workload, bytes_per_value)
    name, vae = read.transformer.name, read.vae.name
    sized = f"{name}, {vae}, {workload.width} × {workload.height}, frames {workload.frames}"
    rows: tuple[tuple[str, Callable[[], Value], str], ...] = (
        ("layers", read.layers, name),
        ("heads", read.heads, name),
        ("kv_heads", read.kv_heads, name),
        ("head_dim", lambda: read.family.head_dim(read.transformer), name),
        ("ffn_dim", read.ffn_dim, name),
        ("sequence_tokens", lambda: tokens(read.transformer, read.vae, workload), sized),
        (
            "guidance_branches",
            lambda: guidance_branches(folder.index, workload),
            f"{folder.index.name}, the workload's guidance",
        ),
        ("cross_attention", lambda: read.family.cross_attention, f"{name}, its class"),
        ("transformers", lambda: len(_required(read.parts, "transformer")), folder.index.name),
        ("weights_gb", read.weights_gb, f"{read.first}/*.safetensors"),
        ("text_encoder_gb", lambda: read.total_gb("text_encoder"), "text_encoder*/*.safetensors"),
        ("vae_gb", lambda: read.total_gb("vae"), "vae/*.safetensors"),
    )
    return Figures(tuple(_figure(*row) for row in rows))


class _Reading:
    """The figures of one model's folder; each raises :class:`NotFound` where the files do not tell it."""

    def __init__(self, folder: ModelFolder, workload: WorkloadSettings, bytes_per_value: float) -> None:
        self._folder, self._workload, self._bytes_per_value = folder, workload, bytes_per_value
        self.parts = folder.parts("transformer")
        self.first = self.parts[0] if self.parts else "transformer"
        self.transformer = folder.file(f"{self.first}/config.json")
        self.vae = folder.file("vae/config.json")

    @property
    def family(self) -> Family:
        return family_of(self.transformer)

    def layers(self) -> int:
        keys = self.family.layers
        found = sum(self.transformer.count_or_none(key) for key in keys)
        if not found:
            raise NotFound(f"not found in {self.transformer.name}: key {' + '.join(keys)} is 0")
        return found

    def heads(self) -> int:
        return self.transformer.count(self.family.heads)

    def kv_heads(self) -> int:
        key = self.family.kv_heads
        return self.transformer.count(key) if key else self.heads()

    def ffn_dim(self) -> int:
        return self.family.ffn(self.transformer, self.heads() * self.family.head_dim(self.transformer))

    def weights_gb(self) -> Value:
        weights = [weights_of(self._folder, part) for part in _required(self.parts, "transformer")]
        return _three_digits(max(one.served_gb(self._bytes_per_value) for one in weights))

    def total_gb(self, what: str) -> Value:
        weights = [weights_of(self._folder, part) for part in _required(self._folder.parts(what), what)]
        return _total(weights, self._bytes_per_value)


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
