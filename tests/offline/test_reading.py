"""Existing logs without a device: one verdict per number of ranks, and evidence a reader can follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from serving_logs import log

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.errors import InputError
from anchormatrix.offline.evidence import evidence_markdown
from anchormatrix.offline.reading import Reading, read_logs

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures" / "logs"
TIERS = {"few": 4, "anchor": 10}


def read(folder: Path) -> Reading:
    return read_logs(folder, TIERS, load_settings(DEFAULT_FILE))


def test_two_windows_of_two_forms_give_a_verdict(tmp_path: Path) -> None:
    for window in ("", "_w2"):
        (tmp_path / f"tp1-usp4{window}_serve.log").write_text(log(3.0, 4))
        (tmp_path / f"tp2-usp2{window}_serve.log").write_text(log(3.3, 4, 1.02, sp_size=2))
    reading = read(tmp_path)
    (verdict,) = reading.verdicts
    assert (verdict.size, verdict.status, verdict.winner) == (4, "extrapolates", "tp1-usp4")
    assert verdict.r == pytest.approx({"tp1-usp4": 1.0, "tp2-usp2": 1.02})
    summary = reading.summary()
    assert summary["verdicts"][0]["order_few"] == ["tp1-usp4", "tp2-usp2"]
    assert {cell["window"] for cell in summary["cells"]} == {"1", "2", "all"}


def test_one_window_judges_the_tiers_but_names_no_winner(tmp_path: Path) -> None:
    for label, step_s in (("baseline", 3.0), ("masked", 3.3)):
        (tmp_path / f"{label}_serve.log").write_text(log(step_s, 4))
    (verdict,) = read(tmp_path).verdicts
    assert (verdict.status, verdict.winner) == ("extrapolates", None)
    assert "a single window never decides" in verdict.reason


def test_a_form_that_did_not_take_effect_is_void_here_too(tmp_path: Path) -> None:
    (tmp_path / "tp2-usp2_serve.log").write_text(log(3.0, 4, sp_size=4))
    (item,) = read(tmp_path).logs
    assert item.session.status == "void"


def test_the_captures(tmp_path: Path) -> None:
    if not CAPTURES.exists():
        pytest.skip("../shared/captures is not here")
    for source, name in (("usp2", "tp1-usp2"), ("per-step-diffuse", "tp1-usp4"), ("hccl-init-failure", "broken")):
        shutil.copyfile(CAPTURES / f"vllm-omni-{source}.log", tmp_path / f"{name}_serve.log")
    reading = read(tmp_path)
    cells = {
        (cell.form, cell.tier): (cell.step_s, cell.dispersion_pct) for cell in reading.cells if cell.window == "all"
    }
    assert cells["tp1-usp2", "few"] == pytest.approx((3.0190428, 0.1058), abs=1e-4)
    assert cells["tp1-usp2", "anchor"] == pytest.approx((3.0308939, 0.1616), abs=1e-4)
    assert cells["tp1-usp4", "few"] == pytest.approx((1.608494, 0.4848), abs=1e-4)
    assert cells["tp1-usp4", "anchor"] == pytest.approx((1.620281, 0.2535), abs=1e-4)
    r = {form: value for verdict in reading.verdicts for form, value in verdict.r.items()}
    assert r == pytest.approx({"tp1-usp2": 1.00393, "tp1-usp4": 1.00733}, abs=1e-5)
    assert [verdict.status for verdict in reading.verdicts] == ["incomplete"] * 3
    text = evidence_markdown(reading, TIERS)
    assert "ranks did not reach the root rank" in text
    assert "steady from request 3 on" in text


def test_text_of_logs_and_names_cannot_break_the_evidence(tmp_path: Path) -> None:
    (tmp_path / "a|<b>_serve.log").write_text("Exception: <script>alert(1)</script> | x\n")
    text = evidence_markdown(read(tmp_path), TIERS)
    assert "<script>" not in text
    assert "\\|" in text


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one serving log per form"):
        read(tmp_path)
