"""The virtual vendor tool: three layouts, ids, processes, faults."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from virtualhost.host.live import LiveHost
from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import load_scenario
from virtualhost.host.state import HostState, Job, RankProcess, process_start
from virtualhost.host.strict import build
from virtualhost.tools import npu_smi

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "virtualhost" / "scenarios"
CAPTURES = ROOT.parent / "shared" / "captures" / "npu-smi"


def host(name: str = "healthy", state: HostState | None = None) -> LiveHost:
    return LiveHost(load_scenario(SCENARIOS / f"{name}.yaml"), state or HostState(None))


def tool(arguments: list[str], scenario: Path, state: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "virtualhost" / "bin" / "npu-smi"), *arguments]
    env = {"VIRTUALHOST_SCENARIO": str(scenario), "VIRTUALHOST_STATE": str(state), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)


def cells(line: str) -> list[str]:
    return [" ".join(cell.split()) for cell in line.strip("|").split("|")]


def test_a_950_card_takes_two_lines_and_has_no_bus_id():
    lines = npu_smi.info(host()).splitlines()
    assert {len(line) for line in lines} == {116}
    assert cells(lines[6]) == ["0", "Ascend950DT", "OK", "88.5 35 0 / 0"]
    assert cells(lines[7]) == ["", "", "NA", "0 0 / 0 4760 / 98304"]


def test_a_910b_card_has_chip_and_bus_id():
    lines = npu_smi.info(host("910b")).splitlines()
    assert cells(lines[6]) == ["0 910B2", "OK", "88.5 35 0 / 0"]
    assert cells(lines[7]) == ["0", "0000:C1:00.0", "0 0 / 0 3332 / 65536"]


def test_an_a3_board_shows_two_chips_with_physical_ids_and_power_on_the_first():
    lines = npu_smi.info(host("a3")).splitlines()
    assert lines[9].startswith("| 0     Ascend910           | OK            | -  ")
    assert lines[10].startswith("| 1     1                   | 0000:01:00.0  |")


@pytest.mark.parametrize(
    ("scenario", "text", "capture"),
    [
        ("healthy", npu_smi.info, "info-a5-idle.txt"),
        ("healthy", npu_smi.topology, "topo-a5-quads.txt"),
        ("910b", npu_smi.info, "info-910b-idle.txt"),
        ("910b", npu_smi.topology, "topo-910b-hccs.txt"),
        ("a3", npu_smi.topology, "topo-a3-sixteen.txt"),
        ("a3", npu_smi.id_map, "map-a3.txt"),
    ],
)
def test_layouts_are_the_real_tools(scenario, text, capture):
    """Line by line the same text, but for digits, bus ids and the tool's own version and CPU ranges."""
    if not CAPTURES.is_dir():
        pytest.skip("../shared/captures is not here")

    def shape(whole: str) -> list[str]:
        whole = re.sub(r"0000:\w\w:00\.0", "BUS", whole)
        lines = [re.sub(r"\d+(-\d+)?(,\d+-\d+)?$", "RANGE", line) for line in whole.splitlines()]
        return [re.sub(r"\d", "0", re.sub(r"\d+\.\d+", "NUM", line)) for line in lines if "npu-smi" not in line]

    ours = shape(text(host(scenario)))
    real = shape((CAPTURES / capture).read_text())
    assert [re.sub(r" +", " ", line) for line in ours] == [re.sub(r" +", " ", line) for line in real]


def test_topology_joins_two_quads_by_sys():
    lines = npu_smi.topology(host()).splitlines()
    assert lines[0].split() == [*(f"NPU{card}" for card in range(8)), "CPU", "Affinity"]
    assert lines[1].split() == ["NPU0", "X", "UB", "UB", "UB", "SYS", "SYS", "SYS", "SYS", "0-63,128-191"]
    assert lines[8].split() == ["NPU7", "SYS", "SYS", "SYS", "SYS", "UB", "UB", "UB", "X", "64-127,192-255"]


def test_dies_of_an_a3_npu_are_joined_by_sio():
    lines = npu_smi.topology(host("a3")).splitlines()
    assert lines[1].split()[:4] == ["Phy-ID0", "X", "SIO", "HCCS_SW"]


