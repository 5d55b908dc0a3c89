"""The kinds of faults that draws are made from, and what each becomes once its random parts are chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from campaigns.faults import injectors
from campaigns.faults.draws import sabotage, strangers
from campaigns.faults.draws.judges import MARKED, OTHER, SAME
from campaigns.faults.draws.sabotage import BAD_CONFIGS, HISTORY_WAYS, SPOILT
from campaigns.faults.stage import Deed

STARTS: Mapping[str, int] = {"new": 1, "smoked": 1, "half": 2, "one left": 6, "measured": 3, "judged": 3, "finished": 4}
"""The states that draws start from, in the order of a run, and how often."""
_MEASURING = ("new", "smoked", "half", "one left")
_WITH_FILES = ("half", "one left", "measured", "judged", "finished")
_FORMS = ("tp1-usp4", "tp1-usp4", "tp2-usp2")  # the session that is left last is one of the first form
_REQUESTS = 11


@dataclass(frozen=True)
class Fault:
    """A kind of fault with its random parts chosen. ``host`` overlays the scenario until the fault is over.

    ``prepare`` comes before the run, ``strike`` at its moment (``in_request``: one while a server serves), ``between``
    after the run and before the fault is over. ``command`` is what runs in Snakemake's place.
    """

    words: str
    host: Mapping[str, Any] = field(default_factory=dict)
    prepare: tuple[Deed, ...] = ()
    strike: Deed | None = None
    between: tuple[Deed, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how it is chosen, from which states, how often, and which ends it may have.

    ``forgets``: the history may lack sessions afterwards. ``serving``: it strikes while a server serves. ``alone``: no
    second fault beside it.
    """

    name: str
    what: str
    choose: Callable[[random.Random], Fault]
    weight: int = 2
    starts: Sequence[str] = tuple(STARTS)
    ends: frozenset[str] = frozenset({SAME})
    impossible: Callable[[], str] = lambda: ""
    forgets: bool = False
    serving: bool = False
    alone: bool = False


_ANY_END = frozenset({SAME, OTHER, MARKED})
_SLOW = {"serving": {"time_scale": 0.002}}


def _kill(name: str, what: str, deed: Deed, **more: Any) -> Kind:
    return Kind(name, what, lambda rng: Fault(what, strike=deed), **more)


def _of_server(rng: random.Random) -> Fault:
    """A fault of one start of the server, or of one request of it."""
    kind, more = rng.choice(_SERVER_FAULTS)
    fault: dict[str, Any] = {"kind": kind, "form": rng.choice(_FORMS), "times": rng.randint(1, 2), **more}
    if "where" not in more:
        fault["request"] = rng.randint(1, _REQUESTS)
    return Fault(f"{kind} in the server of {_described(fault)}", host={"faults": [fault]})


_SERVER_FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("crash", place) for place in ({}, {"where": "start"}, {"where": "load"}, {"step": 3})),
    *(("hang", place) for place in ({}, {"where": "start"}, {"where": "load"}, {"step": 3})),
    ("oom", {}),
    ("oom", {"where": "load"}),
    ("killed", {}),
    ("rank_killed", {}),
    ("comm_init", {"where": "load"}),
    ("port_in_use", {"where": "start"}),
    ("lost_response", {}),
    ("error_response", {}),
    ("truncated_log", {}),
    ("slow", {"factor": 1.5}),
    ("clock_jump", {"seconds": -3600.0}),
    ("wrong_output", {}),
    ("black_output", {}),
)
_CAPTURE_FAULTS = ("capture_error", "capture_empty", "capture_truncated", "capture_missing_rank")


def _of_capture(rng: random.Random) -> Fault:
    fault = {"kind": rng.choice(_CAPTURE_FAULTS), "form": rng.choice(_FORMS)}
    return Fault(f"{fault['kind']} of {fault['form']}", host={"faults": [fault]})


def _of_tool(rng: random.Random) -> Fault:
    """The vendor's tool breaks for some calls of the host's life."""
    kind, first = rng.choice(("hang", "error", "garbage", "truncated", "empty")), rng.randint(1, 60)
    when = {"from_call": first, "until_call": first + rng.randint(1, 10)}
    return Fault(f"npu-smi: {kind}, calls {when['from_call']} to {when['until_call']}",
                 host={"tool_faults": [{"kind": kind, "when": when}]})  # fmt: skip


def _of_card(rng: random.Random) -> Fault:
    """A card falls sick, is used by somebody else or loses a link, from some request on."""
    start = {"session": rng.randint(1, 8), "request": rng.randint(0, _REQUESTS)}
    when, card = {"start": start}, rng.randint(0, 3)
    change: dict[str, Any] = rng.choice(
        [
            {"health": [{"cards": [card], "state": "Alarm", "when": when}]},
            {"tenants": [{"cards": [card], "pid": 3104266, "memory_mb": 9000, "slowdown": 1.4, "when": when}]},
            {"link_changes": [{"between": [card, (card + 1) % 4], "link": "SYS", "when": when}]},
        ]
    )
    return Fault(f"{next(iter(change))} of card {card} from {_described(start)} on", host=change)


def _disk(folder: str) -> Callable[[random.Random], Fault]:
    def choose(rng: random.Random) -> Fault:
        free = rng.choice((0, 1, rng.randint(2, 4096), rng.randint(4096, 65536), rng.randint(65536, 1 << 20)))
        return Fault(f"{folder} full but for {free} bytes", prepare=(sabotage.own_disk(folder),),
                     strike=sabotage.fill_to(folder, free))  # fmt: skip

    return choose


