"""``npu-smi info``: cards and their processes in the layouts of three hardware generations."""

from __future__ import annotations

from virtualhost.host.live import LiveHost, LiveProcess

_BUS = ("C1", "01", "C2", "02", "81", "41", "82", "42", "9D", "9F", "99", "9B", "95", "97", "91", "93")


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
    for card in host.scenario.cards.listed:
        util, total = _utilisation(host, card), host.scenario.cards.memory_mb
        name, health = host.scenario.cards.name_of(card), host.health(card)
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
    for card in host.scenario.cards.listed:
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
    for card in host.scenario.cards.listed:
        used = f"{host.memory_used_mb(card):<5}/ {host.scenario.cards.memory_mb}"
        head = f"| {card:<6}{host.scenario.cards.name_of(card):<20}| {host.health(card):<14}| "
        lines += [f"{head}{_power(card):<12}{_temperature(card):<18}{'0    / 0':<21}|"]
        util = _utilisation(host, card)
        lines += [f"| 0                         | {_bus(card):<14}| {util:<12}{'0    / 0':<18}{used:<21}|", rule]
    lines += ["+---------------------------+---------------+" + "-" * 52 + "+"]
    lines += [
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        rule,
    ]
    for card in host.scenario.cards.listed:
        rows = [
            f"| {card:<8}0                 | {process.pid:<14}| {process.name[:24]:<25}| {process.memory_mb:<24}|"
            for process in host.processes(card)
        ]
        lines += rows or [_none(card, 96)]
        lines += [rule]
    return "\n".join(lines) + "\n"


def _info_a3(host: LiveHost) -> str:
    version, cards = host.scenario.tool_version, host.scenario.cards.listed
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
        head = f"| {npu:<6}{host.scenario.cards.name_of(card):<20}| {host.health(card):<14}| "
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


def _power(card: int) -> str:
    return f"{88.5 + card * 37 % 100 / 10:.1f}"


def _temperature(card: int) -> int:
    return 35 + card * 5 % 13


def _utilisation(host: LiveHost, card: int) -> int:
    return 75 if host.processes(card) else 0


def _bus(card: int) -> str:
    return f"0000:{_BUS[card % len(_BUS)]}:00.0"
