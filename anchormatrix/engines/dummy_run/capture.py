"""One Chrome trace per rank: the torch profiler runs over the wanted denoise steps and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from anchormatrix.engines.dummy_run.arguments import ProfilerSettings


class Capture:
    """Between ``start`` and ``stop`` the wanted denoise steps are recorded; ``stop`` writes ``rank-N.json.gz``.

    Steps are counted over all requests since ``start``. A later capture of the same server replaces an earlier one.
    """

    def __init__(self, settings: ProfilerSettings | None, rank: int, device: torch.device) -> None:
        self._settings = settings
        self._rank = rank
        self._device = device
        self._profiler: Any = None
        self._armed = False
        self._seen = 0
        self._recorded = 0

    def start(self) -> None:
        """Arm the profiler. Raises :class:`RuntimeError` without settings or when it is armed already."""
        if self._settings is None:
            raise RuntimeError("no profiler is configured; start the server with --profiler-config")
        if self._armed:
            raise RuntimeError("the profiler is running already")
        self._armed, self._seen, self._recorded = True, 0, 0

    @contextlib.contextmanager
    def step(self, index: int) -> Iterator[None]:
        """Wrap one denoise step."""
        if not self._wanted():
            yield
            return
        if self._profiler is None:
            self._profiler = self._begin()
        with record_function(f"ProfilerStep#{index}"):
            yield
            synchronize(self._device)
        self._recorded += 1
        if not self._more():
            self._profiler.stop_trace()

    def stop(self) -> dict[str, Any]:
        """Write the trace. Returns ``{"steps", "file"}``; file is None when no step ran since ``start``."""
        if not self._armed or self._settings is None:
            raise RuntimeError("the profiler is not running")
        profiler, self._profiler, self._armed = self._profiler, None, False
        if profiler is None:
            return {"steps": 0, "file": None}
        if self._more():
            profiler.stop_trace()
        directory = Path(self._settings.directory)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"rank-{self._rank}.json.gz"
        temporary = directory / f".rank-{self._rank}.json.gz"  # torch compresses by the name's ending
        profiler.export_chrome_trace(str(temporary))
        temporary.replace(path)
        return {"steps": self._recorded, "file": str(path)}

    def _wanted(self) -> bool:
        if not self._armed or self._settings is None:
            return False
        self._seen += 1
        return self._seen > self._settings.delay and self._more()

    def _more(self) -> bool:
        return self._settings is not None and (self._settings.steps == 0 or self._recorded < self._settings.steps)

    def _begin(self) -> Any:
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        elif self._device.type == "npu":
            activities.append(ProfilerActivity.PrivateUse1)
        profiler = profile(activities=activities, record_shapes=False, with_stack=False)
        profiler.prepare_trace()
        if dist.is_initialized():
            dist.barrier()  # the profiler's own start-up differs between ranks and must not show as waiting
        profiler.start_trace()
        return profiler


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given; nothing to wait for on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
