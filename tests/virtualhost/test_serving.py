"""A serving session as text: the grammar of the log, where its numbers come from, and how it breaks."""

import re
from pathlib import Path
from statistics import median

import pytest

from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import load_scenario
from virtualhost.host.split import Split
from virtualhost.host.state import HostState
from virtualhost.host.strict import ScenarioError, build
from virtualhost.server.exchange import Ask, parse_split
from virtualhost.server.serving import ServingSession

SCENARIOS = Path(__file__).resolve().parents[2] / "virtualhost" / "scenarios"
QUAD = (0, 1, 2, 3)
STAGE = re.compile(
    r"^\((DiffusionWorker\w*) pid=(\d+)\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[diffusion_pipeline_profiler\.py:29\] "
    r"\[DiffusionPipelineProfiler\] (\w+(?:\.\w+)+) took (\d+\.\d{6})s$",
    re.MULTILINE,
)


def scenario(**changes) -> Scenario:
    """A quiet host: no noise, no ramp, unless told otherwise."""
    quiet = {"dispersion_pct": 0.0, "restart_sd_pct": 0.0, "step_pct": 0.0, "ramp": []}
    timing = {**quiet, **changes.pop("timing", {})}
    return build(Scenario, {"name": "test", "timing": timing, **changes})


def session(form: str = "tp1-usp4", cards=QUAD, state=None, **changes) -> ServingSession:
    return ServingSession(scenario(**changes), parse_split(form), cards, state)


def stages(text: str, name: str) -> list[float]:
    return [float(seconds) for _, _, stage, seconds in STAGE.findall(text) if stage.endswith(name)]


def test_startup_says_the_group_sizes_of_every_rank():
    text = session("tp2-usp2").startup().text
    lines = text.splitlines()
    assert lines[0].endswith("10-09 08:38:35 [serve.py:405] Starting vLLM-Omni API server on http://127.0.0.1:8123")
    assert (
        "(DiffusionWorker_SP1_TP0 pid=239) INFO 10-09 08:38:35 [parallel_state.py:812] Building SP subgroups from "
        "explicit sp_group_ranks: sp_size=2 ulysses_degree=2 ring_degree=1 dp_size=1"
    ) in lines
    assert text.count("tensor_parallel_size=2 allgather_degree=1 cfg_parallel_size=1 pipeline_parallel_size=1") == 4
    assert text.count("Applying sequence parallelism to WanTransformer3DModel") == 4
    assert lines[-1] == "INFO 10-09 08:39:16 [api_server.py:97] Application startup complete."


def test_a_request_is_parameters_bar_stage_lines_and_access_line():
    running = session()
    running.startup()
    text = running.request(Ask(4, seed=1101)).text
    lines = text.split("\n")
    params = "Video sampling params: steps=4 guidance=5.0 guidance_2=None seed=1101"
    assert lines[0] == f"INFO 10-09 08:39:16 [serving_video.py:133] {params}"
    states = lines[1].split("\r")
    assert states[0] == "(DiffusionWorker_SP0 pid=237)   0%|          | 0/4 [00:00<?, ?it/s]"
    assert states[1].startswith("(DiffusionWorker_SP0 pid=237)  25%|██        | 1/4 [00:04<00:14, ")
    assert states[4].startswith("(DiffusionWorker_SP0 pid=237) 100%|██████████| 4/4 [00:19<00:00, ")
    assert [stage for _, _, stage, _ in STAGE.findall(text)][:4] == [
        "Wan22Pipeline.encode_prompt",
        "Wan22Pipeline.diffuse",
        "Wan22Pipeline.vae.decode",
        "Wan22Pipeline.forward",
    ]
    assert lines[-2] == 'INFO:     127.0.0.1:40922 - "POST /v1/videos/sync HTTP/1.1" 200 OK'


def test_the_log_has_the_step_time_of_the_timeline_and_ranks_agree_within_a_millisecond():
    running = session()
    diffuse = stages(running.request(4).text, ".diffuse")
    assert len(diffuse) == 4
    assert min(diffuse) == pytest.approx(4 * running.timeline.step_ns / 1e9, abs=1e-3)
    assert max(diffuse) - min(diffuse) < 1e-3


def test_forward_is_the_sum_of_its_stages():
    text = session().request(10).text
    parts = [stages(text, name)[0] for name in (".encode_prompt", ".diffuse", ".decode", ".forward")]
    assert sum(parts[:3]) == pytest.approx(parts[3], rel=0.01)


