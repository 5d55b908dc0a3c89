"""Lets vLLM-Omni be imported without its kernels and codecs: import this first, then its parser, models and loggers.

What is absent is importable and of no use: nothing here computes.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

ABSENT = ("torchvision", "torchaudio", "whisper", "s3tokenizer", "onnxruntime", "kernels", "fa3_fwd")


class Absent:
    """Finds and makes the modules that are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ABSENT else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module that has every attribute."""
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__, module.__version__ = spec, [], spec.name, "0.0"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is to be run."""


sys.meta_path.append(Absent())  # type: ignore[arg-type]
