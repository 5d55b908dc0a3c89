"""``npu-smi info -t topo``: the link matrix of Ascend cards."""

from __future__ import annotations

import re

from anchormatrix.devices.text import Line, Source, headers, source, the_same
from anchormatrix.records.host import SELF, Topology

COMMAND = "npu-smi info -t topo"
_LINKS = {"X", "SYS", "PHB", "PIX", "PXB", "SIO", "HCCS", "HCCS_SW", "UB", "NA"}
_LABEL = re.compile(r"(NPU|Phy-ID)(\d{1,4})")
_AFFINITY = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_LEGEND = re.compile(r"\s*(\S+)\s+= \S.*")


def parse_topology(text: str) -> Topology:
    """Read the link matrix; ids are those of the header (``NPU0`` or ``Phy-ID0``).

    The header may be flush left and the CPU affinity column may be missing. Cells missing at the end of a row are
    taken from the mirrored cell. A matrix that comes several times is read once. Raises :class:`InputError` naming the
    command and the line.
    """
    found = source(text, COMMAND)
    # a heading of its own may come first
    return the_same(found, headers(found, _LABEL), _read_matrix)


def _read_matrix(found: Source) -> Topology:
    kind, ids = _header(found, found.lines[0])
    legend = next((i for i, line in enumerate(found.lines) if line.text.strip() == "Legend:"), len(found.lines))
    words = {match[1] for line in found.lines[legend:] if (match := _LEGEND.fullmatch(line.text))}
    lines = found.lines[1:legend]
    rows: list[list[str]] = []
    for place, line in enumerate(lines):
        if place == len(ids):
            raise found.error(line, "comes after the last row:", "`Legend:` or the end")
        rows.append(_row(found, line, f"{kind}{ids[place]}", place, len(ids), _LINKS | words))
    if len(rows) < len(ids):
        raise found.error(None, f"has {len(rows)} rows for {len(ids)} cards", "a row per card")
    for place, (line, row) in enumerate(zip(lines, rows, strict=True)):
        _complete(found, line, rows, row, place)
    for place, (line, row) in enumerate(zip(lines, rows, strict=True)):
        for other, link in enumerate(row):
            if rows[other][place] != link:
                raise found.error(
                    line, f"says {link} to {kind}{ids[other]}, which says {rows[other][place]} back:", "one link"
                )
    order = sorted(range(len(ids)), key=lambda i: ids[i])
    return Topology(tuple(ids[i] for i in order), tuple(tuple(rows[i][j] for j in order) for i in order))


def _header(found: Source, line: Line) -> tuple[str, list[int]]:
    names, _, after = line.text.partition("CPU Affinity")
    labels = [_LABEL.fullmatch(name) for name in names.split()]
    if not labels or not all(labels) or after.strip():
        raise found.error(line, "is not the header of the link matrix", "NPU0 NPU1 … or Phy-ID0 Phy-ID1 …")
    kinds = {label[1] for label in labels if label}
    ids = [int(label[2]) for label in labels if label]
    if len(kinds) != 1 or len(set(ids)) != len(ids):
        raise found.error(line, "names a card twice or in two ways:", "different cards, all NPU or all Phy-ID")
    return kinds.pop(), ids


def _row(found: Source, line: Line, label: str, place: int, size: int, words: set[str]) -> list[str]:
    name, *cells = line.text.split()
    if name != label:
        raise found.error(line, f"stands where the row of {label} should:", f"{label} and its links")
    links = cells[:size]
    while links and _AFFINITY.fullmatch(links[-1]):
        links.pop()
    rest = cells[len(links) :]
    if len(rest) > 1 or any(not _AFFINITY.fullmatch(cell) for cell in rest):
        raise found.error(line, "has more than links and one CPU affinity:", f"{size} links")
    for other, link in enumerate(links):
        if link not in words or (link == SELF) != (other == place):
            raise found.error(
                line, f"cell {other + 1} is {link!r} in", "X on the diagonal and a link of the legend elsewhere"
            )
    return links


def _complete(found: Source, line: Line, rows: list[list[str]], row: list[str], place: int) -> None:
    for other in range(len(row), len(rows)):
        if other == place:
            row.append(SELF)
        elif place < len(rows[other]):
            row.append(rows[other][place])
        else:
            raise found.error(
                line, f"lacks cell {other + 1}, and so does its mirror:", "it in at least one of both rows"
            )
