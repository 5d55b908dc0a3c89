"""Results that were damaged after they were written are set aside; sound ones are never touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from contracts import contract_on
from host_states import blocks
from measured import smoke_record, timed_session

from anchormatrix.records.conclusions.cells import Cell, cell_of
from anchormatrix.records.contract import LedgerEntry
from anchormatrix.store.codec import line_text, write_record, write_table
from anchormatrix.store.files import write_bytes, write_csv, write_json
from anchormatrix.store.ledger import append_lines
from anchormatrix.store.quarantine import find_damaged, set_aside
from anchormatrix.store.seals import seal_file, seal_folder
from anchormatrix.store.sessions import write_session

CONTRACT = "c4-0123456789"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    session = tmp_path / CONTRACT / "tp1-usp4" / "w1"
    write_record(tmp_path / "topology.json", blocks([2]))
    write_record(tmp_path / CONTRACT / "smoke.json", smoke_record(CONTRACT))
    write_session(session / "session.json", timed_session("tp1-usp4", 1, {"few": [4.9, 4.8]}, contract=CONTRACT))
    cell = cell_of(CONTRACT, "tp1-usp4", "few", "1", [4.9, 4.8], 2.0, reason="a\nb, c")
    write_table(tmp_path / CONTRACT / "cells.csv", Cell, [cell])
    write_csv(tmp_path / "matrix_report" / "cells.csv", ("form", "note"), [{"form": "tp1-usp4", "note": None}])
    write_json(tmp_path / "matrix_report" / "summary.json", {"cells": []})
    return tmp_path


def found_and_set_aside(results: Path) -> tuple[str, ...]:
    """Looking changes nothing: neither a name nor a content nor a time."""
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in results.rglob("*") if path.is_file()}
    found = find_damaged(results)
    assert before == {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in results.rglob("*") if path.is_file()
    }
    said = set_aside(results, found)
    assert not [path for one in found for path in one.gone if path.exists()]
    return said


def files(results: Path) -> set[str]:
    return {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}


def test_sound_results_are_left_alone(results: Path):
    before = files(results)
    assert found_and_set_aside(results) == ()
    assert files(results) == before | {".run/seals"}


def test_an_empty_folder_and_a_missing_one_have_no_damage(tmp_path: Path):
    assert found_and_set_aside(tmp_path) == ()
    assert found_and_set_aside(tmp_path / "results") == ()


@pytest.mark.parametrize("content", [b"", b'{"schema": 1, "sta', b"\xff", b"[]", b'{"schema": 9}', b'{"schema": 1}'])
def test_a_damaged_object_is_set_aside_and_kept(results: Path, content: bytes):
    path = results / CONTRACT / "smoke.json"
    path.write_bytes(content)
    (said,) = found_and_set_aside(results)
    assert str(path) in said and "made again" in said
    assert not path.exists()
    assert path.with_name("smoke.json.damaged").read_bytes() == content


@pytest.mark.parametrize("damage", [lambda text: "", lambda text: text[:-1], lambda text: text + "2,few\n"])
def test_a_session_with_damaged_requests_is_set_aside_whole(results: Path, damage):
    folder = results / CONTRACT / "tp1-usp4" / "w1"
    requests = folder / "requests.csv"
    requests.write_text(damage(requests.read_text()))
    assert len(found_and_set_aside(results)) == 1
    assert {path.name for path in folder.iterdir()} == {
        "requests.csv.damaged",
        "server.log",
        "output.bin",
        "session.json.damaged",
    }


def test_only_the_damaged_lines_of_a_ledger_go(results: Path):
    write_json(results / "contracts.json", {"contracts": []})
    ledger = results / "contracts.jsonl"
    good = ledger_line()
    ledger.write_bytes(good + b"{torn\n" + good)
    (said,) = found_and_set_aside(results)
    assert "1 damaged line" in said
    assert ledger.read_bytes() == good + good
    assert (results / "contracts.jsonl.damaged").read_bytes() == good + b"{torn\n" + good
    assert not (results / "contracts.json").exists(), "made again, which writes the current contracts to the ledger"
    assert found_and_set_aside(results) == ()


def test_a_last_line_cut_by_a_killed_writer_is_no_damage(results: Path):
    (results / "contracts.jsonl").write_bytes(ledger_line() + b'{"schema": 1, "id"')
    assert found_and_set_aside(results) == ()


def test_times_do_not_matter(results: Path):
    path = results / "topology.json"
    times = path.stat()
    path.write_bytes(b"{")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert len(found_and_set_aside(results)) == 1


def ledger_line() -> bytes:
    contract = contract_on((0, 1))
    entry = LedgerEntry(
        id=contract.id, size=2, version=1, cards=(0, 1), changed=(), when="now", why="test", contract=contract
    )
    return line_text(entry).encode()


KINDS = (
    "topology.json",
    f"{CONTRACT}/smoke.json",
    f"{CONTRACT}/cells.csv",
    f"{CONTRACT}/tp1-usp4/attribution.json",
    f"bandwidth/{CONTRACT}.json",
    "matrix_report/index.html",
    "matrix_report/evidence.md",
    "matrix_report/summary.json",
    "matrix_report/cells.csv",
    "matrix_report/decision.json",
    "matrix_report/figures/ratio.svg",
    "matrix_report/figures/ratio.png",
    "matrix_report/figures/ratio.pdf",
    "nightly/index.html",
    "nightly/summary.json",
    "reruns.jsonl",
    f"{CONTRACT}/trace.json.gz",
)
OF_SESSION = ("session.json", "requests.csv", "server.log", "output.bin")
TEXT = b'{"schema": 1, "step_s": 4.9, "few": 4}\n'


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A results folder of a run, with a file of every kind in it."""
    results = tmp_path / "results"
    set_aside(results, ())
    window = results / CONTRACT / "tp1-usp4" / "w1"
    for path in (*(results / name for name in KINDS), *(window / name for name in OF_SESSION)):
        write_bytes(path, TEXT)
    capture = results / CONTRACT / "tp1-usp4" / ".capture.new"
    write_bytes(capture / "rank0" / "kernel_details.csv.gz", TEXT)
    write_bytes(capture / "rank0.pt.trace.json", TEXT)
    seal_folder(capture, capture.with_name("capture"))
    capture.rename(capture.with_name("capture"))
    append_lines(results / "contracts.jsonl", lambda: [ledger_line().decode()])
    append_lines(results / "decisions.jsonl", lambda: [TEXT.decode()])
    assert find_damaged(results) == ()
    return results


