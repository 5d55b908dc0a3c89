"""Copies of what a host made, where they are kept: under a temporary name first, folders file by file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def copied_file(origin: Path, to: Path) -> None:
    """Copy one file; its name appears when it is whole."""
    to.parent.mkdir(parents=True, exist_ok=True)
    part = part_name(to, origin.stat().st_size, int(origin.stat().st_mtime))
    try:
        shutil.copyfile(origin, part)
        os.replace(part, to)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def copied_tree(origin: Path, to: Path) -> None:
    """Copy the regular files of a folder; links are left out, for they may lead anywhere."""
    to.mkdir(parents=True, exist_ok=True)
    for path in sorted(origin.rglob("*")):
        if path.is_file() and not path.is_symlink():
            copied_file(path, to / path.relative_to(origin))


def part_name(to: Path, size: int, modified: int) -> Path:
    """The temporary name of a file on its way: it names the version, so that only the same one is continued."""
    return to.with_name(f".{to.name}.{size}-{modified}.part")
