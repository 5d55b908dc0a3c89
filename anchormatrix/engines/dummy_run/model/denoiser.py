"""One call for three model families: latents, timestep and text in, noise out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anchormatrix.engines.dummy_run.model.models import ModelSpec


class Denoiser:
    """The transformer behind one signature.

    Latents are (1, channels, frames, rows, columns) for video and (1, tokens, 4 · channels) for images, whose models
    take 2 × 2 patches as tokens.
    """

    def __init__(self, spec: ModelSpec, transformer: nn.Module) -> None:
        self.spec = spec
        self.transformer = transformer

    def latents(self, shape: tuple[int, int, int], seed: int, device: torch.device) -> Tensor:
        """Return the initial noise, float32, drawn on the CPU so that every device starts from the same values."""
        frames, rows, columns = shape
        generator = torch.Generator("cpu").manual_seed(seed)
        if self.spec.is_video:
            size: tuple[int, ...] = (1, self.spec.latent_channels, frames, rows, columns)
        else:
            size = (1, (rows // 2) * (columns // 2), 4 * self.spec.latent_channels)
        return torch.randn(size, generator=generator, dtype=torch.float32).to(device)

    def noise(
        self, latents: Tensor, timestep: Tensor, text: Tensor, guidance: float, shape: tuple[int, int, int]
    ) -> Tensor:
        """Return the transformer's prediction for one branch, float32, shaped like ``latents``."""
        arguments: dict[str, Any] = {"hidden_states": latents.to(text.dtype), "encoder_hidden_states": text}
        if self.spec.family == "wan":
            arguments["timestep"] = timestep.expand(1)
        else:
            arguments["timestep"] = (timestep / 1000).expand(1).to(text.dtype)
            arguments |= self._image_arguments(text, guidance, shape)
        prediction: Tensor = self.transformer(**arguments, return_dict=False)[0]
        return prediction.float()

    def spatial(self, latents: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """Return latents as the VAE takes them: (1, channels, [frames,] rows, columns)."""
        if self.spec.is_video:
            return latents
        _, rows, columns = shape
        patches = latents.reshape(1, rows // 2, columns // 2, self.spec.latent_channels, 2, 2)
        return patches.permute(0, 3, 1, 4, 2, 5).reshape(1, self.spec.latent_channels, rows, columns)

    def _image_arguments(self, text: Tensor, guidance: float, shape: tuple[int, int, int]) -> dict[str, Any]:
        _, rows, columns = shape
        if self.spec.family == "qwen-image":
            return {"img_shapes": [[(1, rows // 2, columns // 2)]]}
        ids = torch.zeros(rows // 2, columns // 2, 3, device=text.device, dtype=text.dtype)
        ids[..., 1] += torch.arange(rows // 2, device=text.device)[:, None]
        ids[..., 2] += torch.arange(columns // 2, device=text.device)[None, :]
        return {
            "img_ids": ids.reshape(-1, 3),
            "txt_ids": torch.zeros(text.shape[1], 3, device=text.device, dtype=text.dtype),
            "pooled_projections": text.mean(dim=1)[:, : self.spec.pooled_dim],
            "guidance": torch.full((1,), guidance, device=text.device, dtype=text.dtype),
        }
