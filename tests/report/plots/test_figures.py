"""What the figures say and which files they are: values, labels, stable bytes, text from outside, missing data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from report_results import HOSTILE, ROOT, settings, with_text, write_results

from anchormatrix.report.build import build_report
from anchormatrix.report.captions import of_step_parts
from anchormatrix.report.load import load_report
from anchormatrix.report.plots.captures import step_parts
from anchormatrix.report.plots.figures import NAMES, SUFFIXES, TITLES, fonts_kept_in
from anchormatrix.report.plots.output import inline
from anchormatrix.report.plots.sheet import style

pytestmark = pytest.mark.xdist_group("figures")  # drawn once, by one worker

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two sizes."""
    return build(tmp_path_factory.mktemp("healthy"), sizes=(2, 4))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on one size, every text of which came from a hostile log."""
    return build(tmp_path_factory.mktemp("hostile"), text=HOSTILE, failed=("tp2-usp2",), sizes=(4,))


def build(root: Path, text: str = "", **options: object) -> Path:
    """Write results, build the report, return its folder."""
    write_results(root, text=text, **options)  # type: ignore[arg-type]
    build_report(with_text(text) if text else settings(), root, root / "matrix_report")
    return root / "matrix_report"


def texts(out: Path, name: str) -> list[str]:
    """The words in a figure, in the order they are drawn."""
    root = ElementTree.parse(out / "figures" / f"{name}.svg").getroot()
    return [node.text or "" for node in root.iter(f"{_SVG}text")]


def tips(out: Path, name: str) -> list[str]:
    """What a figure says when the pointer rests on something."""
    root = ElementTree.parse(out / "figures" / f"{name}.svg").getroot()
    return [node.text or "" for node in root.iter(f"{_SVG}title")][1:]


def test_every_figure_is_there_as_svg_png_and_pdf(healthy: Path) -> None:
    found = sorted(path.name for path in (healthy / "figures").iterdir())
    assert found == sorted(f"{name}.{suffix}" for name in NAMES for suffix in SUFFIXES)
    for name in NAMES:
        with Image.open(healthy / "figures" / f"{name}.png") as image:
            assert image.width == 1333  # 480 points at 200 dpi
            assert image.info["Title"] == TITLES[name]
    pages = re.findall(rb"/Type /Page\b", (healthy / "figures" / "step-times.pdf").read_bytes())
    assert len(pages) == 2  # one for each size


def test_the_same_results_give_the_same_bytes(hostile: Path) -> None:
    again = hostile.parent / "again"
    build_report(with_text(HOSTILE), hostile.parent, again)
    for path in (hostile / "figures").iterdir():
        assert path.read_bytes() == (again / "figures" / path.name).read_bytes(), path.name


def test_a_file_has_title_description_and_its_own_light_and_dark(healthy: Path) -> None:
    for name in NAMES:
        root = ElementTree.parse(healthy / "figures" / f"{name}.svg").getroot()
        assert root.findtext(f"{_SVG}title") == TITLES[name]
        assert "prefers-color-scheme:dark" in (root.findtext(f"{_SVG}style") or "")
        drawn = [node for node in root.iter() if node.get("fill", "none") != "none"]
        assert drawn
        assert all("f-" in node.get("class", "") for node in drawn)
    described = ElementTree.parse(healthy / "figures" / "ratio.svg").getroot().findtext(f"{_SVG}desc")
    assert described and described.startswith("All 4 forms stay within ±5 %")


def test_the_ids_of_a_page_with_all_figures_are_unique_and_every_reference_has_one(healthy: Path) -> None:
    page = (healthy / "index.html").read_text(encoding="utf-8")
    counts = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert [name for name, count in counts.items() if count > 1] == []
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(counts)


def test_every_repeat_of_both_windows_is_a_mark(healthy: Path) -> None:
    found = [tip for tip in tips(healthy, "step-times") if re.fullmatch(r"window \d, repeat \d: [\d.]+ s", tip)]
    assert len(found) == 2 * 2 * 2 * 2 * 3  # sizes × forms × tiers × windows × repeats
    assert "window 2, repeat 3: 0.9990 s" in found


def test_figures_carry_their_values_units_and_limits(healthy: Path) -> None:
    assert {"tp1-usp4", "few, 4 steps", "s per step", "1.001 s · 0.9 % · n 6"} <= set(texts(healthy, "step-times"))
    assert {"r = 1.010", "r − 1, band ±5 %", "4 cards"} <= set(texts(healthy, "ratio"))
    assert "dispersion, limit 3 %" in texts(healthy, "dispersion")
    assert {"from tp1-usp4 to tp2-usp2", "Δ exposed communication", "Δ stage"} <= set(
        texts(healthy, "step-differences")
    )
    assert "ms, profiler on" in texts(healthy, "step-parts")
    assert {"4 cards · one layer in time", "ms"} <= set(texts(healthy, "layer-timeline"))


def test_hostile_text_is_shown_as_text(hostile: Path) -> None:
    for name in NAMES:
        text = (hostile / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert "<script" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert any("<script>" in words for words in texts(hostile, "topology"))


def test_no_number_is_drawn_that_is_none(hostile: Path) -> None:
    for name in NAMES:
        assert not re.search(r"\b(NaN|nan|inf)\b", (hostile / "figures" / f"{name}.svg").read_text(encoding="utf-8"))


def test_without_any_result_every_figure_says_why_it_is_empty(tmp_path: Path) -> None:
    out = tmp_path / "matrix_report"
    build_report(settings(), tmp_path, out)
    assert "no form has both tiers measured" in texts(out, "ratio")
    assert texts(out, "step-times") == ["No current contract", "there is no card group to show"]
    assert {path.stem for path in (out / "figures").iterdir()} == set(NAMES)


def test_a_captured_step_of_zeros_is_drawn_all_the_same(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(4,))
    for path in tmp_path.glob("c4-*/*/attribution.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        for rank in values["steps"]["ranks"]:
            rank.update(computing_ms=0, exposed_ms=0, overlapped_ms=0, free_ms=0, bubble_ms=0, stage_ms=0)
        path.write_text(json.dumps(values), encoding="utf-8")
    (measured,) = load_report(settings(), tmp_path, tmp_path / "matrix_report").measured
    with style():
        assert "0.0 ms" in inline("step-parts", step_parts(measured))


def test_what_lies_outside_every_step_is_said_under_the_picture_of_its_parts(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(4,))
    for path in tmp_path.glob("c4-*/tp1-usp4/attribution.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        times = {"computing_ms": 0.058, "communication_ms": 0, "copy_ms": 0.03, "other_ms": 0}
        values["steps"]["outside"] = [{"rank": 2, "kernels": 1, **times}]
        path.write_text(json.dumps(values), encoding="utf-8")
    (measured,) = load_report(settings(), tmp_path, tmp_path / "matrix_report").measured
    said = of_step_parts(measured)
    assert (
        "Outside every step, and in none of these parts: tp1-usp4 0.058 ms of computing and 0.030 ms of copies" in said
    )


def test_importing_the_report_does_not_load_matplotlib() -> None:
    code = (
        "import sys; import anchormatrix.report.build, anchormatrix.report.nightly_page;"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_command_draws_names_what_it_could_not_use_and_leaves_the_home_folder_alone(tmp_path: Path) -> None:
    home, results = tmp_path / "home", tmp_path / "results"
    home.mkdir()
    current = write_results(results, sizes=(2,))
    (results / current[2] / "verdict.json").write_text("{", encoding="utf-8")
    command = [sys.executable, "scripts/rules/build_report.py", "--config", "config/config.yaml"]
    places = ["--results", str(results), "--out", str(results / "matrix_report")]
    environment = {name: value for name, value in os.environ.items() if name not in ("MPLCONFIGDIR", "XDG_CACHE_HOME")}
    environment |= {"HOME": str(home), "PYTHONWARNINGS": "error"}
    found = subprocess.run([*command, *places], cwd=ROOT, check=True, env=environment, capture_output=True, text=True)
    assert f"not used: {current[2]}/verdict.json" in found.stdout
    assert (results / "matrix_report" / "index.html").exists()
    assert list(home.iterdir()) == []
    assert list((results / ".run" / "matplotlib").glob("fontlist*"))


def test_a_place_for_fonts_that_is_set_already_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLCONFIGDIR", "elsewhere")
    with fonts_kept_in(tmp_path):
        assert os.environ["MPLCONFIGDIR"] == "elsewhere"
    monkeypatch.delenv("MPLCONFIGDIR")
    with fonts_kept_in(tmp_path):
        assert os.environ["MPLCONFIGDIR"] == str(tmp_path)
    assert "MPLCONFIGDIR" not in os.environ
