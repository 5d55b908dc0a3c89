"""Files that any user of the host may have made: looked at before they are opened, read in part, never believed.

Standard library only, Python 3.8 or later: the supervision agent brings this file to hosts that know nothing of this
project.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import stat
from pathlib import Path
from typing import Any

MOST_BYTES = 8192
_MOST_CHARACTERS = 200
_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class StrangeError(OSError):
    """Something in the lease folder is not what it must be; the text says what it is, whose, and where."""


def open_regular(path: str, flags: int) -> int:
    """Open a regular file. Raises :class:`StrangeError` for anything else, and ``OSError``.

    It is looked at first: a FIFO would be waited for, and opening a device can do things.
    """
    seen = os.lstat(path)
    if stat.S_ISREG(seen.st_mode):
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        seen = os.fstat(file)
        if stat.S_ISREG(seen.st_mode):
            return file
        os.close(file)
    raise StrangeError(described(path, seen))


def make_folder(directory: str) -> None:
    """Make the folder of leases, or see that nobody can take another's files out of the one that is there.

    Raises :class:`StrangeError` where somebody else can, and ``OSError``.
    """
    path = Path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o1777)  # every user of the host shares it; nobody removes another's file
        return
    trusted = {0, os.geteuid()}
    seen = path.lstat()
    if stat.S_ISLNK(seen.st_mode):
        if seen.st_uid not in trusted:
            raise StrangeError(described(directory, seen))
        seen = path.stat()
    if not stat.S_ISDIR(seen.st_mode):
        raise StrangeError(described(directory, seen))
    if seen.st_mode & stat.S_IWOTH and not seen.st_mode & stat.S_ISVTX:
        if seen.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(seen.st_mode) | stat.S_ISVTX)
        elif seen.st_uid not in trusted:
            raise StrangeError(f"{described(directory, seen)}: anybody can take another's locks out of it (chmod +t)")


def described(path: str, seen: os.stat_result) -> str:
    """What a path is and whose: ``/tmp/leases/card-0.lock is a FIFO of uid 12345, mode 644``."""
    kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "something")
    return f"{path} is {kind} of {user(seen.st_uid)}, mode {stat.S_IMODE(seen.st_mode):03o}"


def user(uid: int) -> str:
    """A user by name, or by number where the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return f"uid {uid}"


def read_words(file: int) -> dict[str, str] | None:
    """The words in a file, a JSON object of short texts; ``None`` where it holds something else.

    Only its first bytes are read, values that are neither text nor a number are left out, and long ones are cut.
    """
    raw = os.pread(file, MOST_BYTES, 0)
    if not raw:
        return {}
    try:
        values: Any = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    return {key: str(value)[:_MOST_CHARACTERS] for key, value in values.items() if isinstance(value, (str, int))}


def write_words(file: int, values: dict[str, Any]) -> None:
    """Write words for people into an open file, or nothing where that cannot be: no lock depends on them."""
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        if values:
            os.pwrite(file, json.dumps(values).encode(), 0)


def kernel_locks() -> dict[str, set[int]]:
    """The processes that hold ``flock`` locks, by :func:`lock_name`; empty where the system does not tell."""
    found: dict[str, set[int]] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK":
                found.setdefault(fields[5], set()).add(int(fields[4]))
    return found


def lock_name(file: int) -> str:
    """The name under which the kernel lists the locks of an open file."""
    seen = os.fstat(file)
    return f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"


def process_user(pid: int) -> str:
    """Whose a process is; empty when it has ended (a lock lives on with those that inherited it)."""
    try:
        return user(Path("/proc", str(pid)).stat().st_uid)
    except OSError:
        return ""
