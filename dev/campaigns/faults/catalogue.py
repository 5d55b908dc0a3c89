"""The faults of the campaign: what is done, when, and what the next run must say once it is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from campaigns.faults import injectors as deeds
from campaigns.faults.stage import Deed, Moment, in_request, job_started

SAME = "same"
"""The next run's report equals the undisturbed one."""
MARKED = "marked"
"""Cells are missing or unusable and say why; ``rerun_cell`` brings the undisturbed report back."""
STANDS = "stands"
"""As marked, and measuring again cannot help: the report says what is impossible."""
OTHER_GROUP = "other group"
"""The next run's report equals the undisturbed one of the other quad."""

_SLOW = {"serving": {"time_scale": 0.004}}  # so that a request lasts long enough to be struck in
_W1 = "window-*-tp1-usp4-w1"
_W2 = "window-*-tp1-usp4-w2"


@dataclass(frozen=True)
class Fault:
    """One fault. ``scenario`` and ``host`` describe the host until the fault is over, ``config`` the whole stage.

    ``complete`` starts from the results of an undisturbed run. ``prepare`` comes before the first run, ``strike`` at a
    moment of it. ``lasts``: the host stays as it is in the next run, too. ``then`` is what the next run's report must
    be; ``cure`` the cell that is measured again where that is expected to help.
    """

    name: str
    what: str
    scenario: str = "healthy"
    host: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False
    prepare: tuple[Deed, ...] = ()
    strike: tuple[Moment, Deed] | None = None
    lasts: bool = False
    then: str = SAME
    cure: str = ""
    impossible: Callable[[], str] = lambda: ""


def of_scenario(name: str, what: str, **more: Any) -> Fault:
    """A fault that a scenario file describes."""
    return Fault(name, what, scenario=f"faults/{name}", **more)


def full_disk(name: str, what: str, moment: Moment) -> Fault:
    """The results' disk is full when something is about to be written."""
    return Fault(
        f"disk_full_{name}",
        f"results disk full when {what} is written",
        prepare=(deeds.small_disk,),
        strike=(moment, deeds.fill_results),
        impossible=deeds.mountable,
        config=CAPTURES if name in ("attribution", "bandwidth") else {},
    )


def damaged_file(name: str, pattern: str, how: str = "half", *also: Deed, **more: Any) -> Fault:
    """A result file of an earlier run is damaged."""
    words = {"half": "cut in the middle", "empty": "empty", "garbage": "garbage"}[how]
    return Fault(
        f"damaged_{name}",
        f"{pattern.rsplit('/', 1)[-1]} of an earlier run is {words}",
        complete=True,
        config=CAPTURES,
        prepare=(deeds.damaged(pattern, how), *also),
        **more,
    )


CAPTURES = {"capture": {"enabled": True}, "selection": {"bandwidth": {"enabled": True, "sizes_mb": [1, 64]}}}
_KILLED_ONCE = {"then": MARKED, "cure": "tp1-usp4/anchor"}

_SERVER = (
    of_scenario("crash_at_start", "server crashes at start", then=MARKED, cure="tp2-usp2/anchor"),
    of_scenario("crash_at_load", "worker crashes while loading", then=MARKED, cure="tp2-usp2/anchor"),
    of_scenario("crash_in_request", "worker crashes in the 4th request"),
    of_scenario("crash_at_step", "worker crashes at step 3 of the 5th request"),
    of_scenario("hang_at_start", "server hangs at start", then=MARKED, cure="tp2-usp2/anchor"),
    of_scenario("hang_at_load", "server hangs while loading", then=MARKED, cure="tp2-usp2/anchor"),
    of_scenario("hang_in_request", "4th request never ends"),
    of_scenario("hang_at_step", "5th request hangs at step 3"),
    of_scenario("hang_deaf", "request hangs, server ignores SIGINT and SIGTERM: residue", then=OTHER_GROUP),
    of_scenario("oom_at_load", "device memory runs out while loading", lasts=True, then=STANDS),
    of_scenario("oom_in_request", "device memory runs out in the 4th request", **_KILLED_ONCE),
    of_scenario("comm_init", "communicators cannot be set up", lasts=True, then=STANDS),
    of_scenario("port_in_use", "port taken between check and bind"),
    of_scenario("lost_response", "5th answer never arrives"),
    of_scenario("error_response", "5th answer is HTTP 500"),
    of_scenario("truncated_log", "server log ends in the 5th request"),
    of_scenario("slow_request", "one request takes half as long again", **_KILLED_ONCE),
    of_scenario("slow_stop", "servers ignore SIGINT and stop slowly"),
    of_scenario("clock_jump", "host's clock jumps back an hour"),
    of_scenario("killed_in_request", "server killed in the 4th request: residue", then=OTHER_GROUP),
    of_scenario("rank_killed", "rank killed in the 4th request: residue", then=OTHER_GROUP),
)

