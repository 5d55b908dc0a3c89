"""A serving session as text: the grammar of the log, where its numbers come from, and how it breaks."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import load_scenario
from virtualhost.host.split import Split
from virtualhost.host.state import HostState
from virtualhost.host.strict import ScenarioError, build
from virtualhost.server.exchange import Ask, parse_split
from virtualhost.server.pipelines import Options
from virtualhost.server.serving import ServingSession

SCENARIOS = Path(__file__).resolve().parents[2] / "virtualhost" / "scenarios"
QUAD = (0, 1, 2, 3)
STAGE = re.compile(
    r"^\((DiffusionWorker\w*) pid=(\d+)\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[diffusion_pipeline_profiler\.py:32\] "
    r"\[DiffusionPipelineProfiler\] (\w+(?:\.\w+)+) took (\d+\.\d{6})s$",
    re.MULTILINE,
)


def scenario(**changes) -> Scenario:
    """A quiet host without colours: no noise, no ramp, unless told otherwise."""
    quiet = {"dispersion_pct": 0.0, "restart_sd_pct": 0.0, "step_pct": 0.0, "ramp": []}
    timing = {**quiet, **changes.pop("timing", {})}
    log = {"ansi": False, **changes.pop("log", {})}
    return build(Scenario, {"name": "test", "timing": timing, "log": log, **changes})


def session(form: str = "tp1-usp4", cards=QUAD, state=None, **changes) -> ServingSession:
    return ServingSession(scenario(**changes), parse_split(form), cards, state)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def stages(text: str, name: str, tag: str = "") -> list[float]:
    """The seconds of the stage lines whose name ends so, of all workers or of those whose tag ends so."""
    found = STAGE.findall(plain(text))
    return [float(seconds) for who, _, stage, seconds in found if stage.endswith(name) and who.endswith(tag)]


def test_startup_says_the_groups_under_the_plain_name_and_the_splits_under_the_full_one():
    text = session("tp2-usp2").startup().text
    lines = text.splitlines()
    assert lines[0] == (
        "(APIServer pid=236) INFO 10-09 08:38:35 [omni_base.py:208] [AsyncOmni] Initializing with model "
        "Wan-AI/Wan2.2-T2V-A14B-Diffusers"
    )
    assert (
        "(DiffusionWorker pid=239) INFO 10-09 08:38:35 [parallel_state.py:610] Building SP subgroups from explicit "
        "sp_group_ranks (sp_size=2, ulysses=2, ring=1, use_ulysses_low=True)."
    ) in lines
    assert "SP group details for rank 3: sp_group=[1, 3], ulysses_group=[1, 3], ring_group=[3]" in text
    applied = "Applying sequence parallelism to WanTransformer3DModel (transformer_2) (sp_size=2, mode=ulysses, "
    assert text.count(applied + "ulysses=2, ring=1)") == 4
    numbered = "[diffusion_worker.py:1642] Worker 2: Scheduler loop started."
    assert f"(DiffusionWorker_SP1_TP0 pid=239) INFO 10-09 08:39:07 {numbered}" in lines
    assert lines[-1] == "(APIServer pid=236) INFO:     Application startup complete."
    assert not re.search("tp_size|tensor_parallel_size|cfg_size|cfg_parallel_size", text)


@pytest.mark.parametrize(
    ("form", "mode"),
    [("tp1-usp2-ring2", "hybrid, ulysses=2, ring=2"), ("tp1-usp1-ring4", "ring, ulysses=1, ring=4")],
)
def test_the_mode_of_the_split_is_told(form, mode):
    assert f"(sp_size=4, mode={mode})" in session(form).startup().text


def test_an_allgather_group_is_built_without_a_word():
    text = session("tp1-usp1-ag4").startup().text
    assert "Building SP subgroups" not in text
    assert "(sp_size=4, mode=allgather_kv, ulysses=1, ring=1)" in text


def test_a_sequence_of_one_still_says_its_group():
    text = session("tp2-usp1", cards=(0, 1)).startup().text
    assert text.count("(sp_size=1, ulysses=1, ring=1, use_ulysses_low=True)") == 2
    assert "Applying" not in text


def test_names_have_the_order_of_the_groups_in_the_release():
    running = session("tp2-usp2-cfg2", cards=tuple(range(8)))
    assert running.grammar.tags[:3] == (
        "DiffusionWorker_SP0_CFG0_TP0",
        "DiffusionWorker_SP0_CFG0_TP1",
        "DiffusionWorker_SP1_CFG0_TP0",
    )
    assert running.grammar.tags[4] == "DiffusionWorker_SP0_CFG1_TP0"


def test_the_warm_up_is_logged_before_the_server_listens():
    lines = session().startup().text.splitlines()
    warm = next(i for i, line in enumerate(lines) if line.endswith("dummy run to warm up the model"))
    listens = next(i for i, line in enumerate(lines) if "Starting vLLM API server (pure diffusion mode) on" in line)
    between = "\n".join(lines[warm:listens])
    assert [len(stages(between, name)) for name in ("text_encoder.forward", ".diffuse", ".decode", ".forward")] == [
        4, 4, 4, 8,
    ]  # fmt: skip
    assert "| 2/2 [" in between
    assert not STAGE.search("\n".join(lines[:warm]))


def test_colours_are_on_unless_the_host_switches_them_off():
    coloured = session(log={"ansi": True}).request(4).text
    assert coloured.startswith(
        "\x1b[0;36m(APIServer pid=236)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m10-09 08:38:35\x1b[0m "
    )
    assert plain(coloured) == session().request(4).text


def test_a_request_is_parameters_stage_lines_bar_and_access_line_in_the_order_of_time():
    running = session()
    running.startup()
    text = running.request(Ask(4, seed=1101)).text
    lines = text.split("\n")
    params = "Video sampling params: steps=4 guidance=5.0 guidance_2=None seed=1101"
    assert lines[1] == f"(APIServer pid=236) INFO 10-09 08:39:16 [serving_video.py:476] {params}"
    bar = next(line for line in lines if "\r" in line)
    states = bar.split("\r")
    assert states[:2] == ["(DiffusionWorker_SP0 pid=237) ", "  0%|          | 0/4 [00:00<?, ?it/s]"]
    assert states[2].startswith(" 25%|██▌       | 1/4 [00:04<00:14, ")
    assert states[5] == states[6] == "100%|██████████| 4/4 [00:19<00:00,  4.94s/it]"
    names = ["text_encoder.forward"] * 8 + ["diffuse"] * 4 + ["vae.decode"] * 4 + ["forward"] * 4
    assert [stage for _, _, stage, _ in STAGE.findall(text)] == [f"Wan22Pipeline.{name}" for name in names]
    assert lines.index(bar) == 10
    assert lines[-2] == '(APIServer pid=236) INFO:     127.0.0.1:40922 - "POST /v1/videos/sync HTTP/1.1" 200 OK'


def test_the_answer_tells_what_the_log_says_of_the_first_rank():
    outcome = session().request(4)
    logged: dict[str, float] = {}
    for tag, _, stage, seconds in STAGE.findall(outcome.text):
        if tag == "DiffusionWorker_SP0":
            logged[stage] = logged.get(stage, 0.0) + float(seconds)
    told = dict(outcome.durations)
    assert {name for name in told if name.endswith("_ms")} == {"queue_wait_ms", "stage_0_gen_ms"}
    assert told.pop("stage_0_gen_ms") > 1000 * logged["Wan22Pipeline.forward"]
    assert told.pop("queue_wait_ms") > 0
    assert told == pytest.approx(logged, abs=2e-6)


def test_without_the_profiler_an_answer_tells_milliseconds_only():
    running = ServingSession(scenario(), Split(usp=4), QUAD, options=Options(stage_lines=False))
    assert set(running.request(4).durations) == {"queue_wait_ms", "stage_0_gen_ms"}


def serve(model: str, form: str = "tp1-usp4", cards=QUAD, *, changes=None, **options) -> ServingSession:
    return ServingSession(
        scenario(**(changes or {})), parse_split(form), cards, options=Options(model=model, **options)
    )


IMAGE = Ask(4, endpoint="POST /v1/images/generations", width=1024, height=1024, frames=1)


@pytest.mark.parametrize(
    ("model", "name", "diffuse", "bar"),
    [
        ("Wan-AI/Wan2.2-I2V-A14B-Diffusers", "Wan22I2VPipeline", True, True),
        ("Qwen/Qwen-Image", "QwenImagePipeline", True, True),
        ("black-forest-labs/FLUX.1-dev", "FluxPipeline", True, False),
        ("black-forest-labs/FLUX.2-dev", "Flux2Pipeline", False, True),
        ("black-forest-labs/FLUX.2-klein-4B", "Flux2KleinPipeline", False, False),
        ("Tongyi-MAI/Z-Image-Turbo", "ZImagePipeline", False, False),
        ("hunyuanvideo-community/HunyuanVideo-1.5-480p_t2v", "HunyuanVideo15Pipeline", False, True),
        ("stabilityai/stable-diffusion-3.5-large", "StableDiffusion3Pipeline", True, False),
        ("/models/stable-diffusion-xl-base-1.0/", "StableDiffusionXLPipeline", True, False),
    ],
)
def test_the_model_s_name_says_which_stages_are_logged_and_whether_a_bar_is_drawn(model, name, diffuse, bar):
    running = serve(model)
    assert ("Method path diffuse not found" in running.startup().text) is not diffuse
    text = running.request(IMAGE).text
    assert bool(stages(text, f"{name}.diffuse")) is diffuse
    assert ("\r" in text) is bar
    assert len(stages(text, f"{name}.forward")) == len(stages(text, f"{name}.vae.decode")) == 4


def test_an_image_is_told_by_its_stages_and_its_access_line_alone():
    running = serve("Qwen/Qwen-Image")
    running.startup()
    lines = running.request(IMAGE).text.rstrip("\n").split("\n")
    assert "QwenImagePipeline.text_encoder.forward took" in lines[0]
    assert lines[-1].endswith('INFO:     127.0.0.1:40922 - "POST /v1/images/generations HTTP/1.1" 200 OK')
    assert all("took" in line or "| 4/4 [" in line or "HTTP/1.1" in line for line in lines)


def test_sana_video_logs_its_whole_alone():
    running = serve("Efficient-Large-Model/SANA-Video_2B_480p_diffusers")
    running.startup()
    assert {stage for _, _, stage, _ in STAGE.findall(running.request(4).text)} == {"SanaVideoPipeline.forward"}


def test_a_text_is_encoded_twice_only_with_guidance():
    assert len(stages(session().request(4).text, "text_encoder.forward")) == 8
    assert len(stages(session().request(Ask(4, guidance=1.0)).text, "text_encoder.forward")) == 4


def test_one_card_in_the_server_s_process_names_every_line_after_its_worker():
    running = serve("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "tp1-usp1", (0,), inline=True)
    text = running.startup().text + running.request(4).text
    assert "(APIServer pid=236) INFO 10-09 08:38:35 [parallel_state.py:610] Building SP subgroups" in text
    assert "Scheduler loop started" not in text
    assert "(DiffusionWorker pid=237) INFO 10-09 08:39:16 [serving_video.py:476] Video sampling params" in text
    assert '(DiffusionWorker pid=237) INFO:     127.0.0.1:40922 - "POST /v1/videos/sync HTTP/1.1" 200 OK' in text


def test_stepwise_requests_log_each_step_when_it_ends_and_neither_forward_nor_a_bar():
    running = serve("Qwen/Qwen-Image", stepwise=True)
    assert "[RequestBatch] engine init" not in running.startup().text
    outcome = running.request(IMAGE)
    assert [stage for _, _, stage, _ in STAGE.findall(outcome.text)] == (
        ["QwenImagePipeline.text_encoder.forward"] * 4
        + ["QwenImagePipeline.diffuse"] * 16
        + ["QwenImagePipeline.vae.decode"] * 4
    )
    assert "\r" not in outcome.text
    first = stages(outcome.text, ".diffuse", "_SP0")
    assert outcome.durations["QwenImagePipeline.diffuse"] == pytest.approx(sum(first), abs=1e-5)


def test_a_pipeline_without_a_plan_for_its_sequence_says_so_and_splits_nothing():
    """FLUX.1 has no ``_sp_plan``: groups and names are right, every rank computes the whole."""
    dead, alone = serve("black-forest-labs/FLUX.1-dev"), serve("black-forest-labs/FLUX.1-dev", "tp1-usp1", (0,))
    text = dead.startup().text
    warning = (
        "Sequence parallelism is enabled (sp_size=4) but no transformer with _sp_plan found. SP hooks not applied."
    )
    assert text.count(warning) == 4
    assert "Applying" not in text
    assert text.count("(sp_size=4, ulysses=4, ring=1, use_ulysses_low=True)") == 4
    assert dead.timeline.step_ns == alone.timeline.step_ns
    assert dead.memory_mb() >= alone.memory_mb() - 10_500  # of its text encoder alone


@pytest.mark.parametrize("form", ["tp1-usp4", "tp1-usp1-ring4", "tp1-usp1-ag4"])
def test_a_dead_split_is_the_step_of_one_card(form):
    dead = session(form, faults=[{"kind": "dead_split"}])
    assert dead.timeline.step_ns == session("tp1-usp1", cards=(0,)).timeline.step_ns
    assert dead.startup().text.count("SP hooks not applied") == 4


def test_cfg_ranks_without_a_second_branch_are_a_warning_at_every_request_and_no_gain():
    """Qwen-Image's branch needs ``true_cfg_scale`` above 1 and a negative prompt; the warm-up has none."""
    split, whole = serve("Qwen/Qwen-Image", "tp1-usp2-cfg2"), serve("Qwen/Qwen-Image", "tp1-usp2", (0, 1))
    no_negative = "CFG parallel is NOT working correctly when there is no negative prompt"
    assert split.startup().text.count(no_negative) == 4
    lone = split.request(IMAGE)
    assert lone.text.count(no_negative) == 4
    assert stages(lone.text, ".diffuse")[0] == pytest.approx(stages(whole.request(IMAGE).text, ".diffuse")[0], rel=0.01)
    assert whole.startup().text.count("CFG parallel") == 0
    both = split.request(replace(IMAGE, negative_prompt="blurry"))
    assert "CFG parallel" not in both.text
    low = split.request(replace(IMAGE, negative_prompt="blurry", true_cfg_scale=1.0))
    assert low.text.count("CFG parallel is NOT working correctly when true_cfg_scale <= 1.") == 4


