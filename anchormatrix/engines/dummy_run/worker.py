"""One rank's part of the work: its device, its share of the model, its requests."""

from __future__ import annotations

import base64
import datetime
import io
import json
import logging
import os
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm  # type: ignore[import-untyped]

from anchormatrix.engines.dummy_run.arguments import ServeOptions
from anchormatrix.engines.dummy_run.capture import Capture
from anchormatrix.engines.dummy_run.cards import VARIABLE
from anchormatrix.engines.dummy_run.logs import TaggedBar, open_log, worker_tag
from anchormatrix.engines.dummy_run.model import build, parallel
from anchormatrix.engines.dummy_run.model.denoiser import Denoiser
from anchormatrix.engines.dummy_run.model.fingerprint import (
    TOLERANCE,
    canonical,
    digest,
    fingerprint,
    relative_distance,
)
from anchormatrix.engines.dummy_run.model.pipeline import Output, Pipeline, Request

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
_COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=10)


class Rank:
    """The state of one rank after start-up."""

    def __init__(self, rank: int, world: int, store: str, options: ServeOptions) -> None:
        self.rank = rank
        self.options = options
        self.device = _claim_device(options.device, rank)
        if world > 1:
            dist.init_process_group(
                _BACKENDS[self.device.type],
                init_method=f"file://{store}",
                rank=rank,
                world_size=world,
                timeout=_COLLECTIVE_TIMEOUT,
            )
        self.layout = (
            parallel.make_layout(self.device, cfg=options.cfg, ring=options.ring, ulysses=options.usp, tp=options.tp)
            if world > 1
            else None
        )
        _log_groups(open_log(worker_tag({}, os.getpid())), self.layout)
        self.tag = worker_tag(_places(self.layout), os.getpid())
        self.log = open_log(self.tag)
        _log_split(self.log, self.layout, options)
        self.capture = Capture(options.profiler, rank, self.device)
        self.pipeline = Pipeline(
            Denoiser(options.model, build.build_transformer(options.model, options.seed, self.device)),
            build.build_text_encoder(options.model, options.seed, self.device),
            build.build_vae(options.model, options.seed, self.device),
            self.device,
            self.capture,
        )
        self._take_form(_dtype(options.dtype, self.device))

    def generate(self, request: Request) -> dict[str, Any]:
        """Run one request and log it. Returns fingerprint, digest, iterations, stage durations and peak memory.

        Rank 0 adds what the client gets: the latents' canonical bytes of a video, the decoded picture of an image.
        """
        bar, durations = self._bar(), dict[str, float]()

        def staged(name: str, seconds: float) -> None:
            if name == "diffuse":
                bar.close()
                if dist.is_initialized():
                    dist.barrier()  # nobody's stage lines land in the middle of rank 0's progress bar
            if self.options.stage_log:
                name = f"{self.options.model.pipeline}.{name}"
                self.log.info("[DiffusionPipelineProfiler] %s took %.6fs", name, seconds)
                durations[name] = durations.get(name, 0.0) + seconds

        self._warn_of_idle_guidance(request)
        memory = getattr(torch, self.device.type)
        if self.device.type != "cpu":
            memory.reset_peak_memory_stats()
        try:
            output = self.pipeline.run(request, bar.advance, staged)
        finally:
            bar.close()
        answer = {
            "fingerprint": fingerprint(output.latents),
            "digest": digest(output.latents),
            "iterations": output.iterations,
            "durations": durations,
            "peak_memory_mb": 0.0 if self.device.type == "cpu" else memory.max_memory_reserved() / 2**20,
        }
        if self.rank == 0:
            self.log.info(
                "Output fingerprint: sha256=%s digest=%s", answer["fingerprint"], json.dumps(answer["digest"])
            )
            content = canonical(output.latents) if self.options.model.is_video else _png(output, answer["fingerprint"])
            answer["content"] = base64.b64encode(content).decode()
        return answer

    def _warn_of_idle_guidance(self, request: Request) -> None:
        """What Qwen-Image's pipeline says at each request without a second branch (``qwen_image/cfg_parallel.py:155``);
        Wan's says nothing."""
        if self.options.cfg > 1 and self.options.model.family == "qwen-image" and request.guidance_scale <= 1:
            missing = "there is no negative prompt or negative prompt embeddings"
            why = "true_cfg_scale <= 1" if request.negative_prompt else missing
            self.log.warning("CFG parallel is NOT working correctly when %s.", why)

    def _take_form(self, dtype: torch.dtype) -> None:
        """Go to the working precision, split, and hold the result against one rank in single precision.

        In single precision the two may differ by the order of their sums only. In a shorter one rounding alone moves
        the result, so the split may be twice as far from single precision as the unsplit model is.
        """
        exact = self._check_noise()
        self.pipeline.to(dtype)
        limit = max(TOLERANCE, 2 * relative_distance(self._check_noise(), exact))
        if self.layout is None:
            return
        parallel.split(self.pipeline.denoiser.transformer, self.options.model, self.layout, self.device)
        if self.layout.cfg > 1:
            self.pipeline.cfg_group = self.layout.group("cfg")
        distance = relative_distance(self._check_noise(), exact)
        self.log.info(
            "Split check: one step of this form against one rank: relative distance %.2e, limit %.2e", distance, limit
        )
        if not distance <= limit:
            raise RuntimeError(
                f"this form does not compute what one rank computes: relative distance {distance:.2e} "
                f"is above the limit {limit:.2e}"
            )

    def _check_noise(self) -> torch.Tensor:
        """One guided step on a few tokens, as many as the sequence degree can share out.

        The guidance scale is 1 so that guidance does not amplify rounding; both branches still have to be exchanged.
        """
        shape = (2 if self.options.model.is_video else 1, 8, 8 * (self.layout.sequence_degree if self.layout else 1))
        texts = [self.pipeline.encoder("lighthouse"), self.pipeline.encoder("")][: self.options.model.branches]
        timestep = torch.tensor(500.0, device=self.device)
        return self.pipeline.guided(self.pipeline.denoiser.latents(shape, 0, self.device), timestep, texts, 1.0, shape)

    def _bar(self) -> _Bar:
        return _Bar(self.tag if self.rank == 0 and self.options.model.bar else None)


