"""``nvidia-smi topo -m``: the link matrix of NVIDIA cards."""

from __future__ import annotations

import re

from anchormatrix.devices.text import Line, Source, headers, source, the_same
from anchormatrix.records.host import SELF, Topology

COMMAND = "nvidia-smi topo -m"
UNKNOWN = "NA"
_GPU = re.compile(r"GPU(\d{1,3})")
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[1-9]\d?")


def parse_topology(text: str) -> Topology:
    """Read the link matrix of the GPUs. Rows and columns of network cards are passed over.

    A matrix that comes several times is read once. Raises :class:`InputError` naming the command and the line for
    anything else than a whole matrix.
    """
    found = source(text, COMMAND)
    # warnings of the driver may come first
    return the_same(found, headers(found, _GPU), _read_matrix)


def _read_matrix(found: Source) -> Topology:
    ids, columns = _header(found, found.lines[0])
    rows: dict[int, tuple[Line, list[str]]] = {}
    for line in found.lines[1:]:
        if line.text.strip() == "Legend:":
            break
        cells = _cells(found.lines[0], line)
        label = _GPU.fullmatch(cells[0])
        if label:
            card = int(label[1])
            if card not in ids or card in rows:
                raise found.error(line, "is not a row of the header's cards, or comes twice:", f"GPU{ids[0]} …")
            rows[card] = line, _links(found, line, cells[1:], ids.index(card), len(ids), columns)
    if not rows:
        raise found.error(None, f"has no row for GPU{ids[0]}", "a row per GPU of the header")
    for card in [card for card in ids if card not in rows]:  # its links are those of its column
        place = ids.index(card)
        links = [SELF if other == card else rows[other][1][place] if other in rows else UNKNOWN for other in ids]
        rows[card] = found.lines[0], links
    for card, (line, links) in rows.items():
        for other, link in zip(ids, links, strict=True):
            back = rows[other][1][ids.index(card)]
            if back != link:
                raise found.error(line, f"says {link} to GPU{other}, which says {back} back:", "one link")
    order = sorted(ids)
    return Topology(tuple(order), tuple(tuple(rows[card][1][ids.index(other)] for other in order) for card in order))


def _header(found: Source, line: Line) -> tuple[list[int], int]:
    """The GPU ids, which are the first columns, and the number of all columns that hold links."""
    labels = _cells(line, line)
    labels = labels[1:] if labels and not labels[0] else labels
    ids = [int(label[1]) for label in map(_GPU.fullmatch, labels) if label]
    front = [_GPU.fullmatch(label) for label in labels[: len(ids)]]
    if not ids or not all(front) or len(set(ids)) != len(ids):
        raise found.error(line, "is not the header of the link matrix", "GPU0 GPU1 … and then other columns")
    affinity = next((i for i, label in enumerate(labels) if label.startswith("CPU")), len(labels))
    if affinity < len(ids):
        raise found.error(line, "names a CPU before the last GPU:", "GPU0 GPU1 … and then other columns")
    return ids, affinity


def _cells(header: Line, line: Line) -> list[str]:
    """Cells by tabs where the header has them (some are empty), else by blanks."""
    if "\t" in header.text:
        return [cell.strip() for cell in line.text.split("\t")]
    return ([""] if line.text[:1].isspace() else []) + line.text.split()


def _links(found: Source, line: Line, cells: list[str], place: int, size: int, columns: int) -> list[str]:
    if len(cells) < columns:
        raise found.error(line, f"has {len(cells)} cells in", f"{columns} links")
    for other, link in enumerate(cells[:size]):
        if not _LINK.fullmatch(link) or (link == SELF) != (other == place):
            raise found.error(
                line, f"cell {other + 1} is {link!r} in", "X on the diagonal, elsewhere NV#, PIX, PXB, PHB, NODE or SYS"
            )
    return cells[:size]
