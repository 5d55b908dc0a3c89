"""The text of the serving log: stamped lines, workers' tags, progress bars, stage lines, and the ways a server dies."""

from __future__ import annotations

import calendar
import time
from collections.abc import Sequence
from functools import lru_cache

from virtualhost.host.scenario import LogStyle
from virtualhost.host.split import Split
from virtualhost.server.offload_log import offload_lines

_PROFILER = "[diffusion_pipeline_profiler.py:29] [DiffusionPipelineProfiler]"


@lru_cache(maxsize=4096)
def _stamp(second: int) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.gmtime(second))


def epoch_seconds(text: str) -> int:
    """Return ``YYYY-MM-DDTHH:MM:SS`` as seconds; the virtual host lives in UTC."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def epoch_stamp(text: str) -> str:
    """Return the time of day at which the scenario begins, as the log writes it."""
    return _stamp(epoch_seconds(text))


def worker_tags(split: Split, style: LogStyle) -> tuple[str, ...]:
    """Return the tag of each rank: its index in every group it is split over, as far as the style says them."""
    if style.worker_tag == "plain":
        return ("DiffusionWorker",) * split.world
    if style.worker_tag == "fs":
        return tuple(f"DiffusionWorker_FS{rank}" for rank in range(split.world))
    tags = []
    for rank in range(split.world):
        place = split.place(rank)
        sequence = (place["ag"] * split.ring + place["ring"]) * split.usp + place["usp"]
        degrees = (
            ("CFG", place["cfg"], split.cfg),
            ("PP", place["pp"], split.pp),
            ("SP", sequence, split.sequence_degree),
            ("TP", place["tp"], split.tp),
        )
        tags.append("_".join(["DiffusionWorker", *(f"{name}{index}" for name, index, size in degrees if size > 1)]))
    return tuple(tags)


class Grammar:
    """Writes the log of one server; times are virtual seconds since the scenario's epoch."""

    def __init__(self, style: LogStyle, epoch: str, split: Split, pids: Sequence[int]) -> None:
        self.style = style
        self.split = split
        self.workers = tuple(f"({tag} pid={pid})" for tag, pid in zip(worker_tags(split, style), pids, strict=True))
        self.pids = tuple(pids)
        self._epoch = epoch_seconds(epoch)

    def stamp(self, clock_s: float) -> str:
        """Return the time of day as the log writes it."""
        return _stamp(self._epoch + int(clock_s))

    def line(self, clock_s: float, where: str, text: str, *, level: str = "INFO", colour: str = "") -> str:
        """Return a line of the main process."""
        shown = f"\x1b[{colour}m{level}\x1b[0m" if colour and self.style.ansi else level
        return f"{shown} {self.stamp(clock_s)} [{where}] {text}\n"

    def worker_line(self, rank: int, clock_s: float, where: str, text: str, *, level: str = "INFO") -> str:
        """Return a line of one worker."""
        return f"{self.workers[rank]} {level} {self.stamp(clock_s)} [{where}] {text}\n"

    def groups(self, clock_s: float) -> str:
        """Return the start-up lines in which every worker says which groups it is in."""
        split = self.split
        lines = []
        sequence = (
            f"Building SP subgroups from explicit sp_group_ranks: sp_size={split.sequence_degree} "
            f"ulysses_degree={split.usp} ring_degree={split.ring} dp_size=1"
        )
        others = (
            f"Initialized model parallel groups: tensor_parallel_size={split.tp} allgather_degree={split.ag} "
            f"cfg_parallel_size={split.cfg} pipeline_parallel_size={split.pp}"
        )
        for rank in range(split.world):
            lines.append(self.worker_line(rank, clock_s, "parallel_state.py:812", sequence))
            lines.append(self.worker_line(rank, clock_s, "parallel_state.py:905", others))
            if split.sequence_degree > 1:
                applied = f"Applying sequence parallelism to {self.style.transformer}"
                lines.append(self.worker_line(rank, clock_s, "registry.py:310", applied))
        return "".join(lines)

    def offload(self, clock_s: float, layers: int) -> str:
        """Return what every worker says of its offload, for a transformer of so many layers."""
        said = ((rank, *one) for rank in range(self.split.world) for one in offload_lines(self.split, layers, rank))
        return "".join(self.worker_line(rank, clock_s, where, text) for rank, where, text in said)

    def warning(self, clock_s: float, text: str) -> str:
        """Return the same warning of every worker; nothing for an empty one."""
        ranks = range(self.split.world if text else 0)
        return "".join(self.worker_line(rank, clock_s, "__init__.py:123", text, level="WARNING") for rank in ranks)

    def bar(self, index: int, total: int, elapsed_s: float) -> str:
        """Return one state of the progress bar of the first worker; states follow each other after a carriage return.

        ``s/it`` is a smoothed rate that overshoots: it is not the step time.
        """
        filled = 10 * index // total
        head = f"{self.workers[0]} {100 * index // total:3d}%|{'█' * filled:<10}| {index}/{total} "
        if not index:
            return f"{head}[00:00<?, ?it/s]"
        rate = elapsed_s / index
        left = rate * (total - index)
        return f"\r{head}[{_clock(elapsed_s)}<{_clock(left)}, {rate * 1.31:5.2f}s/it]"

    def stages(
        self, rank: int, clock_s: float, encode_s: float, steps_s: Sequence[float], decode_s: float, forward_s: float
    ) -> list[str]:
        """Return one worker's stage lines of a request, ``steps_s`` being what each diffuse line says."""
        style = self.style
        stages = [("encode_prompt", encode_s), *((style.diffuse_stage, step) for step in steps_s)]
        stages += [(style.decode_stage, decode_s), ("forward", forward_s)]
        head = f"{self.workers[rank]} INFO {self.stamp(clock_s)} {_PROFILER} {style.pipeline}."
        return [f"{head}{name} took {seconds:.6f}s\n" for name, seconds in stages]

    def interleave(self, line: str, rank: int, clock_s: float) -> str:
        """Spoil a stage line the way two writers do: another worker's prefix lands in its middle."""
        cut = line.index("profiler.py:29]")
        return f"{line[:cut]}{self.workers[rank]} INFO {self.stamp(clock_s)} {line[cut:]}"

    # -- how a server dies --------------------------------------------------------------------------------------

    def crash(self, rank: int, text: str) -> str:
        """A worker's exception and what the main process makes of it."""
        worker = self.workers[rank]
        return (
            f"{worker} Traceback (most recent call last):\n"
            f'{worker}   File "/usr/lib/python3/vllm_omni/diffusion/worker/diffusion_worker.py", line 412, in run\n'
            f"{worker} {text}\n"
        )

    def engine_dead(self, clock_s: float, text: str) -> str:
        """The main process gives up."""
        return self.line(clock_s, "launcher.py:96", f"Engine core failed: {text}", level="ERROR") + self.line(
            clock_s, "launcher.py:110", "Shutting down"
        )

    def bind_failure(self, clock_s: float, number: int, address: str, reason: str) -> str:
        """The server cannot listen."""
        text = f"[Errno {number}] error while attempting to bind on address {address}: {reason}"
        return self.line(clock_s, "launcher.py:52", text, level="ERROR")

    def communicator_failure(self, clock_s: float) -> str:
        """The collective library cannot set up a communicator: the vendor's own three lines, of the last rank."""
        rank = self.split.world - 1
        worker, pid = self.workers[rank], self.pids[rank]
        moment = time.gmtime(self._epoch + int(clock_s))
        day = time.strftime("%Y-%m-%d-%H:%M:%S", moment)
        missing = ",".join(str(other) for other in range(1, self.split.world, 2))
        return (
            f"{worker} RuntimeError: create_config:../torch_npu/csrc/distributed/HCCLUtils.cpp:140 HCCL function "
            "error: hcclCommInitRootInfoConfig(numRanks, &rootInfo, rank, config, &(comm->hcclComm_)), "
            "error code is 1\n"
            f"{worker} [ERROR] {day} (PID:{pid}, Device:{rank}, RankID:{rank}) ERR02200 DIST call hccl api failed.\n"
            f"{worker} [PID: {pid}] {day}.978.003 Communication_Error_Ranktable_Detect(EI0015): Failed to collect "
            "cluster information of the communicator based on rootInfo detection. Reason: No rank in the communicator "
            f'can connect to the root node within the timeout period. List of unconnected ranks: "[{missing},]".\n'
        )


def out_of_memory(card: int, total_mb: int, used_mb: float, wanted_mb: float) -> str:
    """The text of a device memory error."""
    free = max(0.0, total_mb - used_mb)
    return (
        f"torch.OutOfMemoryError: NPU out of memory. Tried to allocate {wanted_mb / 1024:.2f} GiB "
        f"(NPU {card}; {total_mb / 1024:.2f} GiB total capacity; {used_mb / 1024:.2f} GiB already allocated; "
        f"{free / 1024:.2f} GiB free)"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
