"""A big CSV file of the profiler: only the needed columns, every physical line accounted for.

Real files have rows that break over lines inside an unquoted field. Such rows are left out and counted; a row is never
pieced together. Arrow's reader does the work at full speed; only when its count of lines does not add up (a stray
quotation mark swallows lines until the next one, bytes that are no UTF-8) is the file copied once without bad lines.
"""

from __future__ import annotations

import csv
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from anchormatrix.captures.csvpieces import CHUNK, Parsed, empty_rows, open_binary, parse_pieces
from anchormatrix.errors import InputError, quoted_line

WRONG_FIELDS = "broken over lines or wrong number of fields"
OPEN_QUOTE = "unbalanced quotation marks"
_JOIN_LINES = 8


@dataclass
class UnusableRows:
    """Rows left out of a table, by cause, and the first of them with its line number (1 is the header)."""

    causes: Counter[str] = field(default_factory=Counter)
    first_line: int = 0
    first_text: str = ""

    def add(self, cause: str, line: int, text: str, count: int = 1) -> None:
        """Count rows of one cause; ``line`` and ``text`` are those of the first."""
        if not count:
            return
        self.causes[cause] += count
        if not self.first_line or line < self.first_line:
            self.first_line, self.first_text = line, text

    @property
    def total(self) -> int:
        """All causes together."""
        return self.causes.total()

    def refuse_above(self, limit_pct: float, rows_read: int, where: str) -> None:
        """Raise :class:`InputError` with the first unusable row when too many of ``rows_read`` rows are unusable."""
        if self.total * 100 > limit_pct * rows_read:
            causes = ", ".join(f"{cause}: {count}" for cause, count in self.causes.most_common())
            raise InputError(
                f"{self.total} of {rows_read} rows are unusable ({causes}), first {quoted_line(self.first_text)}",
                where=f"{where}:{self.first_line}",
                expected=f"at most {limit_pct:g} %",
                todo="capture again, or repair the file",
            )


def read_header(path: Path) -> list[str]:
    """Return the column names; a byte order mark and blanks round the names are dropped.

    Raises :class:`InputError` for an empty file and for a name that occurs twice.
    """
    try:
        with open_binary(path) as stream:
            line = stream.readline(1 << 20).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from None
    names = [name.strip() for name in _fields(line)]
    if not any(names):
        raise InputError("is empty", where=str(path), expected="a CSV header", todo="capture again")
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise InputError(f"column {twice[0]!r} occurs twice", where=f"{path}:1")
    return names


def holds_rows(path: Path) -> bool:
    """Whether anything stands behind the header; a file that cannot be read does, so that it is refused by name."""
    try:
        with open_binary(path) as stream:
            return any(line.strip() for line in islice(stream, 1, None))
    except (OSError, EOFError, zlib.error):
        return True


def line_of(path: Path, number: int) -> str:
    """Return one physical line, without its end."""
    with open_binary(path) as stream:
        return next(islice(stream, number - 1, None), b"").decode("utf-8", errors="replace").rstrip("\r\n")


def read_columns(path: Path, columns: Sequence[str], microseconds: Sequence[str]) -> tuple[pa.Table, UnusableRows]:
    """Read some columns as dictionary-encoded text, those in ``microseconds`` as whole ns, null where that is no time.

    The table has one row per usable row, in file order, so without unusable rows row *i* stands on line *i + 2*. The
    file is never in memory as a whole. Raises :class:`InputError` when it is cut off or no CSV.
    """
    names = read_header(path)
    bad = UnusableRows()
    try:
        found = parse_pieces(path, names, columns, microseconds)
        accounted = found.table.num_rows + len(found.broken) == found.lines - 1
        accounted = accounted and not any("\n" in text for _, text in found.broken)
    except pa.ArrowInvalid:
        accounted = False
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), todo="capture again") from None
    numbered: Callable[[int], int] = int
    if not accounted:
        with _clean_copy(path, bad) as (copy, original_line):
            try:
                found = parse_pieces(copy, names, columns, microseconds)
            except pa.ArrowInvalid as error:
                if _lines(copy) > 1:
                    raise InputError(
                        f"is not readable as CSV ({quoted_line(str(error))})", where=str(path), todo="capture again"
                    ) from None
                found = Parsed(empty_rows(columns, microseconds), [], 1)
            numbered = original_line
    for line, count, first in _broken_rows(found.broken, len(names)):
        bad.add(WRONG_FIELDS, numbered(line), first, count)
    return found.table, bad


def _broken_rows(broken: list[tuple[int, str]], fields: int) -> Iterator[tuple[int, int, str]]:
    """Yield ``(line, 1, text)`` per broken row: neighbouring lines whose fields add up to one row are one row."""
    position = 0
    while position < len(broken):
        line, text = broken[position]
        width, taken = _width(text), 1
        while width < fields and position + taken < len(broken) and broken[position + taken][0] == line + taken:
            width += _width(broken[position + taken][1]) - 1
            taken += 1
        if width != fields:
            taken = 1
        yield line, 1, text
        position += taken


def _width(text: str) -> int:
    return len(_fields(text))


def _fields(line: str) -> list[str]:
    """The fields of one line; none when no CSV reader would take it for one."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _lines(path: Path) -> int:
    """Return the number of physical lines, blank ones included."""
    count, last = 0, b"\n"
    with open_binary(path) as stream:
        while block := stream.read(CHUNK):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


@contextmanager
def _clean_copy(path: Path, bad: UnusableRows) -> Iterator[tuple[Path, Callable[[int], int]]]:
    """Copy the file without blank lines and without lines that leave a quotation mark open.

    A quoted field may hold a line break: lines that close each other's quotes within a few lines and together have the
    right number of fields are one good row, and are joined by a blank.
    """
    kept: list[int] = []
    with tempfile.NamedTemporaryFile(suffix=".csv", delete=True) as copy:
        with open_binary(path) as stream:
            for number, line in _balanced_lines(stream, len(read_header(path)), bad):
                copy.write(line)
                kept.append(number)
        copy.flush()
        yield Path(copy.name), lambda line: kept[min(line, len(kept)) - 1]


def _balanced_lines(stream: BinaryIO, fields: int, bad: UnusableRows) -> Iterator[tuple[int, bytes]]:
    pending: list[tuple[int, bytes]] = []
    source = enumerate(stream, start=1)
    while True:
        number, line = pending.pop(0) if pending else next(source, (0, b""))
        if not number:
            return
        if not line.strip():
            continue
        if line.count(b'"') % 2 == 0:
            yield number, _utf8(line)
            continue
        pending += islice(source, max(0, _JOIN_LINES - len(pending)))
        whole, used = line, 0
        while whole.count(b'"') % 2 and used < len(pending):
            whole = whole.rstrip(b"\r\n") + b" " + pending[used][1]
            used += 1
        text = _utf8(whole)
        if whole.count(b'"') % 2 == 0 and _width(text.decode()) == fields:
            del pending[:used]
            yield number, text
        else:
            bad.add(OPEN_QUOTE, number, line.decode("utf-8", errors="replace"))


def _utf8(line: bytes) -> bytes:
    return line.decode("utf-8", errors="replace").encode("utf-8")
