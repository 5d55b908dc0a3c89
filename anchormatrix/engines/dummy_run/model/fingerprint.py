"""The fingerprint of a request's result: exact (sha256) and coarse (a few numbers), so that forms can be compared."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
from torch import Tensor

# Largest relative distance ‖a − b‖ ÷ ‖b‖ at which two single-precision results are one computation in another order.
# Forms that sum in another order were seen at 1e-6 and below, a form without its communication above 1e-2.
TOLERANCE = 1e-5


def canonical(latents: Tensor) -> bytes:
    """The latents as contiguous little-endian float32, −0.0 written as 0.0."""
    values = (latents.detach().to("cpu", torch.float32) + 0.0).contiguous()
    data: bytes = values.numpy().astype("<f4", copy=False).tobytes()
    return data


def fingerprint(latents: Tensor) -> str:
    """sha256 of the canonical bytes."""
    return hashlib.sha256(canonical(latents)).hexdigest()


def digest(latents: Tensor) -> dict[str, Any]:
    """Mean, deviation, largest magnitude and eight values spread over the tensor, for a comparison by tolerance."""
    values = latents.detach().to("cpu", torch.float64).flatten()
    places = torch.linspace(0, values.numel() - 1, 8).long()
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "max": float(values.abs().max()),
        "values": [float(value) for value in values[places]],
    }


def relative_distance(result: Tensor, reference: Tensor) -> float:
    """‖result − reference‖ ÷ ‖reference‖ in double precision; infinite when either is not finite."""
    a, b = result.double(), reference.double()
    distance = float((a - b).norm() / b.norm())
    return distance if math.isfinite(distance) else math.inf
