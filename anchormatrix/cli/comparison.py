"""A comparison of two runs as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from anchormatrix.cli.tables import text_table
from anchormatrix.records.conclusions.comparison import (
    Bearing,
    CellComparison,
    CellOutcome,
    RunComparison,
)

_WIDTH = 118
_VALUE = 34  # letters of each side in the table of differences
_HEADS = {
    Bearing.FORBIDS: "These make the step another one",
    Bearing.COMPARED: "This is compared",
    Bearing.ASIDE: "This differs and does not shape a step",
}
_SHORT = {
    CellOutcome.A_FASTER: "A faster",
    CellOutcome.B_FASTER: "B faster",
    CellOutcome.NOT_DECIDABLE: "not decidable",
    CellOutcome.NOT_COMPARABLE: "not comparable",
}
_NOTE = (
    "Δ is B against A (+: B is slower), over server starts. Its interval holds the noise between starts of each run,"
    " with a chance of error of {level:g} % at each end, shared among the forms of a size; what differs between days is"
    " part of Δ. Differences below {zone:g} % count as none."
)


def comparison_text(found: RunComparison) -> str:
    """Differences, what is not known, the cells, and why some say nothing; each line ends within a terminal."""
    blocks = [
        f"A  {found.a}\nB  {found.b}",
        *_differences(found),
        *_listed("Not known to agree, so nothing stronger than “as measured” is said", _by_size(found, "unknown")),
        text_table(_rows(found)),
        *_listed("Why", dict(_reasons(found))),
        *_listed("Only one run has", dict(_lacking(found))),
        _filled(_NOTE.format(level=100 * found.level, zone=found.zone_pct)),
    ]
    return "\n\n".join(blocks) + "\n"


def _differences(found: RunComparison) -> Iterator[str]:
    seen: dict[tuple[Bearing, str, str, str, str], list[int]] = {}
    for size in found.sizes:
        for one in size.differences:
            name = f"{one.name} ({one.tier})" if one.tier and one.name != f"tiers.{one.tier}" else one.name
            key = one.bearing, name, _value(one.a), _value(one.b), one.why
            seen.setdefault(key, []).append(size.size)
    for bearing, head in _HEADS.items():
        rows = [
            {"fact": name, "A": a, "B": b, "cards": _sizes(sizes, found), **({"why": why} if why else {})}
            for (kind, name, a, b, why), sizes in seen.items()
            if kind is bearing
        ]
        if rows:
            yield f"{head}\n{text_table(rows)}"
    if not seen:
        yield "The two runs differ in no recorded fact."


def _rows(found: RunComparison) -> Iterator[Mapping[str, Any]]:
    for size in found.sizes:
        for cell in size.cells:
            yield {
                "cards": size.size,
                "form": cell.form,
                "tier": cell.tier,
                "A step s": cell.a.step_s,
                "B step s": cell.b.step_s,
                "starts": f"{cell.a.starts}/{cell.b.starts}",
                "repeats": f"{cell.a.repeats}/{cell.b.repeats}",
                "disp. %": f"{cell.a.dispersion_pct:.1f}/{cell.b.dispersion_pct:.1f}",
                "Δ %": _signed(cell.delta_pct),
                "between": _between(cell),
                "result": _SHORT.get(cell.outcome, cell.text.partition(":")[0]) + _as_measured(cell),
            }


def _as_measured(cell: CellComparison) -> str:
    said = cell.outcome in (CellOutcome.A_FASTER, CellOutcome.B_FASTER) and cell.text.endswith("as measured")
    return ", as measured" if said else ""


def _reasons(found: RunComparison) -> Iterator[tuple[str, list[str]]]:
    """The words of every cell without an outcome, and what a run holds against its own cell."""
    told: dict[str, list[str]] = {}
    for size in found.sizes:
        for cell in size.cells:
            place = f"{cell.form}/{cell.tier} on {size.size}"
            if cell.outcome in (CellOutcome.NOT_DECIDABLE, CellOutcome.NOT_COMPARABLE) or ":" in cell.text:
                told.setdefault(cell.text, []).append(place)
            for name, side in (("A", cell.a), ("B", cell.b)):
                if side.doubt and side.doubt not in cell.text:
                    told.setdefault(f"low confidence, {name}: {side.doubt}", []).append(place)
    yield from told.items()


def _lacking(found: RunComparison) -> Iterator[tuple[str, list[str]]]:
    told: dict[str, list[str]] = {}
    for size in found.sizes:
        for one in size.lacking:
            told.setdefault(f"{one.lacks_it.upper()} lacks it: {one.reason}", []).append(
                f"{one.form}/{one.tier} on {size.size}"
            )
    for text in found.lacking:
        told[text] = []
    yield from told.items()


def _by_size(found: RunComparison, field: str) -> dict[str, list[str]]:
    told: dict[str, list[int]] = {}
    for size in found.sizes:
        for text in getattr(size, field):
            told.setdefault(text, []).append(size.size)
    return {text: [] if len(sizes) == len(found.sizes) else [_cards(sizes)] for text, sizes in told.items()}


def _listed(head: str, told: Mapping[str, Iterable[str]]) -> Iterator[str]:
    if told:
        lines = [_filled(text + (f" [{', '.join(places)}]" if places else ""), "- ") for text, places in told.items()]
        yield "\n".join([head, *lines])


def _filled(text: str, start: str = "") -> str:
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return textwrap.fill(plain, _WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def _sizes(sizes: list[int], found: RunComparison) -> str:
    return "all" if len(sizes) == len(found.sizes) else ", ".join(map(str, sizes))


def _cards(sizes: list[int]) -> str:
    return f"{', '.join(map(str, sizes))} cards"


def _value(value: Any) -> str:
    text = "–" if value is None else ", ".join(map(_flat, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"


def _flat(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _signed(pct: float | None) -> str | None:
    return None if pct is None else f"{round(pct, 2) + 0.0:+.2f}"


def _between(cell: CellComparison) -> str | None:
    if cell.low_pct is None or cell.high_pct is None:
        return None
    return f"{round(cell.low_pct, 1) + 0.0:+.1f} … {round(cell.high_pct, 1) + 0.0:+.1f}"
