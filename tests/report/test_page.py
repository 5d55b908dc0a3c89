"""The report's files: one self-contained page, escaped everywhere, and the promised JSON."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_results import HOSTILE, ROOT, settings, with_text, write_results

from anchormatrix.report.build import build_report
from anchormatrix.report.plots.figures import NAMES

pytestmark = pytest.mark.usefixtures("undrawn")
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
    for path in (out / "index.html", out / "evidence.md"):
        text = path.read_text(encoding="utf-8")
        assert not any("<script" in line for line in text.split("\n") if not line.startswith("    "))  # but in code
        assert "\x1b" not in text
        assert "\u202e" not in text


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
    assert (one["size"], one["cards"], one["version"]) == (4, [0, 1, 2, 3], 2)
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
    assert "Check: npu-smi. Cure: split it." in text
    assert "cards: 4, 5, 6, 7 → 0, 1, 2, 3" in text
    assert "retired" in text


def test_commands_are_shown_whole_but_secrets_are_not(tmp_path: Path) -> None:
    out = build(tmp_path, sizes=(2,))
    for text in (page_of(out).text, (out / "evidence.md").read_text(encoding="utf-8")):
        assert 'HF_TOKEN="$HF_TOKEN"' in text
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
    assert "50 % of what 4 chunks allow (75 %); attention is too short to hide it (F < C)" in text
    assert "80 % of that in gaps that end when a collective does, 14 % with nothing running anywhere" in text


def changed(root: Path, form: str, **steps: object) -> None:
    """Change the decomposition of a form's captured step."""
    path = next(root.glob(f"c4-*/{form}/attribution.json"))
    values = json.loads(path.read_text(encoding="utf-8"))
    for rank in values["steps"]["ranks"]:
        rank.update(steps)
    path.write_text(json.dumps(values), encoding="utf-8")


def test_the_profilers_stretch_is_told_and_the_timed_difference_beside_the_captured_one(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(4,))
    changed(tmp_path, "tp1-usp4", computing_ms=860, exposed_ms=300, free_ms=50, stage_ms=1210)  # (1210 − 300) ÷ 700
    changed(tmp_path, "tp2-usp2", computing_ms=850, exposed_ms=390, free_ms=50, stage_ms=1290)  # (1290 − 390) ÷ 710
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    text = (tmp_path / "matrix_report" / "evidence.md").read_text(encoding="utf-8")
    assert (
        "tp1-usp4 waits for communication for 300.0 ms, 30.0 % of its 1.000 s at the few tier without the prof" in text
    )
    assert "With the profiler on, the rest of the step took 1.30 and 1.27 times as long, so computing and free" in text
    assert "In the captured step tp2-usp2 is 80.0 ms longer" in text
    assert "timed at the anchor without the profiler, the difference is +101.1 ms" in text
    assert "not like the timed ones" not in text


def test_a_captured_step_that_was_slow_by_itself_is_not_believed(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(4,))
    changed(tmp_path, "tp1-usp4", computing_ms=1500, exposed_ms=300, free_ms=50, stage_ms=1850)  # (1850 − 300) ÷ 700
    changed(tmp_path, "tp2-usp2", computing_ms=850, exposed_ms=390, free_ms=50, stage_ms=1290)
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    text = (tmp_path / "matrix_report" / "evidence.md").read_text(encoding="utf-8")
    assert "took 2.21 and 1.27 times as long: too uneven for the profiler's doing" in text
    assert "warning: the captured step of tp1-usp4 is not like the timed ones" in text


def test_chunks_of_heads_are_not_said_to_hide_an_all_reduce(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(4,))
    for form, family in (("tp1-usp4", "alltoall"), ("tp2-usp2", "allReduce")):
        path = next(tmp_path.glob(f"c4-*/{form}/attribution.json"))
        values = json.loads(path.read_text(encoding="utf-8"))
        for rank in values["masking"]["ranks"]:
            rank.update(family=family, chunks=1, c_ms=1.0, f_ms=9.0)
        path.write_text(json.dumps(values), encoding="utf-8")
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    text = (tmp_path / "matrix_report" / "evidence.md").read_text(encoding="utf-8")
    assert "compute is long enough to hide up to 1 − 1/n of alltoall with n chunks" in text
    assert "tp2-usp2: one chunk, so masking is off; chunks of heads cannot hide allReduce" in text


def test_what_holds_for_several_sizes_and_what_forms_share_is_said_once(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(2, 4))
    projection = "Projection: with payload halved, the other would take 1.05 s per step."
    decision = tmp_path / "matrix_report" / "decision.json"
    values = json.loads(decision.read_text(encoding="utf-8"))
    values["reverify_triggers"] = [
        {
            "size": size,
            "trigger": "order flip",
            "fired": False,
            "text": f"{size} cards: both tiers rank the forms alike",
        }
        for size in (2, 4)
    ]
    first = {
        "size": 4,
        "trigger": "new fixed cost",
        "fired": False,
        "evaluated": False,
        "text": "4 cards: nothing to compare with",
    }
    values["reverify_triggers"].append(first)
    values["sizes"]["4"]["reversal"] = [projection]
    decision.write_text(json.dumps(values), encoding="utf-8")
    gates = next(tmp_path.glob("c4-*/gates.json"))
    values = json.loads(gates.read_text(encoding="utf-8"))
    for gate in values["gates"]:
        if gate["gate"] == "G7":
            gate["text"] = "no capture to project from"
    values["projections"][0]["text"] = projection
    gates.write_text(json.dumps(values), encoding="utf-8")
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    text = (tmp_path / "matrix_report" / "evidence.md").read_text(encoding="utf-8")
    assert "| order flip | 2, 4 | no | both tiers rank the forms alike |" in text
    assert "| new fixed cost | 4 | not tested | nothing to compare with |" in text
    assert text.count("Projection: with payload halved, the other would take 1.05 s per step.") == 1
    assert text.count("G7 | ? unknown | no capture to project from |") >= 2


def test_the_basis_names_the_dispersion_of_the_tier_it_rests_on_and_the_noise_of_starts(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(4,))
    cells = tmp_path / current[4] / "cells.csv"
    rows = list(csv.DictReader(cells.open(encoding="utf-8")))
    for row in rows:
        row["dispersion_pct"] = "2.9" if row["tier"] == "few" else "0.4"
    with cells.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    text = page_of(tmp_path / "matrix_report").text.replace("\u00a0", " ")
    assert "anchor tier (10 steps), 3 repeats in each of 2 windows, dispersion at most 0.4 %" in text
    assert "dispersion at most 0.4 %, starts of a form differ by 0.2 % (2 degrees of freedom)" in text


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


def test_every_figure_has_a_caption() -> None:
    for name in (*NAMES, "matrix_report", "cells"):
        assert (ROOT / "rules" / "captions" / f"{name}.rst").read_text(encoding="utf-8").strip()
