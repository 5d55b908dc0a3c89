"""The text of the serving log: coloured prefixes and stamps, workers' tags, stage lines, and the ways a server dies.

vllm-omni 0.30.0 switches colours on, in files too (``entrypoints/cli/main.py:26``: VLLM_LOGGING_COLOR=1): vLLM's
``ColoredFormatter`` colours level, time and place, and ``decorate_logs`` the name of the process. ``ansi: false`` in a
scenario is a host that sets VLLM_LOGGING_COLOR=0.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from signal import Signals

from virtualhost.host.scenario import LogStyle
from virtualhost.host.split import Split
from virtualhost.server.exchange import Ask

_PROFILER = "diffusion_pipeline_profiler.py:32"
_LEVELS = {"INFO": 32, "WARNING": 33, "ERROR": 31}  # vllm/logging_utils/formatter.py: ColoredFormatter.COLORS


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
    """Return the tag of each rank: its index in every group it is split over, in the order of
    ``diffusion/worker/diffusion_worker.py:144-182``, as far as the style says them."""
    if style.worker_tag == "plain":
        return ("DiffusionWorker",) * split.world
    if style.worker_tag == "fs":
        return tuple(f"DiffusionWorker_FS{rank}" for rank in range(split.world))
    tags = []
    for rank in range(split.world):
        place = split.place(rank)
        sequence = (place["ag"] * split.ring + place["ring"]) * split.usp + place["usp"]
        degrees = (
            ("PP", place["pp"], split.pp),
            ("SP", sequence, split.sequence_degree),
            ("CFG", place["cfg"], split.cfg),
            ("TP", place["tp"], split.tp),
        )
        tags.append("_".join(["DiffusionWorker", *(f"{name}{index}" for name, index, size in degrees if size > 1)]))
    return tuple(tags)


class Grammar:
    """Writes the log of one server; times are virtual seconds since the scenario's epoch.

    ``inline``: the one worker runs in the API server's process (``UniProcDiffusionExecutor``, ``diffusion/executor/
    abstract.py:39``); once its groups are built every line of that process bears the worker's name.
    """

    def __init__(
        self, style: LogStyle, epoch: str, split: Split, pids: Sequence[int], *, server: int = 0, inline: bool = False
    ) -> None:
        self.style = style
        self.split = split
        self.inline = inline
        self.tags = worker_tags(split, style)
        self.workers = tuple(self._name(tag, pid) for tag, pid in zip(self.tags, pids, strict=True))
        self.pids = tuple(pids)
        self.api = self._name("APIServer", server or min(pids) - 1)
        self.server = self.workers[0] if inline else self.api
        self.epoch_s = epoch_seconds(epoch)

    def _name(self, tag: str, pid: int) -> str:
        """A process as ``decorate_logs`` names it (vllm/utils/system_utils.py)."""
        return f"\x1b[0;36m({tag} pid={pid})\x1b[0;0m" if self.style.ansi else f"({tag} pid={pid})"

    def fresh_worker(self, rank: int) -> str:
        """The name of a worker before its groups are built; inline, that is still the API server's."""
        return self.api if self.inline else self._name("DiffusionWorker", self.pids[rank])

    def stamp(self, clock_s: float) -> str:
        """Return the time of day as the log writes it."""
        return _stamp(self.epoch_s + int(clock_s))

    def written(self, name: str, clock_s: float, where: str, text: str, *, level: str = "INFO") -> str:
        """Return a line of the process with this name; an empty name is a process that is not decorated yet."""
        stamp, place = self.stamp(clock_s), f"[{where}]"
        if self.style.ansi:
            level = f"\x1b[{_LEVELS[level]}m{level}\x1b[0m"
            stamp, place = f"\x1b[90m{stamp}\x1b[0m", f"\x1b[90m{place}\x1b[0m"
        return f"{name}{' ' if name else ''}{level} {stamp} {place} {text}\n"

    def line(self, clock_s: float, where: str, text: str, *, level: str = "INFO") -> str:
        """Return a line of the API server."""
        return self.written(self.server, clock_s, where, text, level=level)

    def worker_line(self, rank: int, clock_s: float, where: str, text: str, *, level: str = "INFO") -> str:
        """Return a line of one worker."""
        return self.written(self.workers[rank], clock_s, where, text, level=level)

    def plain(self, text: str) -> str:
        """Return a line that uvicorn writes: without colours, as the log is no terminal."""
        return f"{self.server} {text}\n"

    def access(self, endpoint: str, status: int) -> str:
        """Return a line of uvicorn's access log."""
        return self.plain(f'INFO:     127.0.0.1:40922 - "{endpoint} HTTP/1.1" {status} {HTTPStatus(status).phrase}')

    def stage(self, rank: int, clock_s: float, name: str, seconds: float) -> str:
        """Return one stage line (``diffusion/profiler/diffusion_pipeline_profiler.py:32``)."""
        text = f"[DiffusionPipelineProfiler] {name} took {seconds:.6f}s"
        return self.worker_line(rank, clock_s, _PROFILER, text)

    def asked(self, ask: Ask, clock_s: float) -> str:
        """What is said of a video request when it begins (``entrypoints/openai/video/generation/helpers.py:986``,
        ``entrypoints/openai/serving_video.py:476``); of an image only at DEBUG (``api_server.py:2205``)."""
        if ask.kind == "image":
            return ""
        params = f"Video sampling params: steps={ask.steps} guidance={ask.guidance} guidance_2=None seed={ask.seed}"
        handler = "Video generation handler: OmniOpenAIServingVideo"
        return self.line(clock_s, "helpers.py:986", handler) + self.line(clock_s, "serving_video.py:476", params)

    def answered(self, ask: Ask, clock_s: float, *, lost: bool) -> str:
        """What is said when the output is there; uvicorn tells no access of a client that is gone."""
        text = ""
        if ask.kind == "video":
            text += self.line(clock_s, "serving_video.py:627", "Video response encoding (MP4 bytes): 412.35 ms")
        return text + (self.access(ask.endpoint, 200) if ask.synchronous and not lost else "")

    def capture_folder(self, clock_s: float) -> str:
        """The folder of a capture (``profiler/omni_torch_profiler.py:139``,
        ``diffusion/inline_stage_diffusion_client.py:251``)."""
        seconds = self.epoch_s + int(clock_s)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
        return f"{stamp}_stage_0_rep_0_diffusion_{seconds}"

    def profiling(self, clock_s: float, directory: str, *, start: bool, npu: bool = True) -> str:
        """What is said when the profiler is switched on or off (``entrypoints/openai/api_server.py:2970-2999``,
        ``diffusion/diffusion_engine.py:1276-1278``, ``platforms/npu/profiler.py:104``)."""
        verb = "Starting" if start else "Stopping"
        text = self.line(clock_s, f"api_server.py:{2970 if start else 2996}", f"{verb} profiler for stages: all")
        if start:
            prefix = f"stage_0_rep_0_diffusion_{self.epoch_s + int(clock_s)}"
            engine = f"Starting diffusion profiling with prefix: {prefix}"
            text += self.line(clock_s, "diffusion_engine.py:1276", engine)
            return text + self.line(clock_s, "api_server.py:2973", "Profiler started.")
        text += self.line(clock_s, "diffusion_engine.py:1278", "Stopping diffusion profiling...")
        if not npu:
            for rank in range(self.split.world):
                path = f"{directory}/{self.capture_folder(clock_s)}/trace_rank{rank}.json"
                exported = f"[Rank {rank}] Trace exported to {path}"
                text += self.worker_line(rank, clock_s, "omni_torch_profiler.py:174", exported)
            return text + self.line(clock_s, "api_server.py:2999", "Profiler stopped.")
        hint = (
            "NPU profiler stopped. Use offline parsing to analyze: from torch_npu.profiler.profiler import analyse; "
            f"analyse('{directory}/diffusion_rank0')"
        )
        text += self.worker_line(0, clock_s, "profiler.py:104", hint)
        return text + self.line(clock_s, "api_server.py:2999", "Profiler stopped.")

    def failed(self, ask: Ask, clock_s: float) -> str:
        """What is said of a request that the pipeline failed (``entrypoints/openai/api_server.py:2254`` and ``:2760``,
        ``entrypoints/openai/video/generation/helpers.py:473``)."""
        reason = "RuntimeError: the pipeline failed"
        where, said = {
            "/v1/videos/sync": ("api_server.py:2760", "Sync video generation failed for request_id=video_sync-0"),
            "/v1/videos": ("helpers.py:473", "Video generation failed for id=video_gen_0"),
        }.get(ask.path, ("api_server.py:2254", f"Image generation failed: {reason}"))
        text = self.line(clock_s, where, f"{said}: {reason}", level="ERROR")
        return text + (self.access(ask.endpoint, 500) if ask.synchronous else "")

    def interleave(self, line: str, rank: int, clock_s: float) -> str:
        """Spoil a stage line the way two writers do: another worker's prefix lands in its middle."""
        cut = line.index("profiler.py:32]")
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

    def engine_dead(self, clock_s: float) -> str:
        """The main process gives up (``diffusion/inline_stage_diffusion_client.py:97``, uvicorn)."""
        text = "[InlineStageDiffusionClient] stage-0 [rep-0] diffusion executor died unexpectedly."
        return self.line(clock_s, "inline_stage_diffusion_client.py:97", text, level="ERROR") + self.plain(
            "INFO:     Shutting down"
        )

    def rank_died(self, clock_s: float, rank: int, signal_number: int) -> str:
        """The monitor's line about a worker that is gone (``diffusion/executor/multiproc_executor.py:468-482``)."""
        how = f"exitcode=-{signal_number}, {Signals(signal_number).name}" if signal_number else "exitcode=1"
        text = f"Diffusion worker(s) died unexpectedly: ['DiffusionWorker-{rank}({how})']"
        return self.line(clock_s, "multiproc_executor.py:479", text, level="ERROR") + self.engine_dead(clock_s)

    def never_ready(self, clock_s: float, rank: int, exit_code: int) -> str:
        """The lines about a worker that is gone before it was ready (``multiproc_executor.py:420-422``)."""
        where, said = "multiproc_executor.py", "scheduler is dead. Please check if there are relevant logs."
        return self.line(clock_s, f"{where}:420", f"Rank {rank} {said}", level="ERROR") + self.line(
            clock_s, f"{where}:422", f"Exit code: {exit_code}", level="ERROR"
        )

    def stopping(self, clock_s: float) -> str:
        """A clean stop: uvicorn's lines, and each worker's (``diffusion/worker/diffusion_worker.py:1575``, ``:1597``,
        ``:1665``)."""
        where = "diffusion_worker.py"
        text = self.plain("INFO:     Shutting down") + self.plain("INFO:     Waiting for application shutdown.")
        text += self.plain("INFO:     Application shutdown complete.")
        for rank in range(0 if self.inline else self.split.world):
            text += self.worker_line(rank, clock_s, f"{where}:1575", f"Worker {rank}: Received shutdown message")
            text += self.worker_line(rank, clock_s, f"{where}:1597", "event loop terminated.")
            text += self.worker_line(rank, clock_s, f"{where}:1665", f"Worker {rank}: Shutdown complete.")
        return text

    def bind_failure(self) -> str:
        """The server cannot listen: the end of the traceback of ``socket.bind`` (vllm's ``create_server_socket``)."""
        return f"{self.api} OSError: [Errno 98] Address already in use\n"

    def communicator_failure(self, clock_s: float) -> str:
        """The collective library cannot set up a communicator: the vendor's own three lines, of the last rank."""
        rank = self.split.world - 1
        worker, pid = self.workers[rank], self.pids[rank]
        moment = time.gmtime(self.epoch_s + int(clock_s))
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
