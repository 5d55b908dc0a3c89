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
from anchormatrix.store.files import write_csv, write_json
from anchormatrix.store.quarantine import find_damaged, set_aside
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
    assert files(results) == before


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
