"""From a results folder to decision.json, and the check of remembered decisions, by command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import command
from contracts import contract_on, store_contract
from measured import timed_session, verdict_record
from run_plans import contract_plan, store_plan

from anchormatrix.decide.cells import build_cells, write_cells
from anchormatrix.store.codec import write_record
from anchormatrix.store.files import write_json
from anchormatrix.store.sessions import write_session

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config" / "config.yaml"
FOUR = contract_on((0, 1, 2, 3), tiers={"few": 4, "anchor": 10})


def session(form, window, step_s):
    values_s = dict.fromkeys(("few", "anchor"), (step_s, step_s * 1.002, step_s * 0.999))
    return timed_session(form, window, values_s, contract=FOUR.id)


def store(folder, one):
    write_session(folder / one.session.form / f"w{one.session.window}" / "session.json", one)


@pytest.fixture
def results(tmp_path):
    """A measured contract without captures and sweep."""
    folder = tmp_path / "results" / FOUR.id
    store_contract(folder.parent, FOUR)
    store_plan(tmp_path / "results", contract_plan(FOUR, ("tp1-usp4", "tp2-usp2")))
    sessions = [session("tp1-usp4", w, 1.0) for w in (1, 2)] + [session("tp2-usp2", w, 1.1) for w in (1, 2)]
    for one in sessions:
        store(folder, one)
    cells = build_cells(sessions, repeats=3, dispersion_pct=3)
    write_cells(folder / "cells.csv", cells)
    write_record(folder / "verdict.json", verdict_record(contract=FOUR.id, r={"tp1-usp4": 1.0}))
    return tmp_path / "results"


def test_gates_and_decision_are_made_from_what_is_stored(results):
    contract = results / FOUR.id / "contract.json"
    gates = command("scripts/rules/evaluate_gates.py", "--config", CONFIG, "--contract", contract)
    assert gates.returncode == 0, gates.stderr
    stored = json.loads((contract.parent / "gates.json").read_text())
    by_gate = {(gate["form"], gate["gate"]): gate["status"] for gate in stored["gates"]}
    texts = {gate["text"] for gate in stored["gates"] if gate["gate"] == "G2"}
    assert texts == {"the cards do not tell their memory, so no form was checked against it"}
    assert by_gate["tp1-usp4", "G1"] == by_gate["tp1-usp4", "G6"] == "passed"
    assert by_gate["tp2-usp2", "G6"] == "failed"
    assert by_gate["tp1-usp4", "G3"] == by_gate["tp1-usp4", "G2"] == "unknown"
    done = command("scripts/rules/decide.py", "--config", CONFIG, "--results", results, "--contracts", contract)
    assert done.returncode == 0, done.stderr
    decision = json.loads((results / "matrix_report" / "decision.json").read_text())
    assert (decision["winner"], decision["runner_up"], round(decision["margin_pct"], 6)) == (
        "tp1-usp4",
        "tp2-usp2",
        10.0,
    )
    assert decision["pairs"] == [{"size": 4, "text": "4 cards: tp1-usp4 against tp2-usp2 is the same-size pair."}]
    assert not any(trigger["fired"] for trigger in decision["reverify_triggers"])


def test_a_cell_that_may_not_be_read_fires_no_trigger(results):
    """The step of a noisy form is 20 % slower at the anchor: that is unknown, and said so with the reason."""
    folder = results / FOUR.id
    values_s = {"few": (1.0, 1.002, 0.999), "anchor": (1.2, 1.0, 1.3)}
    noisy = [timed_session("tp2-usp2", window, values_s, contract=FOUR.id) for window in (1, 2)]
    sessions = [*(session("tp1-usp4", window, 1.0) for window in (1, 2)), *noisy]
    for one in noisy:
        store(folder, one)
    write_cells(folder / "cells.csv", build_cells(sessions, repeats=3, dispersion_pct=3))
    write_record(folder / "verdict.json", verdict_record(contract=FOUR.id, r={"tp1-usp4": 1.0, "tp2-usp2": 1.2}))
    contract = folder / "contract.json"
    done = command("scripts/rules/decide.py", "--config", CONFIG, "--results", results, "--contracts", contract)
    assert done.returncode == 0, done.stderr
    decision = json.loads((results / "matrix_report" / "decision.json").read_text())
    (drift,) = (item for item in decision["reverify_triggers"] if item["trigger"] == "step time drift")
    assert (drift["fired"], drift["text"].split("; not read: ")[0]) == (
        False,
        "4 cards: every step stays within 5 % between the tiers",
    )
    assert "; not read: tp2-usp2: anchor: dispersion 25.0 % of 6 repeats is above 3 %" in drift["text"]


def test_a_form_of_an_earlier_configuration_takes_no_part_and_is_named_when_it_was_faster(results):
    folder = results / FOUR.id
    for window in (1, 2, 3):
        store(folder, session("tp4-usp1", window, 0.5))
    write_json(folder / "tp4-usp1" / "attribution.json", {"steps": {"ranks": []}})
    contract = folder / "contract.json"
    for script, name in (("build_cells", "cells.csv"), ("judge_verdict", "verdict.json"), ("evaluate_gates", "")):
        done = command(f"scripts/rules/{script}.py", "--config", CONFIG, "--contract", contract)
        assert done.returncode == 0, done.stderr
        assert not name or "tp4-usp1" not in (folder / name).read_text()
    gates = json.loads((folder / "gates.json").read_text())
    assert {gate["form"] for gate in gates["gates"]} == {"tp1-usp4", "tp2-usp2"}
    done = command("scripts/rules/decide.py", "--config", CONFIG, "--results", results, "--contracts", contract)
    assert done.returncode == 0, done.stderr
    decision = json.loads((results / "matrix_report" / "decision.json").read_text())
    assert (decision["winner"], decision["runner_up"]) == ("tp1-usp4", "tp2-usp2")
    assert decision["basis"].startswith("2 forms at the anchor tier, 2 windows")
    assert decision["conditions"][0] == (
        "Not in the matrix any more, but measured faster under this contract: tp4-usp1 by 100.0 % (0.5 s per step)."
    )


def test_a_window_of_an_earlier_configuration_takes_no_part(results):
    folder = results / FOUR.id
    for form, step_s in (("tp1-usp4", 9.0), ("tp2-usp2", 1.0)):
        store(folder, session(form, 3, step_s))
    contract = folder / "contract.json"
    for script in ("build_cells", "judge_verdict", "evaluate_gates"):
        assert command(f"scripts/rules/{script}.py", "--config", CONFIG, "--contract", contract).returncode == 0
    assert ",anchor,3," not in (folder / "cells.csv").read_text()
    verdict = json.loads((folder / "verdict.json").read_text())
    assert (verdict["status"], verdict["winner"]) == ("extrapolates", "tp1-usp4")
    sources = {gate["source"] for gate in json.loads((folder / "gates.json").read_text())["gates"]}
    assert "session.json (w1, w2)" in sources


def test_the_check_needs_a_remembered_decision_and_finds_a_changed_configuration(results, tmp_path):
    check = ("scripts/rules/decide.py", "--results", results, "--check", "--config")
    empty = command(*check, CONFIG)
    assert (empty.returncode, "no decision is remembered" in empty.stderr) == (2, True)
    contract = results / FOUR.id / "contract.json"
    command("scripts/rules/decide.py", "--config", CONFIG, "--results", results, "--contracts", contract)
    assert command(*check, CONFIG).returncode == 0
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG.read_text().replace("extra_args: []", "extra_args: [--quantization, fp8]"))
    fired = command(*check, other)
    assert fired.returncode == 1
    assert "FIRED  step structure changed: engine.extra_args  → --quantization fp8" in fired.stdout


def test_a_missing_verdict_is_one_line(results):
    shutil.rmtree(results / FOUR.id / "tp1-usp4")
    (results / FOUR.id / "verdict.json").unlink()
    done = command(
        "scripts/rules/evaluate_gates.py", "--config", CONFIG, "--contract", results / FOUR.id / "contract.json"
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "verdict.json: no such file" in done.stderr
