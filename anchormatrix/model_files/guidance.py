"""The forwards of one denoise step: one, or two where the pipeline guides by a second one without the prompt.

Rules by the class that ``model_index.json`` names, from diffusers 0.42.1, below ``pipelines/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anchormatrix.model_files.values import ModelFile, NotFound
from anchormatrix.records.settings.things import WorkloadSettings


def guidance_branches(index: ModelFile, workload: WorkloadSettings) -> int:
    """The branches of a workload under the pipeline of a model. Raises :class:`NotFound`."""
    if index.problem:
        raise NotFound(f"{index.name} {index.problem}")
    rule = _RULES.get(index.kind)
    if rule is None:
        raise NotFound(f"{index.name}: no rule is known for the pipeline {index.kind or '(none is named)'}")
    return 2 if rule(workload, index) else 1


_Rule = Callable[[WorkloadSettings, ModelFile], bool]


def _above(scale: float) -> _Rule:
    return lambda workload, _: workload.guidance_scale > scale


def _true_cfg(default: float) -> _Rule:
    """Guidance is an input of the transformer; a second forward only for ``true_cfg_scale`` with a negative prompt."""

    def rule(workload: WorkloadSettings, _: ModelFile) -> bool:
        given = workload.extra_params.get("true_cfg_scale", default)
        number = isinstance(given, int | float) and not isinstance(given, bool)
        return bool(workload.negative_prompt) and number and given > 1

    return rule


def _klein(workload: WorkloadSettings, index: ModelFile) -> bool:
    return workload.guidance_scale > 1 and not (index.has("is_distilled") and index.flag("is_distilled"))


_RULES: Mapping[str, _Rule] = {
    "WanPipeline": _above(1),  # wan/pipeline_wan.py:364
    "WanImageToVideoPipeline": _above(1),  # wan/pipeline_wan_i2v.py:492
    "QwenImagePipeline": _true_cfg(4.0),  # qwenimage/pipeline_qwenimage.py:414, :564
    "FluxPipeline": _true_cfg(1.0),  # flux/pipeline_flux.py:608, :771
    "Flux2Pipeline": lambda *_: False,  # flux2/pipeline_flux2.py:951, :977: guidance is an input
    "Flux2KleinPipeline": _klein,  # flux2/pipeline_flux2_klein.py:596
    "HunyuanVideoPipeline": _true_cfg(1.0),  # hunyuan_video/pipeline_hunyuan_video.py:451, :584
    "ZImagePipeline": _above(0),  # z_image/pipeline_z_image.py:283
    "LTXPipeline": _above(1),  # ltx/pipeline_ltx.py:517
    "StableDiffusion3Pipeline": _above(1),  # stable_diffusion_3/pipeline_stable_diffusion_3.py:681
    "PixArtAlphaPipeline": _above(1),  # pixart_alpha/pipeline_pixart_alpha.py:839
    "PixArtSigmaPipeline": _above(1),  # pixart_alpha/pipeline_pixart_sigma.py:783
    "SanaPipeline": _above(1),  # sana/pipeline_sana.py:663
    "CogVideoXPipeline": _above(1),  # cogvideo/pipeline_cogvideox.py:653
    "MochiPipeline": _above(1),  # mochi/pipeline_mochi.py:426
}
