"""One rank: device, process group, model, split, then requests until the server goes away.

Started by the server as ``python -m anchormatrix.engines.dummy_run.rank RANK WORLD STORE SOCKET_FD FLAGS…``; its cores
and thread count are set before the interpreter starts. It obeys its socket only: SIGINT and SIGTERM are the server's to
answer, and when the socket closes the rank leaves at once, whatever it is computing.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm  # type: ignore[import-untyped]

from anchormatrix.engines.dummy_run import build, parallel
from anchormatrix.engines.dummy_run.arguments import ServeOptions, parse_serve
from anchormatrix.engines.dummy_run.capture import Capture
from anchormatrix.engines.dummy_run.cards import VARIABLE
from anchormatrix.engines.dummy_run.denoiser import Denoiser
from anchormatrix.engines.dummy_run.fingerprint import TOLERANCE, canonical, digest, fingerprint, relative_distance
from anchormatrix.engines.dummy_run.logs import TaggedBar, open_log, worker_tag
from anchormatrix.engines.dummy_run.pipeline import Output, Pipeline, Request

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
        dtype = _dtype(options.dtype, self.device)
        self.layout = (
            parallel.make_layout(self.device, cfg=options.cfg, ring=options.ring, ulysses=options.usp, tp=options.tp)
            if world > 1
            else None
        )
        self.tag = worker_tag(_places(self.layout), os.getpid())
        self.log = open_log(self.tag)
        _log_groups(self.log, self.layout, options)
        self.capture = Capture(options.profiler, rank, self.device)
        transformer = build.build_transformer(options.model, options.seed, self.device, dtype)
        self.pipeline = Pipeline(
            Denoiser(options.model, transformer),
            build.build_text_encoder(options.model, options.seed, self.device, dtype),
            build.build_vae(options.model, options.seed, self.device, dtype),
            self.device,
            self.capture,
        )
        if self.layout is not None:
            self._split(transformer, self.layout, dtype)

    def generate(self, request: Request) -> dict[str, Any]:
        """Run one request and log it. Returns fingerprint, digest and iterations.

        Rank 0 adds what the client gets: the latents' canonical bytes of a video, the decoded picture of an image.
        """
        bar = self._bar()
        try:
            output = self.pipeline.run(request, bar.advance)
        finally:
            bar.close()
        if dist.is_initialized():
            dist.barrier()  # nobody's stage lines land in the middle of rank 0's progress bar
        if self.options.stage_log:
            for name, seconds in output.stages.items():
                self.log.info(
                    "[DiffusionPipelineProfiler] %s.%s took %.6fs", self.options.model.pipeline, name, seconds
                )
        answer = {
            "fingerprint": fingerprint(output.latents),
            "digest": digest(output.latents),
            "iterations": output.iterations,
            "stages": output.stages,
        }
        if self.rank == 0:
            self.log.info(
                "Output fingerprint: sha256=%s digest=%s", answer["fingerprint"], json.dumps(answer["digest"])
            )
            content = canonical(output.latents) if self.options.model.is_video else _png(output, answer["fingerprint"])
            answer["content"] = base64.b64encode(content).decode()
        return answer

    def _split(self, transformer: torch.nn.Module, layout: parallel.Layout, dtype: torch.dtype) -> None:
        reference = self._check_noise(layout)
        parallel.split(transformer, self.options.model, layout, self.device)
        if layout.cfg > 1:
            self.pipeline.cfg_group = layout.group("cfg")
        distance = relative_distance(self._check_noise(layout), reference)
        limit = TOLERANCE[dtype]
        self.log.info(
            "Split check: one step of this form against one rank: relative distance %.3e, tolerance %.0e",
            distance,
            limit,
        )
        if not distance <= limit:
            raise RuntimeError(
                f"this form does not compute what one rank computes: relative distance {distance:.3e} "
                f"is above the tolerance {limit:.0e}"
            )

    def _check_noise(self, layout: parallel.Layout) -> torch.Tensor:
        """One guided step on a few tokens, as many as the sequence degree can share out."""
        shape = (2 if self.options.model.is_video else 1, 8, 8 * layout.sequence_degree)
        denoiser = self.pipeline.denoiser
        texts = [self.pipeline.encoder("lighthouse"), self.pipeline.encoder("")][: self.options.model.branches]
        timestep = torch.tensor(500.0, device=self.device)
        return self.pipeline.guided(denoiser.latents(shape, 0, self.device), timestep, texts, 5.0, shape)

    def _bar(self) -> _Bar:
        return _Bar(self.tag if self.rank == 0 else None)


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


def main(argv: list[str]) -> int:
    """Serve the socket until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rank, world, store, descriptor, flags = int(argv[0]), int(argv[1]), argv[2], int(argv[3]), argv[4:]
    link = socket.socket(fileno=descriptor)
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(link, orders), daemon=True).start()
    log = open_log(worker_tag({"RANK": (rank, world)}, os.getpid()))
    try:
        state = Rank(rank, world, store, parse_serve(flags, dict(os.environ)))
    except Exception as error:
        _log_failure(log, error)
        _answer(link, {"ok": False, "error": _text(error)})
        return 1
    _answer(link, {"ok": True})
    while True:
        order = orders.get()
        try:
            values = _obey(state, order)
        except Exception as error:
            _log_failure(state.log, error)
            _answer(link, {"ok": False, "id": order["id"], "error": _text(error)})
        else:
            _answer(link, {"ok": True, "id": order["id"], **values})


def _obey(state: Rank, order: dict[str, Any]) -> dict[str, Any]:
    if order["op"] == "generate":
        return state.generate(Request(**order["request"]))
    if order["op"] == "start_profile":
        state.capture.start()
        state.log.info("Profiler armed")
        return {}
    result = state.capture.stop()
    state.log.info("Profiler stopped: %s step(s) in %s", result["steps"], result["file"])
    return result


def _listen(link: socket.socket, orders: queue.Queue[dict[str, Any]]) -> None:
    with link.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            orders.put(json.loads(line))
    os._exit(0)  # the server is gone or stops: a collective that waits for another rank must not keep this one alive


def _answer(link: socket.socket, values: dict[str, Any]) -> None:
    link.sendall((json.dumps(values) + "\n").encode())


def _log_failure(log: logging.Logger, error: Exception) -> None:
    """One line: a log that many ranks write keeps a line whole, but not a traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    log.error("%s (%s)", _text(error), where)


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _log_groups(log: logging.Logger, layout: parallel.Layout | None, options: ServeOptions) -> None:
    """The start-up lines that prove which groups this rank really is in: sizes are read off the mesh, not the flags."""
    size = {name: 1 if layout is None else layout.mesh[name].size() for name in parallel.DIMENSIONS}
    sequence = size["ring"] * size["ulysses"]
    log.info(
        "Building SP subgroups from explicit sp_group_ranks: sp_size=%d ulysses_degree=%d ring_degree=%d dp_size=1",
        sequence,
        size["ulysses"],
        size["ring"],
    )
    log.info(
        "Initialized model parallel groups: tensor_parallel_size=%d allgather_degree=1 cfg_parallel_size=%d "
        "pipeline_parallel_size=1",
        size["tp"],
        size["cfg"],
    )
    if sequence > 1:
        log.info("Applying sequence parallelism to %s", options.model.transformer_class)


def _places(layout: parallel.Layout | None) -> dict[str, tuple[int, int]]:
    if layout is None:
        return {}
    sequence = layout.rank_in("ring") * layout.ulysses + layout.rank_in("ulysses")
    return {
        "CFG": (layout.rank_in("cfg"), layout.cfg),
        "SP": (sequence, layout.sequence_degree),
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
