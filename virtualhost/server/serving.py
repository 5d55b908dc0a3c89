"""One serving session as text: what a server with a form on cards logs and answers, in virtual seconds.

The same generator feeds the real server process (``virtualhost/server/main.py``) and campaigns that need no process:

>>> session = ServingSession(scenario, Split(usp=4), (0, 1, 2, 3))
>>> log = session.startup().text + session.request(4).text + session.request(10).text + session.shutdown().text

Numbers depend on the scenario's seed, the cards, the form, how many sessions of the form came to a clean end before,
and the request's number: on nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from virtualhost.host.faults import Fault, FaultPlan
from virtualhost.host.live import LiveHost
from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split, memory, refusal
from virtualhost.host.state import HostState
from virtualhost.server.exchange import Ask, Chunk, Outcome, access_line, parse_split, picture
from virtualhost.server.grammar import Grammar, out_of_memory
from virtualhost.server.pace import Pace
from virtualhost.server.picture import Picture
from virtualhost.step.steptable import captured
from virtualhost.step.timeline import StepTimeline, simulate_step

_BREAKS = ("crash", "hang", "oom", "killed", "rank_killed")
_ENDS = {"crash": "exit", "oom": "exit", "comm_init": "exit", "port_in_use": "exit", "hang": "hang"}
_ENDS |= {"killed": "sigkill", "rank_killed": "rank_killed"}


class ServingSession:
    """A server with one form on one group of cards.

    ``pids`` are the rank processes' (default: made-up ones), ``stage_lines`` whether the pipeline profiler was asked
    for. Starting a session counts in ``state``; :meth:`shutdown` counts its clean end.
    """

    def __init__(
        self,
        scenario: Scenario,
        split: Split,
        cards: Sequence[int],
        state: HostState | None = None,
        *,
        port: int = 8123,
        pids: Sequence[int] = (),
        stage_lines: bool = True,
    ) -> None:
        self.scenario, self.asked, self.cards = scenario, split, tuple(cards)
        self.state = state or HostState(None)
        self.port = port
        self.numbers = self.state.begin_session(self.cards, split.name)
        self.plan = FaultPlan(scenario.faults, self.state, self.numbers, split.name, self.cards)
        self.split = self._effective_split()
        self._dead_offload = self.plan.whole_session("dead_offload")
        chunks = 1 if self.plan.whole_session("dead_masking") else self.split.mask_chunks
        offload = "" if self._dead_offload else self.split.offload
        self._at_work = replace(self.split, mask_chunks=chunks, offload=offload)  # whose step is computed
        self.adopt(pids or range(237, 237 + self.split.world))
        self.clock_s = self.state.snapshot().clock_s + 30.0
        self.requests = 0
        self._stage_lines = stage_lines and scenario.log.stage_lines
        self._log_cut = False
        self._captured: StepTimeline | None = None
        repeat = self.numbers.form_finished if scenario.timing.windows_differ else 0
        self._seed = f"{scenario.seed}|{self.cards}|{split.name}|{repeat}"
        self._pace = Pace(scenario, self.plan, self.split, self._seed)

    def adopt(self, pids: Sequence[int]) -> None:
        """Take these processes as the ranks; the log names them."""
        self.pids = tuple(pids)
        self.grammar = Grammar(self.scenario.log, self.scenario.serving.epoch, self.split, self.pids)

    # -- the form that is really in effect ------------------------------------------------------------------------

    def _effective_split(self) -> Split:
        fault = self.plan.whole_session("not_applied")
        return parse_split(fault.applied) if fault else self.asked

    @property
    def timeline(self) -> StepTimeline:
        """One steady denoise step of the form in effect, with the links as they were when it was first asked for."""
        if not hasattr(self, "_timeline"):
            model = self.scenario.host_model(LiveHost(self.scenario, self.state).links())
            if fault := self.plan.whole_session("alltoallv"):
                model = replace(model, behaviour=replace(model.behaviour, uneven_alltoall=max(fault.factor, 1.01)))
            self._timeline = simulate_step(model, self._at_work, self.cards[: self.split.world])
        return self._timeline

    def memory_mb(self) -> int:
        """Device memory of one rank while it serves."""
        return round(memory(self.scenario.dit, self._at_work).card_gb * 1e9 / 2**20)

    # -- start ----------------------------------------------------------------------------------------------------

    def startup(self) -> Outcome:
        """Start the server: group lines, loading, ready; or the fault or refusal that ends it."""
        grammar, clock = self.grammar, self.clock_s
        where = f"http://127.0.0.1:{self.port}"
        first = grammar.line(clock, "serve.py:405", f"Starting vLLM-Omni API server on {where}", colour="32")
        early = self.plan.at_launch("start", *_BREAKS, "port_in_use")
        if early is not None:
            return self._broken(early, [Chunk(0.0, first)], 1.0)
        reason = refusal(self.scenario.dit, self.asked)
        if reason is not None:
            return self._ended([Chunk(0.0, first)], 1.0, "exit", grammar.crash(0, reason))
        dead, layers = self._dead_offload, self.scenario.dit.layers
        offload = grammar.offload(clock, layers) if dead is None or dead.logged else grammar.warning(clock, dead.text)
        chunks = [Chunk(0.0, first), Chunk(0.2, grammar.groups(clock) + offload)]
        fault = self.plan.at_launch("load", *_BREAKS, "comm_init")
        if fault is not None:
            return self._broken(fault, chunks, self.scenario.serving.startup_s / 2)
        if outcome := self._does_not_fit(chunks):
            return outcome
        ready = self.scenario.serving.startup_s
        chunks.append(Chunk(ready, grammar.line(clock + ready, "api_server.py:97", "Application startup complete.")))
        return self._advance(chunks, ready)

    def _does_not_fit(self, chunks: list[Chunk]) -> Outcome | None:
        """The form's own memory: too much for a card is the device's error, too much for the host a killed rank."""
        need, late = memory(self.scenario.dit, self._at_work), self.scenario.serving.startup_s / 2
        if need.host_gb * self.split.world > self.scenario.serving.host_memory_gb:
            return self._ended(chunks, late, "rank_killed", "")
        host, need_mb = LiveHost(self.scenario, self.state), self.memory_mb()
        for rank, card in enumerate(self.cards[: self.split.world]):
            total, used = self.scenario.cards.memory_mb, host.memory_used_mb(card, besides=self.pids)
            if used + need_mb > total:
                text = out_of_memory(card, total, used, need_mb)
                return self._ended(chunks, late, "exit", self.grammar.crash(rank, text))
        return None

    # -- requests -------------------------------------------------------------------------------------------------

    def request(self, steps: int | Ask, *, profiled: bool = False, profile_step: int = 0) -> Outcome:
        """Serve one request; with the profiler on, its steps are stretched as the captured one (from 0) is."""
        ask = steps if isinstance(steps, Ask) else Ask(steps)
        self.requests += 1
        self.state.count_request()
        number, grammar = self.requests, self.grammar
        if jump := self.plan.in_request(number, "clock_jump"):
            self.clock_s += jump.seconds
        name = "Video" if ask.kind == "video" else "Image"
        params = f"{name} sampling params: steps={ask.steps} guidance={ask.guidance} guidance_2=None seed={ask.seed}"
        chunks = [Chunk(0.0, grammar.line(self.clock_s, f"serving_{ask.kind}.py:133", params))]
        if self.plan.in_request(number, "error_response"):
            return self._refused(ask, chunks)
        rng = random.Random(f"{self._seed}|{number}")
        encode_s = self.scenario.timing.encode_s * rng.uniform(0.99, 1.035)
        plain_s = self.timeline.step_ns / 1e9 * LiveHost(self.scenario, self.state).slowdown(self.cards)
        steps_s = self._pace.step_times(plain_s, ask.steps, number, self.clock_s + encode_s, rng)
        if profiled:
            steps_s = self._capture(steps_s, min(profile_step, len(steps_s) - 1))
        chunks += self._progress(steps_s, encode_s)
        fault = self.plan.in_request(number, *_BREAKS)
        if fault is not None:
            done = min((fault.step or 1) - 1, len(steps_s))
            return self._broken(fault, chunks[: 2 + done], encode_s + sum(steps_s[: done + 1]))
        return self._finish(ask, chunks, encode_s, steps_s, rng)

    def _finish(
        self, ask: Ask, chunks: list[Chunk], encode_s: float, steps_s: list[float], rng: random.Random
    ) -> Outcome:
        timing, number = self.scenario.timing, self.requests
        jitter = timing.decode_jitter_pct / 200
        decode_s = timing.decode_s * rng.uniform(1 - jitter, 1 + jitter)
        took = encode_s + sum(steps_s) + decode_s + timing.overhead_s
        end_s = self.clock_s + took
        if self._stage_lines:
            chunks.append(Chunk(took, self._stage_text(end_s, encode_s, steps_s, decode_s, rng)))
        lost = self.plan.in_request(number, "lost_response") is not None
        chunks.append(Chunk(took, self._access(ask, end_s, lost=lost)))
        if cut := self.plan.in_request(number, "truncated_log"):
            chunks = self._cut_log(chunks, cut)
        wrong, black = (self.plan.in_request(number, kind) is not None for kind in ("wrong_output", "black_output"))
        made = picture(ask, self.split, wrong=wrong, black=black)
        return self._advance(chunks, took, response="lost" if lost else "ok", picture=made)

    def _capture(self, steps_s: list[float], kept: int) -> list[float]:
        """Keep a step as the profiler sees it, and return the steps as long as the profiler makes them."""
        plain = self.timeline.scaled(steps_s[kept] * 1e9 / self.timeline.step_ns)
        self._captured = captured(plain, self.scenario.serving.capture_inflation)
        stretch = self._captured.step_ns / plain.step_ns
        return [step * stretch for step in steps_s]

    def captured_timeline(self) -> StepTimeline:
        """The step of the latest profiled request; without one, a plain step as the profiler would see it."""
        if self._captured is None:
            self._captured = captured(self.timeline, self.scenario.serving.capture_inflation)
        return self._captured

    def _progress(self, steps_s: list[float], encode_s: float) -> list[Chunk]:
        """The progress bar's states, one chunk per step."""
        total = len(steps_s)
        if not self.scenario.log.progress_bar:
            return [Chunk(encode_s, "")] * (total + 1)
        bar, elapsed = self.grammar.bar, 0.0
        chunks = [Chunk(encode_s, bar(0, total, 0.0))]
        for index, step in enumerate(steps_s, 1):
            elapsed += step
            text = bar(index, total, elapsed) + ("\n" if index == total else "")
            chunks.append(Chunk(encode_s + elapsed, text))
        return chunks

    def _stage_text(
        self, end_s: float, encode_s: float, steps_s: list[float], decode_s: float, rng: random.Random
    ) -> str:
        """Stage lines of all ranks; ranks agree within a fraction of a millisecond unless one is a straggler."""
        style, lines = self.scenario.log, []
        stragglers = {rank: self.scenario.timing.stragglers.get(card, 1.0) for rank, card in enumerate(self.cards)}
        if fault := self.plan.in_request(self.requests, "straggler"):
            stragglers[fault.rank] = fault.factor
        spoiled = style.interleave_every and self.split.world > 1 and rng.randrange(style.interleave_every) == 0
        for rank in range(self.split.world):
            factor, late = stragglers[rank], rng.uniform(0.0, 6e-4)
            shown = [step * factor + late / len(steps_s) for step in steps_s]
            diffuse = shown if style.per_step else [sum(shown)]
            forward = encode_s + sum(shown) + decode_s + self.scenario.timing.overhead_s
            block = self.grammar.stages(rank, end_s, encode_s, diffuse, decode_s, forward)
            if spoiled and rank == 1:
                block[1] = self.grammar.interleave(block[1], 0, end_s)
            lines += block
        return "".join(lines)

    def _access(self, ask: Ask, end_s: float, *, lost: bool) -> str:
        if lost:
            text = "client disconnected before response was sent"
            return self.grammar.line(end_s, "api_server.py:512", text, level="WARNING")
        return access_line(ask.endpoint, 200) if ask.endpoint else ""

    def _refused(self, ask: Ask, chunks: list[Chunk]) -> Outcome:
        text = self.grammar.line(self.clock_s, "api_server.py:498", "Video generation failed", level="ERROR")
        chunks.append(Chunk(0.1, text + access_line(ask.endpoint, 500)))
        return self._advance(chunks, 0.1, response="error")

    # -- stop and ends --------------------------------------------------------------------------------------------

    def shutdown(self, *, seconds: float | None = None, finished: bool = True) -> Outcome:
        """Stop cleanly, in ``seconds`` (default: the scenario's); counts as finished unless told otherwise."""
        took = self.scenario.serving.stop_s if seconds is None else seconds
        outcome = self._advance([Chunk(0.0, self.grammar.line(self.clock_s, "launcher.py:110", "Shutting down"))], took)
        if finished:
            self.state.finish_session(self.cards, self.asked.name, self.clock_s)
        return outcome

    def rank_died(self, rank: int, signal_number: int) -> Outcome:
        """What the main process logs when it finds a rank's process gone."""
        pid = self.pids[rank]
        worker = self.grammar.workers[rank % self.split.world]
        text = f"Worker proc {worker} (pid {pid}) died unexpectedly with signal {signal_number}"
        return self._ended([], 0.0, "exit", self.grammar.line(self.clock_s, "launcher.py:81", text, level="ERROR"))

    def _broken(self, fault: Fault, chunks: list[Chunk], after_s: float) -> Outcome:
        """End a start or a request with a fault."""
        rank, card = fault.rank % self.split.world, self.cards[fault.rank % self.split.world]
        total = self.scenario.cards.memory_mb
        text = {
            "crash": lambda: self.grammar.crash(
                rank, fault.text or "RuntimeError: ACL stream synchronize failed, error code 507015"
            ),
            "oom": lambda: self.grammar.crash(
                rank, fault.text or out_of_memory(card, total, total * 0.97, total * 0.05)
            ),
            "comm_init": lambda: self.grammar.communicator_failure(self.clock_s + after_s),
            "port_in_use": lambda: self.grammar.bind_failure(
                self.clock_s + after_s, 98, f"('127.0.0.1', {self.port})", "address already in use"
            ),
        }.get(fault.kind, str)()
        return self._ended(chunks, after_s, _ENDS[fault.kind], text, rank=rank)

    def _ended(self, chunks: list[Chunk], after_s: float, end: str, text: str, *, rank: int = 0) -> Outcome:
        broken = "\n" if chunks and not chunks[-1].text.endswith("\n") and text else ""
        last = self.grammar.engine_dead(self.clock_s + after_s, "a worker failed") if end == "exit" else ""
        return self._advance([*chunks, Chunk(after_s, broken + text + last)], after_s, end=end, rank=rank)

    def _cut_log(self, chunks: list[Chunk], fault: Fault) -> list[Chunk]:
        whole = "".join(chunk.text for chunk in chunks)
        self._log_cut = True
        kept = whole[: int(len(whole) * (fault.factor if fault.factor < 1 else 0.6))]
        return [Chunk(chunks[0].at_s, kept), Chunk(chunks[-1].at_s, "")]

    def _advance(
        self,
        chunks: list[Chunk],
        virtual_s: float,
        *,
        end: str = "",
        response: str = "none",
        picture: Picture | None = None,
        rank: int = 0,
    ) -> Outcome:
        if self._log_cut and len(chunks) != 2:  # after the cut nothing reaches the log any more
            chunks = [Chunk(chunk.at_s, "") for chunk in chunks]
        self.clock_s += virtual_s
        return Outcome(tuple(chunks), virtual_s, end, response, picture, rank)
