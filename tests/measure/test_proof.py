"""A form counts when the log shows its ranks and its groups, and the engine's own check does not contradict it."""

from __future__ import annotations

import pytest
from serving_logs import STAGE, log, sampling

from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.proof import prove
from anchormatrix.records.session import OffloadSeen, SparseSeen
from anchormatrix.store.codec import plain


def test_proof_names_what_is_missing_and_what_is_unproven() -> None:
    found = parse_serve_log(log(3.0, 2))
    asked = {"world": 2, "sp_size": 2, "ulysses_degree": 2, "tp_size": 1}
    assert prove(found, asked).ok
    assert prove(found, {**asked, "cfg_size": 2}).unproven == ("cfg_size 2 asked for, not in the log",)
    assert prove(found, {"world": 4, "sp_size": 4}).failures == ("2 of 4 ranks seen", "sp_size is 2, 4 asked for")
    silent = parse_serve_log(
        sampling(4) + f"(DiffusionWorker pid=1) {STAGE} 8.0s\n(DiffusionWorker pid=2) {STAGE} 8.0s\n"
    )
    assert prove(silent, {"world": 2, "sp_size": 2}).failures == ("sp_size 2 asked for, not in the log",)


def check(distance: str, rank: int = 0, limit: str = "1.00e-05") -> str:
    head = f"(DiffusionWorker_SP{rank} pid={rank}) INFO 10-09 08:38:05 [worker.py:110] Split check: "
    return f"{head}one step of this form against one rank: relative distance {distance}, limit {limit}\n"


def test_a_check_of_its_own_result_that_the_engine_logs_is_part_of_the_proof() -> None:
    asked = {"world": 2, "sp_size": 2}
    assert prove(parse_serve_log(log(3.0, 2)), asked).check is None
    passed = prove(parse_serve_log(check("0.00e+00") + check("3.10e-07", 1) + log(3.0, 2)), asked)
    assert passed.ok
    assert plain(passed)["check"] == {
        "ok": True,
        "what": "one step of this form against one rank",
        "relative_distance": 3.1e-07,
        "limit": 1e-05,
        "ranks": 2,
    }


@pytest.mark.parametrize(("distance", "seen"), [("2.00e-02", 0.02), ("inf", None), ("nan", None)])
def test_a_form_whose_own_check_fails_on_any_rank_did_not_take_effect(distance: str, seen: float | None) -> None:
    found = prove(parse_serve_log(check("1.00e-07") + check(distance, 1) + log(3.0, 2)), {"world": 2, "sp_size": 2})
    assert not found.ok
    assert found.check is not None and found.check.relative_distance == seen
    words = "2.00e-02" if seen else "no finite number"
    assert found.failures == (
        "the engine's own check fails (one step of this form against one rank): "
        f"relative distance {words}, limit 1.00e-05",
    )


def test_a_check_inside_a_request_or_without_a_worker_proves_nothing() -> None:
    late = log(3.0, 2) + check("2.00e-02")
    nobody = "INFO 10-09 08:38:05 Split check: this: relative distance 1.00e+00, limit 1.00e-05\n" + log(3.0, 2)
    assert parse_serve_log(late).checks == parse_serve_log(nobody).checks == ()


def worker(text: str, rank: int = 0) -> str:
    return f"(DiffusionWorker_SP{rank} pid={rank}) INFO 10-09 08:38:05 [offloader.py:479] {text}\n"


PLAIN = "Layer-wise offloading enabled on 40 layers (blocks)"
GROUP = "Distributed layerwise offload: dp_size=2, rank_in_group={}, global_rank={}, group_ranks=[0, 1]"
SHARED = "Distributed layer-wise offloading enabled on 40 blocks across 1 group(s), transfers={dit: allgather}"
SKIPPED = "Current device: cpu does not support CPU offloading. Skipping offloading."


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ((), None),
        ((PLAIN,), OffloadSeen("layerwise-offload", ranks=2, blocks=40, group=1, refusal="")),
        ((PLAIN, PLAIN), OffloadSeen("layerwise-offload", ranks=2, blocks=80, group=1, refusal="")),
        ((GROUP, SHARED), OffloadSeen("distributed-layerwise-offload", ranks=2, blocks=40, group=2, refusal="")),
        ((SHARED,), OffloadSeen("distributed-layerwise-offload", ranks=2, blocks=40, group=1, refusal="")),
        (
            ("Model-level offloading enabled: transformer <-> text_encoder (mutual exclusion)",),
            OffloadSeen("cpu-offload", ranks=2, blocks=0, group=1, refusal=""),
        ),
        ((SKIPPED,), OffloadSeen("", ranks=0, blocks=0, group=1, refusal=SKIPPED)),
    ],
)
def test_what_workers_say_of_their_offload_is_kept(said: tuple[str, ...], seen: OffloadSeen | None) -> None:
    lines = "".join(worker(text.replace("{}", str(rank)), rank) for rank in (0, 1) for text in said)
    found = prove(parse_serve_log(lines + log(3.0, 2)), {"world": 2, "sp_size": 2}, (None, 9000.5, 9012.0))
    assert (found.ok, found.offload, found.peak_memory_mb) == (True, seen, 9012.0)


def test_a_sparse_call_and_one_that_stayed_dense_are_counted_by_rank_also_in_requests() -> None:
    active = "RAINFUSION_ATTN active: sparsity=0.80, start_step=10, exempt_layers=0"
    dense = "RAINFUSION_ATTN staying dense: 1024 video rows is under the 4096-row threshold"
    lines = log(3.0, 2) + worker(active) + worker(active, 1) + worker(dense, 1)
    assert prove(parse_serve_log(lines), {"world": 2, "sp_size": 2}).sparse == SparseSeen(active=2, dense=1)
    assert prove(parse_serve_log(log(3.0, 2)), {"world": 2, "sp_size": 2}).sparse is None
