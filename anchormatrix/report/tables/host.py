"""Tables of the host: its cards, its groups and their smokes, its versions."""

from __future__ import annotations

import msgspec

from anchormatrix.records.contract import RejectedGroup
from anchormatrix.records.host import Card, CardState, mb
from anchormatrix.records.smoke import SmokeStatus
from anchormatrix.report.model import Report
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import group, number

SMOKES_NOTE = (
    "A smoke is the first request of a cold server, which often runs 10 to 15 % faster than the steady state: "
    "it is compared with smokes, never with cells."
)


def cards(report: Report) -> Table:
    """Cards as read last."""
    found = report.health.value.cards if report.health.value else ()
    rows = tuple(
        (
            str(card.id),
            card.name,
            card.health,
            " / ".join("not told" if value is None else str(value) for value in (card.hbm_used_mb, card.hbm_total_mb)),
            number(card.temperature_c, 0),
            "\n".join(tenants(card)) or "none",
            f"{card.state}: {card.reason}" if card.reason else str(card.state),
        )
        for card in found
    )
    bad = frozenset(i for i, card in enumerate(found) if is_alarmed(card) or card.processes)
    columns = ("card", "model", "health", "memory MB", "°C", "tenants", "reading")
    return Table(columns, rows, frozenset({"memory MB", "°C"}), bad, f"No card is listed: {report.health.missing}.")


def is_alarmed(card: Card) -> bool:
    """Whether a card cannot be used: for its health, or because the tool could not read it."""
    return card.state is CardState.UNUSABLE


def tenants(card: Card) -> tuple[str, ...]:
    """Somebody else's processes on a card, in words."""
    return tuple(f"{one.name or 'unnamed'} (pid {one.pid}, {mb(one.memory_mb)})" for one in card.processes)


def rejected_groups(report: Report) -> Table:
    """Groups that were not used: those of one size with the same kind of reason together, one reason spelled out."""
    kinds: dict[tuple[int, str], list[RejectedGroup]] = {}
    for refusal in report.contracts.value.rejected if report.contracts.value else ():
        kinds.setdefault((len(refusal.cards), refusal.reason.split(": ")[0]), []).append(refusal)
    rows = []
    for (size, kind), found in kinds.items():
        same = len({refusal.reason for refusal in found}) == 1
        detail = found[0].reason.removeprefix(f"{kind}: ")
        reason = found[0].reason if same else f"{kind} (the first: {detail})"
        rows.append((str(size), reason, str(len(found)), " · ".join(group(refusal.cards) for refusal in found)))
    columns = ("size", "why not", "groups", "cards")
    return Table(columns, tuple(rows), frozenset({"groups"}), empty="No other group was considered.")


def smokes(report: Report) -> Table:
    """The four-step smoke of each group, rejected ones included."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for measured in (*report.measured, *report.rejected):
        smoke, contract = measured.smoke.value, measured.contract
        if smoke is None or smoke.status is SmokeStatus.REJECTED:
            bad.add(len(rows))
        if smoke is None:
            rows.append((contract.id, group(contract.cards), "missing", "", "", measured.smoke.missing))
            continue
        found = [f"{one.kind.replace('_', ' ')}: {one.text}" for one in smoke.findings] or ["nothing found"]
        findings = "\n".join([*found, *([smoke.failure.advice] if smoke.failure else ())]).strip()
        expected = (
            f"{number(smoke.expected_s, 3)} ({smoke.expected_source})"
            if smoke.expected_s
            else smoke.expected_source or ""
        )
        rows.append((contract.id, group(contract.cards), smoke.status, number(smoke.step_s, 3), expected, findings))
    columns = ("contract", "cards", "smoke", "s/step", "expected s/step", "findings")
    return Table(columns, tuple(rows), frozenset({"s/step"}), frozenset(bad), "No smoke was run.")


def versions(report: Report) -> Table:
    """Versions read from the host."""
    rows = tuple(msgspec.structs.asdict(report.health.value.versions).items()) if report.health.value else ()
    return Table(("what", "version"), rows, empty="No version was read from the host.")
