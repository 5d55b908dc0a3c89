"""``vllm serve … --omni``: rank processes and an HTTP server round a serving session.

Every rank is a real child process that does nothing but wait for its parent: it holds the pid that the vendor's tool
shows. The main thread handles signals and children; requests run in the HTTP server's threads, one at a time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import scenario_from_environment
from virtualhost.host.state import HostState, Job, RankProcess, StateError, process_start
from virtualhost.host.strict import ScenarioError
from virtualhost.server.arguments import Launch, LaunchError, launch_from_environment
from virtualhost.server.exchange import Ask, Outcome
from virtualhost.server.http_api import Api
from virtualhost.server.serving import ServingSession

_WAKE = signal.SIGUSR1  # a request's thread tells the main thread that the server ends
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, _WAKE)
_SLICE_S = 0.002  # shorter waits are not worth a system call each


class _GoneError(Exception):
    """The server ends while a request or the start is still under way."""


class Server:
    """One running ``vllm serve``."""

    def __init__(
        self, launch: Launch, scenario: Scenario, state: HostState, session: ServingSession | None = None
    ) -> None:
        self.launch, self.scenario, self.state = launch, scenario, state
        self.session = session or ServingSession(
            scenario, launch.split, launch.cards, state, port=launch.port, options=launch.options
        )
        self.served = launch.served
        self.profiling = launch.profile_dir is not None
        self._armed, self._ready = False, False
        self._ending, self._engine = threading.Event(), threading.Lock()
        self._exit_code, self._debt_s = 0, 0.0
        self._pids: list[int] = []
        self._lifeline = -1

    def run(self) -> int:
        """Start, serve until a signal or a fault ends it, stop. Returns the exit status."""
        try:
            api = self.bound()
        except OSError:
            return self._fail(self.session.grammar.bind_failure())
        self._fork_ranks(api.fileno())
        self._register()
        try:
            self._start()
            api.listen()
            threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self._serve()
        except _GoneError:
            pass
        except StateError as error:  # as when a real host's disk is full: it ends, and says so
            self._exit_code = self._fail(_uncaught("OSError", error))
        except OSError:  # two servers may bind a port before either listens
            self._exit_code = self._fail(self.session.grammar.bind_failure())
        finally:
            self._close()
        return self._exit_code

    def bound(self) -> Api:
        """The protocol, at its address. Raises OSError when that is taken."""
        return Api((self.launch.host, self.launch.port), self)

    def _start(self) -> None:
        outcome = self.session.startup()
        self._play(outcome)
        self._settle(outcome)
        self._ready = True

    def _serve(self) -> None:
        """Wait for signals; returns after a clean stop."""
        while True:
            self._handle(signal.sigwaitinfo(SIGNALS).si_signo)

    def _handle(self, number: int) -> None:
        """React to a signal; raises :class:`_GoneError` when it ends the server."""
        plan = self.session.plan
        if number == signal.SIGCHLD:
            self._mourn()
        elif number == _WAKE:
            if self._ending.is_set():
                raise _GoneError
        elif not plan.whole_session("ignore_sigint" if number == signal.SIGINT else "ignore_sigterm"):
            self._stop()

    def _stop(self) -> None:
        """A clean stop, in virtual seconds; more signals change nothing."""
        idle = not self._engine.locked()
        self._ending.set()
        slow = self.session.plan.whole_session("slow_stop")
        outcome = self.session.shutdown(
            seconds=slow.seconds if slow else None, finished=idle and self.session.requests > 0
        )
        self.log(outcome.text)
        time.sleep(outcome.virtual_s * self.scenario.serving.time_scale)
        raise _GoneError

    def _close(self) -> None:
        """Let the ranks go, wait for them, and take the job off the books: from here on the death is a clean one."""
        self._ready = False
        self._ending.set()
        os.close(self._lifeline)
        for pid in self._pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.state.unregister(os.getpid())

    def _fail(self, text: str) -> int:
        self.log(text)
        return 1

    def _fork_ranks(self, listening: int) -> None:
        """One child per rank, told by a pipe when this process is gone; one card's worker is this process itself."""
        read_end, self._lifeline = os.pipe()
        if self.launch.options.inline and self.session.split.world == 1:
            os.close(read_end)
            self.session.adopt([os.getpid()], os.getpid())
            return
        for _ in range(self.session.split.world):
            pid = os.fork()
            if pid == 0:
                _be_a_rank(read_end, (self._lifeline, listening))
            self._pids.append(pid)
        os.close(read_end)
        self.session.adopt(self._pids, os.getpid())

    def _register(self) -> None:
        memory_mb = self.session.memory_mb()
        ranks = tuple(
            RankProcess(pid, process_start(pid) or 0, card, memory_mb)
            for pid, card in zip(self.session.pids, self.launch.cards, strict=False)
        )
        pid = os.getpid()
        job = Job(
            pid, process_start(pid) or 0, self.launch.cards, self.launch.split.name, self.session.numbers.host, ranks
        )
        self.state.register(job)

    def _mourn(self) -> None:
        """A child died: log it, leave residue if it was killed, and end."""
        for rank, pid in enumerate(self._pids):
            try:
                found, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if found == pid and not self._ending.is_set():
                self._pids.remove(pid)
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                if number == signal.SIGKILL and self._collectives_run():
                    self.state.add_residue(self.launch.cards)
                self.log(self.session.rank_died(rank, number).text)
                self._exit_code = 1
                raise _GoneError

    def _collectives_run(self) -> bool:
        """Whether a kill damages the driver's state: not of a single card, and not while weights are loading."""
        return self._ready and self.scenario.residue.after_sigkill and len(self.launch.cards) > 1

    def generate(self, ask: Ask) -> Outcome | None:
        """Serve one request and write its log as its virtual seconds pass."""
        with self._engine:
            if self._ending.is_set():
                return None
            outcome = self.session.request(ask, profiled=self._armed, profile_step=self.launch.profile_step)
            try:
                self._play(outcome)
                self._settle(outcome)
            except _GoneError:
                return None
            return outcome

    def access(self, endpoint: str, status: int) -> None:
        """Write a line of the access log."""
        self.log(self.session.grammar.access(endpoint, status))

    def peak_memory_mb(self) -> float:
        """Device memory of the first rank at its peak."""
        return float(self.session.memory_mb())

    def start_profile(self) -> bool:
        """Arm the profiler for the requests to come."""
        if self.session.plan.whole_session("capture_error"):
            return False
        self._armed, self.session.profiled = True, None
        self._told_profiler(start=True)
        return True

    def stop_profile(self) -> None:
        """Write the capture."""
        if self._armed and self.launch.profile_dir is not None:
            from virtualhost.server.profiler import write_session_capture  # noqa: PLC0415 - most servers never capture

            write_session_capture(self.session, self.launch.profile_dir)
        self._armed = False
        self._told_profiler(start=False)

    def _told_profiler(self, *, start: bool) -> None:
        session, npu = self.session, self.scenario.serving.capture_style not in ("cuda", "cpu")
        self.log(session.grammar.profiling(session.clock_s, str(self.launch.profile_dir), start=start, npu=npu))

    def log(self, text: str) -> None:
        """Write to the log: standard output, unbuffered. A full disk does not stop a server."""
        with contextlib.suppress(OSError):
            os.write(1, text.encode())

    def _play(self, outcome: Outcome) -> None:
        """Write an outcome's text while its virtual seconds pass."""
        passed = 0.0
        for chunk in outcome.chunks:
            self._wait(chunk.at_s - passed)
            passed = chunk.at_s
            self.log(chunk.text)
        self._wait(outcome.virtual_s - passed)

    def _wait(self, virtual_s: float) -> None:
        """Let virtual seconds pass. The main thread handles signals; other threads stop when the server ends."""
        self._debt_s += virtual_s * self.scenario.serving.time_scale
        if self._debt_s < _SLICE_S:
            return
        until = time.monotonic() + self._debt_s
        self._debt_s = 0.0
        if threading.current_thread() is not threading.main_thread():
            if self._ending.wait(until - time.monotonic()):
                raise _GoneError
            return
        while (left := until - time.monotonic()) > 0:
            caught = signal.sigtimedwait(SIGNALS, left)
            if caught is not None:
                self._handle(caught.si_signo)

    def _settle(self, outcome: Outcome) -> None:
        """Do what the outcome's end says."""
        if not outcome.end:
            return
        if outcome.end == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        if outcome.end == "rank_killed":
            os.kill(self.session.pids[outcome.rank], signal.SIGKILL)
        if outcome.end == "exit":
            self._exit_code = 1
            self._ending.set()
            os.kill(os.getpid(), _WAKE)
            raise _GoneError
        if threading.current_thread() is threading.main_thread():
            self._serve()  # hangs: only signals and dead children end it
        self._ending.wait()
        raise _GoneError


def _be_a_rank(read_end: int, inherited: Sequence[int]) -> None:
    """A rank process: wait until the parent is gone. Signals to the whole group are the parent's to handle."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in inherited:
        os.close(descriptor)
    os.read(read_end, 1)
    os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """``vllm --version`` and ``vllm serve``; returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        state = HostState.from_environment()
        scenario = scenario_from_environment(state.override_path)
    except (ScenarioError, StateError) as error:
        print(f"vllm: {error}", file=sys.stderr)
        return 2
    if list(arguments) in (["--version"], ["-v"]):
        print(scenario.serving.version)
        return 0
    if not arguments or arguments[0] != "serve":
        print("usage: vllm [-v] {serve} ...", file=sys.stderr)
        return 2
    try:
        return Server(launch_from_environment(arguments[1:], scenario), scenario, state).run()
    except (LaunchError, StateError) as error:
        print(_uncaught("ValueError" if isinstance(error, LaunchError) else "OSError", error), end="", file=sys.stderr)
        return 1


def _uncaught(kind: str, error: Exception) -> str:
    """The last line that Python prints of an error: vllm's main (vllm_omni/entrypoints/cli/main.py:71) catches none."""
    return f"{kind}: {error}\n"
