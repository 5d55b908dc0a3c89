"""What workers say against a split or a switch counts, and what nothing proves is said."""

from __future__ import annotations

import pytest
from serving_logs import log

from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.engines.vllm_omni.switches import of_forms
from anchormatrix.measure.proof import prove
from anchormatrix.records.session import SparseSeen

ASKED = {"world": 2, "sp_size": 2, "cfg_size": 1, "dp_size": 1}


def worker(text: str, rank: int = 0) -> str:
    return f"(DiffusionWorker_SP{rank} pid={rank}) WARNING 12-03 08:00:00 [registry.py:625] {text}\n"


@pytest.mark.parametrize(
    "text",
    [
        "Sequence parallelism is enabled (sp_size=2) but no transformer with _sp_plan found. SP hooks not applied. "
        "Consider adding _sp_plan to your transformer model.",
        "Failed to apply sequence parallelism: boom. Continuing without SP hooks.",
    ],
)
def test_a_split_that_the_server_says_it_left_out_is_no_proof(text: str) -> None:
    found = prove(parse_serve_log(worker(text) + log(3.0, 2)), ASKED)
    assert not found.ok
    assert found.failures[0].startswith(f"sp_size 2 is not in effect: {text[:40]}")


def test_guidance_that_was_not_shared_is_said_even_while_requests_run() -> None:
    asked = {"world": 2, "sp_size": 2, "cfg_size": 2}
    late = worker("CFG parallel is NOT working correctly when true_cfg_scale <= 1.")
    failures = prove(parse_serve_log(log(3.0, 2) + late), asked).failures
    assert "cfg_size 2 is not in effect: CFG parallel is NOT working correctly when true_cfg_scale <= 1." in failures
    assert prove(parse_serve_log(log(3.0, 2) + late), ASKED).failures == ()


@pytest.mark.parametrize(
    ("arguments", "line", "failures", "unproven"),
    [
        (("--cache-backend", "tea_cache"), "TeaCache applied with rel_l1_thresh=0.2", 0, 0),
        (("--cache-backend=cache_dit",), "Cache backend 'cache_dit' is not supported for SDXL; disabling", 1, 0),
        (("--cache-backend", "none"), "", 0, 0),
        (("--diffusion-attention-backend", "SAGE_ATTN"), "Resolved diffusion attention backend 'SAGE_ATTN' for", 0, 0),
        (("--diffusion-attention-backend", "SAGE_ATTN"), "Resolved diffusion attention backend 'SDPA' for role", 0, 1),
        (("--quantization", "fp8"), "Building quantization config: fp8", 0, 1),
        (
            ("--quantization", "int8"),
            "Online quantization completed. 400 linear layers quantized, 0 FA layers quantized.",
            0,
            0,
        ),
        (
            ("--quantization", "int8"),
            "Online quantization completed. 0 linear layers quantized, 0 FA layers quantized.",
            1,
            0,
        ),
        (("--diffusion-kv-cache-dtype", "fp8"), "NPU attention uses MindIE-SD fp8 Runtime, layout=BSND.", 0, 0),
        (("--diffusion-kv-cache-dtype", "fp8"), "Resolved diffusion attention backend 'FLASH_ATTN' for", 0, 1),
        (("--use-hsdp",), "HSDP applied to model: WanTransformer3DModel", 0, 0),
        (("--step-execution",), "[RequestBatch] engine init max_num_seqs=1", 1, 0),
        (("--diffusion-offload-config", '{"mode": "layer"}'), "Layer-wise offloading enabled on 40 layers", 0, 0),
    ],
)
def test_every_switch_is_proved_refuted_or_unproven(
    arguments: tuple[str, ...], line: str, failures: int, unproven: int
) -> None:
    found = prove(parse_serve_log(worker(line) + log(3.0, 2), switches=arguments), ASKED)
    assert (len(found.failures), len(found.unproven)) == (failures, unproven)


def test_the_weights_of_a_group_are_no_replicas_and_replicas_are_no_split() -> None:
    shared = worker("Distributed layerwise offload: dp_size=2, rank_in_group=0, num_blocks=40")
    assert prove(parse_serve_log(shared + log(3.0, 2)), ASKED).ok
    replicas = log(3.0, 2).replace("DiffusionWorker_SP", "DiffusionWorker_DP")
    assert "dp_size is 2, 1 asked for" in prove(parse_serve_log(replicas), ASKED).failures


def test_ranks_are_numbered_as_the_engine_does_not_as_their_tags_name_them() -> None:
    tags = ["SP0_CFG0", "SP1_CFG0", "SP0_CFG1", "SP1_CFG1"]
    stage = "INFO 12-03 08:00:00 [p.py:1] [DiffusionPipelineProfiler] P.diffuse took"
    text = "".join(f"(DiffusionWorker_{tag} pid={9 - n}) {stage} {n + 1}.000000s\n" for n, tag in enumerate(tags))
    assert parse_serve_log(text).ranks == tuple(f"DiffusionWorker_{tag}" for tag in tags)
    told = "".join(
        f"(DiffusionWorker pid={9 - n}) INFO 12-03 08:00:00 [w.py:1642] Worker {3 - n}: Scheduler loop started.\n"
        for n in range(4)
    )
    assert parse_serve_log(told + text).ranks == tuple(f"DiffusionWorker_{tag}" for tag in reversed(tags))


@pytest.mark.parametrize("word", ["--usp", "--ring=2", "--tensor_parallel_size", "-tp", "-pp=2", "-tp2", "--num-gpus"])
def test_a_degree_among_the_arguments_of_all_forms_is_found_in_every_spelling(word: str) -> None:
    assert of_forms(("--enforce-eager", word, "2")) == word


def test_an_argument_that_only_begins_alike_is_none() -> None:
    assert of_forms(("--usp-mode", "--tokenizer", "x", "-tps", "--ring-buffer")) == ""


def test_sparse_attention_that_keeps_every_block_is_dense() -> None:
    routing = "FASTVIDEO_VSA routing: role=self keep_ratio={} route={}"
    every = parse_serve_log(worker(routing.format("1.0", "VSA_ALL_BLOCKS")) + log(3.0, 2)).sparse
    some = parse_serve_log(worker(routing.format("0.2", "VSA")) + log(3.0, 2)).sparse
    assert (every, some) == (SparseSeen(active=0, dense=1), SparseSeen(active=1, dense=0))
