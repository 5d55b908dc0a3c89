"""What SGLang's server logs when it cannot go on, as 0.5.23 logged it on a CPU, and the causes found in it."""

from __future__ import annotations

import pytest

from anchormatrix.measure.causes import failure_of


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            "\x1b[91m[12-03 08:03:55] Scheduler worker exited; restart the server.\x1b[0;0m\n",
            "peer_lost",
        ),
        (
            "RuntimeError: Ring Attention requires a backend whose kernel exposes the softmax LSE for the per-hop "
            "merge; TORCH_SDPA does not declare support (see AttentionBackend.supports_ring_rotation).\n"
            "RuntimeError: Native Diffusers fallback for transformer component 'transformer' cannot honor requested "
            "distributed execution: sp_degree=2, ring_degree=2.\n",
            "form_not_supported",
        ),
        (
            "RuntimeError: HTTP port 31040 is unavailable and --strict-ports is enabled. "
            "Either use a different port or disable --strict-ports.\n",
            "port_in_use",
        ),
        ("error: unrecognized arguments: --no-such-flag\n", "bad_flag"),
    ],
)
def test_a_failure_s_cause_is_found(lines: str, cause: str) -> None:
    start = "[12-03 08:03:34] [server-load] workers_ready_monotonic_ns=1\n[12-03 08:03:34] Starting FastAPI server.\n"
    assert failure_of(start + lines).id == cause
