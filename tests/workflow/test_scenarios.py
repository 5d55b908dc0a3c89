"""Every scenario states what a right report says; the whole workflow runs on it and must say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from workflow_runs import ROOT, Project, default_section, make_project

pytestmark = pytest.mark.workflow

SCENARIOS = (
    "healthy",
    "alarm_card",
    "lost_card",
    "two_models",
    "tenant_quad",
    "residue_quad",
    "noisy",
    "order_flip",
    "drift",
    "silent_noop",
    "wrong_output",
    "black_output",
    "crash_form",
    "no_stage_lines",
)


SECRETS = ("hf_0123456789abcdef", "sk-fedcba9876543210")


def expectation(name: str) -> dict:
    return yaml.safe_load((ROOT / "virtualhost" / "scenarios" / f"{name}.yaml").read_text())["expect"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_report_says_what_the_scenario_states(name, tmp_path):
    project = make_project(tmp_path / "project")
    scenario = f"virtualhost/scenarios/{name}.yaml"
    host, engine = project.virtual_host(scenario), default_section("engine")
    host["env"]["HF_TOKEN"], engine["env"]["API_KEY"] = SECRETS
    config = project.configure(
        {
            "host": host,
            "health": {"busy_wait_s": 0.5},
            "engine": {**engine, "request_timeout_s": 20, "ready_timeout_s": 20},
            # Captures and sweeps say nothing of what is told here; the healthy host has them.
            "capture": {"enabled": name == "healthy"},
            "selection": {"bandwidth": {"enabled": name == "healthy"}},
        }
    )
    printed = project.snakemake("matrix_report", "--configfile", config)
    check_no_secret(project, printed)
    expected = expectation(name)
    summary = project.read("matrix_report/summary.json")
    verdicts = {by_id(summary, verdict["contract"])["size"]: verdict for verdict in summary["verdicts"]}
    for size, wanted in expected.get("sizes", {}).items():
        check_size(project, name, size, wanted, verdicts[size], by_id(summary, verdicts[size]["contract"]))
    check_smokes(project, expected)
    check_rejected(project, expected)
    page = project.text("matrix_report/index.html")
    for size, words in expected.get("unavailable", {}).items():
        assert size not in {s for s, v in verdicts.items() if v["winner"]}, f"{size} cards must not have a winner"
        for word in words:
            assert word in page
    assert not leftovers(project), "a session left a process or a lease behind"
    assert project.planned("matrix_report", "--configfile", config) == {}


def by_id(summary: dict, contract: str) -> dict:
    return next(item for item in summary["contracts"] if item["id"] == contract)


def check_no_secret(project: Project, printed: str) -> None:
    """No result, log or note of the run holds one, and what it printed does not."""
    files = [path for path in project.folder.rglob("*") if path.is_file() and path.name != "test.yaml"]
    held = [str(path) for path in files for secret in SECRETS if secret.encode() in path.read_bytes()]
    assert held == []
    assert not any(secret in printed for secret in SECRETS)
    assert any(b"{secret:engine.env.API_KEY}" in path.read_bytes() for path in files)


def check_size(project: Project, name: str, size: int, wanted: dict, verdict: dict, contract: dict) -> None:
    where = f"{name}, {size} cards"
    if "status" in wanted:
        assert verdict["status"] == wanted["status"], where
    if "winner" in wanted:
        assert verdict["winner"] == wanted["winner"], where
    if "group" in wanted:
        assert contract["cards"] == wanted["group"], where
    for kind, status in (("void", "void"), ("did_not_run", "did_not_run"), ("unmeasurable", "unmeasurable")):
        for form, words in wanted.get(kind, {}).items():
            session = project.read(f"{contract['id']}/{form}/w1/session.json")
            assert session["status"] == status, where
            for word in words:
                assert word in session["reason"] + " ".join(session["evidence"]), where
            assert not any(
                cell["form"] == form and cell["usable"]
                for cell in project.read("matrix_report/summary.json")["cells"]
                if cell["contract"] == contract["id"]
            ), where
    outputs = project.read(f"{contract['id']}/outputs.json")["sessions"] if "picture" in wanted else ()
    for form, words in wanted.get("picture", {}).items():
        said = [item for item in outputs if item["form"] == form]
        assert [item["status"] for item in said] == ["void", "void"], where
        assert all(word in item["text"] for item in said for word in words), where


def check_smokes(project: Project, expected: dict) -> None:
    smokes = {
        path.parent.name: json.loads(path.read_text()) for path in (project.folder / "results").glob("c*/smoke.json")
    }
    for size, allowed in expected.get("smoke", {}).items():
        found = {smoke["status"] for contract, smoke in smokes.items() if contract.startswith(f"c{size}-")}
        assert found <= set([allowed] if isinstance(allowed, str) else allowed)


def check_rejected(project: Project, expected: dict) -> None:
    """A group is rejected by the links, its health or a tenant before any contract, or by its smoke after it."""
    contracts = project.read("contracts.json")
    reasons = {tuple(item["cards"]): item["reason"] for item in contracts["rejected"]}
    for path in (project.folder / "results").glob("c*/smoke.json"):
        smoke = json.loads(path.read_text())
        if smoke["status"] == "rejected":
            cards = json.loads((path.parent / "contract.json").read_text())["cards"]
            reasons[tuple(cards)] = " ".join(f"{item['kind']} {item['text']}" for item in smoke["findings"])
    for wanted in expected.get("rejected", []):
        for word in wanted["words"]:
            assert word in reasons.get(tuple(wanted["cards"]), "not rejected"), wanted


def leftovers(project: Project) -> list[str]:
    """Servers still registered on the virtual host."""
    jobs = Path(project.folder / "results" / ".virtualhost" / "jobs")
    return [path.name for path in jobs.glob("*")] if jobs.exists() else []