_CAPTURE = tuple(
    of_scenario(name, what, config=CAPTURES)
    for name, what in (
        ("capture_error", "profiler cannot be started"),
        ("capture_empty", "profiler writes no rows"),
        ("capture_truncated", "profiler's files are cut"),
        ("capture_missing_rank", "one rank writes no profile"),
    )
)

_HOST = (
    Fault(
        "alarm_between_windows",
        "card alarms between the windows, and stays so",
        host={"health": [{"cards": [1], "state": "Alarm", "when": {"start": {"session": 5}}}]},
        lasts=True,
        then=OTHER_GROUP,
    ),
    Fault(
        "alarm_inside_window",
        "card alarms in a request, then recovers",
        host={"health": [{"cards": [1], "state": "Alarm", "when": {"start": {"session": 4, "request": 4}}}]},
        then=MARKED,
        cure="tp2-usp2/anchor",
    ),
    Fault(
        "tenant_arrives",
        "tenant computes on a card during one session",
        host={
            "tenants": [
                {
                    "cards": [1],
                    "pid": 3104266,
                    "memory_mb": 9000,
                    "slowdown": 1.4,
                    "when": {"start": {"session": 4, "request": 4}, "end": {"session": 5}},
                }
            ]
        },
    ),
    Fault(
        "tenant_stays",
        "tenant comes during a session and stays",
        host={
            "tenants": [
                {"cards": [1], "pid": 3104266, "memory_mb": 9000, "when": {"start": {"session": 4, "request": 4}}}
            ]
        },
        config={"health": {"busy_wait_s": 1}},
        lasts=True,
        then=OTHER_GROUP,
    ),
    Fault(
        "link_breaks",
        "link of two cards falls back to SYS between the windows",
        host={"link_changes": [{"between": [0, 1], "link": "SYS", "when": {"start": {"session": 5}}}]},
        lasts=True,
        then=OTHER_GROUP,
    ),
    *(
        Fault(
            f"tool_{kind}",
            f"npu-smi {what} for ten calls",
            host={"tool_faults": [{"kind": kind, "when": {"from_call": 28, "until_call": 38}}]},
        )
        for kind, what in (
            ("hang", "hangs"),
            ("error", "fails"),
            ("garbage", "prints garbage"),
            ("truncated", "is cut off"),
            ("empty", "prints nothing"),
        )
    ),
    Fault(
        "tool_gone",
        "npu-smi fails from the beginning",
        host={"tool_faults": [{"kind": "error", "when": {"from_call": 1}}]},
    ),
)

_KILLS = (
    Fault("kill_snakemake", "kill -9 of Snakemake in a request", host=_SLOW,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.kill_snakemake)),
    Fault("kill_snakemake_smoke", "kill -9 of Snakemake in the smoke", host=_SLOW,
          strike=(in_request(1), deeds.kill_snakemake)),
    Fault("kill_snakemake_report", "kill -9 of Snakemake while the report is written",
          strike=(job_started("report"), deeds.kill_snakemake)),
    Fault("kill_group", "kill -9 of Snakemake and its command", host=_SLOW,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.kill_group)),
    Fault("terminate_snakemake", "SIGTERM to Snakemake in a request", host=_SLOW,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.terminate_snakemake)),
    Fault("interrupt", "Ctrl-C in a request", host=_SLOW,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.interrupt)),
    Fault("kill_window", "kill -9 of the measuring script", host=_SLOW,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.kill_command("scripts/rules/measure_window.py"))),
    Fault("kill_smoke", "kill -9 of the smoke's script", host=_SLOW,
          strike=(in_request(1), deeds.kill_command("scripts/rules/measure_smoke.py"))),
    Fault("kill_cells", "kill -9 of an analysing script",
          strike=(job_started("cells-*"), deeds.kill_command("scripts/rules/build_cells.py"))),
    Fault("kill_agent", "kill -9 of the supervision agent", host=_SLOW,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.kill_agent)),
    Fault("kill_server", "kill -9 of the server: residue", host=_SLOW, then=OTHER_GROUP,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.kill_server)),
    Fault("kill_rank", "kill -9 of a rank: residue", host=_SLOW, then=OTHER_GROUP,
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.kill_rank)),
    Fault("two_sweeps", "second sweep started in the folder", host=_SLOW,
          strike=(in_request(1), deeds.second_sweep)),
    Fault("two_clones", "sweep of another clone on the same host", host=_SLOW,
          strike=(in_request(1), deeds.second_clone)),
    Fault("ssh_drop", "SSH connections break in a request", host=_SLOW, prepare=(deeds.over_ssh,),
          strike=(in_request(7, "*-tp1-usp4-w2-*"), deeds.drop_connections), impossible=deeds.sshd_here),
    Fault("wall_clock", "own wall clock jumps back an hour", host=_SLOW, prepare=(deeds.shiftable_clock,),
          strike=(in_request(5, "*-tp1-usp4-w1-*"), deeds.shift_clock), impossible=deeds.compilable),
)  # fmt: skip

