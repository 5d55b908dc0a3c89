"""The log of a LightX2V server, f8aee98: loguru's lines of every rank in one stream; each says where it is made.

Ranks have no prefix: a line names its rank where LightX2V's own text does. uvicorn's lines are plain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import accumulate
from operator import itemgetter
from typing import Any

from virtualhost.host.split import Split
from virtualhost.server.exchange import Ask, Chunk
from virtualhost.server.grammar import Grammar, epoch_seconds
from virtualhost.server.request_log import RequestLog, Spent

_PRE_S, _POST_S = 0.0003, 0.0004  # of a step, beside the transformer
_SERVER = "lightx2v.server"


@dataclass(frozen=True)
class Task(Ask):
    """A request with the name that its server gave it."""

    id: str = ""

    @property
    def kind(self) -> str:
        """``video`` or ``image``."""
        return "video" if "/video" in self.path else "image"


def mesh_text(split: Split) -> str:
    """The device mesh as torch prints it, of the groups by LightX2V's names (``utils/set_config.py:454``)."""
    return f"DeviceMesh((cfg_p={split.cfg}, seq_p={split.sequence_degree}), 'npu', stride=({split.sequence_degree}, 1))"


class LightX2VGrammar(Grammar):
    """Writes the lines of one server."""

    epoch: str = "2026-10-09T08:38:05"

    def say(self, clock_s: float, where: str, text: str, *, level: str = "INFO") -> str:
        """Return a line in loguru's default format; ``where`` is module, function and line."""
        moment = epoch_seconds(self.epoch) + clock_s
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}"
        return f"{stamp} | {level:<8} | {where} - {text}\n"

    def span(self, rank: int, clock_s: float, name: str, seconds: float) -> str:
        """Return a timed span (``utils/profiler.py:165``)."""
        who = f"Rank {rank}" if self.split.world > 1 else "Single GPU"
        text = f"[Profile] {who} - Level1_Log {name} cost {seconds:.6f} seconds"
        return self.say(clock_s, "lightx2v.utils.profiler:__exit__:165", text)

    # -- start and end --------------------------------------------------------------------------------------------

    def first_lines(self, clock_s: float, world: int) -> str:
        """What every rank says first (``server/main.py:38``, ``:48``)."""
        where = f"{_SERVER}.main:run_server"
        return "".join(
            self.say(clock_s, f"{where}:38", f"Starting LightX2V server (Rank {rank}/{world})...")
            + self.say(clock_s, f"{where}:48", "Task queue size set to 10")
            for rank in range(world)
        )

    def group_lines(self, clock_s: float, values: Mapping[str, Any]) -> str:
        """The process groups and the resolved configuration (``server/services/distributed_utils.py:42-53``,
        ``server/services/inference/worker.py:55``)."""
        where, world = f"{_SERVER}.services.distributed_utils:init_process_group", self.split.world
        text = ""
        for rank in range(world if world > 1 else 0):
            text += self.say(clock_s, f"{where}:42", "Setup backend: hccl")
            text += self.say(
                clock_s, f"{where}:53", f"Rank {rank}/{world - 1} distributed environment initialized successfully"
            )
        shown = repr(dict(values))[:-1] + (f", 'device_mesh': {mesh_text(self.split)}" if world > 1 else "") + "}"
        return text + self.say(clock_s, f"{_SERVER}.services.inference.worker:init:55", f"Config:\n {shown}")

    def ready_lines(self, clock_s: float, host: str, port: int) -> str:
        """Every rank's end of its start (``worker.py:58``), then rank 0's server (``server/main.py:73``, uvicorn)."""
        text, world = "", self.split.world
        for rank in range(world):
            done = f"Rank {rank}/{world - 1} initialization completed"
            text += self.say(clock_s, f"{_SERVER}.services.inference.worker:init:58", done)
        for rank in range(1, world):
            text += self.say(clock_s, f"{_SERVER}.main:run_server:76", f"Rank {rank}: Starting worker loop")
        text += self.say(clock_s, f"{_SERVER}.api.server:_task_processing_loop:85", "Task processing loop started")
        text += self.say(clock_s, f"{_SERVER}.main:run_server:73", f"Starting FastAPI server on {host}:{port}")
        return text + f"INFO:     Started server process [{self.pids[0]}]\nINFO:     Application startup complete.\n"

    def stopping(self, clock_s: float) -> str:
        """A clean stop (``server/main.py:29``, ``server/services/inference/service.py:42``)."""
        text = ""
        for rank in range(self.split.world):
            text += self.say(
                clock_s, f"{_SERVER}.main:_signal_handler:29", f"Server rank {rank} received shutdown signal"
            )
        where = f"{_SERVER}.services.inference.service:stop_distributed_inference:42"
        return text + self.say(clock_s, where, "Inference service stopped")

    def crash(self, rank: int, text: str) -> str:
        """An exception of one rank, as its interpreter prints it."""
        return f"Traceback (most recent call last):\n[rank{rank}]: {text}\n"

    def engine_dead(self, clock_s: float) -> str:
        """torchrun's last line about a rank that failed."""
        return self.elastic(clock_s, 0, 1)

    def rank_died(self, clock_s: float, rank: int, signal_number: int) -> str:
        """torchrun's line about a rank that is gone."""
        return self.elastic(clock_s, rank, -signal_number or 1)

    def never_ready(self, clock_s: float, rank: int, exit_code: int) -> str:
        """torchrun's line about a rank that is gone before it was ready."""
        return self.elastic(clock_s, rank, exit_code)

    def elastic(self, clock_s: float, rank: int, code: int) -> str:
        """torch 2.13, ``torch/distributed/elastic/multiprocessing/api.py:1002``."""
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(epoch_seconds(self.epoch) + clock_s))
        where = "torch/distributed/elastic/multiprocessing/api.py:1002"
        text = f"failed (exitcode: {code}) local_rank: {rank} (pid: {self.pids[rank]}) of binary: /usr/bin/python3"
        return f"E{stamp}.000000 {min(self.pids) - 1} {where}] {text}\n"

    def bind_failure(self) -> str:
        """uvicorn's line about a port that is taken."""
        return "ERROR:    [Errno 98] error while attempting to bind on address: address already in use\n"

    # -- requests -------------------------------------------------------------------------------------------------

    def access(self, endpoint: str, status: int) -> str:
        """Return a line of uvicorn's access log."""
        return f'INFO:     127.0.0.1:40922 - "{endpoint} HTTP/1.1" {status} {HTTPStatus(status).phrase}\n'

    def asked(self, ask: Ask, clock_s: float) -> str:
        """What is said of a task that begins (``server/api/server.py:98``, ``server/task_manager.py:239``), and of its
        fields by every rank (``models/runners/default_runner.py:223``)."""
        name = getattr(ask, "id", "")
        text = self.say(clock_s, f"{_SERVER}.api.server:_task_processing_loop:98", f"Processing task {name}")
        where = f"{_SERVER}.task_manager:acquire_processing_lock:239"
        text += self.say(clock_s, where, f"Task {name} acquired processing lock")
        fields = {"prompt": ask.prompt, "infer_steps": ask.steps, "seed": ask.seed, "task_id": name, "task": "t2i"}
        fields["target_shape"] = [ask.height, ask.width]
        said = self.say(clock_s, "lightx2v.models.runners.default_runner:set_config:223", f"modify config: {fields}")
        return text + said * self.split.world

    def answered(self, ask: Ask, clock_s: float, *, lost: bool) -> str:
        """What is said when the output is there (``server/api/server.py:148``, ``server/task_manager.py:248``)."""
        name = getattr(ask, "id", "")
        where = f"{_SERVER}.api.server:_process_single_task:148"
        text = self.say(clock_s, where, f"Task {name} completed successfully")
        where = f"{_SERVER}.task_manager:release_processing_lock:248"
        return text + self.say(clock_s, where, f"Task {name} released processing lock")

    def failed(self, ask: Ask, clock_s: float) -> str:
        """What is said of a task that failed (``server/api/server.py:158``)."""
        text = f"Task {getattr(ask, 'id', '')} processing failed: the pipeline failed"
        return self.say(clock_s, f"{_SERVER}.api.server:_process_single_task:158", text, level="ERROR")

    def interleave(self, line: str, rank: int, clock_s: float) -> str:
        """Spoil a line the way two writers do: another rank's line lands in its middle."""
        at = line.index(" cost ")
        return line[:at] + self.span(rank, clock_s, "step_pre", _PRE_S) + line[at:]


