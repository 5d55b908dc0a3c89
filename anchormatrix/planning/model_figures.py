"""The figures of a transformer and of its engine that decide which forms are possible and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from anchormatrix.errors import ConfigError


@dataclass(frozen=True)
class ModelFigures:
    """What the transformer is.

    ``activation_gb`` is the peak of one card without any split of the sequence; ``guidance_branches`` is the number of
    forwards that one denoise step needs (2 with classifier-free guidance); ``sparse_block`` is the block of sparse
    attention in tokens, or None when attention is dense; ``cross_attention`` says whether layers attend to the text
    separately (else it is joined to the sequence).
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    sequence_tokens: int
    ffn_dim: int | None = None
    guidance_branches: int = 1
    bytes_per_value: float = 2
    weights_gb: float = 0.0
    text_encoder_gb: float = 0.0
    vae_gb: float = 0.0
    activation_gb: float = 0.0
    attention_mask: bool = False
    sparse_block: int | None = None
    cross_attention: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_dim", "sequence_tokens", "guidance_branches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{getattr(self, name)} is not a positive number", where=f"model.{name}")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"{self.kv_heads} KV heads do not divide {self.heads} heads",
                where="model.kv_heads",
                expected="a divisor of model.heads (equal to it without grouped-query attention)",
            )

    @property
    def width(self) -> int:
        """Hidden width: heads × head size."""
        return self.heads * self.head_dim

    @property
    def grouped_query(self) -> bool:
        """Whether K and V have fewer heads than Q."""
        return self.kv_heads < self.heads


def figures_from(values: Mapping[str, Any] | object) -> ModelFigures:
    """Read the figures from a configuration's ``model`` section, given as a mapping or as an object with these names.

    Without ``kv_heads`` every head has its own K and V; without ``ffn_dim`` its divisibility is not checked.
    Raises :class:`ConfigError` naming a key that is missing.
    """
    given: dict[str, Any] = {}
    for field in fields(ModelFigures):
        if isinstance(values, Mapping):
            if field.name in values:
                given[field.name] = values[field.name]
        elif hasattr(values, field.name):
            given[field.name] = getattr(values, field.name)
    if given.get("kv_heads") is None:
        given["kv_heads"] = given.get("heads")
    try:
        return ModelFigures(**given)
    except TypeError as error:
        raise ConfigError(f"the model's figures are incomplete ({error})", where="model") from None


@dataclass(frozen=True)
class EngineLimits:
    """What the engine can split, whatever the model would allow.

    ``degrees`` are the kinds of parallelism it offers; ``ring_with_mask`` and ``ring_with_sparse`` say whether its ring
    attention honours attention masks and the sparse backend (most do neither: the ring path goes round the attention
    backend); ``mask_chunks`` are the chunk counts of communication masking worth trying (1: off).
    """

    degrees: tuple[str, ...] = ("tp", "usp", "ring", "ag", "cfg")
    ring_with_mask: bool = False
    ring_with_sparse: bool = False
    mask_chunks: tuple[int, ...] = (1,)
