"""Locks on cards: one file per card, held by the kernel for whoever has it open.

What lies in the files is for people, and anybody may have written it: a card is held by whom the kernel says, and
suspect by the notes of :mod:`anchormatrix.hosts.lease_folder.notes`.

Standard library only, Python 3.8 or later: the supervision agent brings this file to hosts that know nothing of this
project.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anchormatrix.hosts.lease_folder import files, notes

_PASSING_LOOK_S = 0.2
_MAKING_S = 0.1
_NAME = re.compile(r"card-(0|[1-9][0-9]{0,3})\.lock", re.ASCII)
_AGENT = "agent"


class HeldError(Exception):
    """A card is held by somebody else; ``holder`` is what they wrote, and ``locker`` whom the kernel names instead."""

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
    files.make_folder(directory)
    begin = time.monotonic()
    while True:
        try:
            return _take_now(directory, sorted(set(cards)), holder)
        except (HeldError, _ReplacedError):
            waited = time.monotonic() - begin
            if waited >= max(wait_s, _PASSING_LOOK_S):
                raise
            pause(random.uniform(0.002, 0.02 if waited < 1 else 0.2))


def give_back(locks: Sequence[int], clear: bool = True) -> None:
    """Close the locks; ``clear`` also wipes what was said of the holder (not while something may still hold on)."""
    for file in locks:
        if clear:
            files.write_words(file, {})
    for file in locks:
        os.close(file)


def holders(directory: str) -> list[dict[str, Any]]:
    """What is known of each card, ascending: ``card``, ``held``, what the holder said, ``locker`` (whom the kernel
    names, where that is somebody else), ``suspect`` if noted, and ``problem`` where its file is not as it must be.

    Cards of which there is nothing to say are left out. Raises ``OSError`` when there is a folder that cannot be read.
    """
    before = files.kernel_locks()
    found: dict[int, dict[str, Any]] = {
        card: {"suspect": notes.in_words(said)} for card, said in notes.against(directory).items()
    }
    shared: list[tuple[int, str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name:
                card = int(name[1])
                seen, lock = _look(entry.path)
                if lock in before and not seen.get("held"):
                    shared.append((card, lock))
                if seen:
                    found.setdefault(card, {}).update(seen)
    for card, lockers in _lasting(shared, before):
        found.setdefault(card, {}).update(held=True, locker=_in_words(lockers))
    return [{"held": False, **found[card], "card": card} for card in sorted(found)]


class _ReplacedError(OSError):
    """A lock file was replaced under us: the folder was deleted, or somebody plays with it."""


def _take_now(directory: str, cards: Sequence[int], holder: dict[str, Any]) -> list[int]:
    taken: list[int] = []
    try:
        for card in cards:
            path = str(Path(directory) / f"card-{card}.lock")
            taken.append(_open_lock(path))
            try:
                fcntl.flock(taken[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HeldError(card, _holder(taken[-1])) from None
            if not _is_still(path, taken[-1]):
                raise _ReplacedError(errno.ESTALE, "is replaced again and again", path)
        for card, file in zip(cards, taken):  # noqa: B905  Python 3.8 has no strict
            files.write_words(file, {**holder, "card": card, _AGENT: os.getpid()})
    except BaseException:
        give_back(taken, clear=False)
        raise
    return taken


def _open_lock(path: str) -> int:
    """Open a lock file, made if need be; one that we may only read can be locked all the same."""
    begin = time.monotonic()
    while True:
        # Without O_CREAT first: kernels refuse O_CREAT on another user's file in a sticky folder.
        with contextlib.suppress(FileNotFoundError):
            try:
                return files.open_regular(path, os.O_RDWR)
            except PermissionError:
                if time.monotonic() - begin > _MAKING_S:  # else its maker has not opened it to everybody yet
                    return _open_to_read(path)
                time.sleep(0.005)
                continue
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(file, 0o666)
            return file
        if time.monotonic() - begin > _MAKING_S:
            raise _ReplacedError(errno.ESTALE, "is replaced again and again", path)


def _open_to_read(path: str) -> int:
    try:
        return files.open_regular(path, os.O_RDONLY)
    except PermissionError:
        raise files.StrangeError(f"{files.described(path, os.lstat(path))}: it may not be opened") from None


def _look(path: str) -> tuple[dict[str, Any], str]:
    """What is to be said of a lock file, and its lock's name for the kernel."""
    try:
        file = files.open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return {}, ""
    except PermissionError:
        return {"problem": f"{files.described(path, os.lstat(path))}: it may not be opened"}, ""
    except OSError as error:
        return {"problem": f"{error}, and no lock"}, ""
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return {**_holder(file), "held": True}, ""
        said, owner = files.read_words(file), files.user(os.fstat(file).st_uid)
        if said is None:
            size = os.fstat(file).st_size
            return {
                "problem": f"{path} of {owner} holds {size} bytes that say nothing of a holder; the card is free"
            }, ""
        if said.get(notes.SUSPECT):
            text = f"{path} of {owner} calls the card suspect («{said[notes.SUSPECT]}»), which is not believed"
            return {"problem": text}, files.lock_name(file)
        return {}, files.lock_name(file)
    finally:
        os.close(file)


def _holder(file: int) -> dict[str, Any]:
    """What a holder wrote, and ``locker``: whom the kernel names, where that is not who wrote it."""
    said = files.read_words(file) or {}
    agent = said.pop(_AGENT, "")
    for ours in ("card", notes.SUSPECT, "locker", "problem", "held"):
        said.pop(ours, None)
    lockers = files.kernel_locks().get(files.lock_name(file), set()) - {os.getpid()}
    users = {files.process_user(pid) for pid in lockers}
    if lockers and not (agent in map(str, lockers) and users <= {said.get("user"), ""}):
        said["locker"] = _in_words(lockers)
    return dict(said)


def _in_words(lockers: set[int]) -> str:
    users = {pid: files.process_user(pid) for pid in sorted(lockers)[:3]}
    return ", ".join(f"pid {pid} of {user}" if user else f"what pid {pid} has started" for pid, user in users.items())


def _lasting(shared: list[tuple[int, str]], before: dict[str, set[int]]) -> list[tuple[int, set[int]]]:
    """Of the cards that others hold a shared lock on, those where it is more than a look like ours."""
    if not shared:
        return []
    time.sleep(_PASSING_LOOK_S / 2)
    now, us = files.kernel_locks(), {os.getpid()}
    kept = [(card, (before[lock] & now.get(lock, set())) - us) for card, lock in shared]
    return [(card, lockers) for card, lockers in kept if lockers]


def _is_still(path: str, file: int) -> bool:
    try:
        named = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except FileNotFoundError:
        return False
    mine = os.fstat(file)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
