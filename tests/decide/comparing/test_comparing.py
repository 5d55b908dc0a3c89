"""Two runs against each other: what forbids a comparison, what is compared, and what the starts of both tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import command
from measured import session_record
from msgspec.structs import replace
from stored_runs import session_path, write_run

from anchormatrix.decide.comparing.cells import compare_runs
from anchormatrix.records.conclusions.comparison import Bearing, CellComparison, CellOutcome, RunComparison
from anchormatrix.records.requests import Basis
from anchormatrix.store.codec import parse_record, write_record

QUIET = {"tp1-usp2": [(2.000, 2.002, 2.001), (2.004, 2.003, 2.005)], "tp2-usp1": [(2.2, 2.202, 2.201), (2.203,) * 3]}
SLOWER = {form: [tuple(1.1 * s for s in values) for values in starts] for form, starts in QUIET.items()}
AGAIN = {"tp1-usp2": [(2.003, 2.001, 2.002), (2.001, 2.000, 2.003)], "tp2-usp1": [(2.202,) * 3, (2.2, 2.201, 2.203)]}
NOISY = {"tp1-usp2": [(2.0, 2.0, 2.0), (2.1, 2.1, 2.1)]}


def compared(tmp_path: Path, a: Any = QUIET, b: Any = QUIET, **facts: Any) -> RunComparison:
    """A run of ``a`` against one of ``b`` on another day, whose ``facts`` are other ones."""
    return compare_runs(write_run(tmp_path / "a", a), write_run(tmp_path / "b", b, day=2, **facts))


def outcomes(found: RunComparison) -> list[CellOutcome]:
    return [cell.outcome for size in found.sizes for cell in size.cells]


def only_cell(found: RunComparison) -> CellComparison:
    [size] = found.sizes
    [cell] = size.cells
    return cell


def forbidding(found: RunComparison) -> list[str]:
    return [one.name for size in found.sizes for one in size.differences if one.bearing is Bearing.FORBIDS]


def test_a_run_against_itself_shows_no_difference(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {**QUIET, **NOISY})
    found = compare_runs(run, run)
    assert outcomes(found) == [CellOutcome.NO_DIFFERENCE] * 2
    assert found.sizes[0].cells[0].text == "no difference within 1 %: both are the same server starts"
    assert (found.sizes[0].differences, found.sizes[0].unknown, found.sizes[0].lacking) == ((), (), ())


def test_two_runs_of_the_same_show_no_difference_with_an_interval(tmp_path: Path) -> None:
    cell, _ = compared(tmp_path, b=AGAIN).sizes[0].cells
    assert (cell.outcome, cell.text) == (CellOutcome.NO_DIFFERENCE, "no difference within 1 %")
    assert cell.delta_pct == pytest.approx(-0.0499, abs=1e-4)  # 2.002 and 2.001 against 2.001 and 2.004
    assert cell.low_pct is not None and cell.high_pct is not None
    assert -1 < cell.low_pct < cell.delta_pct < cell.high_pct < 1


def test_another_version_is_a_comparison(tmp_path: Path) -> None:
    found = compared(tmp_path, b=SLOWER, framework_version="0.31.0")
    assert [(one.name, one.a, one.b, one.bearing) for one in found.sizes[0].differences] == [
        ("framework_version", "0.30.0", "0.31.0", Bearing.COMPARED)
    ]
    cell = found.sizes[0].cells[0]
    assert (cell.outcome, cell.text, cell.a.step_s, cell.b.step_s) == (
        CellOutcome.A_FASTER,
        "A faster",
        2.0025,
        2.20275,
    )
    assert cell.delta_pct == pytest.approx(10.0)


def test_sides_swapped_the_other_one_is_faster(tmp_path: Path) -> None:
    cell = compared(tmp_path, a=SLOWER).sizes[0].cells[0]
    assert (cell.outcome, cell.text) == (CellOutcome.B_FASTER, "B faster")
    assert cell.delta_pct == pytest.approx(-100 / 11)


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        ({"height": 720, "width": 1280}, ["workload.height", "workload.width"]),
        ({"model": "Wan-AI/Wan2.2-TI2V-5B-Diffusers"}, ["workload.model"]),
        ({"frames": 121}, ["workload.frames"]),
        ({"flow_shift": None}, ["workload.flow_shift"]),
        ({"guidance_scale": 1}, ["workload.guidance_scale"]),
        ({"negative_prompt": "blurred"}, ["workload.negative_prompt"]),
        ({"extra_params": {"guidance_scale_2": 3}}, ["workload.extra_params.guidance_scale_2"]),
        ({"engine_args": ["--quantization", "fp8"]}, ["workload.engine_args.--quantization"]),
        ({"engine_env": {"DIFFUSION_CACHE_BACKEND": "cache_dit"}}, ["workload.engine_env.DIFFUSION_CACHE_BACKEND"]),
    ],
)
def test_another_step_is_not_compared(tmp_path: Path, workload: dict[str, Any], names: list[str]) -> None:
    found = compared(tmp_path, b=SLOWER, workload=workload)
    assert forbidding(found) == names
    assert outcomes(found) == [CellOutcome.NOT_COMPARABLE] * 2
    assert [cell.delta_pct for cell in found.sizes[0].cells] == [None, None]
    assert found.sizes[0].forbidden


def test_the_words_name_what_forbids(tmp_path: Path) -> None:
    cell = compared(tmp_path, workload={"height": 720, "width": 1280}).sizes[0].cells[0]
    assert cell.text == "not comparable: another resolution (workload.height, workload.width)"


@pytest.mark.parametrize(
    ("workload", "bearing"),
    [
        ({"prompt": "A harbour"}, Bearing.ASIDE),
        ({"seed": 7}, Bearing.ASIDE),
        ({"guidance_scale": 4}, Bearing.ASIDE),
        ({"engine_args": ["--vae-precision", "fp32"]}, Bearing.ASIDE),
        ({"engine_env": {"TORCHINDUCTOR_CACHE_DIR": "/tmp/x"}}, Bearing.ASIDE),
        ({"engine_args": ["--enforce-eager"]}, Bearing.COMPARED),
        ({"engine_env": {"HCCL_BUFFSIZE": "512"}}, Bearing.COMPARED),
    ],
)
def test_what_leaves_the_step_as_it_is_is_compared(tmp_path: Path, workload: dict[str, Any], bearing: Bearing) -> None:
    found = compared(tmp_path, b=SLOWER, workload=workload)
    assert [one.bearing for one in found.sizes[0].differences] == [bearing]
    assert outcomes(found) == [CellOutcome.A_FASTER] * 2


def test_another_number_of_steps_forbids_only_its_tier(tmp_path: Path) -> None:
    assert outcomes(compared(tmp_path / "few", tiers={"few": 6})) == [CellOutcome.NO_DIFFERENCE] * 2
    found = compared(tmp_path / "anchor", tiers={"anchor": 20})
    assert (forbidding(found), outcomes(found)) == (["tiers.anchor"], [CellOutcome.NOT_COMPARABLE] * 2)


def test_another_basis_forbids(tmp_path: Path) -> None:
    found = compared(tmp_path, basis=Basis.BAR)
    assert (forbidding(found), outcomes(found)) == (["basis"], [CellOutcome.NOT_COMPARABLE] * 2)


def test_another_engine_is_compared_as_measured_with_what_is_not_known(tmp_path: Path) -> None:
    found = compared(tmp_path, b=SLOWER, framework="sglang", framework_version="0.5.23", basis=None)
    assert found.sizes[0].unknown == (
        "precision of weights and attention: vllm-omni and sglang choose it by themselves",
        "scheduler and its shift: vllm-omni and sglang choose it by themselves",
        "guidance branches in one step: vllm-omni and sglang choose it by themselves",
        "what was timed at anchor: the files of B do not tell",
    )
    assert [cell.text for cell in found.sizes[0].cells] == ["A faster, as measured"] * 2


def test_each_engine_says_its_precision_in_its_own_words(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", QUIET, workload={"engine_args": ["--quantization=fp8"]})
    options = {"engine_options": {"dit_quant_scheme": "fp8-vllm"}}
    both = compare_runs(a, write_run(tmp_path / "b", SLOWER, framework="lightx2v", workload=options))
    alone = compare_runs(a, write_run(tmp_path / "c", SLOWER, framework="lightx2v"))
    assert (forbidding(both), forbidding(alone)) == ([], ["workload.engine_args.--quantization"])
    assert both.sizes[0].unknown[3:] == (
        "workload.engine_args.--quantization: fp8 against not given, in each engine's own words",
        "workload.engine_options.dit_quant_scheme: not given against fp8-vllm, in each engine's own words",
    )


def test_a_folder_of_weights_on_two_hosts_is_not_known_to_be_the_same(tmp_path: Path) -> None:
    local = {"model": "/models/wan"}
    a = write_run(tmp_path / "a", QUIET, workload=local)
    found = compare_runs(a, write_run(tmp_path / "b", AGAIN, workload=local, host="other"))
    assert found.sizes[0].unknown == ("weights: /models/wan is a folder of each host",)
    assert found.sizes[0].cells[0].text == "no difference within 1 %, as measured"


def test_a_form_that_one_run_lacks_is_listed_with_the_reason(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", QUIET), write_run(tmp_path / "b", {"tp1-usp2": QUIET["tp1-usp2"]}, day=2)
    crashed = session_record("tp2-usp1", 1, "did_not_run", reason="out of memory", contract=next(b.glob("c2-*")).name)
    write_record(session_path(b, "tp2-usp1", 1), crashed)
    [lacking] = compare_runs(a, b).sizes[0].lacking
    assert (lacking.form, lacking.tier, lacking.lacks_it, lacking.reason) == (
        "tp2-usp1", "anchor", "b", "did_not_run: out of memory",
    )  # fmt: skip


def test_one_start_on_a_side_decides_nothing(tmp_path: Path) -> None:
    cell = only_cell(compared(tmp_path, b={"tp1-usp2": SLOWER["tp1-usp2"][:1]}))
    assert (cell.outcome, cell.low_pct, cell.a.starts, cell.b.starts) == (CellOutcome.NOT_DECIDABLE, None, 2, 1)
    assert cell.text == "not decidable, because B has a single start that may be compared"
    assert cell.delta_pct == pytest.approx(9.92, abs=0.01)


def test_starts_that_differ_more_than_the_runs_decide_nothing(tmp_path: Path) -> None:
    cell = only_cell(compared(tmp_path, a=NOISY, b={"tp1-usp2": [(2.05,) * 3, (2.12,) * 3]}))
    assert cell.outcome is CellOutcome.NOT_DECIDABLE
    assert cell.text == (
        "not decidable, because the interval holds 0 and exceeds 1 %: more starts of both (matrix.windows) narrow it"
    )
    assert cell.low_pct is not None and cell.low_pct < -1


def test_the_interval_has_the_freedom_of_the_side_known_worse(tmp_path: Path) -> None:
    """Three starts have two degrees of freedom, of which Student's quantile is (2p - 1) / sqrt(2p(1 - p)): 5.6428."""
    a = {"tp1-usp2": [(2.0,) * 3, (2.02,) * 3, (2.01,) * 3, (2.015,) * 3]}
    cell = only_cell(compared(tmp_path, a=a, b={"tp1-usp2": [(2.2,) * 3, (2.26,) * 3, (2.21,) * 3]}))
    assert (cell.outcome, cell.a.starts, cell.b.starts) == (CellOutcome.A_FASTER, 4, 3)
    assert [cell.low_pct, cell.delta_pct, cell.high_pct] == pytest.approx([5.3113, 10.5379, 16.0240], abs=1e-4)