def test_the_same_session_is_the_same_text_and_another_window_is_not():
    healthy = load_scenario(SCENARIOS / "healthy.yaml")

    def window(state: HostState) -> str:
        running = ServingSession(healthy, Split(usp=4), QUAD, state)
        running.startup()
        text = running.request(4).text
        running.shutdown()
        return text

    first, again = HostState(None), HostState(None)
    one, two = window(first), window(first)
    assert window(again) == one
    assert stages(two, ".diffuse") != stages(one, ".diffuse")


def test_the_first_requests_are_faster():
    running = session(timing={"ramp": [0.86, 0.9]})
    times = [min(stages(running.request(4).text, ".diffuse")) for _ in range(4)]
    assert times[0] / times[3] == pytest.approx(0.86, abs=0.001)
    assert times[1] / times[3] == pytest.approx(0.90, abs=0.001)
    assert times[2] == pytest.approx(times[3], abs=1e-3)


def test_dispersion_is_the_expected_range_of_three_requests():
    running = session(timing={"dispersion_pct": 7.0})
    spreads = []
    for _ in range(60):
        times = [min(stages(running.request(4).text, ".diffuse")) for _ in range(3)]
        spreads.append((max(times) - min(times)) / median(times) * 100)
    assert 5.5 < sum(spreads) / len(spreads) < 8.5


def test_thermal_slope_makes_every_step_slower():
    diffuse = stages(session(log={"per_step": True}, timing={"thermal_pct_per_step": 5.0}).request(4).text, ".diffuse")
    assert [round(step / diffuse[0] * 1.05, 2) for step in diffuse[:4]] == [1.05, 1.10, 1.15, 1.20]


def test_residue_is_ten_times_slower_and_uniform():
    plain, slow = session(), session(residue={"cards": [2]})
    ratio = stages(slow.request(4).text, ".diffuse")[0] / stages(plain.request(4).text, ".diffuse")[0]
    assert ratio == pytest.approx(10.0, abs=0.01)


def test_a_tenant_that_computes_slows_from_its_request_on():
    running = session(
        tenants=[{"cards": [1], "slowdown": 1.4, "when": {"start": {"session": 1, "request": 2}}}],
    )
    times = [stages(running.request(4).text, ".diffuse")[0] for _ in range(2)]
    assert times[1] / times[0] == pytest.approx(1.4, abs=0.001)


def test_a_straggler_shows_on_its_own_rank_only():
    diffuse = stages(session(timing={"stragglers": {3: 1.25}}).request(4).text, ".diffuse")
    assert diffuse[3] / diffuse[0] == pytest.approx(1.25, abs=0.001)
    assert diffuse[2] / diffuse[0] == pytest.approx(1.0, abs=0.001)


def test_stage_lines_per_step_with_a_nested_name_and_one_iteration_less():
    log = {"per_step": True, "iterations_minus_one": True, "pipeline": "P", "diffuse_stage": "sampler.diffuse"}
    text = session(log=log).request(6).text
    assert len(stages(text, "P.sampler.diffuse")) == 4 * 5
    assert "| 5/5 [" in text
    assert "steps=6" in text


def test_no_stage_lines_without_the_flag_or_when_the_model_has_none():
    silent = ServingSession(scenario(), Split(usp=4), QUAD, stage_lines=False)
    assert not STAGE.search(silent.request(4).text)
    assert not STAGE.search(session(log={"stage_lines": False}).request(4).text)


def test_two_workers_meet_on_one_line():
    text = session(log={"interleave_every": 1}).request(4).text
    spoiled = [line for line in text.splitlines() if line.count("(DiffusionWorker_SP") == 2 and "\r" not in line]
    assert len(spoiled) == 1
    assert spoiled[0].startswith("(DiffusionWorker_SP1 pid=238) INFO ")
    assert "[diffusion_pipeline_(DiffusionWorker_SP0 pid=237) INFO " in spoiled[0]
    assert len(stages(text, ".diffuse")) == 3


def test_the_answer_depends_on_the_request_and_of_the_form_only_on_how_it_adds_up():
    ulysses, other = session("tp1-usp4").request(4), session("tp1-usp2-cfg2").request(4)
    assert ulysses.fingerprint == other.fingerprint != ""
    assert session("tp2-usp2").request(4).fingerprint != ulysses.fingerprint
    assert session().request(Ask(4, seed=43)).fingerprint != ulysses.fingerprint


