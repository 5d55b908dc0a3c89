"""The configuration in the words of the selection room, and the adaptive design inside the workflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from adaptive_sessions import session
from contracts import contract_on
from run_plans import contract_plan

from anchormatrix.config.merge import load_settings
from anchormatrix.decide.adaptive_judging import to_judge
from anchormatrix.planning.adaptive_run import order_of_session, skipped_session
from anchormatrix.planning.configured import adaptive_limits, candidates_of
from anchormatrix.store.sessions import write_session

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = contract_on((0, 1, 2, 3))
PLANNED = contract_plan(CONTRACT, ("tp1-usp4", "tp2-usp2"), windows=3)


@pytest.fixture(scope="module")
def settings():
    return load_settings(ROOT / "config" / "config.yaml")


def adaptive(settings):
    return msgspec.structs.replace(settings, matrix=msgspec.structs.replace(settings.matrix, design="adaptive"))


def test_listed_forms_stay_as_they_are_and_auto_finds_them(settings):
    assert [form.name for form in candidates_of(settings, 4).forms] == ["tp1-usp4", "tp2-usp2"]
    auto = msgspec.structs.replace(settings, matrix=msgspec.structs.replace(settings.matrix, forms="auto"))
    names = [form.name for form in candidates_of(auto, 4).forms]
    assert {"tp1-usp4", "tp2-usp2", "tp1-usp2-cfg2", "tp1-usp1-ag4"} <= set(names)


def test_a_form_that_does_not_fit_becomes_its_offloaded_variant(settings):
    found = candidates_of(settings, 4, card_gb=32)
    assert [form.name for form in found.forms] == ["tp1-usp4+distributed-layerwise-offload", "tp2-usp2"]
    assert [(item.form.name, item.reason) for item in found.excluded] == [
        ("tp1-usp4", "does not fit without offload: measured as tp1-usp4+distributed-layerwise-offload")
    ]


def test_the_full_design_asks_no_policy(settings, tmp_path):
    assert adaptive_limits(settings) is None
    order = order_of_session(tmp_path, PLANNED, "tp1-usp4", 2, settings)
    assert (order.repeats, order.skip, order.stop_above_s) == (3, "", None)
    sessions = [session("tp1-usp4", 1, 1.0)]
    found = to_judge(sessions, ["tp1-usp4", "tp2-usp2"], settings)
    assert (found.sessions, found.forms, list(found.windows)) == (tuple(sessions), ("tp1-usp4", "tp2-usp2"), [1, 2])


def test_a_session_that_is_left_out_is_written_with_its_reason(settings, tmp_path):
    few = adaptive(settings)
    for window in (1, 2):
        for form in ("tp1-usp4", "tp2-usp2"):
            assert order_of_session(tmp_path, PLANNED, form, window, few).skip == ""
    order = replace(order_of_session(tmp_path, PLANNED, "tp1-usp4", 1, few), skip="enough windows are clean")
    path = tmp_path / CONTRACT.id / "tp1-usp4" / "w3" / "session.json"
    write_session(path, skipped_session(CONTRACT, order))
    assert '"status": "skipped"' in path.read_text(encoding="utf-8")
    assert {p.name for p in path.parent.iterdir()} == {"session.json", "requests.csv", "server.log"}


def test_the_adaptive_verdict_speaks_of_contenders_in_windows_that_count(settings):
    forms = ("tp1-usp4", "tp2-usp2")
    seen = [session(form, window, 1.0 + 0.2 * (form == "tp2-usp2")) for window in (1, 2) for form in forms]
    seen += [session(form, 3, 9.0) for form in forms]
    found = to_judge(seen, forms, adaptive(settings))
    assert (len(found.sessions), found.forms) == (6, forms)
    assert {cell.window for cell in found.cells} == {"1", "2", "3", "all"}
