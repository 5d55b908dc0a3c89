"""Existing logs without a device: one verdict per number of ranks, and evidence a reader can follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from serving_logs import log, log_of

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.errors import InputError
from anchormatrix.offline.evidence import evidence_markdown
from anchormatrix.offline.reading import Reading, read_logs
from anchormatrix.records.conclusions.cells import Cell

SHARED = Path(__file__).resolve().parents[3] / "shared"
CAPTURES, CASES = SHARED / "captures" / "logs", SHARED / "cases" / "logs"
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


def in_pairs(
    few: list[float], anchor: list[float], warm_ups: tuple[float, ...] = (2.6, 3.0, 3.0, 3.0), sp_size: int = 4
) -> str:
    """The log of warm-ups and of pairs with these seconds per step."""
    pairs = [request for a, b in zip(few, anchor, strict=True) for request in ((4, a), (10, b))]
    return log_of([*((4, step_s) for step_s in warm_ups), *pairs], 4, sp_size)


def cell(folder: Path, text: str, tier: str) -> Cell:
    """A tier's cell of a log that stands alone."""
    (folder / "tp1-usp4_serve.log").write_text(text)
    (found,) = [found for found in read(folder).cells if (found.tier, found.window) == (tier, "1")]
    return found


@pytest.mark.parametrize(
    ("what", "few", "anchor"),
    [
        ("two slow in the middle", [3.0] * 6, [3.0, 3.24, 3.24, 3.0, 3.0, 3.0]),
        ("slow first", [3.0] * 3, [3.24, 3.0, 3.0]),
        ("slow last", [3.0] * 3, [3.0, 3.0, 3.24]),
        ("fast late", [3.0] * 3, [3.24, 3.24, 3.0]),
        ("two levels in turn", [3.0] * 4, [3.0, 3.24, 3.0, 3.24]),
        ("another level from the middle on", [3.0, 3.0, 3.24, 3.24, 3.24, 3.24], [3.0, 3.0, 3.24, 3.24, 3.24, 3.24]),
    ],
)
def test_an_outlier_among_the_repeats_is_dispersion_and_never_ramp(tmp_path, what, few, anchor) -> None:
    found = cell(tmp_path, in_pairs(few, anchor), "anchor")
    assert found.repeats == len(anchor), what
    assert found.dispersion_pct == pytest.approx(8.0, abs=0.7)
    assert "dispersion" in found.reason


def test_requests_before_the_first_pair_only_warm_up_as_in_a_session(tmp_path: Path) -> None:
    few = cell(tmp_path, in_pairs([3.0, 3.0, 3.0], [3.0, 3.0, 3.0], (2.6, 3.6, 2.7, 3.0, 3.0)), "few")
    assert (few.repeats, few.dispersion_pct, few.usable) == (3, 0.0, True)


def test_three_fast_requests_and_then_an_outlier_leave_the_outlier_in(tmp_path: Path) -> None:
    anchors_last = [(4, step_s) for step_s in (2.6, 2.6, 2.6, 3.3, 3.0, 3.0, 3.0)] + [(10, 3.0)] * 3
    few = cell(tmp_path, log_of(anchors_last, 4), "few")
    assert few.values_s == pytest.approx((3.3, 3.0, 3.0, 3.0))
    assert "dispersion 10.0 %" in few.reason


def test_tiers_in_turn_from_the_start_lose_their_fast_head(tmp_path: Path) -> None:
    turns = log_of([(4 if n % 2 == 0 else 10, 2.6 if n < 3 else 3.0) for n in range(10)], 4)
    assert cell(tmp_path, turns, "few").values_s == pytest.approx((3.0, 3.0, 3.0))
    assert cell(tmp_path, turns, "anchor").values_s == pytest.approx((3.0, 3.0, 3.0, 3.0))


def test_a_ramp_beyond_the_warm_ups_is_no_steady_state(tmp_path: Path) -> None:
    few = cell(tmp_path, in_pairs([2.8, 2.9, 3.0], [2.85, 3.0, 3.0], (2.4, 2.5, 2.6, 2.7)), "few")
    assert not few.usable


def test_a_noisy_form_that_was_faster_is_named_and_nothing_wins_over_it(tmp_path: Path) -> None:
    for window in ("", "_w2"):
        (tmp_path / f"tp1-usp4{window}_serve.log").write_text(log(3.06, 4))
        (tmp_path / f"tp2-usp2{window}_serve.log").write_text(log(3.0, 4, sp_size=2))
        noisy = [2.4, 2.52 if window else 2.4, 2.4]
        (tmp_path / f"tp4-usp1{window}_serve.log").write_text(in_pairs([2.4] * 3, noisy, (2.0, 2.4), sp_size=1))
    reading = read(tmp_path)
    (verdict,) = reading.verdicts
    assert (verdict.status, verdict.winner) == ("unstable", "tp4-usp1")
    assert "tp4-usp1 wins by 25.0 % (20.2 … 30.0 %, 2 starts each) over tp2-usp2" in verdict.reason
    assert (
        "This choice has low confidence: tp4-usp1/anchor: dispersion 5.0 % of 6 repeats is above 3 %" in verdict.reason
    )