def test_a_form_that_is_not_applied_says_so_in_its_log_and_its_time():
    running = session("tp2-usp2", faults=[{"kind": "not_applied", "form": "tp2-usp2", "applied": "tp1-usp1"}])
    text = running.startup().text
    assert text.count("tensor_parallel_size=1") == 1
    assert "(DiffusionWorker pid=237)" in text
    plain = session("tp1-usp1", cards=(0,)).request(4).text
    assert stages(running.request(4).text, ".diffuse")[0] == pytest.approx(stages(plain, ".diffuse")[0], abs=1e-3)


def test_dead_masking_is_the_step_without_masking_under_the_masked_name():
    dead = session("tp1-usp4+mask5", faults=[{"kind": "dead_masking", "form": "tp1-usp4+mask5"}])
    alive, plain = session("tp1-usp4+mask5"), session("tp1-usp4")
    assert dead.timeline.step_ns == plain.timeline.step_ns > alive.timeline.step_ns
    calls = [sum(one.op.family == "alltoall" for one in run.timeline.kernels(0)) for run in (dead, plain, alive)]
    assert calls == [320, 320, 1600]  # 4 calls in each of 40 layers, in each of 2 branches; 5 chunks of each
    assert dead.startup().text.count("+mask5") == plain.startup().text.count("+mask5") == 0


@pytest.mark.parametrize(
    ("fault", "lines"),
    [
        ({}, {"enabled on 40 layers (blocks)": 4, "Skipping": 0}),
        ({"logged": False}, {"enabled on": 0, "offload": 0, "Skipping": 0}),
        ({"logged": False, "text": "Skipping offloading."}, {"enabled on": 0, "Skipping offloading.": 4}),
    ],
)
def test_a_dead_offload_holds_all_weights_whatever_it_logs(fault, lines):
    name = "tp1-usp4+layerwise-offload"
    dead, alive = session(name, faults=[{"kind": "dead_offload", "form": name, **fault}]), session(name)
    assert (dead.memory_mb(), alive.memory_mb()) == (
        34380,
        9012,
    )  # 36.05 and 9.45 GB: 28 GB of weights, or 2 of 40 layers
    assert dead.timeline.step_ns == session("tp1-usp4").timeline.step_ns
    copies = [sum(one.op.stream == "copy" for one in run.timeline.kernels(0)) for run in (dead, alive)]
    assert copies == [0, 2 * 39]
    text = dead.startup().text
    assert {words: text.count(words) for words in lines} == lines


def test_distributed_offload_names_its_group_only_where_there_is_one():
    shared = session("tp1-usp4+distributed-layerwise-offload").startup().text
    assert shared.count("dp_size=4, rank_in_group=3, global_rank=3, group_ranks=[0, 1, 2, 3]") == 1
    alone = session("tp4-usp1+distributed-layerwise-offload").startup().text
    assert "rank_in_group" not in alone
    assert alone.count("Distributed layer-wise offloading enabled on 40 blocks across 1 group(s)") == 4


@pytest.mark.parametrize(
    ("fault", "end", "words"),
    [
        ({"kind": "crash", "where": "start"}, "exit", "RuntimeError"),
        ({"kind": "crash", "where": "load"}, "exit", "RuntimeError"),
        ({"kind": "hang", "where": "load"}, "hang", "Building SP subgroups"),
        ({"kind": "oom", "where": "load"}, "exit", "NPU out of memory"),
        ({"kind": "port_in_use"}, "exit", "[Errno 98]"),
        ({"kind": "comm_init"}, "exit", "hcclCommInitRootInfoConfig"),
        ({"kind": "killed", "where": "load"}, "sigkill", ""),
        ({"kind": "rank_killed", "where": "load", "rank": 2}, "rank_killed", ""),
    ],
)
def test_faults_at_launch(fault, end, words):
    outcome = session(faults=[fault]).startup()
    assert outcome.end == end
    assert words in outcome.text
    assert "startup complete" not in outcome.text


def test_the_communicator_failure_is_the_library_s_own():
    text = session(faults=[{"kind": "comm_init"}]).startup().text
    assert "(DiffusionWorker_SP3 pid=240) [ERROR] 2026-10-09-08:38:55 (PID:240, Device:3, RankID:3) ERR02200" in text
    assert 'List of unconnected ranks: "[1,3,]".' in text


