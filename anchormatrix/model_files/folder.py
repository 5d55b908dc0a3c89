"""A model's folder as it was collected on the host: its configuration files, and the tensors of its weight files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from anchormatrix.errors import HostError, quoted_line
from anchormatrix.hosts.base import Host
from anchormatrix.model_files import collect
from anchormatrix.model_files.values import ModelFile, parse_file
from anchormatrix.records.settings.whole import Settings

_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class WeightFile(msgspec.Struct, frozen=True):
    """A weight file: its size, and how many values of each type its tensors hold."""

    bytes: _Number
    counts: dict[str, _Number]


class _Collected(msgspec.Struct, frozen=True):
    folder: str
    looked: tuple[str, ...]
    texts: dict[str, str]
    weights: dict[str, WeightFile]
    problems: dict[str, str]


@dataclass(frozen=True)
class ModelFolder:
    """The files of one model. ``path`` is empty where none of the places in ``looked`` holds it."""

    path: str
    looked: tuple[str, ...] = ()
    files: Mapping[str, ModelFile] = field(default_factory=dict)
    weights: Mapping[str, WeightFile] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def file(self, name: str) -> ModelFile:
        """A configuration file; one that is not there has that as its problem."""
        if name in self.files:
            return self.files[name]
        return ModelFile(name, problem=self.problems.get(name, "is not there"))

    @property
    def index(self) -> ModelFile:
        """The file that names the pipeline and its parts."""
        return self.file("model_index.json")

    def parts(self, prefix: str) -> tuple[str, ...]:
        """The folders of the pipeline's parts whose name begins so, which ``model_index.json`` gives a class.

        ``["diffusers", "WanTransformer3DModel"]`` is a part, ``[null, null]`` one that this model does not have.
        """
        return tuple(
            name
            for name, value in sorted(self.index.values.items())
            if name.startswith(prefix)
            and name.isidentifier()
            and isinstance(value, list)
            and len(value) == 2
            and all(value)
        )


def parse_folder(text: str) -> ModelFolder:
    """What the collector printed. Raises :class:`HostError` when that is something else."""
    lines = text.strip().splitlines()
    try:
        found = msgspec.json.decode(lines[-1] if lines else "", type=_Collected)
    except msgspec.DecodeError as error:
        said = f"; it printed {quoted_line(lines[0])}" if lines else ""
        raise HostError(f"the model's files cannot be listed ({error}){said}", where="engine.python") from None
    files = {_shown(name): parse_file(_shown(name), text) for name, text in found.texts.items()}
    return ModelFolder(
        _shown(found.folder),
        tuple(map(_shown, found.looked)),
        files,
        {_shown(name): weights for name, weights in found.weights.items()},
        {_shown(name): _shown(problem) for name, problem in found.problems.items()},
    )


def read_folder(host: Host, settings: Settings) -> ModelFolder:
    """Collect the files of ``engine.model`` where the engine sees them. Raises :class:`HostError`."""
    engine = settings.engine
    return read_model(host, engine.python, engine.model, engine.env, settings.host.command_timeout_s)


def read_model(host: Host, python: Sequence[str], model: str, env: Mapping[str, str], limit_s: float) -> ModelFolder:
    """Collect the files of a model with the engine's own Python, in its own environment.

    Nothing is written, and of a weight file only the header is read. Raises :class:`HostError`.
    """
    source = inspect.getsource(collect)
    try:
        done = host.run((*python, "-c", source, model), env=dict(env), timeout_s=limit_s)
    except HostError as error:
        what = error.what.replace(f" {source}", " …")
        raise HostError(what, where=error.where, todo=error.todo or "correct engine.python") from None
    return parse_folder(done.stdout)


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
