"""The log of a form that splits nothing proves nothing, however right its groups and its names are."""

import pytest

from anchormatrix.engines.vllm_omni.launch import expected_groups
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.proof import prove
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import Proof
from virtualhost.host.scenario import Scenario
from virtualhost.host.strict import build
from virtualhost.server.exchange import parse_split
from virtualhost.server.pipelines import Options
from virtualhost.server.serving import ServingSession

WAN, QWEN, FLUX = "Wan-AI/Wan2.2-T2V-A14B-Diffusers", "Qwen/Qwen-Image", "black-forest-labs/FLUX.1-dev"


def proof(model: str, form: str, *faults: str) -> Proof:
    scenario = build(Scenario, {"name": "test", "faults": [{"kind": kind} for kind in faults]})
    running = ServingSession(scenario, parse_split(form), (0, 1, 2, 3), options=Options(model=model))
    text = running.startup().text + running.request(4).text
    return prove(parse_serve_log(text), expected_groups(parse_form(form)))


@pytest.mark.parametrize(
    "form", ["tp1-usp4", "tp2-usp2", "tp1-usp2-ring2", "tp1-usp1-ag4", "tp1-usp2-cfg2", "tp4-usp1"]
)
def test_a_split_that_works_is_proved(form: str) -> None:
    found = proof(WAN, form)
    assert (found.ok, found.failures) == (True, ())


@pytest.mark.parametrize(
    ("model", "form", "faults", "words"),
    [
        (WAN, "tp1-usp4", ("dead_split",), "no transformer with _sp_plan found"),
        (WAN, "tp1-usp1-ag4", ("dead_split",), "no transformer with _sp_plan found"),
        (FLUX, "tp1-usp4", (), "no transformer with _sp_plan found"),
        (QWEN, "tp1-usp2-cfg2", (), "there is no negative prompt"),
        (WAN, "tp1-usp1-cfg4", (), "2 GPU(s) will be idle for CFG"),
    ],
)
def test_a_split_that_is_dead_is_not(model: str, form: str, faults: tuple[str, ...], words: str) -> None:
    found = proof(model, form, *faults)
    assert not found.ok
    assert words in found.failures[0]
