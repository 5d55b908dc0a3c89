"""Requests sent are paired with requests logged, whatever lines the log lost."""

from __future__ import annotations

from serving_logs import STAGE, sampling

from anchormatrix.engines.client import Response
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.rows import rows_of
from anchormatrix.measure.served import Sent
from anchormatrix.records.requests import RequestStatus, Role


def test_a_lost_sampling_line_leaves_its_request_untimed_and_shifts_nothing() -> None:
    responses = [Response(RequestStatus.OK, 1.0, steps=steps) for steps in (4, 10, 4, 10)]
    sent = [Sent(Role.MEASURED, "", 0.0, response) for response in responses]
    whole = [sampling(steps) + f"{STAGE} {steps * 2.0}s\n" for steps in (4, 10, 4, 10)]
    for lost in range(4):
        text = "".join(part.split("\n", 1)[1] if n == lost else part for n, part in enumerate(whole))
        rows = rows_of(sent, parse_serve_log(text, responses).requests)
        timed = [row.step_s for row in rows]
        assert timed[lost] is None
        assert all(step_s in (None, 2.0) for step_s in timed)
        assert sum(step_s is None for step_s in timed) <= 2