def test_cfg_ranks_beyond_the_branches_idle_and_are_told_once():
    idle, full = session("tp1-usp1-cfg4"), session("tp1-usp1-cfg2", cards=(0, 1))
    idle.startup()
    told = "cfg_parallel_size=4 > n_branches=2, 2 GPU(s) will be idle for CFG"
    assert [idle.request(4).text.count(told) for _ in range(2)] == [4, 0]
    assert idle.timeline.step_ns == pytest.approx(full.timeline.step_ns, rel=0.01)
    assert [sum(one.op.type == "FlashAttentionScore" for one in idle.timeline.kernels(rank)) for rank in range(4)] == [
        40, 40, 0, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "requires vae_use_tiling; automatically enabling it."),
        ("black-forest-labs/FLUX.1-dev", "VAE patch parallelism is NOT enabled for FluxPipeline; ignoring."),
    ],
)
def test_a_shared_vae_tiles_or_says_that_it_is_not_shared(model, words):
    assert serve(model, patches=4).startup().text.count(words) == 4
    assert "vae_patch_parallel_size" not in serve(model).startup().text


def test_a_profiler_says_where_its_files_go():
    text = serve("Qwen/Qwen-Image", profile_dir="/captures").startup().text
    assert text.count("Omni torch profiling enabled. Traces will be saved to: /captures") == 1
    assert "Profiler endpoints are enabled." in text


