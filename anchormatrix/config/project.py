"""The project's folder: where relative paths of the configuration start, wherever a command is called from."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def project_folder() -> Path:
    """The working folder when it is a project's, so that one with the code linked in keeps results of its own; else
    the folder that this code lies in.
    """
    here = Path.cwd()
    return here if (here / "config" / "config.yaml").exists() else ROOT


def in_project(path: str) -> Path:
    """A path of the configuration, absolute; ``~`` is the home folder."""
    return project_folder() / Path(path).expanduser()