def _damage(strike: bool) -> Callable[[random.Random], Fault]:
    def choose(rng: random.Random) -> Fault:
        how, which, at = rng.choice(tuple(SPOILT)), rng.random(), rng.random()
        deed = sabotage.damage_any(which, how, at)
        return Fault(f"a result {how}", **({"strike": deed} if strike else {"prepare": (deed,)}))

    return choose


def _history(rng: random.Random) -> Fault:
    how = rng.choice(HISTORY_WAYS)
    return Fault(f"history: {how}", prepare=(sabotage.break_history(how, rng.random()),))


def _night(rng: random.Random) -> Fault:
    how = rng.choice(HISTORY_WAYS)
    words = ("scripts/nightly.py", "--configfile", "fault.yaml", "--cores", str(rng.choice((1, 4))))
    deed = sabotage.break_history(how, rng.random())
    if rng.random() < 0.5:
        return Fault(f"a night, history before it: {how}", prepare=(deed,), command=words)
    return Fault(f"a night, history in it: {how}", strike=deed, command=words)


def _config(rng: random.Random) -> Fault:
    name = rng.choice(tuple(BAD_CONFIGS))
    return Fault(f"then a configuration: {name}", between=(sabotage.refused_config(name),))


def _stranger(rng: random.Random) -> Fault:
    what, card = rng.choice(strangers.STRANGERS), rng.randint(0, 3)
    return Fault(f"{what} of another user for card {card}", strike=strangers.stranger(what, card))


def _login(rng: random.Random) -> Fault:
    what = rng.choice(strangers.LOGINS)
    return Fault(f"an SSH login that prints {what}", prepare=(strangers.printing_login(what),))


def _dropped(rng: random.Random) -> Fault:
    return Fault("SSH connections dropped", prepare=(injectors.over_ssh,), strike=injectors.drop_connections)


def _clock(rng: random.Random) -> Fault:
    return Fault("wall clock an hour back", prepare=(injectors.shiftable_clock,), strike=injectors.shift_clock)


def _described(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in values.items() if key != "kind")


KINDS: tuple[Kind, ...] = (
    _kill("kill Snakemake", "SIGKILL of Snakemake", injectors.kill_snakemake),
    _kill("kill the run", "SIGKILL of Snakemake and its commands", injectors.kill_group),
    _kill("terminate", "SIGTERM of Snakemake", injectors.terminate_snakemake),
    _kill("interrupt", "Ctrl-C", injectors.interrupt),
    _kill("kill a command", "SIGKILL of a command of the run", injectors.kill_command(".py"), weight=3),
    _kill("kill the agent", "SIGKILL of the supervision agent", injectors.kill_agent, starts=_MEASURING),
    _kill("kill the server", "SIGKILL of the server", injectors.kill_server,
          starts=_MEASURING, serving=True, ends=_ANY_END),
    _kill("kill a rank", "SIGKILL of a rank", injectors.kill_rank, starts=_MEASURING, serving=True, ends=_ANY_END),
    Kind("server", "the server breaks, at a start or in a request", _of_server, 6, _MEASURING, _ANY_END),
    Kind("capture", "the profiler fails", _of_capture, 1, ("new", "smoked", "half"), _ANY_END),
    Kind("tool", "npu-smi breaks for some calls", _of_tool, ends=_ANY_END),
    Kind("card", "a card falls sick, is taken or loses a link", _of_card, 2, _MEASURING, _ANY_END),
    Kind("full results", "the results' disk is full but for 0 B to 1 MB", _disk("results"), 4,
         impossible=injectors.mountable),
    Kind("full scratch", "the host's disk is full", _disk("host/scratch"), 2, _MEASURING, _ANY_END,
         injectors.mountable),
    Kind("full state", "the virtual host's own disk is full", _disk("host/state"), 1, _MEASURING, _ANY_END,
         injectors.mountable),
    Kind("damage before", "any result damaged in any way, before a run", _damage(strike=False), 6, _WITH_FILES),
    Kind("damage in a run", "any result damaged in any way, in a run", _damage(strike=True), 3, _WITH_FILES),
    Kind("history", "the history broken in any way", _history, 3, _WITH_FILES, forgets=True),
    Kind("night", "a night with a broken history", _night, 2, ("finished",), forgets=True, alone=True),
    Kind("configuration", "a configuration that cannot be read, between runs", _config, 3),
    Kind("stranger", "files of another user in the lease folder", _stranger, 3, _MEASURING, _ANY_END,
         strangers.needs_root),
    Kind("printing login", "an SSH login that prints", _login, 1, _MEASURING, impossible=injectors.sshd_here,
         alone=True),
    Kind("dropped connections", "SSH connections break", _dropped, 1, _MEASURING, _ANY_END, injectors.sshd_here,
         serving=True, alone=True),
    _kill("control characters", "control characters in the server's log", sabotage.print_control_characters,
          starts=_MEASURING, serving=True, ends=_ANY_END),
    _kill("dry run", "a dry run in the middle of a run", sabotage.dry_run),
    _kill("second run", "a second run in the folder", injectors.second_sweep, weight=1, starts=_MEASURING),
    _kill("another clone", "another clone on the same cards", strangers.another_clone, weight=1, starts=_MEASURING,
          alone=True),
    Kind("clock", "the wall clock jumps back an hour", _clock, 1, impossible=injectors.compilable),
)  # fmt: skip
