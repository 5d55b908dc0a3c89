"""A form counts when the log shows its ranks and its groups, and the engine's own check does not contradict it."""

from __future__ import annotations

import pytest
from serving_logs import STAGE, log, sampling

from anchormatrix.measure.serverlog.parse import parse_serve_log
from anchormatrix.measure.serverlog.proof import prove
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
