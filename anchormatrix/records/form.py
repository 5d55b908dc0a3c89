"""Parallel forms: how a diffusion transformer is split over cards. A form is a value with one canonical name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from anchormatrix.errors import ConfigError

OFFLOADS = ("cpu-offload", "layerwise-offload", "distributed-layerwise-offload")
_DEGREES = ("tp", "usp", "ring", "ag", "cfg", "pp")
_PART = re.compile(r"(tp|usp|ring|ag|cfg|pp)([1-9]\d{0,3})")
_MASK = re.compile(r"mask([1-9]\d{0,3})")
_EXAMPLE = "a name such as tp1-usp4, tp2-usp2-cfg2 or tp1-usp4+layerwise-offload"


@dataclass(frozen=True, order=True)
class Form:
    """Degrees of tensor, Ulysses, ring, all-gather-KV, CFG and pipeline parallelism, and launch-time features.

    ``mask_chunks`` is the number of chunks of communication masking (1: off); ``offload`` is one of ``OFFLOADS`` or
    empty. A form is launch-level: changing it restarts the server.
    """

    tp: int = 1
    usp: int = 1
    ring: int = 1
    ag: int = 1
    cfg: int = 1
    pp: int = 1
    offload: str = ""
    mask_chunks: int = 1

    @property
    def cards(self) -> int:
        """World size: the product of all degrees."""
        return prod(self.degrees.values())

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees by their short names, in canonical order."""
        return {name: getattr(self, name) for name in _DEGREES}

    @property
    def sequence_degree(self) -> int:
        """Over how many ranks the sequence is split: Ulysses × ring × all-gather-KV."""
        return self.usp * self.ring * self.ag

    @property
    def split(self) -> tuple[int, ...]:
        """The degrees alone: two forms with the same split differ only in features."""
        return tuple(self.degrees.values())

    @property
    def name(self) -> str:
        """Canonical name, safe as a path component: ``tp1-usp4``, ``tp1-usp2-cfg2+layerwise-offload+mask4``."""
        parts = [f"tp{self.tp}", f"usp{self.usp}"]
        parts += [f"{key}{value}" for key, value in self.degrees.items() if key not in ("tp", "usp") and value > 1]
        features = [self.offload] if self.offload else []
        if self.mask_chunks > 1:
            features.append(f"mask{self.mask_chunks}")
        return "+".join(["-".join(parts), *features])

    def __str__(self) -> str:
        return self.name


def parse_form(name: str) -> Form:
    """Parse a form's name; degrees may come in any order and those left out are 1.

    Raises :class:`ConfigError` naming the part that is not understood.
    """
    split, *features = str(name).split("+")
    values: dict[str, int] = {}
    for part in split.split("-"):
        match = _PART.fullmatch(part)
        if not match:
            raise ConfigError(f"form {name!r}: {part!r} is not a degree", expected=_EXAMPLE)
        if match[1] in values:
            raise ConfigError(f"form {name!r}: {match[1]} is given twice", expected=_EXAMPLE)
        values[match[1]] = int(match[2])
    offload, mask_chunks = "", 1
    for feature in features:
        mask = _MASK.fullmatch(feature)
        if mask and mask_chunks == 1:
            mask_chunks = int(mask[1])
        elif feature in OFFLOADS and not offload:
            offload = feature
        else:
            raise ConfigError(
                f"form {name!r}: {feature!r} is not a feature that can be added",
                expected=f"one of {', '.join(OFFLOADS)} or maskN",
            )
    return Form(**values, offload=offload, mask_chunks=mask_chunks)
