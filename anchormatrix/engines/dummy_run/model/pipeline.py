"""One request on one rank: encode, denoise and decode, each stage timed by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from anchormatrix.engines.dummy_run.capture import Capture, synchronize
from anchormatrix.engines.dummy_run.model.build import TextEncoder, build_scheduler
from anchormatrix.engines.dummy_run.model.denoiser import Denoiser


@dataclass(frozen=True)
class Request:
    """What the client asked for, checked."""

    prompt: str
    negative_prompt: str
    width: int
    height: int
    frames: int
    steps: int
    seed: int
    guidance_scale: float
    flow_shift: float


@dataclass(frozen=True)
class Output:
    """Latents before the decode, decoded pixels, iterations executed."""

    latents: Tensor
    pixels: Tensor
    iterations: int


Staged = Callable[[str, float], Any]  # told a stage that ended: its log name, its time in seconds


class Pipeline:
    """The parts of one rank. ``cfg_group`` is the group over which the two guidance branches are split, if they are."""

    def __init__(
        self,
        denoiser: Denoiser,
        encoder: TextEncoder,
        vae: nn.Module,
        device: torch.device,
        capture: Capture,
        cfg_group: dist.ProcessGroup | None = None,
    ) -> None:
        self.denoiser = denoiser
        self.encoder = encoder
        self.vae = vae
        self.device = device
        self.capture = capture
        self.cfg_group = cfg_group

    def to(self, dtype: torch.dtype) -> None:
        """Bring all parts to one precision."""
        if dtype != torch.float32:
            for part in (self.denoiser.transformer, self.encoder, self.vae):
                part.to(dtype)

    @torch.inference_mode()
    def run(self, request: Request, progress: Callable[[int], Any], staged: Staged) -> Output:
        """Run one request; ``progress`` is called with the total once, then after each step with 0.

        Stages are those that vllm-omni's profiler wraps by default (``diffusion_pipeline_profiler.py:82``): each text
        that is encoded, the loop, the decode, and the whole.

        Raises :class:`ValueError` for a geometry that the model cannot take, and for latents that are not finite.
        """
        spec = self.denoiser.spec
        shape = spec.latent_shape(request.width, request.height, request.frames)
        begin = time.perf_counter()
        texts = [self._timed(staged, "text_encoder.forward", self.encoder, text) for text in self._texts(request)]
        latents = self._timed(staged, "diffuse", self._denoise, request, texts, shape, progress)
        pixels = self._timed(staged, "vae.decode", self._decode, latents, shape)
        staged("forward", time.perf_counter() - begin)
        if not bool(torch.isfinite(latents).all()):
            raise ValueError("the latents are not finite")
        return Output(latents, pixels, self._iterations)

    @torch.inference_mode()
    def guided(
        self, latents: Tensor, timestep: Tensor, texts: list[Tensor], guidance: float, shape: tuple[int, int, int]
    ) -> Tensor:
        """Noise of one step: one branch, or two combined as uncond + scale · (cond − uncond)."""
        if len(texts) == 1:
            return self.denoiser.noise(latents, timestep, texts[0], guidance, shape)
        if self.cfg_group is None:
            cond, uncond = (self.denoiser.noise(latents, timestep, text, guidance, shape) for text in texts)
        else:
            own = self.denoiser.noise(latents, timestep, texts[dist.get_rank(self.cfg_group)], guidance, shape)
            both = [torch.empty_like(own) for _ in texts]
            dist.all_gather(both, own.contiguous(), group=self.cfg_group)
            cond, uncond = both
        return uncond + guidance * (cond - uncond)

    def _texts(self, request: Request) -> list[str]:
        """The texts of the branches: without guidance one, which ranks of a CFG group then all compute."""
        guided = self.denoiser.spec.branches == 2 and request.guidance_scale > 1
        return [request.prompt, request.negative_prompt] if guided else [request.prompt]

    def _denoise(
        self, request: Request, texts: list[Tensor], shape: tuple[int, int, int], progress: Callable[[int], Any]
    ) -> Tensor:
        scheduler = build_scheduler(self.denoiser.spec, request.flow_shift)
        scheduler.set_timesteps(request.steps, device=self.device)
        self._iterations = len(scheduler.timesteps)
        latents = self.denoiser.latents(shape, request.seed, self.device)
        progress(self._iterations)
        for index, timestep in enumerate(scheduler.timesteps):
            with self.capture.step(index):
                noise = self.guided(latents, timestep, texts, request.guidance_scale, shape)
                latents = scheduler.step(noise, timestep, latents, return_dict=False)[0]
            synchronize(self.device)
            progress(0)
        return latents

    def _decode(self, latents: Tensor, shape: tuple[int, int, int]) -> Tensor:
        spatial = self.denoiser.spatial(latents, shape)
        if self.denoiser.spec.is_video:
            spatial = spatial[:, :, : self.denoiser.spec.vae_frames]
        dtype = next(self.vae.parameters()).dtype
        pixels: Tensor = self.vae.decode(spatial.to(dtype), return_dict=False)[0]
        return pixels

    def _timed(self, staged: Staged, name: str, stage: Callable[..., Any], *arguments: Any) -> Any:
        synchronize(self.device)
        begin = time.perf_counter()
        result = stage(*arguments)
        synchronize(self.device)
        staged(name, time.perf_counter() - begin)
        return result
