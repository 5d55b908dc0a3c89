"""Cells: form × tier within one contract and window, and over all windows; which are usable, and which is faster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from anchormatrix.errors import InputError
from anchormatrix.records.conclusions.cells import ALL, Cell, cell_of, spread_pct
from anchormatrix.records.session import SessionStatus
from anchormatrix.store.codec import read_table, write_table
from anchormatrix.store.sessions import TimedSession

Floor = Callable[[Cell, Cell], float]
"""The noise floor of two cells, in percent."""

_AGAIN = "build the cells again"
_FEWEST, _COARSE = 2, 4  # repeats; decimals of a second that may agree by chance
_SHORT = re.compile(r"\d+ of \d+ repeats$")
_UNSETTLED = "the ramp did not settle before the repeats"


def build_cells(sessions: Iterable[TimedSession], *, repeats: int, dispersion_pct: float) -> tuple[Cell, ...]:
    """Cells of every window and over all windows; only sessions with status ``measured`` yield any.

    A cell is usable with at least ``repeats`` values, a dispersion within the limit, a ramp that settled, iterations
    counted the same way for all forms of its tier, and times that are not another window's to the last digit.
    """
    measured = [timed for timed in sessions if timed.session.status is SessionStatus.MEASURED]
    measured.sort(key=lambda timed: (timed.session.form, timed.session.window))
    mixed, twice = mixed_tiers(measured), _written_twice(measured)
    windows: dict[tuple[str, str, str], list[tuple[Cell, str, str]]] = {}
    for timed in measured:
        session = timed.session
        for tier, values in timed.values_s.items():
            short = f"{len(values)} of {repeats} repeats" if len(values) < repeats else ""
            odd, spread = mixed.get(tier, "") if session.steady else _UNSETTLED, spread_pct(values)
            odd = twice.get((session.contract, *timed.place), odd)
            reason = short or _too_wide(spread, dispersion_pct) or odd
            rests_on = "; ".join(sorted(f"{basis}, by {witness}" for basis, witness in timed.bases.get(tier, ())))
            place = session.contract, session.form, tier, str(session.window)
            cell = cell_of(*place, values, spread, reason, rests_on)
            windows.setdefault((session.contract, session.form, tier), []).append((cell, short, odd))
    cells: list[Cell] = []
    for found in windows.values():
        cells += [*(cell for cell, _, _ in found), _combined(found, dispersion_pct)]
    return tuple(cells)


def write_cells(path: Path, cells: Iterable[Cell]) -> None:
    """Write ``cells.csv``; times with nine significant digits, dispersions with six."""
    write_table(path, Cell, map(_rounded, cells))


def read_cells(path: Path) -> tuple[Cell, ...]:
    """Read ``cells.csv``. Raises :class:`InputError` naming file and line."""
    cells = read_table(path, Cell, todo=_AGAIN)
    _check_whole(cells, path)
    return cells


def order_of(cells: Mapping[str, Cell], floor: Floor) -> tuple[tuple[str, ...], ...]:
    """Forms fastest first; a form joins the group whose fastest member it cannot be told from."""
    groups: list[list[Cell]] = []
    for cell in sorted(cells.values(), key=lambda cell: cell.step_s):
        if groups and not sign_of(groups[-1][0], cell, floor):
            groups[-1].append(cell)
        else:
            groups.append([cell])
    return tuple(tuple(cell.form for cell in group) for group in groups)


def apart_pct(a: Cell, b: Cell) -> float:
    """Difference of two cells in percent of the faster one."""
    return abs(a.step_s - b.step_s) / min(a.step_s, b.step_s) * 100


def sign_of(a: Cell, b: Cell, floor: Floor) -> int:
    """−1 when ``a`` is faster, 1 when slower, 0 when the difference lies within the noise floor."""
    if apart_pct(a, b) <= floor(a, b):
        return 0
    return -1 if a.step_s < b.step_s else 1


def only_short(reason: str) -> bool:
    """Whether too few repeats is all that is wrong with a cell."""
    return bool(reason) and all(_SHORT.search(part) for part in reason.split("; "))


def _check_whole(cells: Sequence[Cell], path: Path) -> None:
    places = [(cell.form, cell.tier, cell.window) for cell in cells]
    twice = next((place for place in places if places.count(place) > 1), None)
    lone = next(((form, tier) for form, tier, _ in places if (form, tier, ALL) not in places), None)
    if twice or lone:
        what = f"lists {'/'.join(twice)} twice" if twice else f"has no row of {'/'.join(lone or ())} for all windows"
        raise InputError(what, where=str(path), todo=_AGAIN)


def _too_wide(spread: float, limit: float, where: str = "") -> str:
    return f"dispersion {spread:.1f} %{where} is above {limit:g} %" if spread > limit else ""


def _combined(found: Sequence[tuple[Cell, str, str]], limit: float) -> Cell:
    """The cell over all windows, of cells with what they lack and what is odd of them. Drift is dispersion too."""
    first, values = found[0][0], tuple(value for cell, _, _ in found for value in cell.values_s)
    spread = spread_pct(values)
    short = "; ".join(f"window {cell.window}: {text}" for cell, text, _ in found if text)
    odd = "; ".join(f"window {cell.window}: {text}" for cell, _, text in found if text)
    reason = short or _too_wide(spread, limit, f" of {len(values)} repeats") or odd
    rests_on = "; ".join(dict.fromkeys(part for cell, _, _ in found for part in cell.rests_on.split("; ") if part))
    return cell_of(first.contract, first.form, first.tier, ALL, values, spread, reason, rests_on)


def mixed_tiers(sessions: Sequence[TimedSession]) -> dict[str, str]:
    """Tiers whose repeats cannot be compared: of some another thing was timed, or their iterations come from a bar and
    those of others from the request, and disagree."""
    mixed: dict[str, str] = {}
    for tier in {tier for session in sessions for tier in session.denominators}:
        pairs = {pair for session in sessions for pair in session.denominators.get(tier, ())}
        if len({kind for kind, _ in pairs}) > 1 and len({count for _, count in pairs}) > 1:
            listed = " and ".join(f"{count} ({kind})" for kind, count in sorted(pairs))
            mixed[tier] = f"iterations are not counted alike: {listed}"
        timed = sorted({basis for session in sessions for basis, _ in session.bases.get(tier, ())})
        if len(timed) > 1:
            mixed[tier] = f"not the same is timed: {' and '.join(timed)}"
    return mixed


def _written_twice(sessions: Iterable[TimedSession]) -> dict[tuple[str, str, int], str]:
    """Sessions that are another of their form digit by digit: no clock measures that, a disk or a hand made it.

    Times of few digits may agree by chance; only such as fine as a clock's are held against each other.
    """
    seen: dict[tuple[str, str, tuple[tuple[str, float], ...]], int] = {}
    found: dict[tuple[str, str, int], str] = {}
    for timed in sessions:
        session, times = timed.session, timed.clocked_s
        if len(times) < _FEWEST or any(round(value, _COARSE) == value for _, value in times):
            continue
        first = seen.setdefault((session.contract, session.form, times), session.window)
        if first != session.window:
            found[session.contract, *timed.place] = (
                f"every time equals that of window {first} to the last digit: one measurement, written twice; delete"
                f" {session.form}/w{session.window} and run again"
            )
    return found


def _rounded(cell: Cell) -> Cell:
    return replace(
        cell,
        step_s=_digits(cell.step_s, 9),
        dispersion_pct=_digits(cell.dispersion_pct, 6),
        min_s=_digits(cell.min_s, 9),
        max_s=_digits(cell.max_s, 9),
        values_s=tuple(_digits(value, 9) for value in cell.values_s),
    )


def _digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")
