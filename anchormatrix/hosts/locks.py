"""Locks on cards: one file per card, held by the kernel for whoever has it open.

Standard library only, Python 3.8 or later: the supervision agent brings this file to hosts that know nothing of this
project.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SUSPECT = "suspect"
_HOLDER_BYTES = 8192
_PASSING_LOOK_S = 0.2


class HeldError(Exception):
    """A card is held by somebody else; ``holder`` is what they wrote about themselves."""

    def __init__(self, card: int, holder: dict[str, Any]) -> None:
        super().__init__(card)
        self.card = card
        self.holder = holder


def take(
    directory: str, cards: Sequence[int], holder: dict[str, Any], wait_s: float, pause: Callable[[float], None]
) -> list[int]:
    """Lock all cards or none, in ascending order, and return the open files in that order.

    Nothing is held while waiting, so two who wait for each other's cards cannot block one another. Raises
    :class:`HeldError` when a card is still held after ``wait_s``, ``OSError`` when the folder cannot be used.
    """
    _make_folder(directory)
    begin = time.monotonic()
    while True:
        try:
            files = _take_now(directory, sorted(set(cards)), holder)
        except HeldError:
            waited = time.monotonic() - begin
            if waited >= max(wait_s, _PASSING_LOOK_S):
                raise
            pause(random.uniform(0.002, 0.02 if waited < 1 else 0.2))
        else:
            if files is not None:
                return files


def open_lock(directory: str, card: int) -> int:
    """Open the lock file of a card, made if need be, without locking it."""
    path, flags = _lock_path(directory, card), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(20):
        # Without O_CREAT first: kernels refuse O_CREAT on another user's file in a sticky folder.
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        except PermissionError:
            time.sleep(0.005)  # its maker has not opened it to everybody yet
            continue
        with contextlib.suppress(FileExistsError):
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(file, 0o666)
            return file
    return os.open(path, flags)


def give_back(files: Sequence[int], clear: bool = True) -> None:
    """Close the locks; ``clear`` also wipes what was said of the holder (not while something may still hold on)."""
    for file in files:
        if clear:
            with contextlib.suppress(OSError):
                _write_holder(file, {key: value for key, value in _read_holder(file).items() if key == SUSPECT})
    for file in files:
        os.close(file)


def suspect_since(file: int) -> Any:
    """What is noted against a locked card: ``None``, or what happened on it."""
    return _read_holder(file).get(SUSPECT)


def mark(files: Sequence[int], note: Any) -> None:
    """Note against locked cards that a job on them had to be killed; ``None`` takes the note away."""
    for file in files:
        said = {key: value for key, value in _read_holder(file).items() if key != SUSPECT}
        _write_holder(file, {**said, SUSPECT: note} if note else said)


def holders(directory: str) -> list[dict[str, Any]]:
    """What is known of each card, ascending: ``card``, ``held``, what the holder said, and ``suspect`` if noted.

    Cards that are neither held nor suspect are left out.
    """
    found = []
    for path in Path(directory).glob("card-*.lock"):
        digits = path.name[len("card-") : -len(".lock")]
        if digits.isdigit():
            file = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                said = {key: value for key, value in _read_holder(file).items() if key == SUSPECT}
                held = False
            except BlockingIOError:
                said, held = _read_holder(file), True
            finally:
                os.close(file)
            if held or said:
                found.append({**said, "card": int(digits), "held": held})
    return sorted(found, key=lambda holder: int(holder["card"]))


def _lock_path(directory: str, card: int) -> str:
    return str(Path(directory) / f"card-{card}.lock")


def _make_folder(directory: str) -> None:
    path = Path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o1777)  # every user of the host shares it; nobody removes another's file


def _take_now(directory: str, cards: Sequence[int], holder: dict[str, Any]) -> list[int] | None:
    """Lock the cards, or ``None`` when a file was replaced under us (the folder was deleted) and it must be retried."""
    files: list[int] = []
    try:
        for card in cards:
            files.append(open_lock(directory, card))
            try:
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HeldError(card, _read_holder(files[-1])) from None
            if not _is_still(_lock_path(directory, card), files[-1]):
                give_back(files, clear=False)
                return None
        for card, file in zip(cards, files):  # noqa: B905  Python 3.8 has no strict
            noted = suspect_since(file)
            _write_holder(file, {**holder, "card": card, **({SUSPECT: noted} if noted else {})})
    except BaseException:
        give_back(files, clear=False)
        raise
    return files


def _is_still(path: str, file: int) -> bool:
    try:
        named = Path(path).stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(file)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino) and stat.S_ISREG(mine.st_mode)


def _write_holder(file: int, values: dict[str, Any]) -> None:
    os.ftruncate(file, 0)
    if values:
        os.pwrite(file, json.dumps(values).encode(), 0)


def _read_holder(file: int) -> dict[str, Any]:
    try:
        values = json.loads(os.pread(file, _HOLDER_BYTES, 0).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
