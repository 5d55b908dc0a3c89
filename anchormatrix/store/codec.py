"""The one reader and writer of result files: a record, or a problem with file, place and expectation.

JSON holds one record, JSON lines one record a line, CSV one record a row. What a file may hold is said by its record
alone; msgspec checks it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from anchormatrix.errors import AnchorMatrixError, InputError
from anchormatrix.records.base import SCHEMA, FileRecord, Record
from anchormatrix.store.files import write_text

R = TypeVar("R", bound=Record)
F = TypeVar("F", bound=FileRecord)

_AGAIN = "delete the file; the next run makes it again"
_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<place>.*)`)?", re.DOTALL)


class _Header(msgspec.Struct):
    schema: Literal[1]


def record_text(record: FileRecord) -> str:
    """The text of a record's file: indented JSON with ``"schema": 1`` as its first key.

    Raises ``ValueError`` for a number that is not finite: no result may hold one.
    """
    return json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def line_text(record: Record) -> str:
    """The line of a record in a ledger, with its newline."""
    return json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n"


def plain(record: Record) -> dict[str, Any]:
    """A record as plain JSON values."""
    values: dict[str, Any] = msgspec.to_builtins(record, str_keys=True)
    return values


def write_record(path: Path | str, record: FileRecord) -> None:
    """Write a record to its file, atomically. Raises :class:`WriteError`."""
    write_text(path, record_text(record))


def read_record(path: Path | str, kind: type[F], *, todo: str = _AGAIN) -> F:
    """Read the record of a file.

    Raises :class:`InputError` that names the file, and the place in it and what was expected there, when the file is
    missing, is not JSON, has another schema or is not such a record.
    """
    return parse_record(file_bytes(path), kind, where=str(path), todo=todo)


def parse_record(data: bytes | str, kind: type[R], *, where: str, todo: str = _AGAIN) -> R:
    """The record in a JSON text; ``where`` names its origin in the :class:`InputError` that anything else raises."""
    try:
        if issubclass(kind, FileRecord):
            msgspec.json.decode(data, type=_Header)
        return msgspec.json.decode(data, type=kind)
    except AnchorMatrixError as error:
        raise InputError(error.what, where=where, expected=error.expected, todo=todo) from None
    except msgspec.ValidationError as error:
        raise _wrong(str(error), where, todo) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not readable as JSON ({error})", where=where, todo=todo) from None


def read_lines(path: Path | str, kind: type[F], *, todo: str = _AGAIN, sound: bool = False) -> list[F]:
    """The records of an append-only ledger; a missing file is an empty one.

    A last line without its newline was cut off while being written and is left out. Any other line that holds no such
    record raises :class:`InputError` with its number; where only the ``sound`` ones are asked for, it is left out.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from None
    lines = enumerate(data.split(b"\n")[:-1], start=1)
    records = []
    for number, line in lines:
        with contextlib.suppress(*([InputError] if sound else [])):
            records.append(parse_record(line, kind, where=f"{path}:{number}", todo=todo))
    return records


def table_text(kind: type[R], rows: Iterable[R]) -> str:
    """The text of a CSV file: a header of the record's fields, a row a record.

    Nothing is an empty field, truth is ``true`` or ``false``, a list is joined with ``;``.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(kind))
    writer.writerows([_field(getattr(row, name)) for name in kind.__struct_fields__] for row in rows)
    return text.getvalue()


def write_table(path: Path | str, kind: type[R], rows: Iterable[R]) -> None:
    """Write records as a CSV file, atomically. Raises :class:`WriteError`."""
    write_text(path, table_text(kind, rows))


def read_table(path: Path | str, kind: type[R], *, todo: str = "delete the file and run again") -> tuple[R, ...]:
    """The records of a CSV file; an empty field is a field's default.

    Raises :class:`InputError` that names the file, and line and column where there is one.
    """
    try:
        rows = list(csv.reader(file_bytes(path).decode("utf-8").splitlines(keepends=True), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path), todo=todo) from None
    header = rows[0] if rows else []
    lacking = [name for name in columns(kind) if name not in header and name not in kind.added]
    if lacking:
        raise InputError(f"has no column {lacking[0]}", where=str(path), todo=todo)
    lists = {field.encode_name for field in msgspec.structs.fields(kind) if "tuple" in str(field.type)}
    return tuple(
        _row(dict(zip(header, row, strict=False)), kind, lists, where=f"{path}:{number}", todo=todo)
        if len(row) == len(header)
        else _refuse_row(len(row), len(header), f"{path}:{number}", todo)
        for number, row in enumerate(rows[1:], start=2)
    )


def columns(kind: type[Record]) -> Sequence[str]:
    """The columns of a record's CSV file."""
    return kind.__struct_encode_fields__


def file_bytes(path: Path | str) -> bytes:
    """The content of a result file. Raises :class:`InputError` that says what makes a missing one."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), todo="run the step that makes it first") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error})", where=str(path), todo=_AGAIN) from None


def _field(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, tuple) else value


def _row(values: dict[str, str], kind: type[R], lists: set[str], *, where: str, todo: str) -> R:
    given: dict[str, Any] = {key: value for key, value in values.items() if value != ""}
    given |= {key: given[key].split(";") for key in lists if key in given}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(str(error), where, todo) from None


def _refuse_row(found: int, expected: int, where: str, todo: str) -> Any:
    raise InputError(f"has {found} fields", where=where, expected=str(expected), todo=todo)


def _wrong(message: str, where: str, todo: str) -> InputError:
    """msgspec's message as an error of ours: the place inside the file, what is wrong there, what was expected."""
    match = _PLACE.fullmatch(message)
    problem, place = (match["problem"], match["place"]) if match else (message, None)
    expected, _, got = problem.removeprefix("Expected ").partition(", got ")
    if place == "schema":
        return InputError("is of another schema", where=where, expected=f'"schema": {SCHEMA}', todo=todo)
    what = f"{place or 'the content'} is {got}" if got else f"{place}: {problem}" if place else problem
    return InputError(what.replace("`", ""), where=where, expected=expected.replace("`", "") if got else "", todo=todo)
