"""A first configuration: eight questions at most, what is detected, and a file in which the doctor finds no fault."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from commands import command
from model_folders import MODELS, write_model, write_weights
from workflow_runs import ROOT

from anchormatrix.config.merge import load_settings
from anchormatrix.doctor.examine import examine
from anchormatrix.doctor.lines import Status
from anchormatrix.errors import ConfigError
from anchormatrix.new_config.answers import HOST, QUESTIONS, answered
from anchormatrix.new_config.detect import host_settings, parse_look, size_for
from anchormatrix.records.settings.values import DeviceKind

NAMED = {question.name: question for question in QUESTIONS}


@pytest.fixture
def virtual(tmp_path, monkeypatch) -> Path:
    """The virtual host's tools on PATH, and Wan2.2 in a folder with weights of their true sizes."""
    monkeypatch.setenv("PATH", f"{ROOT}/virtualhost/bin:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("VIRTUALHOST_SCENARIO", str(ROOT / "virtualhost" / "scenarios" / "healthy.yaml"))
    monkeypatch.setenv("VIRTUALHOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = write_model(tmp_path / "Wan2.2", MODELS["wan2.2-a14b"])
    for part, values in (("transformer", 14288), ("transformer_2", 14288), ("vae", 127)):
        write_weights(folder / part / "diffusion_pytorch_model.safetensors", {"w": ("F32", [values, 1_000_000])})
    write_weights(folder / "text_encoder" / "model.safetensors", {"w": ("BF16", [5681, 1_000_000])})
    return folder


def test_there_are_at_most_eight_questions():
    assert len((HOST, *QUESTIONS)) == 8


def test_what_is_written_passes_the_doctor(virtual, tmp_path):
    path = tmp_path / "my-host.yaml"
    done = command("scripts/new_config.py", path, "--yes", "--model", virtual)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{path} is written. Next: python scripts/doctor.py --config {path}\n"
    settings = load_settings(path)
    host = msgspec.structs.replace(settings.host, lease_dir=str(tmp_path / "leases"))
    alone = msgspec.structs.replace(settings, host=host)
    assert [line for line in examine(alone) if line.status is Status.WRONG] == []
    model = settings.model
    assert (model.layers, model.heads, model.head_dim, model.ffn_dim) == (40, 40, 128, 13824)
    assert (model.sequence_tokens, model.guidance_branches, model.cross_attention) == (32760, 2, True)
    assert (model.weights_gb, model.transformers, model.text_encoder_gb, model.vae_gb) == (28.6, 2, 11.4, 0.254)
    assert (settings.device.kind, settings.host.path) == ("ascend", (f"{ROOT}/virtualhost/bin",))
    assert (settings.matrix.sizes, settings.matrix.forms, settings.matrix.most_forms) == ((8,), "auto", 2)


def test_every_figure_says_the_file_it_is_from(virtual, tmp_path):
    command("scripts/new_config.py", tmp_path / "a.yaml", "--yes", "--model", virtual)
    text = (tmp_path / "a.yaml").read_text()
    assert "  layers: 40 # transformer/config.json\n" in text
    assert "  # activation_gb: no file tells it" in text


def test_questions_are_answered_line_by_line_and_an_empty_line_takes_the_default(virtual, tmp_path, monkeypatch):
    answers = ["local", "", "", "", str(virtual), "640x384x49", "1.0", "2,4"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(answers) + "\n"))
    done = command("scripts/new_config.py", tmp_path / "a.yaml", "--alias", "node7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Whose cards? ascend, nvidia or cpu [ascend]: " in done.stdout
    settings = load_settings(tmp_path / "a.yaml")
    assert (settings.host.alias, settings.matrix.sizes) == ("node7", (2, 4))
    assert (settings.model.sequence_tokens, settings.model.guidance_branches) == (12480, 1)  # 13 × 24 × 40


def test_without_an_answer_the_option_is_named(virtual, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    done = command("scripts/new_config.py", tmp_path / "a.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--host: no answer; give it as an option, or add --yes" in done.stderr


def test_a_file_that_exists_stays_unless_told_otherwise(virtual, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("mine")
    done = command("scripts/new_config.py", path, "--yes", "--model", virtual)
    assert done.returncode == 2
    assert "is there already; name another file, or add --force" in done.stderr
    assert path.read_text() == "mine"
    assert command("scripts/new_config.py", path, "--yes", "--model", virtual, "--force").returncode == 0
    assert "model" in yaml.safe_load(path.read_text())


def test_a_model_that_is_not_there_or_not_known_writes_nothing(virtual, tmp_path):
    path = tmp_path / "a.yaml"
    done = command("scripts/new_config.py", path, "--yes", "--model", "org/none")
    assert done.returncode == 2
    assert "bring it there first (`hf download org/none`)" in done.stderr
    (virtual / "transformer" / "config.json").write_text('{"_class_name": "Other"}')
    done = command("scripts/new_config.py", path, "--yes", "--model", virtual)
    assert done.returncode == 2
    assert "model.layers: transformer/config.json: no rule is known for the class Other" in done.stderr
    assert not path.exists()


def test_a_picture_has_the_image_endpoint_and_one_branch_of_an_embedded_guidance(virtual, tmp_path):
    write_model(tmp_path / "flux", MODELS["flux.1"])
    options = ("--model", tmp_path / "flux", "--output", "1024x1024", "--guidance", "3.5", "--sizes", "4")
    assert command("scripts/new_config.py", tmp_path / "a.yaml", "--yes", *options).returncode == 0
    settings = load_settings(tmp_path / "a.yaml")
    assert (settings.workload.endpoint, settings.model.guidance_branches) == ("image", 1)
    assert settings.matrix.most_forms == 3


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_what_a_look_round_tells():
    said = (
        "node7\ntool npu-smi /usr/local/sbin/npu-smi\ntool vllm /opt/vllm/bin/vllm\n"
        "python vllm /opt/vllm/bin/python3\nmodel - /c/models--Wan-AI--Wan2.2/snapshots/abc/model_index.json\n"
        "toolkit - /usr/local/Ascend/x/ascend_toolkit_install.info\n\x1b[31m odd line\n"
    )
    found = parse_look(said)
    assert (found.name, found.device, found.engine) == ("node7", DeviceKind.ASCEND, "vllm-omni")
    assert (found.models, found.pythons) == (("Wan-AI/Wan2.2",), {"vllm": "/opt/vllm/bin/python3"})
    bare = parse_look("")
    assert (bare.name, bare.device, bare.engine) == ("my-host", DeviceKind.CPU, "vllm-omni")


@pytest.mark.parametrize(("cards", "size"), [(8, 8), (16, 16), (6, 4), (1, 1), (None, 8)])
def test_the_size_of_a_first_run(cards, size):
    assert size_for(cards) == size


def test_a_host_over_ssh_is_named_as_for_ssh():
    found = host_settings("alice@node7.example.org:2222", "node7")
    assert (found.kind, found.ssh.host, found.ssh.user, found.ssh.port) == ("ssh", "node7.example.org", "alice", 2222)
    for wrong in ("alice@", "node7:port", "no de", "node7:99999"):
        with pytest.raises(ConfigError, match="--host"):
            host_settings(wrong, "x")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("device", "tpu"),
        ("engine", "vllm"),
        ("command", "'open"),
        ("model", ""),
        ("output", "832"),
        ("guidance", "-1"),
        ("sizes", "0"),
        ("sizes", "2,2"),
    ],
)
def test_an_answer_that_means_nothing_names_its_option(name, text):
    with pytest.raises(ConfigError, match=f"^--{name}: .*expected"):
        answered(NAMED[name], text)
