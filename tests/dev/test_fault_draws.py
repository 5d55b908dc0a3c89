"""The random draws of the fault campaign: that a draw repeats, and that every judge catches what it is there for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from campaigns.faults.document import write_section
from campaigns.faults.draws import judges, strangers
from campaigns.faults.draws.drawing import draw
from campaigns.faults.draws.figures import differences, figures_of, masked
from campaigns.faults.draws.kinds import KINDS, STARTS
from campaigns.faults.draws.sabotage import SPOILT, spoil
from campaigns.faults.draws.tables import append, recorded, table
from campaigns.faults.judging import judge_kept
from campaigns.faults.project import Project
from campaigns.faults.stage import Stage

from anchormatrix.hosts import locks
from virtualhost.host.state import HostState, Job, process_start

CELLS = "contract,form,tier,window,step_s,usable\nc4-0123456789,tp1-usp4,few,1,4.9288,true\n"
CONTRACT = "c4-0123456789"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "results" / CONTRACT
    (folder / "tp1-usp4" / "w1").mkdir(parents=True)
    (folder / "cells.csv").write_text(CELLS)
    (folder / "verdict.json").write_text('{"winner": "tp1-usp4", "margin_pct": 11.2, "when": "2026-12-03T12:00:00Z"}')
    (folder / "tp1-usp4" / "w1" / "session.json").write_text(
        '{"status": "measured", "command": ["vllm", "--port", "40283"], "proof": {"ranks_seen": 4}, "duration_s": 3.2}'
    )
    (folder / "tp1-usp4" / "w1" / "server.log").write_text(
        "(Worker pid=31) INFO 10-09 08:41:41 diffuse took 12.3456s\n"
    )
    (tmp_path / "results" / "matrix_report").mkdir()
    (tmp_path / "results" / "matrix_report" / "evidence.md").write_text(
        "| form | window | host load | dispersion |\n|---|---|---|---|\n| tp1-usp4 | 1 | 2.94 | 0.41 |\n"
    )
    (tmp_path / "results" / "matrix_report" / "index.html").write_text(
        "<p>measured until 2026-12-03 12:01</p><table><tr><th>form</th><th>s</th><th>median</th></tr>"
        "<tr><td>tp1-usp4</td><td>3.3</td><td>4.9288</td></tr></table><svg><path d='M0 1'/></svg>"
    )
    with sqlite3.connect(tmp_path / "results" / "history.sqlite") as history:
        history.executescript(
            "CREATE TABLE sessions (id, contract, form, window, started_at);"
            "CREATE TABLE series (id, contract, form, tier);"
            "CREATE TABLE cells (series, session, step_s, dispersion_pct, values_s);"
            f"INSERT INTO sessions VALUES (1, '{CONTRACT}', 'tp1-usp4', 1, 'x');"
            f"INSERT INTO series VALUES (1, '{CONTRACT}', 'tp1-usp4', 'few');"
            "INSERT INTO cells VALUES (1, 1, 4.9288, 0.41, '[]');"
        )
    return Project(tmp_path)


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_a_draw_depends_on_the_seed_and_its_number_alone():
    assert str(draw(1, 17)) == str(draw(1, 17))
    assert len({str(draw(1, number)) for number in range(1, 101)}) == 100
    assert str(draw(2, 17)) != str(draw(1, 17))


def test_two_hundred_draws_hold_every_kind_and_start_where_it_may():
    drawn = [draw(1, number) for number in range(1, 201)]
    counts = Counter(strike.kind.name for one in drawn for strike in one.strikes)
    assert set(counts) == {kind.name for kind in KINDS}
    assert {one.start for one in drawn} == set(STARTS)
    assert all(one.start in strike.kind.starts for one in drawn for strike in one.strikes)
    assert {one.cores[1] for one in drawn} == {1, 4, 8}


# -- figures -----------------------------------------------------------------------------------------------------------


def test_times_ports_pids_and_folders_are_no_figures():
    assert masked("2026-12-03T12:01:18+00:00 pid=31 --port 43095") == "<time> pid=<pid> --port <port>"
    assert masked('"/tmp/a/host/scratch/c4-x-tp1-usp4-w1-QOCSGL/capture"') == '"<scratch>/c4-x-tp1-usp4-w1/capture"'


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (f"{CONTRACT}/cells.csv", "4.9288", "4.9289"),
        (f"{CONTRACT}/verdict.json", "11.2", "11.3"),
        (f"{CONTRACT}/tp1-usp4/w1/session.json", '"ranks_seen": 4', '"ranks_seen": 3'),
        (f"{CONTRACT}/tp1-usp4/w1/server.log", "12.3456", "12.3457"),
        ("matrix_report/evidence.md", "0.41", "0.42"),
        ("matrix_report/index.html", "4.9288", "4.9289"),
        ("matrix_report/index.html", "M0 1", "M0 2"),
    ],
)
def test_one_wrong_figure_in_any_output_is_caught(project: Project, file: str, old: str, new: str):
    wanted = figures_of(project.results)
    assert judges.judge_figures(project, wanted).right
    replaced(project.results / file, old, new)
    found = judges.judge_figures(project, wanted)
    assert not found.right
    assert file in found.text


def test_a_wrong_figure_in_the_history_is_caught(project: Project):
    wanted = figures_of(project.results)
    with sqlite3.connect(project.results / "history.sqlite") as history:
        history.execute("UPDATE cells SET step_s = 4.9289")
    assert "4.9289" in judges.judge_figures(project, wanted).text
    assert judges.judge_figures(project, wanted, lambda place: not place.startswith("history")).right


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (f"{CONTRACT}/verdict.json", "12:00:00Z", "13:00:00Z"),
        (f"{CONTRACT}/tp1-usp4/w1/session.json", "40283", "50641"),
        (f"{CONTRACT}/tp1-usp4/w1/session.json", "3.2", "4.8"),
        ("matrix_report/evidence.md", "2.94", "6.11"),
        ("matrix_report/index.html", "<td>3.3</td>", "<td>4.8</td>"),
    ],
)
def test_what_two_undisturbed_runs_differ_in_is_no_figure(project: Project, file: str, old: str, new: str):
    wanted = figures_of(project.results)
    replaced(project.results / file, old, new)
    assert judges.judge_figures(project, wanted).right


def test_a_second_decision_is_held_against_the_first_and_no_trigger_may_hold(project: Project):
    decision = project.results / "matrix_report" / "decision.json"
    trigger = {"name": "new fixed cost", "holds": False, "evaluated": False, "text": "nothing to compare with yet"}
    decision.write_text(json.dumps({"reverify_triggers": [trigger]}))
    wanted = figures_of(project.results)
    decision.write_text(json.dumps({"reverify_triggers": [{**trigger, "evaluated": True, "text": "no new cost"}]}))
    assert judges.judge_figures(project, wanted).right
    decision.write_text(json.dumps({"reverify_triggers": [{**trigger, "holds": True}]}))
    assert not judges.judge_figures(project, wanted).right


def test_a_missing_a_new_and_an_unreadable_output_are_caught(project: Project):
    wanted = figures_of(project.results)
    (project.results / CONTRACT / "verdict.json").write_bytes(b"\x00\xff{]")
    assert "verdict.json" in judges.judge_figures(project, wanted).text
    (project.results / CONTRACT / "verdict.json").unlink()
    assert "is missing" in judges.judge_figures(project, wanted).text
    assert differences({"a": 1, "b": 2}, {"a": 1}) == ["b is not of the undisturbed run"]


# -- the other judges --------------------------------------------------------------------------------------------------


def test_a_lost_cell_is_caught():
    assert judge_kept({"w1/session.json": b"1"}, {"w1/session.json": b"1"}, set()).right
    assert judge_kept({"w1/session.json": b"1"}, {}, set()).text == "lost w1/session.json"


@pytest.mark.parametrize("place", ["run-1.txt", "results/logs/window.log", "results/matrix_report/evidence.md"])
def test_a_traceback_in_any_output_and_log_is_caught(project: Project, place: str):
    assert judges.judge_words(project.folder).right
    path = project.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x\nTraceback (most recent call last):\n")
    assert judges.judge_words(project.folder).text == f"a traceback in {place}"


def test_a_character_that_a_terminal_obeys_is_caught_and_a_colour_is_not(project: Project):
    (project.folder / "run-1.txt").write_bytes(b"\x1b[33mBuilding DAG\x1b[0m\n")
    assert judges.judge_words(project.folder).right
    (project.folder / "run-1.txt").write_bytes(b"\x1b]0;owned\x07\n")
    assert not judges.judge_words(project.folder).right


def test_an_end_without_a_word_and_one_that_never_came_are_caught():
    assert judges.judge_ended(0, "", killed=False).right
    assert judges.judge_ended(-9, "", killed=True).right
    assert judges.judge_ended(1, "measure_window.py: card 1 says Alarm", killed=False).right
    assert judges.judge_ended(1, "snakemake: results: cannot be written", killed=False).right
    assert not judges.judge_ended(1, "hm", killed=False).right
    assert not judges.judge_ended(None, "", killed=False).right


def test_a_process_left_behind_is_caught(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("campaigns.faults.project._LINGER_S", 0.0)
    assert judges.judge_left(project).right
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], cwd=project.folder)
    try:
        assert f"(pid {left.pid})" in judges.judge_left(project).text
    finally:
        left.kill()
        left.wait()
    assert judges.judge_left(project).right


def test_a_lease_and_a_server_left_behind_are_caught(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("campaigns.faults.project._LINGER_S", 0.0)
    held = locks.take(str(project.host / "leases"), [2], {"user": "me"}, 0.0, time.sleep)
    assert "the lease of card 2" in judges.judge_left(project).text
    locks.give_back(held)
    assert judges.judge_left(project).right
    state, pid = HostState(project.host / "state"), os.getpid()
    state.register(Job(pid, process_start(pid) or 0, (0, 1, 2, 3), "tp1-usp4", 1))
    assert judges.judge_left(project).text == "a server of tp1-usp4 on the host"


def test_a_secret_in_any_file_is_caught(project: Project):
    (project.folder / "fault.yaml").write_text("HF_TOKEN: hf_abc")
    assert judges.judge_secret(project.folder, "hf_abc", ("fault.yaml",)).right
    (project.results / ".run").mkdir()
    (project.results / ".run" / "config-1.json").write_text('{"HF_TOKEN": "hf_abc"}')
    found = judges.judge_secret(project.folder, "hf_abc", ("fault.yaml",))
    assert found.text == "the secret is in results/.run/config-1.json"


def test_a_wrong_number_and_a_wrong_winner_of_a_report_are_caught():
    cell = {"contract": CONTRACT, "form": "tp1-usp4", "tier": "few", "window": "1", "step_s": 4.9288, "usable": True}
    report = {"cells": [cell], "verdicts": [{"contract": CONTRACT, "winner": "tp1-usp4"}]}
    assert judges.judge_report(report, [report]).right
    assert judges.judge_report(None, [report]).right, "no report says nothing wrong"
    assert not judges.judge_report({**report, "cells": [{**cell, "step_s": 4.9289}]}, [report]).right
    assert judges.judge_report({**report, "cells": [{**cell, "step_s": 9.0, "usable": False}]}, [report]).right
    other = [{"contract": CONTRACT, "winner": "tp2-usp2"}]
    assert not judges.judge_report({**report, "verdicts": other}, [report]).right


def test_a_change_of_a_tree_is_caught_and_reading_is_none(project: Project):
    before = judges.tree(project.results)
    (project.results / CONTRACT / "cells.csv").read_bytes()
    assert judges.judge_same_tree(before, judges.tree(project.results)).right
    os.utime(project.results / CONTRACT / "cells.csv")
    assert not judges.judge_same_tree(before, judges.tree(project.results)).right
    shutil.rmtree(project.results / CONTRACT)
    (project.results / "new.json").write_text("{}")
    assert "is gone" in judges.judge_same_tree(before, judges.tree(project.results)).text


# -- deeds and records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", SPOILT)
def test_damage_changes_the_content_and_leaves_the_times(tmp_path: Path, how: str):
    path = tmp_path / "cells.csv"
    path.write_text(CELLS)
    os.utime(path, ns=(1, 2))
    spoil(path, how, 0.5)
    if how == "deleted":
        assert not path.exists()
    else:
        assert path.read_bytes() != CELLS.encode()
        assert path.stat().st_mtime_ns == 2


def line(number: int, *, seed: int = 1, kind: str = "interrupt", end: str = "same", **wrong: str) -> dict:
    words = f"{number}: from new: Ctrl-C"
    return {"seed": seed, "draw": number, "words": words, "kinds": [kind], "end": end, "struck": 1, "seconds": 30.0,
            "wrong": wrong}  # fmt: skip


def test_the_table_counts_the_newest_judgement_of_every_draw(tmp_path: Path):
    record = tmp_path / "draws.jsonl"
    for one in (line(1, figures="9 is wrong"), line(2, seed=2), line(1), line(3, left="pid 7")):
        append(record, one)
    lines = recorded(record, 1)
    assert [one["draw"] for one in lines] == [1, 3]
    text = table(lines)
    assert "| interrupt | Ctrl-C | 2 | 1 | 0 | 0 | 1 | 0 |" in text
    assert "- **3: from new: Ctrl-C**: left: pid 7" in text
    assert text.endswith("1 of 2 draws of seed 1 held; 1 minutes of draws.")
    page = tmp_path / "page.md"
    page.write_text("<!-- draws -->\n<!-- /draws -->\n")
    write_section(page, "draws", text)
    assert "1 of 2 draws" in page.read_text()
    assert json.loads(record.read_text().splitlines()[0])["wrong"] == {"figures": "9 is wrong"}


@pytest.mark.skipif(strangers.needs_root() != "", reason="needs root")
@pytest.mark.parametrize("what", strangers.STRANGERS)
def test_a_stranger_takes_the_place_of_a_lock_file_until_the_fault_is_over(tmp_path: Path, what: str):
    project = Project(tmp_path)
    path = project.host / "leases" / "card-2.lock"
    with contextlib.ExitStack() as lifting, contextlib.ExitStack() as closing:
        strangers.stranger(what, 2)(Stage(project, lifting, closing))
        assert path.lstat().st_uid == 65534
        lifting.close()
        assert not os.path.lexists(path)
    assert project.processes() == {}
