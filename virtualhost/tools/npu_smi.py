"""The vendor's management tool: prints cards, links, ids and processes in the layouts of three hardware generations."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from virtualhost.host.live import LiveHost
from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import scenario_from_environment
from virtualhost.host.state import HostState, StateError
from virtualhost.host.strict import ScenarioError
from virtualhost.tools.npu_info import info

_LEGEND = (
    ("X", "Self"),
    ("SYS", "Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI."),
    ("PHB", "Path traversing PCIe and the PCIe host bridge of a CPU."),
)
# the spelling of the older tools, and of the newer one
_OLD_SWITCHES = (("PIX", "Path traversing a single PCIe switch"), ("PXB", "Path traversing multipul PCIe switches"))
_NEW_SWITCHES = (("PIX", "Path traversing a single PCIe switch."), ("PXB", "Path traversing multiple PCIe switches."))
_LEGEND_OF = {
    "910b": (
        *_OLD_SWITCHES,
        ("HCCS", "Connection traversing HCCS."),
    ),
    "a3": (
        *_OLD_SWITCHES,
        ("HCCS", "Connection traversing HCCS."),
        ("SIO", "Path traversing the SIO bus"),
        ("HCCS_SW", "Connection traversing HCCS through a switch"),
        ("NA", "Unknown relationship."),
    ),
    "a5": (
        *_NEW_SWITCHES,
        ("SIO", "Path traversing the SIO bus."),
        ("UB", "Connection traversing UB."),
        ("NA", "Unknown relationship."),
    ),
}
USAGE = "Usage: npu-smi info [-l | -m | -t topo | -t proc-mem -i NPU [-c CHIP]] | set -t reset -i NPU | -v"


def topology(host: LiveHost) -> str:
    """``npu-smi info -t topo``."""
    layout, cards, links = host.scenario.layout, host.scenario.cards.ids, host.links()
    label = "Phy-ID" if layout == "a3" else "NPU"
    affinity = host.scenario.links.affinity and layout != "a3"
    head = "".join(f"{f'{label}{card}':<11}" for card in cards) + ("CPU Affinity" if affinity else "")
    lines = [("\t   " if layout == "910b" else " " * 11) + head]
    for row, card in enumerate(cards):
        cells = "".join(f"{links[card, other]:<11}" for other in cards)
        tail = _affinity(row, len(cards)) if affinity else ""
        if host.scenario.links.short_rows and card == cards[-1]:
            cells, tail = cells.rstrip(), ""
        lines += [f"{f'{label}{card}':<11}{cells}{tail}"]
    lines += ["Legend:"] if layout == "a5" else ["", "Legend:", ""]
    lines += [f"  {name:<4} = {text}" for name, text in (*_LEGEND, *_LEGEND_OF[layout])]
    return "\n".join(lines) + "\n"


def id_map(host: LiveHost) -> str:
    """``npu-smi info -m``: NPU and chip to logic and physical ids, with the board controllers' rows."""
    lines = [
        "\t" + "".join(f"{title:<31}" for title in ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID")) + "Chip Name"
    ]
    cards = host.scenario.cards.ids
    for logic, card in enumerate(cards):
        npu, chip = host.scenario.npu_of(card)
        ids = "".join(f"{value:<31}" for value in (npu, chip, logic, card))
        lines += [f"\t{ids}{host.scenario.cards.name_of(card)}"]
        if logic + 1 == len(cards) or host.scenario.npu_of(cards[logic + 1])[0] != npu:
            lines += ["\t" + "".join(f"{value!s:<31}" for value in (npu, chip + 1, "-", "-")) + "Mcu"]
    return "\n".join(lines) + "\n"


def process_memory(host: LiveHost, npu: int, chip: int | None) -> str:
    """``npu-smi info -t proc-mem -i NPU [-c CHIP]``."""
    blocks = []
    for card in host.scenario.cards.ids:
        if host.scenario.npu_of(card)[0] == npu and chip in (None, host.scenario.npu_of(card)[1]):
            lines = [
                f"\tProcess id:{one.pid:<7} Process name:{one.name[:18]:<18}Process memory(MB):{one.memory_mb}"
                for one in host.processes(card)
            ] or ["\tNo process in device."]
            blocks += ["\n".join([*lines, f"\tChip ID                        : {host.scenario.npu_of(card)[1]}"])]
    return "\n\n".join(blocks) + "\n"


def listing(host: LiveHost) -> str:
    """``npu-smi info -l``."""
    npus = sorted({host.scenario.npu_of(card)[0] for card in host.scenario.cards.ids})
    blocks = [f"\t{'Total Count':<31}: {len(npus)}"]
    for npu in npus:
        chips = sum(host.scenario.npu_of(card)[0] == npu for card in host.scenario.cards.ids)
        rows = (
            ("NPU ID", npu),
            ("Product Name", "VH-BOARD"),
            ("Serial Number", f"VH{npu:010d}"),
            ("Chip Count", chips),
        )
        blocks += ["\n".join(f"\t{key:<31}: {value}" for key, value in rows)]
    return "\n\n".join(blocks) + "\n"


def _affinity(row: int, size: int) -> str:
    return "0-63,128-191" if row < size / 2 else "64-127,192-255"


def _value(arguments: Sequence[str], flag: str) -> int | None:
    if flag not in arguments:
        return None
    position = arguments.index(flag) + 1
    text = arguments[position] if position < len(arguments) else ""
    if not text.isdigit():
        raise ValueError(f"the value of {flag} must be a number")
    return int(text)


def answer(arguments: Sequence[str], scenario: Scenario, state: HostState) -> tuple[str, str]:
    """Return (kind of command, its output). Raises ValueError for a command line the tool does not know."""
    rest = [argument for argument in arguments if argument != "info"]
    if arguments[:1] == ["-v"]:
        return "version", f"npu-smi version: {scenario.tool_version}\n"
    if arguments[:3] == ["set", "-t", "reset"]:
        npu = _value(arguments, "-i")
        for card in scenario.cards.ids:
            if scenario.npu_of(card)[0] == npu:
                state.reset_card(card)
        return (
            "reset",
            "\tStatus                         : OK\n\tMessage                        : Reset device successfully\n",
        )
    if arguments[:1] != ["info"]:
        raise ValueError("unknown command")
    host = LiveHost(scenario, state)
    npus = {scenario.npu_of(card)[0] for card in scenario.cards.ids}
    if not rest:
        return "info", info(host)
    if rest == ["-l"]:
        return "list", listing(host)
    if rest == ["-m"]:
        return "map", id_map(host)
    if rest == ["-t", "topo"]:
        return "topo", topology(host)
    if rest[:2] == ["-t", "proc-mem"] and _value(rest, "-i") in npus:
        return "proc-mem", process_memory(host, _value(rest, "-i") or 0, _value(rest, "-c"))
    raise ValueError("the parameter is not supported or the NPU does not exist")


def main(arguments: Sequence[str]) -> int:
    """Run one call of the tool; returns its exit status."""
    try:
        state = HostState.from_environment()
        scenario = scenario_from_environment(state.override_path)
        if scenario.counts_calls:
            state.count_tool_call()
        kind, text = answer(list(arguments), scenario, state)
    except StateError as error:
        print(f"npu-smi: {error}", file=sys.stderr)
        return 2
    except ScenarioError as error:
        print(f"npu-smi: scenario: {error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"Error: {error}.\n{USAGE}")
        return 1
    fault = LiveHost(scenario, state).tool_fault(kind) if scenario.tool_faults else None
    if fault is None:
        sys.stdout.write(text)
        return 0
    if fault.kind == "hang":
        time.sleep(fault.seconds)
        return 1
    if fault.kind == "error":
        print(
            fault.text
            or "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is -8005"
        )
        return 1
    sys.stdout.write(
        {"garbage": fault.text or "\x00\x7f%s%n <<<\n" * 7, "truncated": text[: len(text) * 9 // 20], "empty": ""}[
            fault.kind
        ]
    )
    return 0