NOT_WAITED = (
    "(DiffusionWorkerTP0 pid=100) 100%|███| 41/41 [05:12<00:00,  7.61s/it]\n"
    "(DiffusionWorkerTP0 pid=100) INFO 05-11 09:20:13 [p.py:31] [DiffusionPipelineProfiler] P.diffuse took 0.280000s\n"
    "(DiffusionWorkerTP0 pid=100) INFO 05-11 09:20:13 [p.py:31] [DiffusionPipelineProfiler] P.forward took 319.4000s\n"
)


def test_stage_times_that_did_not_wait_make_no_cell_and_the_bar_is_shown(tmp_path: Path) -> None:
    sampling = "INFO 05-11 09:20:10 [s.py:1] Video sampling params: steps=41 guidance=5.0 seed=42\n"
    (tmp_path / "x_serve.log").write_text((sampling + NOT_WAITED) * 3)
    reading = read_logs(tmp_path, {"few": 5, "anchor": 41}, load_settings(DEFAULT_FILE))
    assert (reading.cells, reading.logs[0].session.status) == ((), "unmeasurable")
    assert "the stage says 0.28 s where the progress bar ran for 5:12: the device was not waited for" in (
        reading.verdicts[0].reason
    )
    assert "| 1 | 41 | 41 (bar) |  | 7.61 … 7.63 | 0 | unknown |" in evidence_markdown(reading, TIERS)
    (summary,) = reading.summary()["logs"]
    assert (summary["requests"], summary["stage_lines"], summary["bars"]) == (3, 6, 3)
    assert [item["request"] for item in summary["refused"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b" \r\n\n", "the file is empty"),
        (bytes(4096), "this is binary data"),
        (b"hello\n" * 9, "of its 9 lines and 0 progress bars none is a request, a stage or a worker's"),
        (b"\x1f\x8b\x08\x00", "is packed with gzip"),
        (b"[12-02 16:23:13] [DenoisingStage] finished in 0.1964 seconds\n", "a log of SGLang's diffusion server"),
        (b"x - [Profile] Rank 0 - Level1_Log step_pre cost 0.000600 seconds\n", "a log of LightX2V's server"),
    ],
)
def test_a_file_that_is_no_serving_log_is_refused_by_what_it_is(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x_serve.log").write_bytes(content)
    with pytest.raises(InputError, match=why):
        read(tmp_path)
    (tmp_path / "tp1-usp4_serve.log").write_text(log(3.0, 4))
    if "packed" not in why:
        assert [item.session.status for item in read(tmp_path).logs] == ["measured", "unmeasurable"]


def test_a_log_in_utf_16_is_read_and_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "tp1-usp4_serve.log").write_bytes(log(3.0, 4).encode("utf-16"))
    assert read(tmp_path).logs[0].session.status == "measured"
    (tmp_path / "tp1-usp4_serve.log").write_bytes(log(3.0, 4).encode() + b"\xff\xfe\n")
    assert read(tmp_path).logs[0].log.findings == ("2 characters are no UTF-8: replaced",)


def test_a_line_without_end_is_read_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "tp1-usp4_serve.log").write_text(log(3.0, 4) + "x" * 3_000_000 + "\n" + "y" * 100_000)
    (item,) = read(tmp_path).logs
    assert item.session.status == "measured"
    assert item.log.spoiled == {"longer than 65536 characters, the rest not read": 2}


@pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not here")
def test_the_cases_of_stage_times() -> None:
    cells = {(cell.form, cell.tier): cell.step_s for cell in read(CASES / "ranks-without-prefix").cells}
    assert cells["qwen-1gpu", "anchor"] == pytest.approx(0.1650, abs=1e-4)
    assert cells["qwen-2gpu", "anchor"] == pytest.approx(0.1103, abs=1e-4)
    (prefix,) = [cell for cell in read(CASES / "stage-prefix").cells if (cell.tier, cell.window) == ("anchor", "1")]
    assert prefix.step_s == pytest.approx(0.1650, abs=1e-4)
    launched = read_logs(CASES / "diffuse-not-waited-for", {"few": 5, "anchor": 41}, load_settings(DEFAULT_FILE))
    assert launched.cells == ()
    assert "7.61 s per step by the bar (5:12 for 41, to 0.024 s)" in launched.verdicts[0].reason


@pytest.mark.skipif(not (CAPTURES.parent / "sglang").is_dir(), reason="../shared/captures is not here")
def test_logs_of_another_engine_are_refused_by_name(tmp_path: Path) -> None:
    for path in (CAPTURES.parent / "sglang").glob("*.log"):
        shutil.copyfile(path, tmp_path / "x_serve.log")
        with pytest.raises(InputError, match="a log of SGLang's diffusion server"):
            read(tmp_path)


@pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not here")
def test_the_cases() -> None:
    (outliers,) = read(CASES / "outliers-after-warm-up").verdicts
    assert (outliers.status, outliers.winner) == ("unstable", None)
    assert "tp1-usp4/anchor: dispersion 8.3 % of 12 repeats is above 3 %" in outliers.reason
    (noisy,) = read(CASES / "fastest-with-two-repeats").verdicts
    assert (noisy.status, noisy.winner) == ("unstable", "tp4-usp1")
    assert "This choice has low confidence: tp4-usp1/anchor: dispersion" in noisy.reason


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
