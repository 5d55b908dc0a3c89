"""The moments at which a host changes or breaks: faults of a session, faults of the vendor's tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from virtualhost.host.state import HostState, SessionNumbers

WHERE = ("start", "load", "request")

# kind -> what it does; docs/virtual-host.md says the same with examples
FAULT_KINDS = {
    "crash": "a worker raises and the server ends with exit code 1",
    "hang": "nothing happens any more; only a signal ends the server",
    "oom": "device memory runs out and the server ends with exit code 1",
    "killed": "the main process dies by SIGKILL",
    "rank_killed": "one rank process dies by SIGKILL, as by the host's memory killer; the server exits with 1",
    "comm_init": "the communicators cannot be set up",
    "port_in_use": "the port is taken between the check and the bind",
    "lost_response": "the server finishes the request, the client never gets the answer",
    "wrong_output": "the request's output is another picture, as of a form that loses a part of the computation",
    "black_output": "the request's output is black, as where values that are no numbers were cast to pixels",
    "error_response": "the request is answered with HTTP 500; the server lives on",
    "truncated_log": "the log ends in the middle of this request; the server lives on",
    "slow": "everything in this request takes `factor` times longer",
    "straggler": "rank `rank` takes `factor` times longer in this request",
    "not_applied": "the log and the timing are those of `applied` instead of the form asked for",
    "dead_split": "groups stand and names are right, no transformer is hooked: every rank computes the whole sequence",
    "dead_masking": "chunks are asked for and accepted, and every step is that of the form without masking",
    "dead_offload": "offload is asked for and accepted, and no weight leaves the card; `logged`: the log says it did",
    "alltoallv": "the unequal all-to-all is in use",
    "clock_jump": "the clock of the log jumps by `seconds`",
    "ignore_sigint": "the server ignores SIGINT",
    "ignore_sigterm": "the server ignores SIGTERM",
    "slow_stop": "the stop takes `seconds` virtual seconds",
    "capture_error": "/start_profile answers HTTP 500",
    "capture_empty": "the profiler writes its folders but no rows",
    "capture_truncated": "the profiler's files are cut in the middle of a row",
    "capture_missing_rank": "one rank writes no profile",
}
_LAUNCH_ONLY = {"comm_init": "load", "port_in_use": "start"}
TOOL_FAULT_KINDS = ("hang", "error", "garbage", "truncated", "empty")
TOOL_COMMANDS = ("any", "info", "topo", "map", "proc-mem", "list", "version")


@dataclass(frozen=True)
class Moment:
    """A point in the life of a host: the n-th session start and the n-th request in that session (0: before any)."""

    session: int = 0
    request: int = 0

    def reached(self, sessions: int, requests: int) -> bool:
        """Whether the host has come this far."""
        return (sessions, requests) >= (self.session, self.request)


@dataclass(frozen=True)
class Span:
    """From one moment (default: always) to another (default: for ever), and from/to a call of the tool, 1-based."""

    start: Moment = Moment()
    end: Moment | None = None
    from_call: int = 0
    until_call: int | None = None

    def active(self, sessions: int, requests: int, calls: int) -> bool:
        """Whether this span covers the present: so many sessions, requests of the latest session, tool calls."""
        if not self.start.reached(sessions, requests) or (self.end and self.end.reached(sessions, requests)):
            return False
        return calls >= self.from_call and (self.until_call is None or calls < self.until_call)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in a serving session; every selector that is given must match.

    ``session`` counts starts on the host, ``form_session`` starts of the same form on the same cards, ``request`` the
    requests of the session, all from 1. ``times`` bounds how often the fault happens while the state directory lives.

    ``Fault("dead_masking", form="tp1-usp4+mask4")`` and ``Fault("dead_offload", form="tp1-usp4+layerwise-offload")``
    concern a session as a whole: name, ranks and noise are those of the form asked for; steps, memory and profiler
    files those of the form without the feature. With ``logged=False`` the log of a dead offload holds none of the
    offloader's lines; a ``text`` is then logged by every worker as a warning.
    """

    kind: str
    where: str = "request"
    form: str | None = None
    size: int | None = None
    cards: tuple[int, ...] | None = None
    session: int | None = None
    form_session: int | None = None
    request: int | None = None
    step: int | None = None
    times: int | None = None
    factor: float = 1.0
    seconds: float = 0.0
    rank: int = 0
    applied: str = ""
    logged: bool = True
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"fault {self.kind!r} is unknown; known: {', '.join(FAULT_KINDS)}")
        if self.where not in WHERE:
            raise ValueError(f"where: {self.where!r} is none of {', '.join(WHERE)}")
        if self.kind == "not_applied" and not self.applied:
            raise ValueError("not_applied needs `applied`, the form that is really in effect")

    @property
    def place(self) -> str:
        """Where it happens; some kinds have only one place."""
        return _LAUNCH_ONLY.get(self.kind, self.where)


@dataclass(frozen=True)
class ToolFault:
    """The vendor's tool misbehaves while ``when`` is active; ``seconds`` (real) is how long a hang lasts."""

    kind: str
    command: str = "any"
    when: Span = Span()
    seconds: float = 3600.0
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in TOOL_FAULT_KINDS:
            raise ValueError(f"tool fault {self.kind!r} is none of {', '.join(TOOL_FAULT_KINDS)}")
        if self.command not in TOOL_COMMANDS:
            raise ValueError(f"command {self.command!r} is none of {', '.join(TOOL_COMMANDS)}")


class FaultPlan:
    """The faults of one session; asks the state whether a bounded fault may happen once more."""

    def __init__(
        self, faults: Iterable[Fault], state: HostState, numbers: SessionNumbers, form: str, cards: tuple[int, ...]
    ) -> None:
        self._state = state
        self._faults = [
            (f"{index}:{fault.kind}", fault)
            for index, fault in enumerate(faults)
            if fault.form in (None, form)
            and fault.size in (None, len(cards))
            and fault.cards in (None, cards)
            and fault.session in (None, numbers.host)
            and fault.form_session in (None, numbers.form_starts)
        ]

    def at_launch(self, place: str, *kinds: str) -> Fault | None:
        """The fault of one of these kinds that strikes at ``start`` or ``load``."""
        return self._first(lambda fault: fault.place == place and fault.kind in kinds)

    def in_request(self, number: int, *kinds: str) -> Fault | None:
        """The fault of one of these kinds that strikes in the ``number``-th request (from 1)."""
        return self._first(
            lambda fault: fault.place == "request" and fault.kind in kinds and fault.request in (None, number)
        )

    def whole_session(self, kind: str) -> Fault | None:
        """The fault of a kind that concerns the session as a whole."""
        return self._first(lambda fault: fault.kind == kind)

    def _first(self, matches: Callable[[Fault], bool]) -> Fault | None:
        for key, fault in self._faults:
            if matches(fault) and self._state.may_fire(key, fault.times):
                return fault
        return None
