"""The doctor on virtual hosts, on a machine without tools, and over SSH: what it says, and that it changes nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from campaigns.openssh import MISSING, running_sshd
from commands import command
from model_folders import MODELS, WAN, write_json, write_model, write_weights
from workflow_runs import ROOT, default_section

from anchormatrix.config.merge import load_settings
from anchormatrix.doctor.examine import CHECKS, examine
from anchormatrix.doctor.lines import Line, Status, wrong
from anchormatrix.doctor.machine import clock
from anchormatrix.doctor.visit import Visit
from anchormatrix.hosts.base import Completed
from anchormatrix.hosts.local import LocalHost
from anchormatrix.model_files.collect import collect
from anchormatrix.model_files.compare import compare
from anchormatrix.model_files.figures import read_figures
from anchormatrix.model_files.folder import parse_folder


def config(folder: Path, *, scenario: str = "healthy", **sections: Mapping[str, Any]) -> Path:
    """The default configuration on another virtual host, with other values in some sections."""
    host = default_section("host")
    host["env"] = {
        "VIRTUALHOST_SCENARIO": str(ROOT / f"virtualhost/scenarios/{scenario}.yaml"),
        "VIRTUALHOST_STATE": str(folder / "state"),
        "HF_HUB_CACHE": str(folder / "hub"),
    }
    host |= {"lease_dir": str(folder / "leases"), "scratch_dir": str(folder / "scratch")}
    things = {name: default_section(name) for name in ("device", "engine", "model", "workload")}
    values = {"host": host, **{name: {**things.get(name, {}), **given} for name, given in sections.items()}}
    path = folder / "my-host.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def seen(path: Path) -> dict[str, Line]:
    return {line.topic: line for line in examine(load_settings(path))}


def wan(folder: Path) -> Path:
    """Wan2.2's folder, with weights of its true sizes in files without content."""
    write_model(folder, MODELS["wan2.2-a14b"])
    for part, values in (("transformer", 14288), ("transformer_2", 14288), ("vae", 127)):
        write_weights(folder / part / "diffusion_pytorch_model.safetensors", {"w": ("F32", [values, 1_000_000])})
    write_weights(folder / "text_encoder" / "model.safetensors", {"w": ("BF16", [5681, 1_000_000])})
    return folder


def test_the_virtual_host_is_well(tmp_path):
    found = seen(config(tmp_path))
    assert {topic: line.status for topic, line in found.items() if line.status is not Status.OK} == {
        "model": Status.NOT_CHECKED,
        "figures": Status.NOT_CHECKED,
    }
    assert found["engine"].text.startswith("vllm-omni 0.30.0; ")
    assert found["memory of 2"].text == "tp1-usp2 42.2 GB, tp2-usp1 34.5 GB of 99.1 GB usable per card"
    assert "`hf download Wan-AI/Wan2.2-T2V-A14B-Diffusers` there does it now" in found["model"].text


