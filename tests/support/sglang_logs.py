"""Small logs of SGLang's diffusion server, as 0.5.23 writes them, and the answers that belong to them."""

from __future__ import annotations

import json

from anchormatrix.engines.client import Response, Told
from anchormatrix.records.requests import RequestStatus

ARGUMENTS = {
    "num_gpus": 2,
    "tp_size": 1,
    "sp_degree": 2,
    "ulysses_degree": 2,
    "ring_degree": 1,
    "kv_gather_degree": 1,
    "cfg_parallel_degree": 1,
    "dp_size": 1,
    "dit_cpu_offload": False,
    "dit_layerwise_offload": False,
}


def start(world: int = 2, **changed: object) -> str:
    """The lines of a start: the resolved arguments and the process group."""
    arguments = json.dumps(ARGUMENTS | changed)
    return (
        f"[12-03 07:11:05] server_args: {arguments}\n"
        f"[12-03 07:11:09] Initializing distributed environment with world_size={world}, device=cpu, timeout=3600\n"
        "Loading required modules:   0%|          | 0/5 [00:00<?, ?it/s][12-03 07:11:09] Loading vae from /m/vae.\n"
        "[12-03 07:11:10] Worker 0: Scheduler loop started.\n"
    )


def request(steps: int, denoise_s: float, *, encode_s: float = 0.05, decode_s: float = 0.5, end: bool = True) -> str:
    """The lines of one image request."""
    bar = "\r".join(f" {100 * done // steps}%|██| {done}/{steps} [00:00<00:00,  2.8it/s]" for done in range(steps + 1))
    lines = (
        "[12-03 07:11:47] Sampling params:\n"
        "                       width: 256\n"
        f"                 infer_steps: {steps}\n"
        "        \n"
        "[12-03 07:11:47] [TextEncodingStage] started...\n"
        f"[12-03 07:11:47] [TextEncodingStage] finished in {encode_s:.4f} seconds\n"
        "[12-03 07:11:47] [DenoisingStage] started...\n"
        f"{bar}\n"
        f"[12-03 07:11:48] [DenoisingStage] average time per step: {denoise_s / steps:.4f} seconds\n"
        f"[12-03 07:11:48] [DenoisingStage] finished in {denoise_s:.4f} seconds\n"
        "[12-03 07:11:48] [DecodingStage] started...\n"
    )
    return lines + (
        f"[12-03 07:11:49] [DecodingStage] finished in {decode_s:.4f} seconds\n"
        "[12-03 07:11:49] Metrics dumped to: \x1b[1;36m/tmp/times.json\x1b[0;0m\n"
        f"[12-03 07:11:49] Pixel data generated successfully in \x1b[92m{denoise_s + decode_s:.2f}\x1b[0;0m seconds\n"
        '[2026-12-03 07:11:49] INFO:     127.0.0.1:1 - "POST /v1/images/generations HTTP/1.1" 200 OK\n'
        if end
        else ""
    )


def told(steps_s: tuple[float, ...], denoise_s: float, *, encode_s: float = 0.05, decode_s: float = 0.5) -> Told:
    """What the dump of such a request times."""
    stages = {"TextEncodingStage": encode_s, "DenoisingStage": denoise_s, "DecodingStage": decode_s}
    return Told(stages | {"whole request": denoise_s + encode_s + decode_s + 0.001}, steps_s)


def answer(said: Told | None, latency_s: float = 9.0, *, steps: int = 2) -> Response:
    """An answer with these times to a request of so many steps."""
    return Response(RequestStatus.OK, latency_s, "f" * 16, told=said, steps=steps)
