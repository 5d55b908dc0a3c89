"""Notes against cards on which a job had to be killed, and how they are answered.

A note is a file of its writer's own, ``card-N.suspect.…``, for nobody else to write: its owner is who says it. Whoever
says it, the word costs a smoke and no more: the user whose smoke passes removes the note or, where it is another's,
answers it with a file ``card-N.trusted.…`` that counts for that user alone (root's for all).

Standard library only, Python 3.8 or later: see :mod:`anchormatrix.hosts.lease_folder.files`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from anchormatrix.hosts.lease_folder import files

SUSPECT = "suspect"
_TRUSTED = "trusted"
_NAME = re.compile(r"card-(0|[1-9][0-9]{0,3})\.(suspect|trusted)\.\w+", re.ASCII)
_MOST_TEXTS = 3


class Note(NamedTuple):
    """A file about a card; ``changed_ns`` is when the kernel last saw it change, which no user can set."""

    path: str
    card: int
    kind: str
    owner: int
    changed_ns: int


def note(directory: str, card: int, text: str) -> None:
    """Note against a card what happened on it, in place of what this user noted before."""
    before = [one for one in _all(directory) if (one.card, one.kind, one.owner) == (card, SUSPECT, os.geteuid())]
    _make(directory, card, SUSPECT, {SUSPECT: text})
    for one in before:
        with contextlib.suppress(OSError):
            os.unlink(one.path)


def trust(directory: str, card: int) -> None:
    """Answer what is noted against a card: a smoke has passed on it."""
    left = False
    for one in [one for one in _all(directory) if one.card == card]:
        try:
            os.unlink(one.path)
        except OSError:
            left = left or one.kind == SUSPECT
    if left:
        _make(directory, card, _TRUSTED, {})


def against(directory: str) -> dict[int, list[Note]]:
    """The notes that have not been answered, by card: this user's, then the newest of others."""
    us, every = os.geteuid(), list(_all(directory))
    answered: dict[int, int] = {}
    for one in every:
        if one.kind == _TRUSTED and one.owner in (0, us):
            answered[one.card] = max(answered.get(one.card, 0), one.changed_ns)
    found: dict[int, list[Note]] = {}
    for one in sorted(every, key=lambda one: (one.owner != us, -one.changed_ns)):
        if one.kind == SUSPECT and (one.owner == us or one.changed_ns > answered.get(one.card, 0)):
            found.setdefault(one.card, []).append(one)
    return found


def in_words(notes: list[Note]) -> str:
    """What notes say, and who says it unless that is this user."""
    texts = [_text(one) for one in notes[:_MOST_TEXTS]]
    return "; ".join(texts) + (f"; and {len(notes) - _MOST_TEXTS} more" if len(notes) > _MOST_TEXTS else "")


def _text(one: Note) -> str:
    said = "a note that cannot be read"
    with contextlib.suppress(OSError):
        file = files.open_regular(one.path, os.O_RDONLY)
        try:
            said = (files.read_words(file) or {}).get(SUSPECT) or "noted without a word"
        finally:
            os.close(file)
    return said if one.owner == os.geteuid() else f"{said}, said by {files.user(one.owner)}"


def _all(directory: str) -> Iterator[Note]:
    """The notes of a folder: regular files that only their owner can write, so that it is the owner who speaks."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name:
                with contextlib.suppress(OSError):
                    seen = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(seen.st_mode) and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                        yield Note(entry.path, int(name[1]), name[2], seen.st_uid, seen.st_ctime_ns)


def _make(directory: str, card: int, kind: str, values: dict[str, str]) -> None:
    """A new file under a name that nobody can have taken before; nothing where it cannot be made."""
    with contextlib.suppress(OSError):
        file, _ = tempfile.mkstemp(prefix=f"card-{card}.{kind}.", dir=str(Path(directory)))
        try:
            files.write_words(file, values)
            os.fchmod(file, 0o644)
        finally:
            os.close(file)