def test_a_cache_says_that_it_is_enabled():
    text = serve("Qwen/Qwen-Image", cache="cache_dit").startup().text
    assert text.count("Cache-dit enabled successfully on QwenImagePipeline") == 4


def test_the_log_has_the_step_time_of_the_timeline_and_ranks_agree_within_a_millisecond():
    running = session()
    diffuse = stages(running.request(4).text, ".diffuse")
    assert len(diffuse) == 4
    assert min(diffuse) == pytest.approx(4 * running.timeline.step_ns / 1e9, abs=1e-3)
    assert max(diffuse) - min(diffuse) < 1e-3


def test_forward_is_the_sum_of_its_stages():
    text = session().request(10).text
    first = [line for line in text.splitlines() if "_SP0 " in line and "took" in line]
    seconds = [stages(line, "")[0] for line in first]  # two texts, the loop, decode; forward
    assert sum(seconds[:4]) == pytest.approx(seconds[4], rel=0.01)


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
    text = session(log={"per_step": True}, timing={"thermal_pct_per_step": 5.0}).request(4).text
    diffuse = stages(text, ".diffuse", "_SP0")
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
    text = session(timing={"stragglers": {3: 1.25}}).request(4).text
    first, third, last = (stages(text, ".diffuse", f"_SP{rank}")[0] for rank in (0, 2, 3))
    assert last / first == pytest.approx(1.25, abs=0.001)
    assert third / first == pytest.approx(1.0, abs=0.001)


def test_stage_lines_per_step_with_a_nested_name_and_one_iteration_less():
    log = {"per_step": True, "iterations_minus_one": True, "pipeline": "P", "diffuse_stage": "sampler.diffuse"}
    text = session(log=log).request(6).text
    assert len(stages(text, "P.sampler.diffuse")) == 4 * 5
    assert "| 5/5 [" in text
    assert "steps=6" in text


def test_no_stage_lines_without_the_flag_or_when_the_model_has_none():
    silent = ServingSession(scenario(), Split(usp=4), QUAD, options=Options(stage_lines=False))
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
    assert "(DiffusionWorker pid=237)" in text
    assert "pid=238)" not in text
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
    assert not stages(broken.text, ".diffuse")


def test_a_lost_response_has_its_whole_timing():
    lost = session(faults=[{"kind": "lost_response", "request": 1}]).request(4)
    assert lost.response == "lost"
    assert len(stages(lost.text, ".diffuse")) == 4
    assert "HTTP/1.1" not in lost.text


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