def test_nothing_is_leased_or_written_but_what_the_vendors_tool_keeps(tmp_path):
    seen(config(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "state") == ["my-host.yaml"]


def test_figures_that_differ_are_wrong_with_what_the_files_say(tmp_path):
    folder = wan(tmp_path / "model")
    model = {"layers": 30, "text_encoder_gb": 5, "vae_gb": 0.25}
    found = seen(config(tmp_path, engine={"model": str(folder)}, model=model))
    wrong = {topic: line for topic, line in found.items() if line.status is Status.WRONG}
    assert {topic: line.cure for topic, line in wrong.items()} == {
        "model.layers": "set model.layers to 40",
        "model.text_encoder_gb": "set model.text_encoder_gb to 11.4",
        "model.transformers": "set model.transformers to 2",
    }
    assert wrong["model.layers"].text == "30 is configured, transformer/config.json says 40"
    assert found["model.sequence_tokens"].status is Status.OK
    assert found["model.weights_gb"].text == "28, as transformer/*.safetensors says"
    assert found["model"].text == f"{folder}, WanPipeline, 126.2 GB in 4 files"


@pytest.mark.parametrize("name", ["ascend-local", "ascend-ssh", "nvidia-local"])
def test_the_figures_of_an_example_are_those_of_the_models_files(tmp_path, name):
    settings = load_settings(ROOT / "config" / "examples" / f"{name}.yaml")
    folder = parse_folder(json.dumps(collect(str(wan(tmp_path)))))
    found = compare(settings.model, read_figures(folder, settings.workload, 2))
    assert [one for one in found if one.differs] == []
    assert len(found) == 12


def test_a_figure_that_no_file_tells_is_not_checked(tmp_path):
    folder = wan(tmp_path / "model")
    write_json(folder / "transformer" / "config.json", {key: WAN[key] for key in WAN if key != "num_layers"})
    found = seen(config(tmp_path, engine={"model": str(folder)}))
    assert found["model.layers"].status is Status.NOT_CHECKED
    assert found["model.layers"].text == "40 is configured; not found in transformer/config.json: key num_layers"


def test_a_model_that_is_not_there_and_one_that_is_cut_off(tmp_path):
    missing = seen(config(tmp_path, engine={"model": str(tmp_path / "model")}))["model"]
    assert (missing.status, missing.text) == (Status.WRONG, f"{tmp_path}/model is not there")
    folder = wan(tmp_path / "model")
    write_weights(folder / "vae" / "diffusion_pytorch_model.safetensors", {"w": ("F32", [1000])}, cut=4)
    cut = seen(config(tmp_path, engine={"model": str(folder)}))["model"]
    assert cut.status is Status.WRONG
    assert "vae/diffusion_pytorch_model.safetensors is cut off: its tensors end at byte" in cut.text


def test_a_tenant_is_wrong_where_no_group_is_left(tmp_path):
    found = seen(config(tmp_path, scenario="tenant_quad"))
    assert found["tenants"].status is Status.WRONG
    assert found["tenants"].text.endswith("; no free group of 8")
    small = seen(config(tmp_path, scenario="tenant_quad", matrix={"sizes": [2, 4]}))
    assert small["tenants"].status is Status.OK
    assert small["tenants"].text.endswith("; every size has a group without them")


def test_a_card_in_alarm(tmp_path):
    found = seen(config(tmp_path, scenario="alarm_card"))
    assert found["cards"].status is Status.WRONG
    assert "says Alarm" in found["cards"].text
    assert found["group of 8"].status is Status.WRONG


def test_leases_of_others(tmp_path):
    path = config(tmp_path)
    holder = LocalHost(load_settings(path).host)
    with holder.lease([3], holder={"what": "c4 tp1-usp4"}, wait_s=0):
        line = seen(path)["leases"]
    holder.close()
    assert line.status is Status.WRONG
    assert line.text.startswith("card 3 is held by ")
    assert line.text.endswith(": c4 tp1-usp4")


def test_cards_that_are_too_small(tmp_path):
    model = {"weights_gb": 4000, "activation_gb": 900}
    line = seen(config(tmp_path, model=model))["memory of 2"]
    assert line.status is Status.WRONG
    assert line.text.startswith("no form can run: tp1-usp2 needs ")


def test_missing_tools_and_engine(tmp_path):
    path = config(tmp_path, engine={"version": ["no-such-vllm", "--version"]}, device={"toolkit": "CANN 9"})
    values = yaml.safe_load(path.read_text())
    values["host"]["path"] = []
    path.write_text(yaml.safe_dump(values))
    found = seen(path)
    assert (found["vendor tools"].status, found["engine"].status) == (Status.WRONG, Status.WRONG)
    assert found["engine"].cure == "install it there, or add its folder to host.path"
    assert found["toolkit"].text == "CANN 9"
    assert found["memory"].status is Status.NOT_CHECKED


@pytest.mark.parametrize(("python", "status"), [("exit 1", Status.WRONG), ("echo 3.1.0", Status.OK)])
def test_a_package_that_an_argument_needs(tmp_path, python, status):
    engine = {"extra_args": ["--diffusion-attention-backend", "RAINFUSION_ATTN"], "python": ["sh", "-c", python]}
    line = seen(config(tmp_path, engine=engine))["packages"]
    assert line.status is status
    assert line.text in (
        "RAINFUSION_ATTN needs mindiesd, which sh does not find",
        "mindiesd 3.1.0, for RAINFUSION_ATTN",
    )
    assert "packages" not in seen(config(tmp_path))


def test_a_version_that_is_stated_does_not_make_an_engine(tmp_path):
    line = seen(config(tmp_path, engine={"version": "0.30.0", "command": ["/opt/none/vllm"]}))["engine"]
    assert (line.status, line.text) == (Status.WRONG, "virtual-ascend: `/opt/none/vllm` was not found")
    assert line.cure == "install it there, or correct its path in the configuration"


def test_a_folder_that_cannot_be_written(tmp_path):
    path = config(tmp_path)
    values = yaml.safe_load(path.read_text())
    values["host"] |= {"scratch_dir": f"{path}/scratch", "lease_dir": f"{path}/leases"}
    path.write_text(yaml.safe_dump(values))
    found = seen(path)
    assert found["disk there"].text == f"{path}/scratch (host.scratch_dir) cannot be written"
    assert found["leases"].text == f"{path}/leases (host.lease_dir) cannot be written"
    assert (found["disk there"].status, found["leases"].status) == (Status.WRONG, Status.WRONG)


NVIDIA_SMI = """#!/bin/sh
case "$1" in
  topo)
    printf '\\tGPU0\\tGPU1\\tCPU Affinity\\nGPU0\\t X \\tNV4\\t0-31\\nGPU1\\tNV4\\t X \\t0-31\\n'
    printf '\\nLegend:\\n\\n  X    = Self\\n' ;;
  --query-gpu*) cat <<END
index, uuid, name, driver_version, memory.used [MiB], memory.total [MiB], temperature.gpu, power.draw [W], \
mig.mode.current, ecc.errors.uncorrected.volatile.total
0, GPU-6ee4a5be-0000-1111-2222-333344445555, NVIDIA A100, 550.54.15, 3 MiB, 81920 MiB, 34, 61.72 W, Disabled, 0
1, GPU-0b1c2d3e-0000-1111-2222-333344445555, NVIDIA A100, 550.54.15, 40013 MiB, 81920 MiB, 41, 201.10 W, Disabled, 0
END
  ;;
  *) cat <<END
gpu_uuid, pid, used_gpu_memory [MiB], process_name
GPU-0b1c2d3e-0000-1111-2222-333344445555, 4711, 40000 MiB, python3
END
esac
"""


def test_an_nvidia_host_with_a_tenant(tmp_path):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    path = config(tmp_path, matrix={"sizes": [2], "forms": "auto"}, engine={"version": "0.30.0"})
    values = yaml.safe_load(path.read_text())
    values |= {"device": {"kind": "nvidia"}, "health": {"static_memory_mb": 1024}}
    values["host"]["path"] = [str(tool.parent)]
    path.write_text(yaml.safe_dump(values))
    found = seen(path)
    assert found["vendor tools"].text == "nvidia-smi shows 2 × NVIDIA A100, in 1 domain, driver 550.54.15"
    assert found["tenants"].status is Status.WRONG
    assert found["tenants"].text == "python3 (pid 4711) on card 1; no free group of 2"
    assert found["toolkit"].status is Status.NOT_CHECKED
    assert found["memory of 2"].text == (
        "tp1-usp2 42.2 GB, tp1-usp1-cfg2 48.5 GB, tp2-usp1 34.5 GB of 81.9 GB usable per card"
    )


def test_a_file_of_the_model_that_would_never_end_is_no_file(tmp_path):
    folder = wan(tmp_path / "model")
    (folder / "vae" / "config.json").unlink()
    os.mkfifo(folder / "vae" / "config.json")
    line = seen(config(tmp_path, engine={"model": str(folder)}))["model"]
    assert (line.status, line.text) == (Status.WRONG, f"{folder}: vae/config.json is no file")


class ClockHost:
    """A host whose clock is some seconds ahead."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def run(self, argv, *, timeout_s):
        return Completed(tuple(argv), 0, f"{time.time() + self.ahead_s:.0f}\n", "", 0.0)


@pytest.mark.parametrize(("ahead_s", "status"), [(0, Status.OK), (-3600, Status.WRONG), (60, Status.WRONG)])
def test_clocks_that_differ(tmp_path, ahead_s, status):
    settings = load_settings(config(tmp_path))
    host = msgspec.structs.replace(settings.host, kind="ssh")
    visit = Visit(msgspec.structs.replace(settings, host=host), ClockHost(ahead_s))
    assert [line.status for line in clock(visit)] == [status]


def test_what_tools_say_reaches_a_terminal_as_text():
    line = wrong("cards", "card 3 \x1b[2Jsays\nAlarm", "look\x07")
    assert (line.text, line.cure) == ("card 3  [2Jsays Alarm", "look ")


# --- as a command -----------------------------------------------------------------------------------------------------


def test_the_command_tells_the_same_as_json_and_leaves_with_1_when_something_is_wrong(tmp_path):
    path = config(tmp_path, engine={"model": str(tmp_path / "gone")})
    done = command("scripts/doctor.py", "--config", path, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["well"]) == (1, False)
    assert {"topic": "model", "status": "wrong"}.items() <= next(
        line for line in found["lines"] if line["status"] == "wrong"
    ).items()


def test_the_command_prints_one_line_for_each_thing_and_its_cure_below(tmp_path):
    done = command("scripts/doctor.py", "--config", config(tmp_path, engine={"model": str(tmp_path / "gone")}))
    assert done.returncode == 1
    assert f"wrong        model: {tmp_path}/gone is not there\n             cure: correct engine.model" in done.stdout


def test_a_configuration_that_cannot_be_read_is_exit_code_2(tmp_path):
    done = command("scripts/doctor.py", "--config", tmp_path / "none.yaml")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


# --- over SSH ---------------------------------------------------------------------------------------------------------


@pytest.mark.ssh
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_host_over_ssh(tmp_path):
    path = config(tmp_path, engine={"model": str(wan(tmp_path / "model")), "version": "0.30.0"}, model={"vae_gb": 0.25})
    settings = load_settings(path)
    with running_sshd(tmp_path) as ssh:
        host = msgspec.structs.replace(settings.host, kind="ssh", ssh=ssh, path=(f"{ROOT}/virtualhost/bin",))
        device = msgspec.structs.replace(settings.device, toolkit="CANN 9")
        found = {line.topic: line for line in examine(msgspec.structs.replace(settings, host=host, device=device))}
    assert {topic for topic, line in found.items() if line.status is Status.WRONG} == {"model.transformers"}
    assert found["clock"].text == "agrees with this machine's to a second"
    assert "reached over port" in found["ports"].text


def test_a_host_that_is_not_reached_is_one_wrong_line(tmp_path):
    settings = load_settings(config(tmp_path))
    ssh = {"host": "127.0.0.1", "port": 1, "connect_timeout_s": 2}
    host = msgspec.convert({"alias": "there", "kind": "ssh", "ssh": ssh}, type(settings.host))
    found = list(examine(msgspec.structs.replace(settings, host=host)))
    assert [line.status for line in found] == [Status.WRONG] + len(CHECKS) * [Status.NOT_CHECKED]
