"""Every figure of every output below results/, by place, without what differs between two undisturbed runs.

A place is a file and what stands where in it: ``c4-…/tp1-usp4/w1/requests.csv: 3 step_s``. Times of day, durations on
this machine's clock, load, process ids, ports and folders are masked; all else of an undisturbed run repeats exactly.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

Figures = Mapping[str, Any]

DAMAGED = "cannot be read"
_PASSING = {  # keys of JSON: when, how long on this machine's clock, where, and how often it was tried
    *("started_at", "finished_at", "duration_s", "measured_at", "when", "load", "seconds", "stop", "tries"),
    *("directory", "generation", "night", "version", "evidence", "made"),
}
_EXPECTED = {"expected_s", "expected_source", "reference", "findings"}  # of a smoke: from what was known before it
_PASSING_COLUMNS = {"latency_s", "sent_s"}
_PASSING_HEADINGS = {"started", "s", "stopped", "host load", "tries", "when", "why", "version", "expected s/step",
                     "what was compared"}  # fmt: skip
_MOMENT = re.compile(rb"\d{13,}(\.\d+)?")
_MASKS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"pid=\d+"), "pid=<pid>"),
    (re.compile(r"(--port |127\.0\.0\.1:|localhost:)\d+"), r"\1<port>"),
    (re.compile(r'/[^\s"\'<>]*/host/scratch/([^\s"\'<>/]*)-\w{6,8}(?=[/\s"\'<])'), r"<scratch>/\1"),
    (re.compile(r"_\d+_\d{17}_ascend"), "_<pid>_<time>_ascend"),
    (re.compile(r"(?<=>)not tested(?=<)|(?<=\| )not tested(?= \|)"), "no"),  # of a trigger, as a second decision says
    (re.compile(r"(?<=_diffusion_)\d{10}\b"), "<time>"),
)


def figures_of(results: Path) -> dict[str, Any]:
    """Read everything that a person or a later job reads; a file that cannot be read has one figure that says so."""
    found: dict[str, Any] = {}
    for pattern, read in _READERS:
        for path in sorted(results.glob(pattern)):
            place = masked(str(path.relative_to(results))).removesuffix(".gz")
            if path.is_dir() or (read is _profile and path.name == "capture.json"):
                continue
            try:
                found |= {f"{place}: {key}": value for key, value in read(path)}
            except (OSError, ValueError, EOFError, KeyError, sqlite3.Error) as error:
                found[f"{place}: "] = f"{DAMAGED}: {error}"
    return found


def differences(found: Figures, wanted: Figures) -> list[str]:
    """What is missing, what is too much and what is another figure, a line each."""
    lines = [f"{place} is missing" for place in wanted if place not in found]
    lines += [f"{place} is not of the undisturbed run" for place in found if place not in wanted]
    return lines + [
        f"{place} is {found[place]!r:.80}, not {value!r:.80}"
        for place, value in wanted.items()
        if place in found and found[place] != value
    ]


def masked(text: str) -> str:
    """The text without times of day, process ids, ports and folders of its own."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    yield from _leaves(json.loads(path.read_text(encoding="utf-8")), "")


def _contract(path: Path) -> Iterator[tuple[str, Any]]:
    """A group that was chosen once is chosen again for that reason."""
    yield from ((place, value) for place, value in _json(path) if not place.endswith("reason") or "rejected" in place)


def _smoke(path: Path) -> Iterator[tuple[str, Any]]:
    smoke = json.loads(path.read_text(encoding="utf-8"))
    yield from _leaves({key: value for key, value in smoke.items() if key not in _EXPECTED}, "")


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            if key == "command" and isinstance(below, list):
                yield f"{place}.{key}", masked(" ".join(map(str, below)))
            elif key == "reverify_triggers":
                # what holds against the decision before; a first one has none to be compared with
                yield from _leaves([{**one, "text": "", "evaluated": True} for one in below], f"{place}.{key}")
            elif key not in _PASSING:
                yield from _leaves(below, f"{place}.{key}")
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _leaves(below, f"{place}[{number}]")
    else:
        yield place, masked(value) if isinstance(value, str) else value


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    yield "rows", len(rows)
    for number, row in enumerate(rows, 1):
        for column, value in row.items():
            if column not in _PASSING_COLUMNS:
                yield f"{number} {column}", value


