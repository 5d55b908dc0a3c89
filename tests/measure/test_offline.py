"""Existing logs without a device: one verdict per number of ranks, and evidence a reader can follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.serving import Response
from anchormatrix.errors import InputError
from anchormatrix.measure.offline import Reading, read_logs
from anchormatrix.measure.offline_evidence import evidence_markdown
from anchormatrix.measure.rows import aligned
from anchormatrix.measure.served import Sent
from anchormatrix.measure.serverlog.parse import parse_serve_log
from anchormatrix.measure.serverlog.proof import prove

CAPTURES = Path(__file__).resolve().parents[2] / "shared" / "captures" / "logs"
TIERS = {"few": 4, "anchor": 10}
STAGE = "INFO 10-09 08:38:05 [p.py:29] [DiffusionPipelineProfiler] P.diffuse took"


def sampling(steps: int) -> str:
    return f"INFO 10-09 08:38:05 [s.py:1] Video sampling params: steps={steps} guidance=5.0 seed=42\n"


def log(step_s: float, ranks: int, anchor: float = 1.0, sp_size: int | None = None) -> str:
    groups = f"sp_size={sp_size or ranks} ulysses_degree={sp_size or ranks} ring_degree=1"
    text = "".join(f"(DiffusionWorker_SP{r} pid={r}) INFO 10-09 08:38:05 [p.py:1] {groups}\n" for r in range(ranks))
    for number, steps in enumerate((4, 4, 4, 10, 4, 10, 4, 10)):
        took = step_s * steps * (0.87 if number == 0 else anchor if steps == 10 else 1.0)
        text += sampling(steps) + "".join(
            f"(DiffusionWorker_SP{r} pid={r}) {STAGE} {took * (1 + r * 1e-5):.6f}s\n" for r in range(ranks)
        )
    return text


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
    assert "communicator_init" in text
    assert "steady from request 3 on" in text


def test_text_of_logs_and_names_cannot_break_the_evidence(tmp_path: Path) -> None:
    (tmp_path / "a|<b>_serve.log").write_text("Exception: <script>alert(1)</script> | x\n")
    text = evidence_markdown(read(tmp_path), TIERS)
    assert "<script>" not in text
    assert "\\|" in text


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one serving log per form"):
        read(tmp_path)


def test_a_lost_sampling_line_leaves_its_request_untimed_and_shifts_nothing() -> None:
    sent = [Sent("measured", "", steps, 0.0, Response("ok", 1.0)) for steps in (4, 10, 4, 10)]
    whole = [sampling(steps) + f"{STAGE} {steps * 2.0}s\n" for steps in (4, 10, 4, 10)]
    for lost in range(4):
        text = "".join(part.split("\n", 1)[1] if n == lost else part for n, part in enumerate(whole))
        rows = aligned(sent, parse_serve_log(text).requests)
        timed = [row.step_s for row in rows]
        assert timed[lost] is None
        assert all(step_s in (None, 2.0) for step_s in timed)
        assert sum(step_s is None for step_s in timed) <= 2


def test_proof_names_what_is_missing_and_what_is_unproven() -> None:
    found = parse_serve_log(log(3.0, 2))
    asked = {"world": 2, "sp_size": 2, "ulysses_degree": 2, "tp_size": 1}
    assert prove(found, asked).ok
    assert prove(found, {**asked, "cfg_size": 2}).unproven == ("cfg_size 2 asked for, not in the log",)
    assert prove(found, {"world": 4, "sp_size": 4}).failures == ("2 of 4 ranks seen", "sp_size is 2, 4 asked for")
    silent = parse_serve_log(
        sampling(4) + f"(DiffusionWorker pid=1) {STAGE} 8.0s\n(DiffusionWorker pid=2) {STAGE} 8.0s\n"
    )
    assert prove(silent, {"world": 2, "sp_size": 2}).failures == ("sp_size 2 asked for, not in the log",)


def check(distance: str, rank: int = 0, limit: str = "1.00e-05") -> str:
    head = f"(DiffusionWorker_SP{rank} pid={rank}) INFO 10-09 08:38:05 [worker.py:110] Split check: "
    return f"{head}one step of this form against one rank: relative distance {distance}, limit {limit}\n"


def test_a_check_of_its_own_result_that_the_engine_logs_is_part_of_the_proof() -> None:
    asked = {"world": 2, "sp_size": 2}
    assert prove(parse_serve_log(log(3.0, 2)), asked).check is None
    passed = prove(parse_serve_log(check("0.00e+00") + check("3.10e-07", 1) + log(3.0, 2)), asked)
    assert passed.ok
    assert passed.as_dict()["check"] == {
        "ok": True,
        "what": "one step of this form against one rank",
        "relative_distance": 3.1e-07,
        "limit": 1e-05,
        "ranks": 2,
    }


@pytest.mark.parametrize(("distance", "seen"), [("2.00e-02", 0.02), ("inf", None), ("nan", None)])
def test_a_form_whose_own_check_fails_on_any_rank_did_not_take_effect(distance: str, seen: float | None) -> None:
    found = prove(parse_serve_log(check("1.00e-07") + check(distance, 1) + log(3.0, 2)), {"world": 2, "sp_size": 2})
    assert not found.ok
    assert found.check is not None and found.check.relative_distance == seen
    words = "2.00e-02" if seen else "no finite number"
    assert found.failures == (
        "the engine's own check fails (one step of this form against one rank): "
        f"relative distance {words}, limit 1.00e-05",
    )


def test_a_check_inside_a_request_or_without_a_worker_proves_nothing() -> None:
    late = log(3.0, 2) + check("2.00e-02")
    nobody = "INFO 10-09 08:38:05 Split check: this: relative distance 1.00e+00, limit 1.00e-05\n" + log(3.0, 2)
    assert parse_serve_log(late).checks == parse_serve_log(nobody).checks == ()
