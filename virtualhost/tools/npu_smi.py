"""The vendor's management tool: prints cards, links, ids and processes in the layouts of three hardware generations."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from virtualhost.host.live import LiveHost, LiveProcess
from virtualhost.host.scenario import Scenario, scenario_from_environment
from virtualhost.host.state import HostState, StateError
from virtualhost.host.strict import ScenarioError

_BUS = ("C1", "01", "C2", "02", "81", "41", "82", "42", "9D", "9F", "99", "9B", "95", "97", "91", "93")

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


def info(host: LiveHost) -> str:
    """``npu-smi info``: one block per card, then the processes."""
    return {"a5": _info_a5, "910b": _info_910b, "a3": _info_a3}[host.scenario.layout](host)


def _info_a5(host: LiveHost) -> str:
    version = host.scenario.tool_version
    rule = "+========+==================+===============+" + "=" * 70 + "+"
    gap = "+===========================+===============+" + "=" * 70 + "+"
    lines = ["+" + "-" * 114 + "+", f"| {f'npu-smi {version}':<49}{f'Version: {version}':<64}|"]
    lines += ["+--------+------------------+---------------+" + "-" * 70 + "+"]
    heads = (("Power(W)", "Temp(C)", "Hugepages-Usage(page)"), ("NPU Util(%)", "Memory-Usage(MB)", "HBM-Usage(MB)"))
    first, second = ("{:<22}{:<25}{:<22}|".format(*titles) for titles in heads)
    lines += [f"| NPU ID | Name             | Health        | {first}"]
    lines += [f"|        |                  | Bus-Id        | {second}", rule]
    for card in host.scenario.cards.ids:
        util, total = _utilisation(host, card), host.scenario.cards.memory_mb
        name, health = host.scenario.cards.name, host.health(card)
        lines += [
            f"| {card:<7}| {name:<17}| {health:<14}| {_power(card):<22}{_temperature(card):<25}{'0     / 0':<22}|"
        ]
        memory = f"{host.memory_used_mb(card):<6}/ {total}"
        lines += [f"|        |                  | NA            | {util:<22}{'0     / 0':<25}{memory:<22}|", gap]
    lines += ["+---------------------------+---------------+" + "-" * 70 + "+"]
    lines += [
        _WIDE_PROCESSES.format("NPU ID", "Process id", "Process name", "Process memory(MB)", "Process id in container")
    ]
    lines += [gap]
    for card in host.scenario.cards.ids:
        lines += [_wide_row(str(card), process) for process in host.processes(card)] or [_none(card, 114)]
        lines += [gap]
    return "\n".join(lines) + "\n"


def _info_910b(host: LiveHost) -> str:
    version = host.scenario.tool_version
    rule = "+===========================+===============+" + "=" * 52 + "+"
    lines = ["+" + "-" * 96 + "+", f"| {f'npu-smi {version}':<33}{f'Version: {version}':<55}|"]
    lines += ["+---------------------------+---------------+" + "-" * 52 + "+"]
    lines += ["| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|"]
    lines += [
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        rule,
    ]
    for card in host.scenario.cards.ids:
        used = f"{host.memory_used_mb(card):<5}/ {host.scenario.cards.memory_mb}"
        head = f"| {card:<6}{host.scenario.cards.name:<20}| {host.health(card):<14}| "
        lines += [f"{head}{_power(card):<12}{_temperature(card):<18}{'0    / 0':<21}|"]
        util = _utilisation(host, card)
        lines += [f"| 0                         | {_bus(card):<14}| {util:<12}{'0    / 0':<18}{used:<21}|", rule]
    lines += ["+---------------------------+---------------+" + "-" * 52 + "+"]
    lines += [
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        rule,
    ]
    for card in host.scenario.cards.ids:
        rows = [
            f"| {card:<8}0                 | {process.pid:<14}| {process.name[:24]:<25}| {process.memory_mb:<24}|"
            for process in host.processes(card)
        ]
        lines += rows or [_none(card, 96)]
        lines += [rule]
    return "\n".join(lines) + "\n"


def _info_a3(host: LiveHost) -> str:
    version, cards = host.scenario.tool_version, host.scenario.cards.ids
    rule = "+===========================+===============+" + "=" * 70 + "+"
    lines = ["+" + "-" * 114 + "+", f"| {f'npu-smi {version}':<44}{f'Version: {version}':<69}|"]
    lines += ["+---------------------------+---------------+" + "-" * 70 + "+"]
    lines += [
        f"| NPU   Name                | Health        | {'Power(W)':<21}{'Temp(C)':<24}{'Hugepages-Usage(page)':<24}|"
    ]
    lines += [
        f"| Chip  Phy-ID              | Bus-Id        | {'AICore(%)':<21}{'Memory-Usage(MB)':<24}{'HBM-Usage(MB)':<24}|"
    ]
    lines += [rule]
    for card in cards:
        npu, chip = host.scenario.npu_of(card)
        power = _power(card) if chip == 0 else "-"  # the board's power shows on its first chip only
        used = f"{host.memory_used_mb(card):<5}/ {host.scenario.cards.memory_mb}"
        head = f"| {npu:<6}{host.scenario.cards.name:<20}| {host.health(card):<14}| "
        lines += [f"{head}{power:<21}{_temperature(card):<24}{'0    / 0':<24}|"]
        lines += [f"| {chip:<6}{card:<20}| {_bus(card):<14}| {_utilisation(host, card):<21}{'0    / 0':<24}{used:<24}|"]
        last = card == cards[-1] or host.scenario.npu_of(cards[cards.index(card) + 1])[0] != npu
        lines += [rule if last else "+" + "-" * 114 + "+"]
    lines += ["+---------------------------+---------------+" + "-" * 70 + "+"]
    lines += [
        _WIDE_PROCESSES.format(
            "NPU     Chip", "Process id", "Process name", "Process memory(MB)", "Process id in container"
        )
    ]
    lines += [rule]
    for npu in sorted({host.scenario.npu_of(card)[0] for card in cards}):
        chips = [card for card in cards if host.scenario.npu_of(card)[0] == npu]
        where = {card: f"{npu:<8}{host.scenario.npu_of(card)[1]}" for card in chips}
        lines += [_wide_row(where[card], process) for card in chips for process in host.processes(card)] or [
            _none(npu, 114)
        ]
        lines += [rule]
    return "\n".join(lines) + "\n"


_WIDE_PROCESSES = "| {:<26}| {:<14}| {:<19}| {:<22}| {:<24}|"


def _wide_row(where: str, process: LiveProcess) -> str:
    return _WIDE_PROCESSES.format(where, process.pid, process.name[:18], process.memory_mb, "NA")


def _none(npu: int, width: int) -> str:
    return f"|{f' No running processes found in NPU {npu}':<{width}}|"


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
        lines += ["\t" + "".join(f"{value:<31}" for value in (npu, chip, logic, card)) + host.scenario.cards.name]
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


def _power(card: int) -> str:
    return f"{88.5 + card * 37 % 100 / 10:.1f}"


def _temperature(card: int) -> int:
    return 35 + card * 5 % 13


def _utilisation(host: LiveHost, card: int) -> int:
    return 75 if host.processes(card) else 0


def _bus(card: int) -> str:
    return f"0000:{_BUS[card % len(_BUS)]}:00.0"


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
