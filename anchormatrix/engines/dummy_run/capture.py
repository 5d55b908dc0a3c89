"""One capture per rank: the profiler runs over the wanted denoise steps and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from anchormatrix.engines.dummy_run.arguments import ProfilerSettings


class Profiler(Protocol):
    """A vendor's profiler, prepared when it is made."""

    def start(self) -> None:
        """Begin to record."""

    def stop(self) -> str:
        """End, write, and return where."""


class Capture:
    """Between ``start`` and ``stop`` the wanted denoise steps are recorded; ``stop`` writes this rank's trace.

    Steps are counted over all requests since ``start``. A later capture of the same server replaces an earlier one.
    """

    def __init__(self, settings: ProfilerSettings | None, rank: int, device: torch.device) -> None:
        self._settings = settings
        self._rank = rank
        self._device = device
        self._profiler: Profiler | None = None
        self._armed = False
        self._seen = 0
        self._recorded = 0
        self._written: str | None = None

    def start(self) -> None:
        """Arm the profiler. Raises :class:`RuntimeError` without settings or when it is armed already."""
        if self._settings is None:
            raise RuntimeError("no profiler is configured; start the server with --profiler-config")
        if self._armed:
            raise RuntimeError("the profiler is running already")
        self._armed, self._seen, self._recorded, self._written = True, 0, 0, None

    @contextlib.contextmanager
    def step(self, index: int) -> Iterator[None]:
        """Wrap one denoise step."""
        if not self._wanted():
            yield
            return
        if self._profiler is None:
            self._begin()
        with record_function(f"ProfilerStep#{index}"):
            yield
            synchronize(self._device)
        self._recorded += 1
        if not self._more():
            self._end()

    def stop(self) -> dict[str, Any]:
        """Disarm. Returns ``{"steps", "file"}``; file is None when no step ran since ``start``."""
        if not self._armed:
            raise RuntimeError("the profiler is not running")
        self._armed = False
        self._end()
        return {"steps": self._recorded, "file": self._written}

    def _wanted(self) -> bool:
        if not self._armed or self._settings is None:
            return False
        self._seen += 1
        return self._seen > self._settings.delay and self._more()

    def _more(self) -> bool:
        return self._settings is not None and (self._settings.steps == 0 or self._recorded < self._settings.steps)

    def _begin(self) -> None:
        assert self._settings is not None
        directory = Path(self._settings.directory)
        directory.mkdir(parents=True, exist_ok=True)
        make = AscendProfiler if self._device.type == "npu" else TorchProfiler
        self._profiler = make(directory, self._rank)
        if dist.is_initialized():
            dist.barrier()  # preparing takes ranks differently long, which must not show as waiting in the step
        self._profiler.start()

    def _end(self) -> None:
        if self._profiler is not None:
            self._written, self._profiler = self._profiler.stop(), None


class TorchProfiler:
    """``torch.profiler``: a Chrome trace ``rank-N.json.gz``."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._path = directory / f"rank-{rank}.json.gz"
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities, record_shapes=False, with_stack=False)
        self._profile.prepare_trace()

    def start(self) -> None:
        """Begin to record."""
        self._profile.start_trace()

    def stop(self) -> str:
        """End and write under a temporary name first: a reader never sees half a trace."""
        self._profile.stop_trace()
        temporary = self._path.with_name(f".{self._path.name}")  # torch compresses by the name's ending
        self._profile.export_chrome_trace(str(temporary))
        temporary.replace(self._path)
        return str(self._path)


class AscendProfiler:
    """``torch_npu.profiler``: the vendor's folder of tables, one per rank."""

    def __init__(self, directory: Path, rank: int) -> None:
        import torch_npu  # noqa: PLC0415

        self._folder = directory / f"rank{rank}"
        vendor = torch_npu.profiler
        self._profile = vendor.profile(
            activities=[vendor.ProfilerActivity.CPU, vendor.ProfilerActivity.NPU],
            on_trace_ready=vendor.tensorboard_trace_handler(str(self._folder)),
        )

    def start(self) -> None:
        """Begin to record."""
        self._profile.start()

    def stop(self) -> str:
        """End; the handler analyses and writes the tables."""
        self._profile.stop()
        return str(self._folder)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given; nothing to wait for on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
