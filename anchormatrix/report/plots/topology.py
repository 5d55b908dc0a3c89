"""The host as a picture: cards in their domains, links by class, and the group chosen for each size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from matplotlib.patches import PathPatch
from matplotlib.path import Path

from anchormatrix.records.host import Card, Topology, is_fast
from anchormatrix.report.model import Report
from anchormatrix.report.plots.palette import PALETTE
from anchormatrix.report.plots.sheet import SMALL, WIDTH, Entry, Sheet, note
from anchormatrix.report.tables.host import is_alarmed, tenants
from anchormatrix.report.words import count_of

_LEFT, _GAP = 104.0, 12.0  # the column of labels, and between domains
_SMALLEST = 6.5


def host_picture(report: Report) -> Sheet:
    """Cards in a row with arcs for fast links, a bus for all slower links, and one band per size below."""
    title = f"Cards, links and chosen groups of {report.host}"
    topology = report.topology.value
    if topology is None:
        return note(title, report.topology.missing)
    sheet = Sheet(title)
    columns, pitch = _columns(topology)
    sheet.key(_key(topology))
    _draw_links(sheet, topology, columns)
    size = min(pitch - 6, 26.0)
    top = sheet.y
    for number, domain in enumerate(topology.domains):
        _draw_domain(sheet, topology, domain, number, columns, pitch)
    for row, words in ((size + 9, "health"), (size + 20, "GiB in use / in all")):
        sheet.text(0, top + row, words, role="muted", size=SMALL)
    states = {card.id: card for card in (report.health.value.cards if report.health.value else ())}
    for card in topology.cards:
        _draw_card(sheet, card, states.get(card), columns[card], size, pitch, residue=card in report.residue)
    sheet.y = top + size + 46
    _draw_slow_links(sheet, topology, columns)
    _draw_groups(sheet, report, columns, pitch)
    return sheet.finish()


def _columns(topology: Topology) -> tuple[dict[int, float], float]:
    """The middle of every card, and the room each has."""
    room = WIDTH - _LEFT - _GAP * (len(topology.domains) - 1)
    pitch, x = min(room / len(topology.cards), 56.0), _LEFT
    columns = {}
    for domain in topology.domains:
        for card in domain:
            columns[card] = x + pitch / 2
            x += pitch
        x += _GAP
    return columns, pitch


def _key(topology: Topology) -> list[Entry]:
    counts = Counter(topology.link(a, b) for a, b in combinations(topology.cards, 2))
    return [
        Entry("line", "fast", f"{link}: {count} fast links")
        if is_fast(link)
        else Entry("dash", "slow", f"{link}: {count} pairs")
        for link, count in sorted(counts.items(), key=lambda found: (not is_fast(found[0]), found[0]))
    ]


def _draw_links(sheet: Sheet, topology: Topology, columns: Mapping[int, float]) -> None:
    """Arcs of fast links, which end on the cards that are drawn next."""
    fast = [pair for pair in combinations(topology.cards, 2) if is_fast(topology.link(*pair))]
    longest = max((abs(columns[b] - columns[a]) for a, b in fast), default=0.0)
    highest = min(0.36 * longest, 70.0)
    ground = sheet.y + highest + 10
    for a, b in fast:
        rise = 4 / 3 * (10 + highest * abs(columns[b] - columns[a]) / longest)
        points = [(columns[a], ground), (columns[a], ground - rise), (columns[b], ground - rise), (columns[b], ground)]
        arc = PathPatch(
            Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]),
            facecolor="none",
            edgecolor=PALETTE["fast"][0],
            linewidth=0.9,
            linestyle="-" if topology.same_domain(a, b) else (0, (3, 3)),
            zorder=0,
        )
        sheet.add(arc, f"{a} – {b}: {topology.link(a, b)}")
    sheet.y = ground


def _draw_domain(
    sheet: Sheet, topology: Topology, domain: tuple[int, ...], number: int, columns: Mapping[int, float], pitch: float
) -> None:
    left, right = columns[domain[0]] - pitch / 2 + 1, columns[domain[-1]] + pitch / 2 - 1
    size = min(pitch - 6, 26.0)
    sheet.card(left, sheet.y - 6, right - left, size + 46, "slow")
    links = "+".join(topology.group_links(domain)) or "one card"
    sheet.text(
        (left + right) / 2,
        sheet.y + size + 32,
        f"domain {number} · {links}",
        role="muted",
        align="center",
        size=SMALL,
        room=right - left - 4,
    )


def _draw_card(
    sheet: Sheet, card: int, state: Card | None, x: float, size: float, pitch: float, *, residue: bool
) -> None:
    alarmed = residue or (state is not None and is_alarmed(state))
    foreign = tenants(state) if state else ()
    role = "bad" if alarmed else "waiting" if foreign else "compute"
    words = f"card {card}" + (f": {state.name}, health {state.health}" if state else ": not in the health listing")
    words += f"; {state.state}: {state.reason}" if state and state.reason else ""
    words += "; its smoke found the residue state" if residue else ""
    words += "; tenant " + ", ".join(foreign) if foreign else ""
    top = sheet.y
    sheet.card(x - size / 2, top, size, size, role, inside="panel", tip=words)
    sheet.text(x, top + size / 2, str(card), align="center", size=10 if size > 16 else SMALL, bold=True)
    if alarmed:
        sheet.mark(x + size / 2 - 5, top + 5, "cross", "bad", scale=0.7, tip=words)
    if foreign:
        sheet.mark(x - size / 2 + 5, top + 5, "diamond", "waiting", scale=0.7, tip=words)
    health = "residue" if residue else state.health if state else "not read"
    sheet.text(
        x,
        top + size + 9,
        health,
        role="bad" if alarmed else "muted",
        align="center",
        size=_SMALLEST,
        room=pitch - 2,
    )
    if state and state.hbm_total_mb:
        used = (
            f"{'?' if state.hbm_used_mb is None else f'{state.hbm_used_mb / 1024:.0f}'}/{state.hbm_total_mb / 1024:.0f}"
        )
        sheet.text(x, top + size + 20, used, role="muted", align="center", size=_SMALLEST, room=pitch - 2)


def _draw_slow_links(sheet: Sheet, topology: Topology, columns: Mapping[int, float]) -> None:
    """One bus for every link that is not fast; nothing when all are."""
    if all(is_fast(topology.link(a, b)) for a, b in combinations(topology.cards, 2)):
        return
    middles = [(columns[domain[0]] + columns[domain[-1]]) / 2 for domain in topology.domains]
    y = sheet.y + 4
    sheet.line([min(middles), max(middles)], [y, y], "slow", width=1.2, dash=True)
    for x in middles:
        sheet.line([x, x], [y, y - 10], "slow", width=1.2)
    sheet.y += 8


def _draw_groups(sheet: Sheet, report: Report, columns: Mapping[int, float], pitch: float) -> None:
    for size in report.sizes:
        measured, y = report.of_size(size), sheet.y + 13
        sheet.text(0, y, count_of(size), bold=True)
        if measured is None:
            sheet.text(_LEFT, y, f"no group: {report.why_no_group(size)}", role="bad", size=SMALL, room=WIDTH - _LEFT)
        else:
            contract = measured.contract
            chosen = [columns[card] for card in contract.cards if card in columns]
            if chosen:
                sheet.line([min(chosen), max(chosen)], [y, y], "good", width=1.8)
            for card in contract.cards:
                if card in columns:
                    sheet.block(columns[card] - pitch * 0.32, y - 6, pitch * 0.64, 12, "good", tip=contract.reason)
                    sheet.text(columns[card], y, str(card), role="paper", align="center", size=SMALL, bold=True)
            sheet.text(0, y + 10, f"{contract.id} v{contract.version}", role="muted", size=_SMALLEST, room=_LEFT - 6)
        sheet.y += 26