def test_a_fault_at_a_step_leaves_the_bar_where_it_was():
    running = session(faults=[{"kind": "crash", "request": 2, "step": 3}])
    assert running.request(4).end == ""
    broken = running.request(4)
    assert broken.end == "exit"
    assert "| 2/4 [" in broken.text
    assert "| 3/4 [" not in broken.text
    assert "RuntimeError" in broken.text
    assert not STAGE.search(broken.text)


def test_a_lost_response_has_its_whole_timing():
    lost = session(faults=[{"kind": "lost_response", "request": 1}]).request(4)
    assert lost.response == "lost"
    assert len(stages(lost.text, ".diffuse")) == 4
    assert "client disconnected before response was sent" in lost.text
    assert "200 OK" not in lost.text


def test_a_truncated_log_ends_in_the_middle_and_stays_so():
    running = session(faults=[{"kind": "truncated_log", "request": 2}])
    running.request(4)
    cut = running.request(4)
    assert cut.response == "ok"
    assert not cut.text.endswith("\n")
    assert running.request(4).text == ""
    assert running.shutdown().text == ""


def test_a_form_that_does_not_fit_runs_out_of_device_memory():
    outcome = ServingSession(scenario(cards={"memory_mb": 32768}), Split(usp=4), QUAD).startup()
    assert outcome.end == "exit"
    assert "torch.OutOfMemoryError: NPU out of memory" in outcome.text


def test_plain_layerwise_offload_needs_host_memory_for_every_rank():
    small = {"serving": {"host_memory_gb": 100.0}}
    assert session("tp1-usp4+layerwise-offload", **small).startup().end == "rank_killed"
    assert session("tp1-usp4+distributed-layerwise-offload", **small).startup().end == ""


def test_a_form_the_model_cannot_run_is_refused_with_the_reason():
    outcome = session("tp1-usp3", cards=(0, 1, 2)).startup()
    assert outcome.end == "exit"
    assert (
        "ValueError: Ulysses-SP strict mode requires head_cnt divisible by ulysses_degree. query_head_cnt=40"
        in outcome.text
    )


@pytest.mark.parametrize("name", ["drift", "order_flip"])
def test_steps_cost_what_the_scenario_expects(name):
    """The expected ratio of anchor to few steps, and the order of the two 4-card forms at either."""
    host = load_scenario(SCENARIOS / f"{name}.yaml")
    steps = {}
    for form in ("tp1-usp4", "tp2-usp2"):
        running = ServingSession(host, parse_split(form), QUAD)
        for _ in range(3):
            running.request(4)
        steps[form] = [stages(running.request(n).text, ".diffuse")[0] / n for n in (4, 10)]
    ratio = {form: anchor / few for form, (few, anchor) in steps.items()}
    if name == "drift":
        assert ratio == {"tp1-usp4": pytest.approx(1.09, abs=0.01), "tp2-usp2": pytest.approx(1.09, abs=0.01)}
    else:
        assert steps["tp1-usp4"][0] > 1.03 * steps["tp2-usp2"][0]
        assert steps["tp1-usp4"][1] < 0.98 * steps["tp2-usp2"][1]


@pytest.mark.parametrize("name", ["tp1-usp4+mask4", "tp2-usp2-ring2-cfg2", "tp1-usp2+layerwise-offload"])
def test_form_names_are_read_back(name):
    assert parse_split(name).name == name


@pytest.mark.parametrize("name", ["usp", "tp1-usp2-usp2", "tp1-usp2+magic", "tp0-usp2"])
def test_what_is_no_form_is_an_error(name):
    with pytest.raises(ScenarioError):
        parse_split(name)


def test_the_capture_of_a_profiled_request_has_its_time():
    running = session()
    text = running.request(1, profiled=True).text
    captured = running.captured_timeline()
    assert captured.step_ns > running.timeline.step_ns
    assert stages(text, ".diffuse")[0] == pytest.approx(captured.step_ns / 1e9, abs=1e-3)


def test_a_late_step_is_captured_as_long_as_late_steps_are():
    rules = [{"factor": 2.0, "first_step": 9, "min_steps": 10}]
    early, late = (session(behaviour={"step_rules": rules}) for _ in range(2))
    early.request(10, profiled=True)
    late.request(10, profiled=True, profile_step=9)
    assert late.captured_timeline().step_ns / early.captured_timeline().step_ns == pytest.approx(2.0, abs=0.05)
