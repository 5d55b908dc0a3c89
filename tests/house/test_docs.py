"""What the documents name exists: files of the project in code words and code blocks, and the targets of links."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
PLACES = [path.relative_to(ROOT).parts for room in ROOMS if room != "results" for path in (ROOT / room).rglob("*")]
ENDS = {"/".join(parts[start:]) for parts in PLACES for start in range(len(parts))}
THE_READERS_OWN = {"my-host.yaml", "override.yaml"}

CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?<![\w<>*$./{}…-])[\w.-]+(?:/[\w.-]+)*/?(?![\w<>*{}…])")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"\bpython ([\w./-]+\.py)")
SOURCE = (".py", ".smk", ".yaml", ".toml", ".j2", ".css", ".lock")


def is_there(word: str) -> bool:
    """Whether a word names a file: from the project's folder, or by the end of its path."""
    return (ROOT / word).exists() or word in ENDS


def named_files(text: str) -> set[str]:
    """The words of a document's code that can only be files or folders of the project."""
    words = {word for code in CODE.findall(text) for word in PATH.findall(code)}
    below = {word for word in words if "/" in word and word.split("/")[0] in set(ROOMS) - {"results"}}
    return below | {word for word in words if word.endswith(SOURCE) and not word.startswith((".", "-", "results/"))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    named = named_files(document.read_text(encoding="utf-8")) - THE_READERS_OWN
    assert sorted(word for word in named if not is_there(word.rstrip("/"))) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_can_be_copied(document: Path) -> None:
    scripts = COMMAND.findall(document.read_text(encoding="utf-8"))
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_page_and_the_glossary_define_words_alike() -> None:
    rows = re.findall(
        r"^\| [*`]+(.+?)[*`]+ \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M
    )
    defined = {(word, re.sub("[*`]", "", meaning)) for word, meaning in rows}
    page = (ROOT / "anchormatrix" / "report" / "templates" / "glossary.html.j2").read_text(encoding="utf-8")
    shown = re.findall("<dt>(.+?)</dt><dd>(.+?)</dd>", page)
    assert len(shown) > 12
    assert {(word, html.unescape(meaning)) for word, meaning in shown} <= defined
