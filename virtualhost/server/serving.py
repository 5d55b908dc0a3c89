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
from virtualhost.host.split import Split, refusal
from virtualhost.host.state import HostState
from virtualhost.server import startup_log
from virtualhost.server.exchange import Ask, Chunk, Outcome, cut, picture
from virtualhost.server.grammar import Grammar, out_of_memory
from virtualhost.server.in_effect import InEffect
from virtualhost.server.pace import Pace, repeat_number
from virtualhost.server.picture import Picture
from virtualhost.server.pipelines import Options
from virtualhost.server.request_log import RequestLog, Spent
from virtualhost.step.request import Captured, whole_request
from virtualhost.step.steptable import captured
from virtualhost.step.timeline import StepTimeline

BREAKS = ("crash", "hang", "oom", "killed", "rank_killed")
_ENDS = {"crash": "exit", "oom": "exit", "comm_init": "exit", "port_in_use": "exit", "hang": "hang"}
_WARM_STEP_S = 0.35  # of 512 × 512, mostly first uses of memory and kernels
_ENDS |= {"killed": "sigkill", "rank_killed": "rank_killed"}


class ServingSession:
    """A server with one form on one group of cards.

    ``pids`` are the rank processes' (default: made-up ones), ``options`` what else the command line asks for. Starting
    a session counts in ``state``; :meth:`shutdown` counts its clean end.
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
        options: Options | None = None,
    ) -> None:
        self.scenario, self.asked, self.cards = scenario, split, tuple(cards)
        self.options = options or Options()
        self.state = state or HostState(None)
        self.port = port
        self.numbers = self.state.begin_session(self.cards, split.name)
        self.plan = FaultPlan(scenario.faults, self.state, self.numbers, split.name, self.cards)
        self._form = InEffect(scenario, split, self.cards, self.state, self.plan, self.options)
        self.split, self.pipeline = self._form.split, self._form.pipeline
        self.adopt(pids or range(237, 237 + self.split.world))
        self.clock_s = self.state.snapshot().clock_s + 30.0
        self.requests = 0
        self._log_cut, self._serving = False, False
        self.profiled: Captured | None = None
        self._seed = f"{scenario.seed}|{self.cards}|{split.name}|{repeat_number(scenario, self.numbers)}"
        self._pace = Pace(scenario, self.plan, self.split, self._seed)

    def adopt(self, pids: Sequence[int], server: int = 0) -> None:
        """Take these processes as the ranks, and ``server`` as the API server's; the log names them."""
        self.pids = tuple(pids)
        style, inline = self.scenario.log, self.options.inline and self.split.world == 1
        self.grammar = Grammar(style, self.scenario.serving.epoch, self.split, self.pids, server=server, inline=inline)
        self._log = RequestLog(
            self.grammar,
            self.pipeline,
            self.options.stage_lines and style.stage_lines,
            stepwise=self.options.stepwise,
            per_step=style.per_step,
            bar=style.progress_bar,
            branches=self.scenario.dit.guidance_branches,
        )

    @property
    def timeline(self) -> StepTimeline:
        """One steady denoise step of the form in effect, with guidance."""
        return self._form.timeline()

    def memory_mb(self) -> int:
        """Device memory of one rank while it serves."""
        return self._form.memory_mb

    # -- start ----------------------------------------------------------------------------------------------------

    def startup(self) -> Outcome:
        """Start the server: groups, loading, warm-up, ready; or the fault or refusal that ends it."""
        grammar, clock, ready = self.grammar, self.clock_s, self.scenario.serving.startup_s
        chunks = [Chunk(0.0, startup_log.first_line(grammar, clock, self.options.model))]
        early = self.plan.at_launch("start", *BREAKS, "port_in_use")
        if early is not None:
            return self._broken(early, chunks, 1.0)
        reason = refusal(self.scenario.dit, self.asked)
        if reason is not None:
            return self._ended(chunks, 1.0, "exit", grammar.crash(0, reason))
        chunks.append(Chunk(0.2, startup_log.group_lines(grammar, clock)))
        chunks.append(
            Chunk(ready / 4, startup_log.built_lines(grammar, clock + ready / 4, self.options, self.pipeline))
        )
        fault = self.plan.at_launch("load", *BREAKS, "comm_init")
        if fault is not None:
            return self._broken(fault, chunks, ready / 2)
        if outcome := self._does_not_fit(chunks):
            return outcome
        late, form, layers = clock + ready * 0.8, self._form, self.scenario.dit.layers
        loaded = startup_log.loaded_lines(grammar, late, self.options, form, layers, stages=self._log.stage_lines)
        chunks += [Chunk(ready * 0.8, loaded), *self._warm_up(ready)]
        serving = startup_log.serving_lines(grammar, clock + ready, self.options, self.port)
        self._serving = True
        return self._advance([*chunks, Chunk(ready, serving)], ready)

    def _warm_up(self, ready_s: float) -> list[Chunk]:
        """The engine's own request before it serves: two steps of 512 × 512 without guidance, which end with the start
        (``diffusion/diffusion_engine.py:1407-1428``)."""
        if not self.pipeline.warm_frames:
            return []
        timing = self.scenario.timing
        spent = Spent((timing.encode_s,), (_WARM_STEP_S,) * 2, timing.decode_s / 10, timing.overhead_s)
        begins_s = ready_s - spent.total_s
        ask = Ask(2, guidance=0.0, width=512, height=512, frames=self.pipeline.warm_frames)
        lines = self._log.chunks(self.clock_s + begins_s, [spent] * self.split.world)
        said = [self._log.guidance(ask, self.clock_s + begins_s, first=False), *lines]
        return [Chunk(begins_s + at_s, text) for at_s, text in said]

    def _does_not_fit(self, chunks: list[Chunk]) -> Outcome | None:
        """The form's own memory: too much for a card is the device's error, too much for the host a killed rank."""
        need, late = self._form.memory, self.scenario.serving.startup_s / 2
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
        number = self.requests
        if jump := self.plan.in_request(number, "clock_jump"):
            self.clock_s += jump.seconds
        chunks = [Chunk(0.0, self.grammar.asked(ask, self.clock_s))]
        if self.plan.in_request(number, "error_response"):
            return self._refused(ask, chunks)
        rng = random.Random(f"{self._seed}|{number}")
        guided = self.pipeline.guided(ask)
        encode_s = self.scenario.timing.encode_s * rng.uniform(0.99, 1.035)
        plain = self._form.timeline(guided=guided)
        plain_s = plain.step_ns / 1e9 * LiveHost(self.scenario, self.state).slowdown(self.cards)
        steps_s = self._pace.step_times(plain_s, ask.steps, number, self.clock_s + encode_s, rng)
        texts = 2 if guided else 1
        jitter = self.scenario.timing.decode_jitter_pct / 200
        decode_s = self.scenario.timing.decode_s * rng.uniform(1 - jitter, 1 + jitter)
        spent = Spent((encode_s / texts,) * texts, tuple(steps_s), decode_s, self.scenario.timing.overhead_s)
        if profiled:
            spent = self._capture(plain, spent, min(profile_step, len(steps_s) - 1))
        chunks.append(self._log.guidance(ask, self.clock_s, first=number == 1))
        ranks, lines = self._lines(spent, rng)
        if fault := self.plan.in_request(number, *BREAKS):
            done, steps_s = min((fault.step or 1) - 1, len(steps_s)), list(spent.steps_s)
            reached_s = encode_s + sum(ranks[0].steps_s[:done])
            drawn = [
                chunk
                for chunk in lines
                if chunk.at_s <= reached_s + 1e-9 and (self.options.stepwise or ".diffuse" not in chunk.text)
            ]
            return self._broken(fault, chunks + drawn, encode_s + sum(steps_s[: done + 1]))
        return self._finish(ask, chunks + lines, spent.total_s, self._log.durations(ranks[0]))

    def _finish(self, ask: Ask, chunks: list[Chunk], took: float, durations: dict[str, float]) -> Outcome:
        number, end_s = self.requests, self.clock_s + took
        lost = self.plan.in_request(number, "lost_response") is not None
        chunks = [Chunk(min(at_s, took), text) for at_s, text in chunks]
        chunks.append(Chunk(took, self.grammar.answered(ask, end_s, lost=lost)))
        if fault := self.plan.in_request(number, "truncated_log"):
            chunks = cut(chunks, fault.factor if fault.factor < 1 else 0.6)
        wrong, black = (self.plan.in_request(number, kind) is not None for kind in ("wrong_output", "black_output"))
        made = picture(ask, self.split, wrong=wrong, black=black)
        outcome = self._advance(chunks, took, response="lost" if lost else "ok", picture=made)
        self._log_cut = self._log_cut or fault is not None
        return replace(outcome, durations=durations)

    def _capture(self, step: StepTimeline, spent: Spent, kept: int) -> Spent:
        """Keep a request as the profiler sees it, and return its times as long as the profiler makes its steps."""
        plain = step.scaled(spent.steps_s[kept] * 1e9 / step.step_ns)
        seen = captured(plain, self.scenario.serving.capture_inflation)
        ratios = tuple(one / spent.steps_s[kept] for one in spent.steps_s)
        stretch = seen.step_ns / plain.step_ns
        self.profiled = Captured(seen, ratios, spent.encodes_s, spent.decode_s)
        return replace(spent, steps_s=tuple(one * stretch for one in spent.steps_s))

    def captured_timeline(self) -> StepTimeline:
        """The step of the latest profiled request; without one, a plain step as the profiler would see it."""
        if self.profiled is None:
            return captured(self.timeline, self.scenario.serving.capture_inflation)
        return self.profiled.step

    def captured_request(self) -> StepTimeline | None:
        """What the profiler holds of the latest profiled request: all of it, with ``--step-execution`` one step.

        ``diffusion/worker/diffusion_worker.py:697-741``; None when no request was profiled.
        """
        found = self.profiled
        if found is None or self.options.stepwise:
            return found and found.step
        return whole_request(found.step, found.ratios, found.encodes_s, found.decode_s)

    def _lines(self, spent: Spent, rng: random.Random) -> tuple[list[Spent], list[Chunk]]:
        """What each rank spent, and the bar and the stage lines of all; they agree within a fraction of a millisecond
        unless one is a straggler."""
        style = self.scenario.log
        factors = {rank: self.scenario.timing.stragglers.get(card, 1.0) for rank, card in enumerate(self.cards)}
        if fault := self.plan.in_request(self.requests, "straggler"):
            factors[fault.rank] = fault.factor
        spoiled = style.interleave_every and self.split.world > 1 and rng.randrange(style.interleave_every) == 0
        ranks = []
        for rank in range(self.split.world):
            late = rng.uniform(0.0, 6e-4) / len(spent.steps_s)
            ranks.append(replace(spent, steps_s=tuple(step * factors[rank] + late for step in spent.steps_s)))
        return ranks, self._log.chunks(self.clock_s, ranks, spoiled=1 if spoiled else None)

    def _refused(self, ask: Ask, chunks: list[Chunk]) -> Outcome:
        chunks.append(Chunk(0.1, self.grammar.failed(ask, self.clock_s)))
        return self._advance(chunks, 0.1, response="error")

    # -- stop and ends --------------------------------------------------------------------------------------------

    def shutdown(self, *, seconds: float | None = None, finished: bool = True) -> Outcome:
        """Stop cleanly, in ``seconds`` (default: the scenario's); counts as finished unless told otherwise."""
        took = self.scenario.serving.stop_s if seconds is None else seconds
        outcome = self._advance([Chunk(0.0, self.grammar.stopping(self.clock_s))], took)
        if finished:
            self.state.finish_session(self.cards, self.asked.name, self.clock_s)
        return outcome

    def rank_died(self, rank: int, signal_number: int) -> Outcome:
        """What the main process logs when it finds a rank's process gone."""
        died = self.grammar.rank_died if self._serving else self.grammar.never_ready
        code = signal_number if self._serving else -signal_number or 1
        return self._advance([Chunk(0.0, died(self.clock_s, rank, code))], 0.0, end="exit")

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
            "port_in_use": self.grammar.bind_failure,
        }.get(fault.kind, str)()
        return self._ended(chunks, after_s, _ENDS[fault.kind], text, rank=rank)

    def _ended(self, chunks: list[Chunk], after_s: float, end: str, text: str, *, rank: int = 0) -> Outcome:
        if end == "exit" and not text.startswith(self.grammar.bind_failure()):
            dead, late_s = self.grammar, self.clock_s + after_s
            text += dead.engine_dead(late_s) if self._serving else dead.never_ready(late_s, rank, 1)
        broken = "\n" if chunks and not chunks[-1].text.endswith("\n") and chunks[-1].text and text else ""
        return self._advance([*chunks, Chunk(after_s, broken + text)], after_s, end=end, rank=rank)

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
        if self._log_cut:  # after the cut nothing reaches the log any more
            chunks = [Chunk(chunk.at_s, "") for chunk in chunks]
        self.clock_s += virtual_s
        return Outcome(tuple(chunks), virtual_s, end, response, picture, rank)
