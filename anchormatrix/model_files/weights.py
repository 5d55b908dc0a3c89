"""The weights of a model's parts: how many values their files hold, and what they take as the engine serves them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from anchormatrix.model_files.folder import ModelFolder
from anchormatrix.model_files.values import NotFound

_NAMES = ("diffusion_pytorch_model.safetensors", "model.safetensors")
_FLOATS = {"F64", "F32", "F16", "BF16"}
# bytes of a value that is served as it is stored: safetensors' own names of types (safetensors/src/tensor.rs, Dtype)
_STORED = {
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "I16": 2,
    "U16": 2,
    "I32": 4,
    "U32": 4,
}
_STORED |= {"I64": 8, "U64": 8}


@dataclass(frozen=True)
class Weights:
    """The weights of one part of a pipeline, by the type they are stored in."""

    part: str
    counts: dict[str, int]

    @property
    def values(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    def served_gb(self, bytes_per_value: float) -> float:
        """GB (10⁹ bytes) where the engine turns stored floating-point values into its own type; others stay.

        vllm-omni 0.30.0 serves in bfloat16 whatever the file holds (``diffusion/data.py:829``).
        """
        floats = sum(count for kind, count in self.counts.items() if kind in _FLOATS)
        others = sum(count * _STORED[kind] for kind, count in self.counts.items() if kind not in _FLOATS)
        return (floats * bytes_per_value + others) / 1e9

    @property
    def words(self) -> str:
        """As ``14.29 · 10⁹ weights in F32``."""
        return f"{self.values / 1e9:.3g} · 10⁹ weights in {'+'.join(sorted(self.counts))}"


def weights_of(folder: ModelFolder, part: str) -> Weights:
    """The weights of a part. Raises :class:`NotFound` naming the file that is missing or damaged."""
    counts: Counter[str] = Counter()
    for name in _files(folder, part):
        if name not in folder.weights:
            raise NotFound(f"{name} {folder.problems.get(name, 'is not there')}")
        counts.update(folder.weights[name].counts)
    if unknown := sorted(set(counts) - _FLOATS - set(_STORED)):
        raise NotFound(f"{part}: weights of the type {', '.join(unknown)[:80]} are not known here")
    return Weights(part, dict(counts))


def _files(folder: ModelFolder, part: str) -> list[str]:
    """The weight files of a part: those its index names, else the one that has no index."""
    for name in (f"{part}/{name}" for name in _NAMES):
        index = f"{name}.index.json"
        if index in folder.files or index in folder.problems:
            return _indexed(folder, part, index)
        if name in folder.weights or name in folder.problems:
            return [name]
    raise NotFound(f"{part}/ holds neither {_NAMES[0]} nor {_NAMES[1]}, nor an index of either")


def _indexed(folder: ModelFolder, part: str, index: str) -> list[str]:
    file = folder.file(index)
    if file.problem:
        raise NotFound(f"{index} {file.problem}")
    named = file.values.get("weight_map")
    if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named.values()):
        raise NotFound(f"not found in {index}: key weight_map, a map from tensors to files")
    return sorted({f"{part}/{PurePosixPath(name).name}" for name in named.values()})
