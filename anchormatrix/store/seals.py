"""The seals of a results folder: the digest of every file that was ever put there, so that another content is noticed.

The writers record a file before it takes its place, so a writer killed in between leaves a seal too many and never one
too few. Of a ledger every line has a seal of its own: its file grows, and never is the one that was recorded.

``results/.run/seals`` holds a line for each: its own checksum, the digest, the size in bytes, and the path below the
results folder as JSON. It is there from the first run on; a folder without it belongs to no run, and nothing is
recorded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

FILE = ".run/seals"
_NO_RESULTS = frozenset({"logs", "benchmarks"})
_THREADS = 4  # hashing holds no lock of the interpreter
Seal = tuple[str, str, int]
"""A path below the results folder, the SHA-256 of its content, and its size in bytes."""


@dataclass(frozen=True)
class Seals:
    """What is recorded of a results folder. ``whole``: whether the record is there and every line of it is sound."""

    known: Mapping[str, frozenset[tuple[str, int]]]
    whole: bool = True

    def hold(self, seal: Seal) -> bool:
        """Whether this content was recorded for this path."""
        return seal[1:] in self.known.get(seal[0], ())


def seal_file(made: Path, place: Path) -> None:
    """Record the content of a file that is about to be renamed to ``place``. Raises ``OSError``."""
    _record(place, lambda name: [_seal_of(made, name)])


def seal_folder(made: Path, place: Path) -> None:
    """Record all files of a folder that is about to be renamed to ``place``. Raises ``OSError``."""
    _record(
        place,
        lambda name: seals_of({str(PurePosixPath(name, path.relative_to(made))): path for path in files_below(made)}),
    )


def seal_lines(ledger: Path, lines: Iterable[bytes]) -> None:
    """Record lines that are about to be appended to a ledger, each without its newline. Raises ``OSError``."""
    _record(ledger, lambda name: [seal_of_line(name, line) for line in lines])


def seal_of_line(name: str, line: bytes) -> Seal:
    """The seal of one line of a ledger."""
    return name, hashlib.sha256(line).hexdigest(), len(line)


def seals_of(files: Mapping[str, Path]) -> list[Seal]:
    """The seals of files as they are now, by their names; one that is gone has none. Raises ``OSError``."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return [seal for seal in pool.map(_seal_if_there, files.values(), files) if seal]


def read_seals(results: Path) -> Seals:
    """What is recorded of a results folder. Raises ``OSError`` when it cannot be read."""
    try:
        content = (results / FILE).read_bytes()
    except FileNotFoundError:
        return Seals({}, whole=False)
    known: dict[str, set[tuple[str, int]]] = {}
    lines = content.split(b"\n")[:-1]  # what follows the last newline is of a writer that was killed
    sound = [seal for line in lines if (seal := _parsed(line))]
    for name, digest, size in sound:
        known.setdefault(name, set()).add((digest, size))
    return Seals({name: frozenset(found) for name, found in known.items()}, whole=len(sound) == len(lines))


def write_seals(results: Path, seals: Sequence[Seal], read: Seals) -> None:
    """Make these seals all that is recorded, with what was recorded since ``read``. Raises ``OSError``."""
    path = results / FILE
    with appending(path):
        now = read_seals(results)
        since = [(name, *one) for name, found in now.known.items() for one in found - read.known.get(name, frozenset())]
        part = path.with_name(f".{path.name}.part")
        with part.open("wb") as stream:
            stream.write(b"".join(map(_line, dict.fromkeys([*seals, *since]))))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)


def files_below(folder: Path) -> Iterator[Path]:
    """The regular files of a folder and of those in it, without hidden ones."""
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(base, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


@contextlib.contextmanager
def appending(path: Path) -> Iterator[BinaryIO]:
    """A file open for appending under its lock; what a killed writer left after the last whole line is removed first.

    Raises ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if not _is_now(path, stream):
                continue  # another file took its place while the lock was waited for
            stream.seek(0)
            content = stream.read()
            if not content.endswith(b"\n"):
                stream.truncate(content.rfind(b"\n") + 1)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            return


def _is_now(path: Path, stream: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return False


def _record(place: Path, make: Callable[[str], Iterable[Seal]]) -> None:
    """Append the seals that ``make`` gives for a path's name below its results folder, where it lies in one."""
    place = place.absolute()
    home = next((parent for parent in place.parents if (parent / FILE).exists()), None)
    if home is None or (name := _name(place, home)) is None:
        return
    lines = b"".join(map(_line, make(name)))
    with appending(home / FILE) as stream:
        stream.write(lines)


def _name(path: Path, results: Path) -> str | None:
    parts = path.relative_to(results).parts
    hidden = any(part.startswith(".") for part in parts)
    return None if hidden or parts[0] in _NO_RESULTS else "/".join(parts)


def _seal_of(path: Path, name: str) -> Seal:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return name, digest, stream.tell()


def _seal_if_there(path: Path, name: str) -> Seal | None:
    try:
        return _seal_of(path, name)
    except FileNotFoundError:
        return None


def _line(seal: Seal) -> bytes:
    name, digest, size = seal
    content = f"{digest} {size} {json.dumps(name)}".encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _parsed(line: bytes) -> Seal | None:
    checksum, _, content = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(content):
        return None
    digest, size, name = content.decode("ascii").split(" ", 2)
    return json.loads(name), digest, int(size)