def _ledger(path: Path) -> Iterator[tuple[str, Any]]:
    """The newest line of each contract."""
    newest = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        newest[str(entry["id"])] = {key: entry[key] for key in ("size", "cards", "contract")}
    for name, entry in newest.items():
        yield from _leaves(entry, name)


def _bytes(path: Path) -> Iterator[tuple[str, Any]]:
    content = path.read_bytes()
    yield f"{len(content)} bytes", hashlib.sha256(content).hexdigest()[:16]


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(masked(text).splitlines(), 1):
        yield f"line {number}", line


def _profile(path: Path) -> Iterator[tuple[str, Any]]:
    """A profiler's file without its moments, which are those of the host's clock."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    plain = _MOMENT.sub(b"<time>", content)
    yield f"{len(plain)} bytes", hashlib.sha256(plain).hexdigest()[:16]


def _markdown(path: Path) -> Iterator[tuple[str, Any]]:
    kept: list[bool] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")] if line.startswith("|") else []
        if not cells:
            kept = []
        elif not kept:
            kept = [cell not in _PASSING_HEADINGS for cell in cells]
        shown = " | ".join(cell for cell, keep in zip(cells, kept, strict=False) if keep) if cells else line
        yield f"line {number}", masked(shown)


def _page(path: Path) -> Iterator[tuple[str, Any]]:
    text = re.sub(r"<table.*?</table>", _table_kept, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for number, line in enumerate(masked(text).replace("><", ">\n<").splitlines(), 1):
        yield f"line {number}", line


def _table_kept(found: re.Match[str]) -> str:
    """A table of the page without the columns that pass."""
    headings = [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<th\b.*?</th>", found[0], re.DOTALL)]
    rows = []
    for row in re.findall(r"<tr\b.*?</tr>", found[0], re.DOTALL):
        cells = re.findall(r"<td\b.*?</td>", row, re.DOTALL)
        named = zip(headings, cells, strict=False)
        rows.append(" ".join(cell for heading, cell in named if heading not in _PASSING_HEADINGS))
    return "\n".join([" ".join(headings), *rows])


def _history(path: Path) -> Iterator[tuple[str, Any]]:
    """The newest figures of every session that was recorded."""
    query = (
        "SELECT s.contract, s.form, s.window, r.tier, c.step_s, c.dispersion_pct, c.values_s FROM cells c"
        " JOIN sessions s ON s.id = c.session JOIN series r ON r.id = c.series ORDER BY s.started_at"
    )
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as history:
        for contract, form, window, tier, *figures in history.execute(query):
            yield f"{contract} {form} w{window} {tier}", tuple(figures)


_READERS: Sequence[tuple[str, Callable[[Path], Iterator[tuple[str, Any]]]]] = (
    ("[!c]*.json", _json),
    ("contracts.json", _contract),
    ("contracts.jsonl", _ledger),
    ("c*-*/[!cs]*.json", _json),
    ("c*-*/contract.json", _contract),
    ("c*-*/smoke.json", _smoke),
    ("c*-*/cells.csv", _csv),
    ("c*-*/*/attribution*.json", _json),
    ("c*-*/*/w*/session.json", _json),
    ("c*-*/*/w*/requests.csv", _csv),
    ("c*-*/*/w*/server.log", _lines),
    ("c*-*/*/w*/output.bin", _bytes),
    ("c*-*/*/capture/capture.json", _json),
    ("c*-*/*/capture/**/*.*", _profile),
    ("bandwidth/*.json", _json),
    ("matrix_report/*.json", _json),
    ("matrix_report/cells.csv", _csv),
    ("matrix_report/evidence.md", _markdown),
    ("matrix_report/index.html", _page),
    ("matrix_report/figures/*.*", _bytes),
    ("history.sqlite", _history),
)
