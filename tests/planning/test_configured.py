"""The configuration in the words of the selection room, and the adaptive design inside the workflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from contracts import contract_on
from run_plans import contract_plan

from anchormatrix.config.merge import load_settings
from anchormatrix.planning.adaptive_run import order_of_session, skipped_session
from anchormatrix.planning.configured import candidates_of, matrix_design
from anchormatrix.records.conclusions.selection import StartNoise
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
    matrix = msgspec.structs.replace(settings.matrix, forms="auto", most_forms=None)
    auto = msgspec.structs.replace(settings, matrix=matrix)
    names = [form.name for form in candidates_of(auto, 4).forms]
    assert {"tp1-usp4", "tp2-usp2", "tp1-usp2-cfg2", "tp1-usp1-ag4"} <= set(names)


def test_a_form_that_does_not_fit_becomes_its_offloaded_variant(settings):
    found = candidates_of(settings, 4, card_gb=32)
    assert [form.name for form in found.forms] == ["tp1-usp4+distributed-layerwise-offload", "tp2-usp2"]
    assert [(item.form.name, item.reason) for item in found.excluded] == [
        ("tp1-usp4", "does not fit without offload: measured as tp1-usp4+distributed-layerwise-offload")
    ]


def test_the_full_design_looks_once_and_leaves_nothing_out(settings, tmp_path):
    design = matrix_design(settings)
    assert (design.adaptive, design.windows, design.rule.first_window, design.rule.far_pct) == (False, 2, 2, None)
    order = order_of_session(tmp_path, PLANNED, "tp1-usp4", 2, design)
    assert (order.repeats, order.skip) == (3, "")


def test_the_adaptive_design_starts_a_form_eight_times_at_most(settings):
    noise = StartNoise(sd_pct=0.8, dof=20, from_history=20)
    design = matrix_design(adaptive(settings), noise)
    assert (design.adaptive, design.windows, design.rule.first_window, design.rule.most_windows) == (True, 8, 2, 8)
    assert (design.rule.known, design.rule.zone_pct) == (noise, 1)


def test_a_session_that_is_left_out_is_written_with_its_reason(settings, tmp_path):
    few = matrix_design(adaptive(settings))
    for window in (1, 2):
        for form in ("tp1-usp4", "tp2-usp2"):
            assert order_of_session(tmp_path, PLANNED, form, window, few).skip == ""
    order = replace(order_of_session(tmp_path, PLANNED, "tp1-usp4", 1, few), skip="the choice is made")
    path = tmp_path / CONTRACT.id / "tp1-usp4" / "w3" / "session.json"
    write_session(path, skipped_session(CONTRACT, order))
    assert '"status": "skipped"' in path.read_text(encoding="utf-8")
    assert {"session.json", "requests.csv", "server.log"} <= {p.name for p in path.parent.iterdir()}