def test_a_noisy_run_is_not_believed_for_the_quiet_one_beside_it(tmp_path: Path) -> None:
    """With one pooled variance the second side's noise would look as small as the first's."""
    many = {"tp1-usp2": [(2.0, 2.001, 2.002)] * 8}
    wide = only_cell(compared(tmp_path, a=many, b={"tp1-usp2": [(2.1,) * 3, (2.2,) * 3]}))
    assert wide.outcome is CellOutcome.NOT_DECIDABLE
    assert wide.high_pct is not None and wide.high_pct > 60  # t with one degree of freedom: 21 × 2.3 %


def test_a_start_that_was_cut_short_is_none(tmp_path: Path) -> None:
    cell = only_cell(compared(tmp_path, b={"tp1-usp2": [(2.2, 2.2, 2.2), (2.2,)]}))
    assert (cell.b.starts, cell.b.doubt) == (1, "window 2: 1 of 3 repeats")


def test_the_zone_can_be_given(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", QUIET), write_run(tmp_path / "b", AGAIN, day=2)
    assert compare_runs(a, b, zone_pct=0.01).sizes[0].cells[0].outcome is CellOutcome.NOT_DECIDABLE


def test_sizes_that_only_one_run_measured_are_named(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", QUIET), write_run(tmp_path / "b", QUIET)
    text = (b / "contracts.json").read_text()
    four = json.loads(text)
    [only] = four["contracts"]
    links = [["X" if x == y else "UB" for y in range(4)] for x in range(4)]
    four["contracts"] = [{**only, "id": "", "size": 0, "cards": [0, 1, 2, 3], "links": links}]
    (b / "contracts.json").write_text(json.dumps(four))
    session = session_record("tp1-usp4", 1, "did_not_run", contract="c4-x")
    write_record(session_path(b, "tp1-usp4", 1), replace(session, contract=session_path(b, "x", 1).parts[-4]))
    found = compare_runs(a, b)
    assert (found.sizes, found.lacking) == ((), ("2 cards: only A measured them", "4 cards: only B measured them"))


class TestCommand:
    """``scripts/compare.py``."""

    def test_the_table_fits_a_terminal(self, tmp_path: Path) -> None:
        a = write_run(tmp_path / "a", QUIET)
        b = write_run(tmp_path / "b", SLOWER, framework_version="0.31.0", workload={"prompt": "A harbour"})
        done = command("scripts/compare.py", a, b)
        lines = done.stdout.splitlines()
        assert (done.returncode, done.stderr) == (0, "")
        assert [line.split() for line in lines if line.lstrip().startswith("2 ")] == [
            [
                "2",
                "tp1-usp2",
                "anchor",
                "2.0025",
                "2.2027",
                "2/2",
                "6/6",
                "0.2/0.2",
                "+10.00",
                *words(lines, "tp1-usp2"),
            ],
            [
                "2",
                "tp2-usp1",
                "anchor",
                "2.2025",
                "2.4228",
                "2/2",
                "6/6",
                "0.1/0.1",
                "+10.00",
                *words(lines, "tp2-usp1"),
            ],
        ]
        assert "framework_version  0.30.0  0.31.0  all" in lines
        assert max(len(line) for line in lines if str(tmp_path) not in line) <= 120

    def test_json_is_the_record(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "a", QUIET)
        done = command("scripts/compare.py", run, run, "--json")
        assert parse_record(done.stdout, RunComparison, where="stdout") == compare_runs(run, run)

    def test_a_damaged_file_is_one_line(self, tmp_path: Path) -> None:
        a, b = write_run(tmp_path / "a", QUIET), write_run(tmp_path / "b", QUIET)
        file = session_path(b, "tp1-usp2", 2).with_name("requests.csv")
        file.write_text(file.read_text().replace(",2.004,", ",two,"))
        done = command("scripts/compare.py", a, b)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"compare.py: {file}:2: step_s")
        assert done.stderr.endswith("delete its folder; the next run measures it again\n")
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda path: None, "no such folder; expected the results folder of a run"),
            (lambda path: path.mkdir(), "contracts.json: no such file; run the step that makes it first"),
        ],
    )
    def test_a_folder_without_a_run_is_one_line(self, tmp_path: Path, make: Any, said: str) -> None:
        run = write_run(tmp_path / "a", QUIET)
        make(tmp_path / "none")
        done = command("scripts/compare.py", run, tmp_path / "none")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert said in done.stderr

    def test_what_comes_from_outside_stays_on_its_line(self, tmp_path: Path) -> None:
        a = write_run(tmp_path / "a", QUIET)
        b = write_run(tmp_path / "b", QUIET, driver="1\n\x1b[31mred", framework="x\ny")
        done = command("scripts/compare.py", a, b)
        assert "\x1b" not in done.stdout
        assert "driver" in next(line for line in done.stdout.splitlines() if "[31mred" in line)


def words(lines: list[str], form: str) -> list[str]:
    """The interval and the result of a row."""
    return next(line for line in lines if form in line).split()[9:]
