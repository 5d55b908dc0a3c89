"""Stage names: which part of a request a stage line times.

They are the paths of the wrapped methods below the pipeline's class (0.30.0,
``diffusion/profiler/diffusion_pipeline_profiler.py``); a ``denoise_step`` is logged as ``diffuse``.
"""

from __future__ import annotations


def is_diffuse(name: str) -> bool:
    """Whether a stage is the denoise loop, under whatever outer names."""
    return name.rpartition(".")[2] == "diffuse"


def is_forward(name: str) -> bool:
    """Whether a stage is the whole of the pipeline, which encloses all others."""
    owner, _, last = name.rpartition(".")
    return last == "forward" and (owner in ("", "pipeline") or (owner[:1].isupper() and "." not in owner))


def is_encode(name: str) -> bool:
    """Whether a stage encodes text or pictures; the text's is named after its encoder."""
    return "encode" in name.rpartition(".")[2] or "text_encoder" in name or "tokenizer" in name


def is_decode(name: str) -> bool:
    """Whether a stage decodes latents."""
    return "decode" in name.rpartition(".")[2]