class _Bar:
    """Rank 0's progress bar; the other ranks draw none."""

    def __init__(self, tag: str | None) -> None:
        self._tag = tag
        self._bar: Any = None

    def advance(self, total: int) -> None:
        if self._tag is None:
            return
        if total:
            self._bar = tqdm(total=total, file=TaggedBar(self._tag), mininterval=0, miniters=1, ascii=False, ncols=80)
        else:
            self._bar.update(1)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _log_groups(log: logging.Logger, layout: parallel.Layout | None) -> None:
    """The line that every rank logs while it builds its groups, under its plain name
    (``diffusion/distributed/parallel_state.py:610``): sizes are read off the mesh, not the flags."""
    ulysses, ring = _sequence(layout)
    log.info(
        "Building SP subgroups from explicit sp_group_ranks (sp_size=%d, ulysses=%d, ring=%d, use_ulysses_low=True).",
        ulysses * ring,
        ulysses,
        ring,
    )


def _log_split(log: logging.Logger, layout: parallel.Layout | None, options: ServeOptions) -> None:
    """The line on the transformer whose sequence is split (``diffusion/registry.py:612``), and what its profiler does
    not find: there is no tokenizer here."""
    ulysses, ring = _sequence(layout)
    if ulysses * ring > 1:
        mode = "hybrid" if ulysses > 1 and ring > 1 else "ulysses" if ulysses > 1 else "ring"
        log.info(
            "Applying sequence parallelism to %s (transformer) (sp_size=%d, mode=%s, ulysses=%d, ring=%d)",
            options.model.transformer_class,
            ulysses * ring,
            mode,
            ulysses,
            ring,
        )
    if options.stage_log:
        log.warning("[DiffusionPipelineProfiler] Method path tokenizer.forward not found")


def _sequence(layout: parallel.Layout | None) -> tuple[int, int]:
    """The sizes of the Ulysses and the ring group."""
    return (1, 1) if layout is None else (layout.mesh["ulysses"].size(), layout.mesh["ring"].size())


def _places(layout: parallel.Layout | None) -> dict[str, tuple[int, int]]:
    if layout is None:
        return {}
    sequence = layout.rank_in("ring") * layout.ulysses + layout.rank_in("ulysses")
    return {
        "SP": (sequence, layout.sequence_degree),
        "CFG": (layout.rank_in("cfg"), layout.cfg),
        "TP": (layout.rank_in("tp"), layout.tp),
    }


def _claim_device(wanted: str, rank: int) -> torch.device:
    """Return this rank's device, set before the process group exists: a communicator takes the current device."""
    if wanted == "auto":
        wanted = _best_device()
    if wanted == "npu":
        import torch_npu  # noqa: F401, PLC0415
    if wanted == "cpu":
        return torch.device("cpu")
    device = torch.device(wanted, rank)
    torch.accelerator.set_device_index(rank)
    return device


def _best_device() -> str:
    if VARIABLE in os.environ:
        return "cpu"
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator.type if accelerator is not None and accelerator.type in _BACKENDS else "cpu"


def _dtype(wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return torch.float32 if wanted == "float32" else torch.bfloat16


def _png(output: Output, fingerprint: str) -> bytes:
    """The decoded picture; the latents' fingerprint travels in it, so that pictures are equal when the latents are."""
    from PIL import Image, PngImagePlugin  # noqa: PLC0415

    data = ((output.pixels[0].float().clamp(-1, 1) + 1) * 127.5).round().to("cpu", torch.uint8).permute(1, 2, 0)
    notes = PngImagePlugin.PngInfo()
    notes.add_text("latents-sha256", fingerprint)
    stream = io.BytesIO()
    Image.fromarray(data.numpy()).save(stream, format="PNG", pnginfo=notes)
    return stream.getvalue()
