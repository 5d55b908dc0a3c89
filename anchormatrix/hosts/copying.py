"""Files fetched from a host: as a plain byte stream, continued where it broke off."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from anchormatrix.errors import HostError, InputError, SpaceError, cannot_write
from anchormatrix.hosts.supervision import AgentClient

_STALL_S = 60.0


@dataclass(frozen=True)
class RemoteFile:
    """One regular file; ``name`` is relative to what was asked for, empty when that is the file itself."""

    name: str
    size: int
    modified: int


Listing = tuple[RemoteFile, ...]


def parse_listing(text: str, where: str) -> Listing:
    """Read ``find -printf '%s %T@ %P\\0'``. Raises :class:`InputError` for a name that leads outside."""
    found = []
    for entry in text.split("\0"):
        if entry:
            size, modified, name = entry.split(" ", 2)
            if "\ufffd" in name:
                raise InputError(f"lists a file whose name is not UTF-8: {name!r}", where=where)
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise InputError(f"lists a file outside of it: {name!r}", where=where)
            found.append(RemoteFile(name, int(size), int(float(modified))))
    return tuple(found)


def fetch_files(client: AgentClient, path: str, listing: Listing, to: Path, alias: str) -> None:
    """Fetch every file of a listing.

    A file that broke off is continued if it is still the same version there. Raises :class:`HostError`, and
    :class:`SpaceError` when there is no room here.
    """
    try:
        if not (len(listing) == 1 and not listing[0].name):
            to.mkdir(parents=True, exist_ok=True)
        for file in listing:
            target = to / file.name if file.name else to
            origin = f"{path.rstrip('/')}/{file.name}" if file.name else path
            _fetch_file(client, origin, file, target, alias)
    except OSError as error:
        if isinstance(problem := cannot_write(error, to), SpaceError):
            raise problem from None
        raise HostError(
            f"cannot be kept at {to} ({error.strerror})", where=f"{alias}:{path}", todo="see the free space here"
        ) from None


def _fetch_file(client: AgentClient, origin: str, file: RemoteFile, to: Path, alias: str) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.{file.size}-{file.modified}.part")  # only the same version is continued
    for stale in to.parent.glob(f".{glob.escape(to.name)}.*.part"):
        if stale != part:
            stale.unlink(missing_ok=True)
    with part.open("ab") as stream:
        have = stream.tell()
        if have > file.size:
            stream.truncate(0)
            have = 0
        if have < file.size:
            try:
                answer = client.stream(file.size - have, _STALL_S, stream.write, file=origin, offset=have)
            except HostError:
                if stream.tell() >= file.size:  # whole, and no answer after it: something else was printed among it
                    stream.truncate(0)
                raise
            if "error" in answer:
                raise HostError(f"cannot be read ({answer['text']})", where=f"{alias}:{origin}")
    os.utime(part, (file.modified, file.modified))
    os.replace(part, to)