def test_map_lists_board_controllers_without_ids():
    lines = npu_smi.id_map(host("a3")).splitlines()
    assert lines[2].split() == ["0", "1", "1", "1", "Ascend910"]
    assert lines[3].split() == ["0", "2", "-", "-", "Mcu"]


def test_a_container_has_logic_ids_from_zero():
    lines = npu_smi.id_map(host("container")).splitlines()
    assert lines[1].split() == ["4", "0", "0", "4", "910B2"]
    assert npu_smi.topology(host("container")).splitlines()[1].split()[0] == "NPU4"


def test_tenants_show_on_their_cards_with_pids_of_their_own():
    text = npu_smi.info(host("tenant_quad"))
    assert "| 3                         | 3104269       | rtp_llm_server     | 56323                 | NA" in text
    assert "No running processes found in NPU 4" in text
    assert npu_smi.process_memory(host("tenant_quad"), 0, None) == (
        "\tProcess id:3104266 Process name:rtp_llm_server    Process memory(MB):56323\n"
        "\tChip ID                        : 0\n"
    )


def test_an_idle_card_has_no_process_in_the_device():
    assert npu_smi.process_memory(host(), 5, 0) == "\tNo process in device.\n\tChip ID                        : 0\n"


def test_ranks_of_a_running_server_show_with_their_real_pids(tmp_path):
    import os

    state, pid = HostState(tmp_path), os.getpid()
    rank = RankProcess(pid, process_start(pid), 2, 31000)
    state.register(Job(pid, process_start(pid), (2, 3), "tp1-usp2", 1, (rank,)))
    processes = host(state=state).processes(2)
    assert [(process.pid, process.memory_mb) for process in processes] == [(pid, 31000)]
    assert host(state=state).memory_used_mb(2) == 4760 + 4 + 31000


def test_health_changes_when_its_moment_comes():
    scenario = build(
        Scenario, {"name": "x", "health": [{"cards": [1], "when": {"start": {"session": 2, "request": 1}}}]}
    )
    state = HostState(None)
    state.begin_session((0, 1), "tp1-usp2")
    state.begin_session((0, 1), "tp1-usp2")
    assert LiveHost(scenario, state).health(1) == "OK"
    state.count_request()
    assert LiveHost(scenario, state).health(1) == "Alarm"
    assert LiveHost(scenario, state).health(0) == "OK"


def test_the_tool_as_a_process(tmp_path):
    scenario = SCENARIOS / "healthy.yaml"
    assert tool(["-v"], scenario, tmp_path).stdout == "npu-smi version: 26.2.0.b007\n"
    assert tool(["info", "-l"], scenario, tmp_path).stdout.startswith("\tTotal Count                    : 8\n")
    wrong = tool(["info", "-t", "nonsense"], scenario, tmp_path)
    assert wrong.returncode == 1
    assert "Usage" in wrong.stdout


def test_faults_of_the_tool_strike_between_two_calls(tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        f"extends: {SCENARIOS / 'healthy.yaml'}\n"
        "tool_faults:\n"
        "  - {kind: error, when: {from_call: 2, until_call: 3}}\n"
        "  - {kind: truncated, command: topo, when: {from_call: 3}}\n"
    )
    state = tmp_path / "state"
    first, second, third, fourth = (tool(["info", *rest], scenario, state) for rest in ([], [], [], ["-t", "topo"]))
    assert [call.returncode for call in (first, second, third, fourth)] == [0, 1, 0, 0]
    assert "dcmi" in second.stdout
    assert third.stdout == first.stdout
    assert "\nNPU3 " in fourth.stdout
    assert "\nNPU7 " not in fourth.stdout


def test_a_reset_ends_the_residue_of_one_card(tmp_path):
    state = HostState(tmp_path)
    state.add_residue((0, 1))
    assert tool(["set", "-t", "reset", "-i", "0"], SCENARIOS / "healthy.yaml", tmp_path).returncode == 0
    assert state.snapshot().residue == [1]


def test_a_scenario_that_is_wrong_is_one_line_on_stderr(tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("name: x\ncards: {cout: 8}\n")
    failed = tool(["info"], scenario, tmp_path / "state")
    assert failed.returncode == 2
    assert failed.stderr == "npu-smi: scenario: cards.cout: no such key; did you mean count?\n"
