"""The library has floors: a lower one never imports a higher one, and none knows the workflow or the virtual host."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = (
    {"errors"},
    {"records"},
    {"config"},
    {"store"},
    {"hosts"},
    {"devices"},
    {"engines"},
    {"model_files"},
    {"history"},
    {"planning"},
    {"doctor"},
    {"new_config"},
    {"captures"},
    {"outputs"},
    {"measure"},
    {"attribution"},
    {"decide"},
    {"offline"},
    {"report"},
    {"nightly"},
    {"cli"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(path for path in (ROOT / "anchormatrix").rglob("*.py") if path.name != "__init__.py")


@cache
def imported(path: Path) -> tuple[str, ...]:
    """The full names of the modules that a file imports, wherever in it."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: a relative import"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from names if node.module == "anchormatrix" else [node.module]


def room(path: Path) -> str:
    return path.relative_to(ROOT / "anchormatrix").parts[0].removesuffix(".py")


def test_every_room_has_its_floor():
    assert {room(path) for path in FILES} - set(FLOOR) == set()


def test_no_import_goes_up():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        for top, _, rest in (name.partition(".") for name in imported(path))
        if top == "anchormatrix"
        for name in [rest.split(".")[0]]
        if name != room(path) and FLOOR[name] >= FLOOR[room(path)]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("folder", "strangers"),
    [
        ("anchormatrix", {"snakemake", "virtualhost", "campaigns", "scripts"}),
        ("virtualhost", {"snakemake", "anchormatrix", "campaigns", "scripts"}),
    ],
)
def test_a_folder_knows_nothing_of_those_above_or_beside_it(folder: str, strangers: set[str]):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert [(path.name, name) for path in paths for name in imported(path) if name.split(".")[0] in strangers] == []
