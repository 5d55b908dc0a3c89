"""The writers of files: atomic, so that a reader sees the old file or the new one, and in the project's form."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchormatrix.config.secrets import masked
from anchormatrix.errors import cannot_write
from anchormatrix.store.seals import seal_file

SCHEMA = 1


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place when the block ends well: readers see the old or the new.

    Its content is sealed first (:mod:`anchormatrix.store.seals`). Raises :class:`SpaceError` when the disk is full,
    :class:`WriteError` when the folder cannot be written; the old file stays then.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        seal_file(temporary, path)
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(error, path) from None
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write ``data`` to a file, atomically and down to the disk. Raises :class:`WriteError`."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text atomically, without the secrets of the configuration that it may hold."""
    write_bytes(path, masked(text).encode("utf-8"))


def write_json(path: Path | str, values: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, with ``"schema": 1`` as its first key."""
    write_text(path, json_text(values))


def json_text(values: Mapping[str, Any]) -> str:
    """Return the text that :func:`write_json` writes."""
    return json.dumps({"schema": SCHEMA, **values}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_csv(path: Path | str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV with a header, atomically. ``None`` becomes an empty field; a missing key is an error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row[column] is None else row[column] for column in columns])
    write_text(path, text.getvalue())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
