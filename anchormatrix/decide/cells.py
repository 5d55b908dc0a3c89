"""Cells: form × tier within one contract and window, and over all windows, with what makes each usable or not."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from anchormatrix.errors import InputError
from anchormatrix.measure.ramp import spread_pct
from anchormatrix.store.files import read_json

ALL = "all"
STATUSES = ("measured", "did_not_run", "void", "contaminated", "unmeasurable", "skipped")
COLUMNS = (
    "contract", "form", "tier", "window", "repeats", "step_s", "dispersion_pct", "usable", "reason", "min_s", "max_s",
    "values_s",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """The repeats of one form at one tier, in one window (``1``, ``2`` …) or over all windows (``all``).

    ``values_s`` are step times in seconds in the order measured. For ``all``, ``dispersion_pct`` is the worst of the
    windows: between windows it would mix noise with drift, which is reported by itself.
    """

    contract: str
    form: str
    tier: str
    window: str
    values_s: tuple[float, ...]
    dispersion_pct: float
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether the cell may take part in any ranking."""
        return not self.reason

    @property
    def step_s(self) -> float:
        """Median step time in seconds."""
        return median(self.values_s)

    def row(self) -> dict[str, Any]:
        """The cell as a row of ``cells.csv``."""
        return {
            "contract": self.contract,
            "form": self.form,
            "tier": self.tier,
            "window": self.window,
            "repeats": len(self.values_s),
            "step_s": f"{self.step_s:.9g}",
            "dispersion_pct": f"{self.dispersion_pct:.6g}",
            "usable": str(self.usable).lower(),
            "reason": self.reason,
            "min_s": f"{min(self.values_s):.9g}",
            "max_s": f"{max(self.values_s):.9g}",
            "values_s": ";".join(f"{value:.9g}" for value in self.values_s),
        }


@dataclass(frozen=True)
class SessionResult:
    """What a session left for the verdict: its status and its timed repeats, by tier.

    ``denominators`` maps a tier to the (denominator, iterations) pairs of its repeats; ``steady`` says whether the ramp
    settled before the first of them.
    """

    contract: str
    form: str
    window: int
    status: str
    reason: str
    steady: bool
    values_s: Mapping[str, tuple[float, ...]]
    denominators: Mapping[str, tuple[tuple[str, int], ...]]


def build_cells(sessions: Iterable[SessionResult], *, repeats: int, dispersion_pct: float) -> tuple[Cell, ...]:
    """Cells of every window and over all windows; only sessions with status ``measured`` yield any.

    A cell is usable with at least ``repeats`` values, a dispersion within the limit, a ramp that settled, and
    iterations counted the same way for all forms of its tier.
    """
    measured = sorted((s for s in sessions if s.status == "measured"), key=lambda s: (s.form, s.window))
    mixed = _mixed_tiers(measured)
    windows: dict[tuple[str, str, str], list[Cell]] = {}
    for session in measured:
        for tier, values in session.values_s.items():
            if not values:
                continue
            spread = spread_pct(values)
            reason = _reason(len(values), spread, session.steady, repeats, dispersion_pct) or mixed.get(tier, "")
            cell = Cell(session.contract, session.form, tier, str(session.window), values, spread, reason)
            windows.setdefault((session.contract, session.form, tier), []).append(cell)
    cells: list[Cell] = []
    for found in windows.values():
        cells += [*found, _combined(found)]
    return tuple(cells)


