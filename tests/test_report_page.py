"""The report's files: one self-contained page, escaped everywhere, with nine pictures and the promised JSON."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_results import HOSTILE, ROOT, settings, with_text, write_results

from anchormatrix.report.build import build_report
from anchormatrix.report.figures import NAMES
from anchormatrix.report.svg import WIDTH, text_width

_VOID = {"meta", "br", "img", "input", "hr", "link"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        """All visible text, white space folded."""
        return " ".join("".join(self.words).split())


def build(root: Path, text: str = "", **options: object) -> Path:
    """Write results, build the report, return its folder."""
    write_results(root, text=text, **options)  # type: ignore[arg-type]
    out = root / "matrix_report"
    build_report(with_text(text) if text else settings(), root, out)
    return out


def page_of(out: Path) -> Page:
    """The page, parsed."""
    return Page((out / "index.html").read_text(encoding="utf-8"))


def test_the_page_opens_with_the_answer_and_links_only_to_itself(tmp_path: Path) -> None:
    page = page_of(build(tmp_path))
    start = page.text.index("Use tp1-usp2 on")
    assert start < page.text.index("Host and groups") < page.text.index("Commands")
    ids = {attributes.get("id") for _, attributes in page.tags}
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert "src" not in attributes
        href = attributes.get("href")
        assert href is None or href[1:] in ids


def test_text_from_outside_is_shown_and_never_markup(tmp_path: Path) -> None:
    out = build(tmp_path, text=HOSTILE, failed=("tp2-usp2",))
    page = page_of(out)
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count('<script>alert("x")</script>') > 20
    for path in (out / "index.html", out / "evidence.md", *(out / "figures").glob("*.svg")):
        text = path.read_text(encoding="utf-8")
        assert not any("<script" in line for line in text.split("\n") if not line.startswith("    "))  # but in code
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_every_figure_is_a_well_formed_file_with_its_own_light_and_dark(tmp_path: Path) -> None:
    out = build(tmp_path, text=HOSTILE)
    assert sorted(path.stem for path in (out / "figures").iterdir()) == sorted(NAMES)
    for path in (out / "figures").iterdir():
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert "prefers-color-scheme:dark" in text
        assert not re.search(r"\bNaN\b|\binf\b", text)


def test_every_repeat_of_both_windows_is_a_mark(tmp_path: Path) -> None:
    svg = (build(tmp_path, sizes=(4,)) / "figures" / "step-times.svg").read_text(encoding="utf-8")
    titles = re.findall(r"<title>(window \d, repeat \d: [\d.]+ s)</title>", svg)
    assert len(titles) == 2 * 2 * 2 * 3  # forms × tiers × windows × repeats
    assert "window 2, repeat 3: 0.9990 s" in titles


def test_without_any_result_every_file_is_there_and_says_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "matrix_report"
    build_report(settings(), tmp_path, out)
    page = page_of(out)
    assert "no contract was resolved: run the contract target" in page.text
    assert {path.stem for path in (out / "figures").iterdir()} == set(NAMES)
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["cells"] == []


def test_the_summary_has_the_promised_shape(tmp_path: Path) -> None:
    out = build(tmp_path, sizes=(4,), retired=True)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    (one,) = summary["contracts"]
    assert summary["schema"] == 1
    assert (one["size"], one["cards"], one["version"]) == (4, [0, 1, 2, 3], 1)
    assert {(cell["form"], cell["tier"], cell["window"]) for cell in summary["cells"]} == {
        (form, tier, window)
        for form in ("tp1-usp4", "tp2-usp2")
        for tier in ("few", "anchor")
        for window in ("1", "2", "all")
    }
    assert {"contract", "repeats", "step_s", "dispersion_pct", "usable"} <= set(summary["cells"][0])
    (verdict,) = summary["verdicts"]
    assert verdict["status"] == "extrapolates"
    assert verdict["order_few"] == verdict["order_anchor"] == ["tp1-usp4", "tp2-usp2"]
    assert verdict["winner"] == "tp1-usp4"
    assert verdict["r"] == pytest.approx({"tp1-usp4": 1.01, "tp2-usp2": 1.01}, abs=1e-3)
    assert [entry["cards"] for entry in summary["retired_contracts"]] == [[4, 5, 6, 7]]


def test_cells_across_domains_carry_the_note_in_page_and_csv(tmp_path: Path) -> None:
    out = build(tmp_path, sizes=(8,))
    rows = list(csv.DictReader((out / "cells.csv").open(encoding="utf-8")))
    assert {row["note"] for row in rows} == {"not one interconnect domain, bandwidth second-best"}
    assert page_of(out).text.count("not one interconnect domain, bandwidth second-best") >= len(rows)


def test_a_failed_form_shows_its_log_line_and_a_retired_contract_its_change(tmp_path: Path) -> None:
    text = page_of(build(tmp_path, failed=("tp2-usp2",), retired=True, sizes=(4,))).text
    assert "did not run through" in text
    assert "RuntimeError: NPU out of memory. Tried to allocate 28.00 GiB" in text
    assert "cards: 4, 5, 6, 7 → 0, 1, 2, 3" in text
    assert "retired" in text


def test_commands_are_shown_whole_but_secrets_are_not(tmp_path: Path) -> None:
    out = build(tmp_path, sizes=(2,))
    for text in (page_of(out).text, (out / "evidence.md").read_text(encoding="utf-8")):
        assert "HF_TOKEN=…" in text
        assert "hf_should_not_show" not in text
        assert "vllm serve Wan-AI/Wan2.2-T2V-A14B-Diffusers --omni --host 127.0.0.1 --port 40123" in text


def test_a_cell_measured_again_shows_old_and_new_value_and_what_changed(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(4,))
    rerun = {
        "schema": 1,
        "when": "2025-12-01T03:00:00+00:00",
        "contract": current[4],
        "form": "tp1-usp4",
        "tier": "anchor",
        "before": {"step_s": 1.0, "dispersion_pct": 0.7},
        "after": {"step_s": 1.02, "dispersion_pct": 0.5},
        "changed": ["driver: 25.2.0 → 25.3.0"],
    }
    (tmp_path / "reruns.jsonl").write_text(json.dumps(rerun) + "\n", encoding="utf-8")
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    text = page_of(tmp_path / "matrix_report").text
    assert "1.0000 (0.70 %)" in text
    assert "1.0200 (0.50 %)" in text
    assert "+2.00 %" in text
    assert "driver: 25.2.0 → 25.3.0" in text


def test_attribution_is_read_out_in_sentences_that_follow_from_its_numbers(tmp_path: Path) -> None:
    text = page_of(build(tmp_path, sizes=(4,))).text.replace("\u00a0", " ")
    assert "tp2-usp2 is 100.0 ms longer than tp1-usp4, most of it exposed communication" in text
    assert "50 % of the bound is reached; compute is too short to hide it (f < c)" in text
    assert "80 % of that ends with a collective, 14 % has nothing running anywhere" in text


def test_the_markdown_shows_hostile_text_as_text(tmp_path: Path) -> None:
    text = (build(tmp_path, text=HOSTILE, sizes=(2,)) / "evidence.md").read_text(encoding="utf-8")
    assert '&lt;script&gt;alert("x")&lt;/script&gt; &amp; \\| \\`code\\` \\[a\\](http:&#47;/b)' in text
    cells = text[text.index("## Cells") :].split("\n\n")[1].split("\n")
    assert {line.count("|") for line in cells} == {cells[0].count("|")}


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    out = build(tmp_path, failed=("tp2-usp2",))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    build_report(settings(), tmp_path, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_command_builds_the_report_and_names_what_it_could_not_use(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(2,))
    (tmp_path / current[2] / "verdict.json").write_text("{", encoding="utf-8")
    arguments = ["--config", "config/config.yaml", "--results", str(tmp_path), "--out", str(tmp_path / "out")]
    found = subprocess.run(
        [sys.executable, "scripts/build_report.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert f"not used: {current[2]}/verdict.json" in found.stdout
    assert (tmp_path / "out" / "index.html").exists()


def test_every_figure_has_a_caption() -> None:
    for name in (*NAMES, "matrix_report", "cells"):
        assert (ROOT / "report" / f"{name}.rst").read_text(encoding="utf-8").strip()


def test_no_text_in_a_picture_is_wider_than_the_picture(tmp_path: Path) -> None:
    out = build(tmp_path, text="W" * 400, failed=("tp2-usp2",), no_group=2)
    for path in (out / "figures").iterdir():
        for node in ElementTree.fromstring(path.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}text"):
            assert text_width(node.text or "", float(node.get("font-size", "12"))) <= WIDTH