@dataclass(frozen=True)
class LightX2VLog(RequestLog):
    """How the runner of Qwen-Image logs a request (``models/runners/qwen_image/qwen_image_runner.py``)."""

    grammar: LightX2VGrammar

    def chunks(self, begun_s: float, ranks: Sequence[Spent], *, spoiled: int | None = None) -> list[Chunk]:
        """The spans of all ranks, in the order of time."""
        found = [item for rank, spent in enumerate(ranks) for item in self._rank(begun_s, rank, spent)]
        return [Chunk(at_s, text) for at_s, text in sorted(found, key=itemgetter(0))]

    def guidance(self, ask: Ask, clock_s: float, *, first: bool) -> Chunk:
        """Nothing: an unguided request of CFG ranks is told by the configuration alone."""
        return Chunk(0.0, "")

    def durations(self, spent: Spent) -> dict[str, float]:
        """Nothing: an answer tells no times."""
        return {}

    def _rank(self, begun_s: float, rank: int, spent: Spent) -> Iterator[Chunk]:
        """The lines of one rank: encoder (``:364``), each step (``:417-429``), decoder (``:398``), whole (``:665``)."""
        total, ends = len(spent.steps_s), list(accumulate(spent.steps_s, initial=sum(spent.encodes_s)))
        yield self._span(begun_s, rank, ends[0], "Run Text Encoder", ends[0])
        for number, seconds in enumerate(spent.steps_s, 1):
            where = "lightx2v.models.runners.qwen_image.qwen_image_runner:run:417"
            line = self.grammar.say(begun_s + ends[number - 1], where, f"==> step_index: {number} / {total}")
            yield Chunk(ends[number - 1], line)
            parts = (("step_pre", _PRE_S), ("🚀 infer_main", seconds - _PRE_S - _POST_S), ("step_post", _POST_S))
            for name, part_s in parts:
                yield self._span(begun_s, rank, ends[number], name, part_s)
        yield self._span(begun_s, rank, ends[-1] + spent.decode_s, "Run VAE Decoder", spent.decode_s)
        yield self._span(begun_s, rank, spent.total_s, "RUN pipeline", spent.total_s)

    def _span(self, begun_s: float, rank: int, at_s: float, name: str, seconds: float) -> Chunk:
        text = self.grammar.span(rank, begun_s + at_s, name, seconds) if self.stage_lines else ""
        return Chunk(at_s, text)