_DISKS = (
    full_disk("topology", "topology.json", job_started("topology")),
    full_disk("ledger", "contracts.json and the ledger", job_started("contract")),
    full_disk("smoke", "smoke.json", job_started("smoke-*")),
    full_disk("session", "session.json", job_started(_W1)),
    full_disk("second_window", "session.json of window 2", job_started(_W2)),
    full_disk("bandwidth", "the bandwidth sweep", job_started("bandwidth-*")),
    full_disk("attribution", "attribution.json", job_started("attribution-*-tp1-usp4")),
    full_disk("cells", "cells.csv", job_started("cells-*")),
    full_disk("verdict", "verdict.json", job_started("verdict-*")),
    full_disk("gates", "gates.json", job_started("gates-*")),
    full_disk("decision", "decision.json", job_started("decision")),
    full_disk("report", "the report", job_started("report")),
    Fault("disk_full_scratch", "host's disk full while a server logs", prepare=(deeds.small_host_disk,), host=_SLOW,
          strike=(in_request(3, "*-tp1-usp4-w1-*"), deeds.fill_scratch), impossible=deeds.mountable),
    Fault("read_only", "results folder is read-only", complete=True, config=CAPTURES,
          prepare=(deeds.damaged("*/cells.csv"), deeds.read_only_results), impossible=deeds.mountable),
    Fault("read_only_new", "empty results folder is read-only", prepare=(deeds.read_only_results,),
          impossible=deeds.mountable),
)  # fmt: skip

_DAMAGE = (
    damaged_file("topology", "topology.json"),
    damaged_file("health", "health.json"),
    damaged_file("contracts", "contracts.json"),
    damaged_file("ledger", "contracts.jsonl", "garbage"),
    damaged_file("ledger_cut", "contracts.jsonl"),
    damaged_file("contract", "c4-*/contract.json"),
    damaged_file("smoke", "c4-*/smoke.json"),
    damaged_file("session", "c4-*/tp1-usp4/w1/session.json"),
    damaged_file("session_empty", "c4-*/tp1-usp4/w2/session.json", "empty"),
    damaged_file("session_garbage", "c4-*/tp2-usp2/w2/session.json", "garbage"),
    damaged_file("requests", "c4-*/tp1-usp4/w1/requests.csv"),
    damaged_file("attribution", "c4-*/tp1-usp4/attribution.json"),
    damaged_file("capture", "c4-*/tp1-usp4/capture/capture.json"),
    damaged_file("cells", "c4-*/cells.csv"),
    damaged_file("verdict", "c4-*/verdict.json"),
    damaged_file("gates", "c4-*/gates.json"),
    damaged_file("bandwidth", "bandwidth/c4-*.json"),
    damaged_file("decision", "matrix_report/decision.json"),
    damaged_file("decisions", "decisions.jsonl", "garbage"),
    damaged_file(
        "history", "history.sqlite", "garbage", deeds.damaged("c4-*/tp2-usp2/w2/session.json")
    ),  # so that a session is recorded
    damaged_file("config", ".run/config-*.json"),
)

FAULTS: tuple[Fault, ...] = (*_SERVER, *_CAPTURE, *_HOST, *_KILLS, *_DISKS, *_DAMAGE)


def named(name: str) -> Fault:
    """The fault of a name. Raises ``KeyError``."""
    return {fault.name: fault for fault in FAULTS}[name]