def spoil(path: Path, content: bytes) -> None:
    """Another content under the same size and times, as a disk leaves it."""
    before = path.stat()
    assert len(content) == before.st_size
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_digit_is_found_in_every_kind_of_result(sealed: Path, name: str):
    spoil(sealed / name, TEXT.replace(b"4.9", b"4.8"))
    (one,) = find_damaged(sealed)
    assert (one.path, one.gone) == (sealed / name, (sealed / name,))
    (said,) = set_aside(sealed, [one])
    assert str(sealed / name) in said
    assert not (sealed / name).exists()
    assert b"4.8" in (sealed / f"{name}.damaged").read_bytes()
    assert find_damaged(sealed) == ()


@pytest.mark.parametrize("name", OF_SESSION)
def test_any_damaged_file_of_a_session_takes_the_session_with_it(sealed: Path, name: str):
    window = sealed / CONTRACT / "tp1-usp4" / "w1"
    spoil(window / name, TEXT.replace(b"4.9", b"4.8"))
    found = find_damaged(sealed)
    assert len(found) == 1
    set_aside(sealed, found)
    assert {path.name for path in window.iterdir()} == {*OF_SESSION} - {name, "session.json"} | {
        f"{name}.damaged",
        "session.json.damaged",
    }


@pytest.mark.parametrize("name", ["rank0/kernel_details.csv.gz", "rank0.pt.trace.json"])
def test_a_damaged_file_of_a_capture_takes_the_session_that_made_it_with_it(sealed: Path, name: str):
    form = sealed / CONTRACT / "tp1-usp4"
    spoil(form / "capture" / name, TEXT.replace(b"4.9", b"4.8"))
    (one,) = find_damaged(sealed)
    assert one.gone == (form / "capture", form / "w1" / "session.json")
    set_aside(sealed, [one])
    assert b"4.8" in (form / "capture.damaged" / name).read_bytes()
    assert not (form / "w1" / "session.json").exists()
    assert find_damaged(sealed) == ()


def test_a_missing_row_and_a_changed_line_of_a_ledger_are_found(sealed: Path):
    ledger = sealed / "decisions.jsonl"
    append_lines(ledger, lambda: ['{"schema": 1, "second": 2}\n'])
    spoil(ledger, ledger.read_bytes().replace(b"4.9", b"4.8"))
    (one,) = find_damaged(sealed)
    set_aside(sealed, [one])
    assert ledger.read_bytes() == b'{"schema": 1, "second": 2}\n'
    assert b"4.8" in (sealed / "decisions.jsonl.damaged").read_bytes()
    assert find_damaged(sealed) == ()


def test_a_writer_killed_between_seal_and_rename_leaves_both_contents_valid(sealed: Path):
    made = sealed / ".new"
    made.write_bytes(b"new\n")
    page = sealed / "matrix_report" / "index.html"
    seal_file(made, page)
    assert find_damaged(sealed) == ()
    page.write_bytes(b"new\n")
    assert find_damaged(sealed) == ()
    set_aside(sealed, ())
    page.write_bytes(TEXT)
    assert [one.path for one in find_damaged(sealed)] == [page], "the older content is valid until the next run begins"


@pytest.mark.parametrize("spoilt", [None, b"", b"\x00\xff garbage\n"])
def test_without_sound_seals_files_that_read_well_are_believed_and_sealed(sealed: Path, spoilt: bytes | None):
    seals, page = sealed / ".run" / "seals", sealed / "matrix_report" / "index.html"
    seals.unlink() if spoilt is None else seals.write_bytes(spoilt)
    for path in (*sealed.rglob("*.json"), *sealed.rglob("*.csv"), sealed / "reruns.jsonl"):
        path.unlink()
    page.write_bytes(b"edited before")
    assert find_damaged(sealed) == ()
    set_aside(sealed, ())
    page.write_bytes(b"edited after")
    assert [one.path for one in find_damaged(sealed)] == [page]


def test_one_spoilt_line_of_the_seals_costs_no_result(sealed: Path):
    seals = sealed / ".run" / "seals"
    seals.write_bytes(seals.read_bytes().replace(b"0 ", b"1 ", 1))
    assert [one for one in find_damaged(sealed) if "index.html" in str(one.path)] == []


def test_files_of_nobody_are_left_alone(sealed: Path):
    for name in ("logs/report.log", f"{CONTRACT}/notes.txt", "matrix_report/mine.csv", "history.sqlite"):
        (sealed / name).parent.mkdir(exist_ok=True)
        (sealed / name).write_text("mine")
        set_aside(sealed, find_damaged(sealed))
        (sealed / name).write_text("edited")
    assert find_damaged(sealed) == ()
