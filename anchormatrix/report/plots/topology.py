"""The host as a picture: cards in their domains, links by class, and the group chosen for each size."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from anchormatrix.records.host import Topology, is_fast
from anchormatrix.report.facts import CardState
from anchormatrix.report.model import Report
from anchormatrix.report.plots.svg import WIDTH, Drawing, fitted, note

_LEFT = 236.0
_RIGHT = WIDTH - 4
_GAP = 26.0
_ROW = 34.0


def host_picture(report: Report) -> Drawing:
    """Cards in a row with arcs for fast links, a bus for all slower links, and one band per size below."""
    title = f"Cards, links and chosen groups of {report.host}"
    topology = report.topology.value
    if topology is None:
        return note(title, report.topology.missing)
    drawing = Drawing(title)
    columns = _columns(topology)
    pitch = _pitch(topology)
    size = min(pitch - 10, 50.0)
    arch = _draw_links(drawing, topology, columns)
    states = {card.id: card for card in report.cards.value or ()}
    top = arch + 40
    for number, domain in enumerate(topology.domains):
        _draw_domain(drawing, topology, domain, number, columns, pitch, top)
    for card in topology.cards:
        _draw_card(drawing, card, states.get(card), columns[card], top, size, residue=card in report.residue)
    y = top + 124
    y = _draw_slow_links(drawing, topology, columns, y)
    _draw_groups(drawing, report, columns, pitch, y + 18)
    return drawing


def _pitch(topology: Topology) -> float:
    room = _RIGHT - _LEFT - _GAP * (len(topology.domains) - 1)
    return min(room / len(topology.cards), 104.0)


def _columns(topology: Topology) -> dict[int, float]:
    pitch, x, columns = _pitch(topology), _LEFT, {}
    for domain in topology.domains:
        for card in domain:
            columns[card] = x + pitch / 2
            x += pitch
        x += _GAP
    return columns


def _draw_links(drawing: Drawing, topology: Topology, columns: dict[int, float]) -> float:
    """Arcs of fast links above the cards; returns the height of the line they stand on."""
    fast = [(a, b, topology.link(a, b)) for a, b in combinations(topology.cards, 2) if is_fast(topology.link(a, b))]
    longest = max((abs(columns[b] - columns[a]) for a, b, _ in fast), default=0.0)
    ground = 30 + min(0.36 * longest, 118.0)
    scale = (ground - 30) / longest if longest else 0.0
    for a, b, link in fast:
        inside = topology.same_domain(a, b)
        x1, x2 = columns[a], columns[b]
        rise = scale * abs(x2 - x1) / 0.75
        drawing.arc(
            x1, x2, ground + 34, rise + 34 / 0.75, "fast", dash="" if inside else "3 3", tip=f"{a} – {b}: {link}"
        )
    counts = Counter(link for _, _, link in fast)
    drawing.heading()
    y = ground - 22
    for link, count in sorted(counts.items()):
        drawing.line(0, y - 4, 22, y - 4, "fast", width=2)
        drawing.text(30, y, f"{link}: {count} fast links", role="muted", size=12)
        y += 18
    return ground


def _draw_domain(
    drawing: Drawing,
    topology: Topology,
    domain: tuple[int, ...],
    number: int,
    columns: dict[int, float],
    pitch: float,
    top: float,
) -> None:
    left, right = columns[domain[0]] - pitch / 2 + 1, columns[domain[-1]] + pitch / 2 - 1
    drawing.frame(left, top - 14, right - left, 118, "slow", radius=10)
    links = "+".join(topology.group_links(domain)) or "one card"
    drawing.text(
        (left + right) / 2,
        top + 97,
        fitted(f"domain {number} · {links}", right - left, 11),
        role="muted",
        anchor="middle",
        size=11,
    )


def _draw_card(
    drawing: Drawing, card: int, state: CardState | None, x: float, top: float, size: float, *, residue: bool
) -> None:
    alarmed = residue or (state is not None and state.alarmed)
    busy = state is not None and bool(state.foreign)
    role = "bad" if alarmed else "waiting" if busy else "compute"
    words = f"card {card}" + (f": {state.name}, health {state.health}" if state else ": not in the health listing")
    words += "; its smoke found the residue state" if residue else ""
    words += "; tenant " + ", ".join(state.foreign) if state and state.foreign else ""
    drawing.rect(x - size / 2, top, size, size, "panel", radius=7, tip=words)
    drawing.frame(x - size / 2, top, size, size, role, radius=7)
    drawing.text(x, top + size / 2 + 6, str(card), anchor="middle", size=17, bold=True)
    if alarmed:
        drawing.marker(x + size / 2 - 7, top + 8, "cross", "bad", size=4, tip=words)
    if busy:
        drawing.marker(x - size / 2 + 8, top + 8, "diamond", "waiting", size=4, tip=words)
    health = "residue" if residue else state.health if state else "not read"
    drawing.text(
        x, top + size + 15, fitted(health, size + 24, 11), role="bad" if alarmed else "muted", anchor="middle", size=11
    )
    if state and state.total_mb:
        used = f"{state.used_mb / 1024:.0f}/{state.total_mb / 1024:.0f} GiB"
        drawing.text(x, top + size + 29, used, role="muted", anchor="middle", size=10.5)


def _draw_slow_links(drawing: Drawing, topology: Topology, columns: dict[int, float], y: float) -> float:
    """One bus for every link that is not fast; nothing when all are."""
    slow = Counter(topology.link(a, b) for a, b in combinations(topology.cards, 2) if not is_fast(topology.link(a, b)))
    if not slow:
        return y - 22
    middles = [(columns[domain[0]] + columns[domain[-1]]) / 2 for domain in topology.domains]
    drawing.line(min(middles), y, max(middles), y, "slow", width=2, dash="6 4")
    for x in middles:
        drawing.line(x, y, x, y - 20, "slow", width=2)
    words = ", ".join(f"{link}: {count} pairs" for link, count in sorted(slow.items()))
    drawing.line(0, y, 22, y, "slow", width=2, dash="6 4")
    drawing.text(30, y + 4, fitted(words, _LEFT - 40, 12), role="muted", size=12)
    return y


def _draw_groups(drawing: Drawing, report: Report, columns: dict[int, float], pitch: float, y: float) -> None:
    for size in report.sizes:
        measured = report.of_size(size)
        drawing.text(0, y + 18, f"{size} cards", bold=True)
        if measured is None:
            drawing.text(_LEFT, y + 18, fitted(f"no group: {report.why_no_group(size)}", _RIGHT - _LEFT), role="bad")
        else:
            contract = measured.contract
            drawing.text(
                62, y + 18, fitted(f"{contract.id} v{contract.version}", _LEFT - 66, 12), role="muted", size=12
            )
            chosen = [columns[card] for card in contract.cards if card in columns]
            if chosen:
                drawing.line(min(chosen), y + 14, max(chosen), y + 14, "good", width=3)
            for x in chosen:
                drawing.rect(x - pitch * 0.3, y + 4, pitch * 0.6, 20, "good", radius=5, tip=contract.reason)
            for card in contract.cards:
                if card in columns:
                    drawing.text(columns[card], y + 18.5, str(card), role="paper", anchor="middle", size=12, bold=True)
        y += _ROW
    drawing.height = y + 4
