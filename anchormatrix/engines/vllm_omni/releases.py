"""Releases of vllm-omni: since when it has what a launch or the reading of its log needs.

Read in the packages 0.14.0 to 0.30.0 (``vllm_omni/entrypoints/cli/serve.py``, ``diffusion/profiler/``,
``entrypoints/openai/api_server.py``, ``diffusion/worker/diffusion_worker.py``, ``diffusion/distributed/``). It is
released with every even release of vLLM, of the same number, so that ``vllm --version`` tells it.
"""

from __future__ import annotations

from dataclasses import dataclass

from anchormatrix.engines.releases import Number, caution, nearest

_PARTS: dict[Number, str] = {
    (0, 14): "",
    (0, 16): "",
    (0, 18): "stage lines",
    (0, 20): "stage durations in answers, --step-execution",
    (0, 22): "pipeline parallelism",
    (0, 24): "denoise_step logged as diffuse",
    (0, 26): "all-gather-KV, distributed layerwise offload",
    (0, 28): "ranks named in every line, one card in the server's own process",
    (0, 30): "",
}
_STAGE_LINES, _PIPELINE, _GATHER, _ONE_CARD = (0, 18), (0, 22), (0, 26), (0, 28)


@dataclass(frozen=True)
class Release:
    """One release: its number, and what is said of a version that is another."""

    number: Number
    caution: str

    @property
    def name(self) -> str:
        """As messages name it."""
        return f"vllm-omni {'.'.join(map(str, self.number))}"

    @property
    def has_stage_lines(self) -> bool:
        """Whether it can log stage times at all."""
        return self.number >= _STAGE_LINES

    @property
    def has_pipeline(self) -> bool:
        """Whether it splits layers over pipeline stages."""
        return self.number >= _PIPELINE

    @property
    def has_gather(self) -> bool:
        """Whether it gathers K and V instead of exchanging heads; layerwise offload over a group came with it."""
        return self.number >= _GATHER

    @property
    def has_one_card_in_process(self) -> bool:
        """Whether a form on one card runs in the HTTP server's own process unless it is told otherwise."""
        return self.number >= _ONE_CARD


def release_of(version: str) -> Release:
    """The release that a version text means; the newest where no version is told."""
    known = sorted(_PARTS)
    if not version:
        return Release(known[-1], "")
    found, same = nearest(version, known)
    return Release(found, caution("vllm-omni", version, found, same=same))
