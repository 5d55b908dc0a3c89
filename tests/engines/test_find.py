"""Entry points that are broken: each is one line that names the package and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.find import open_engine
from anchormatrix.errors import ConfigError

MODULE = """
NUMBER = 3

class Raises:
    def __init__(self, settings, version):
        raise ValueError("no card\\nof this kind")

class Half:
    name, caution = "half", ""
    def __init__(self, settings, version):
        pass
    def limits(self):
        pass
"""
METADATA = "Metadata-Version: 2.1\nName: {0}\nVersion: 1.0\n"


def offer(folder: Path, package: str, point: str) -> None:
    """A package as ``pip`` installs it that offers one engine."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(package))
    (info / "entry_points.txt").write_text(f"[anchormatrix.engines]\n{point}\n")


def refused(kind: str) -> str:
    settings = load_settings(DEFAULT_FILE)
    with pytest.raises(ConfigError) as caught:
        open_engine(replace(settings, engine=replace(settings.engine, kind=kind)))
    line = str(caught.value)
    assert line.startswith("engine.kind: ") and line.isprintable()
    return line


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("odd = nowhere_at_all:Engine", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("odd = a b c!!", "of mine cannot be loaded: "),
        ("odd = broken_engine:Nothing", "AttributeError: module 'broken_engine' has no attribute 'Nothing'"),
        ("odd = broken_engine:NUMBER", "TypeError: 'int' object is not callable"),
        ("odd = broken_engine:Raises", "the engine 'odd' of mine cannot be loaded: ValueError: no card of this kind"),
        ("odd = unreadable_engine:Engine", "SyntaxError: "),
        ("odd = leaving_engine:Engine", "SystemExit: 3"),
        ("odd = broken_engine:Half", "the engine 'odd' of mine has no packages, refusal, serve_command, client, read"),
    ],
)
def test_an_engine_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, why: str
) -> None:
    (tmp_path / "broken_engine.py").write_text(MODULE)
    (tmp_path / "unreadable_engine.py").write_text("def (")
    (tmp_path / "leaving_engine.py").write_text("raise SystemExit(3)")
    offer(tmp_path, "mine", point)
    monkeypatch.syspath_prepend(tmp_path)
    assert why in refused("odd")


def test_two_packages_of_one_name_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "mine", "odd = one:Engine")
    offer(tmp_path, "yours", "odd = other:Engine")
    monkeypatch.syspath_prepend(tmp_path)
    assert refused("odd") == "engine.kind: mine and yours offer an engine 'odd' each; keep one of them"