def read_session(path: Path, contract: str | None = None) -> SessionResult:
    """Read one ``session.json`` and the ``requests.csv`` beside it.

    Raises :class:`InputError` naming the file when either is missing or not what it should be, or when it was measured
    under another contract than the one given: such numbers are never mixed.
    """
    values = read_json(path)
    if contract is not None and values.get("contract") != contract:
        raise InputError(
            f"was measured under {values.get('contract')!r}", where=str(path), expected=f"contract {contract}"
        )
    try:
        status = _one_of(STATUSES, values["status"])
        rows = _read_requests(path.with_name("requests.csv")) if status == "measured" else []
        return SessionResult(
            contract=str(values["contract"]),
            form=str(values["form"]),
            window=_window(values["window"]),
            status=status,
            reason=str(values.get("reason") or ""),
            steady=values.get("ramp", {}).get("steady", False) is True,
            values_s={tier: tuple(v for v, _ in pairs) for tier, pairs in _by_tier(rows).items()},
            denominators={tier: tuple(d for _, d in pairs) for tier, pairs in _by_tier(rows).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"not a session ({error!r})", where=str(path), todo="delete its folder; the next run measures it again"
        ) from None


def read_cells(path: Path) -> tuple[Cell, ...]:
    """Read ``cells.csv``. Raises :class:`InputError` naming file and line."""
    cells = []
    for number, row in enumerate(_rows(path, COLUMNS), start=2):
        try:
            values = tuple(_positive(value) for value in row["values_s"].split(";"))
            usable = _one_of(("true", "false"), row["usable"]) == "true"
            cell = Cell(
                contract=row["contract"],
                form=row["form"],
                tier=row["tier"],
                window=row["window"],
                values_s=values,
                dispersion_pct=_not_negative(row["dispersion_pct"]),
                reason="" if usable else row["reason"] or "not usable",
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"not a cell ({error})", where=f"{path}:{number}", todo="build the cells again") from None
        cells.append(cell)
    _check_whole(cells, path)
    return tuple(cells)


def _check_whole(cells: Sequence[Cell], path: Path) -> None:
    places = [(cell.form, cell.tier, cell.window) for cell in cells]
    twice = next((place for place in places if places.count(place) > 1), None)
    lone = next(((form, tier) for form, tier, _ in places if (form, tier, ALL) not in places), None)
    if twice or lone:
        what = f"lists {'/'.join(twice)} twice" if twice else f"has no row of {'/'.join(lone or ())} for all windows"
        raise InputError(what, where=str(path), todo="build the cells again")


def _reason(count: int, spread: float, steady: bool, repeats: int, limit: float) -> str:
    if count < repeats:
        return f"{count} of {repeats} repeats"
    if spread > limit:
        return f"dispersion {spread:.1f} % is above {limit:g} %"
    return "" if steady else "the ramp did not settle before the repeats"


def _combined(cells: Sequence[Cell]) -> Cell:
    first = cells[0]
    reasons = [f"window {cell.window}: {cell.reason}" for cell in cells if cell.reason]
    return Cell(
        first.contract,
        first.form,
        first.tier,
        ALL,
        tuple(value for cell in cells for value in cell.values_s),
        max(cell.dispersion_pct for cell in cells),
        "; ".join(reasons),
    )


def _mixed_tiers(sessions: Sequence[SessionResult]) -> dict[str, str]:
    """Tiers whose iterations come from a bar for some repeats and from the request for others, and disagree."""
    mixed: dict[str, str] = {}
    for tier in {tier for session in sessions for tier in session.denominators}:
        pairs = {pair for session in sessions for pair in session.denominators.get(tier, ())}
        if len({kind for kind, _ in pairs}) > 1 and len({count for _, count in pairs}) > 1:
            listed = " and ".join(f"{count} ({kind})" for kind, count in sorted(pairs))
            mixed[tier] = f"iterations are not counted alike: {listed}"
    return mixed


def _by_tier(rows: Iterable[Mapping[str, str]]) -> dict[str, list[tuple[float, tuple[str, int]]]]:
    tiers: dict[str, list[tuple[float, tuple[str, int]]]] = {}
    for row in rows:
        if row["role"] == "measured" and row["step_s"]:
            step_s = _positive(row["step_s"])
            tiers.setdefault(row["tier"], []).append((step_s, (row["denominator"], int(row["iterations"]))))
    return tiers


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"{text} is not a positive time")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text} is not a share")
    return value


def _window(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is not a window")
    return value


def _one_of(known: Sequence[str], value: Any) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return str(value)


def _read_requests(path: Path) -> list[dict[str, str]]:
    return list(_rows(path, ("role", "tier", "step_s", "iterations", "denominator")))


def _rows(path: Path, columns: Sequence[str]) -> Iterable[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"has no column {missing[0]}", where=str(path), todo="delete the file and run again")
            yield from reader
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), todo="run the step that makes it first") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), todo="delete the file and run again") from None
