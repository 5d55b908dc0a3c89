"""The pipelines of vllm-omni 0.30.0 that the virtual host serves: what each logs, draws and splits, by model name.

The class that vllm-omni makes for a model (``diffusion/registry.py:36-``) names every stage line. The stages are the
methods that its profiler wraps: ``forward``, then the targets of the class or the default ones
(``diffusion/profiler/diffusion_pipeline_profiler.py:82-112``). A target that the class lacks is a warning at start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from virtualhost.host.scenario import LogStyle
from virtualhost.server.exchange import Ask

# diffusion_pipeline_profiler.py:82; transformers' tokenizers and processors have no ``forward``
_USUAL = ("vae.encode", "vae.decode", "diffuse", "text_encoder.forward", "tokenizer.forward")


class Guidance(Enum):
    """When a request runs the branch without the prompt, and whether the pipeline says that CFG ranks have no work."""

    SCALE = "guidance_scale above 1; the negative prompt may be empty"
    SCALE_AND_NEGATIVE = "guidance_scale above 1 and a negative prompt; the pipeline warns"
    TRUE_CFG = "true_cfg_scale above 1 and a negative prompt; the pipeline warns"

    @property
    def warns(self) -> bool:
        """Whether the pipeline calls ``check_cfg_parallel_validity``."""
        return self is not Guidance.SCALE


@dataclass(frozen=True)
class Pipeline:
    """One pipeline class.

    ``transformers`` are the attributes that hold a transformer with an ``_sp_plan``, and its class; without any, no
    sequence is split and a warning says so. ``absent`` are the targets that the class lacks. ``encoder``, ``loop`` and
    ``decoder`` are the stages that a text-to-image or text-to-video request runs, where they are targets: an empty one
    logs nothing. ``checks`` is the place of the warning on CFG, ``patches`` says whether the VAE can be
    shared among ranks, ``warm_frames`` is of the warm-up at start; 0 is none.
    """

    name: str
    models: str
    source: str
    transformers: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ("tokenizer.forward",)
    encoder: str = "text_encoder.forward"
    loop: str = "diffuse"
    decoder: str = "vae.decode"
    bar: bool = True
    stepwise: bool = False
    guidance: Guidance = Guidance.SCALE
    true_cfg_scale: float = 1.0
    checks: str = "cfg_parallel.py:156"
    patches: bool = True
    warm_frames: int = 1

    def guided(self, ask: Ask) -> bool:
        """Whether a request runs a second branch, without the prompt."""
        return self.unguided_because(ask) == ""

    def unguided_because(self, ask: Ask) -> str:
        """Why a request runs one branch, in the words in which a pipeline that checks it warns; empty when it runs two.

        ``diffusion/models/qwen_image/cfg_parallel.py:131-165``, also ``flux/pipeline_flux.py:490-503`` and
        ``flux2/pipeline_flux2.py:858-871``.
        """
        scale = ask.guidance
        if self.guidance is Guidance.TRUE_CFG:
            scale = ask.true_cfg_scale or self.true_cfg_scale
        if scale <= 1:
            return "CFG parallel is NOT working correctly when true_cfg_scale <= 1."
        if self.guidance.warns and not ask.negative_prompt:
            return (
                "CFG parallel is NOT working correctly when there is no negative prompt or negative prompt embeddings."
            )
        return ""


_WAN = (("transformer", "WanTransformer3DModel"), ("transformer_2", "WanTransformer3DModel"))
_NO_LOOP = ("diffuse", "tokenizer.forward")

# The first whose ``models`` fits the name that is served
PIPELINES = (
    # wan2_2/pipeline_wan2_2_i2v.py:343, loop :363, bar :380; the negative prompt is encoded whenever guidance is on
    Pipeline("Wan22I2VPipeline", r"wan.*i2v", "wan2_2/pipeline_wan2_2_i2v.py:343", _WAN),
    # wan2_2/pipeline_wan2_2.py:538, loop :570, bar :587, encoder :1093 and :1119; TI2V-5B has one transformer
    Pipeline("Wan22Pipeline", r"wan.*ti2v", "wan2_2/pipeline_wan2_2.py:538", _WAN[:1]),
    Pipeline("Wan22Pipeline", r"wan-?2\.?1", "wan2_2/pipeline_wan2_2.py:538", _WAN[:1]),
    Pipeline("Wan22Pipeline", r"wan", "wan2_2/pipeline_wan2_2.py:538", _WAN),
    # qwen_image/pipeline_qwen_image.py:377, loop and bar qwen_image/cfg_parallel.py:28 and :73; it has denoise_step,
    # so that target is added; a negative prompt counts when it is given, true_cfg_scale is 4 by default
    Pipeline(
        "QwenImagePipeline",
        r"qwen-?image",
        "qwen_image/pipeline_qwen_image.py:377",
        (("transformer", "QwenImageTransformer2DModel"),),
        stepwise=True,
        guidance=Guidance.TRUE_CFG,
        true_cfg_scale=4.0,
    ),
    # flux2_klein/pipeline_flux2_klein.py:288: neither diffuse nor a bar; forward holds the loop
    Pipeline(
        "Flux2KleinPipeline",
        r"flux\.?2.*klein",
        "flux2_klein/pipeline_flux2_klein.py:288",
        (("transformer", "Flux2Transformer2DModel"),),
        absent=_NO_LOOP,
        loop="",
        bar=False,
        patches=False,
    ),
    # flux2/pipeline_flux2.py:438: no diffuse; the bar :1078 is drawn in forward
    Pipeline(
        "Flux2Pipeline",
        r"flux\.?2",
        "flux2/pipeline_flux2.py:438",
        (("transformer", "Flux2Transformer2DModel"),),
        absent=_NO_LOOP,
        loop="",
        guidance=Guidance.SCALE_AND_NEGATIVE,
        checks="pipeline_flux2.py:863",
    ),
    # flux/pipeline_flux.py:143, loop :421 without a bar; flux_transformer.py has no _sp_plan
    Pipeline(
        "FluxPipeline",
        r"flux",
        "flux/pipeline_flux.py:143",
        bar=False,
        guidance=Guidance.TRUE_CFG,
        checks="pipeline_flux.py:495",
        patches=False,
    ),
    # z_image/pipeline_z_image.py:237: neither diffuse nor a bar
    Pipeline(
        "ZImagePipeline",
        r"z-?image",
        "z_image/pipeline_z_image.py:237",
        (("transformer", "ZImageTransformer2DModel"),),
        absent=_NO_LOOP,
        loop="",
        bar=False,
    ),
    # hunyuan_video/pipeline_hunyuan_video_1_5.py:206: no diffuse; the bar :482 is drawn in forward
    Pipeline(
        "HunyuanVideo15Pipeline",
        r"hunyuan-?video",
        "hunyuan_video/pipeline_hunyuan_video_1_5.py:206",
        (("transformer", "HunyuanVideo15Transformer3DModel"),),
        absent=_NO_LOOP,
        loop="",
    ),
    # sd3/pipeline_sd3.py:258, loop :561 without a bar; sd3_transformer.py has no _sp_plan
    Pipeline("StableDiffusion3Pipeline", r"stable-diffusion-3", "sd3/pipeline_sd3.py:258", bar=False),
    # sdxl/pipeline_sdxl.py:125, loop :248 without a bar; sdxl_unet.py:614 has a plan
    Pipeline(
        "StableDiffusionXLPipeline",
        r"sdxl|stable-diffusion-xl",
        "sdxl/pipeline_sdxl.py:125",
        (("unet", "SDXLUNet2DConditionModel"),),
        bar=False,
    ),
    # ovis_image/pipeline_ovis_image.py:215, loop :460 without a bar; its transformer has no _sp_plan
    Pipeline("OvisImagePipeline", r"ovis-?image", "ovis_image/pipeline_ovis_image.py:215", bar=False, patches=False),
    # sana_video/pipeline_sana_video.py:391: forward is the only target; bar :825; warm-up of 25 frames :339
    Pipeline(
        "SanaVideoPipeline",
        r"sana.?video",
        "sana_video/pipeline_sana_video.py:391",
        (("transformer", "SanaVideoTransformer3DModel"),),
        absent=(),
        encoder="",
        loop="",
        decoder="",
        warm_frames=25,
    ),
)


def pipeline_of(model: str) -> Pipeline | None:
    """The pipeline that serves a model, or ``None`` for a name that none here fits."""
    name = model.rstrip("/").rpartition("/")[2]
    return next((one for one in PIPELINES if re.search(one.models, name, re.IGNORECASE)), None)


@dataclass(frozen=True)
class Options:
    """What a command line asks for besides the form.

    ``stage_lines`` is the pipeline profiler, ``stepwise`` ``--step-execution``, ``inline`` one worker in the server's
    process, ``eager`` no compilation, ``cache`` the backend that keeps parts of steps, ``profile_dir`` where captures
    go (empty: no profiler), ``patches`` among how many ranks the VAE is shared.
    """

    model: str = "Wan-AI/Wan2.2-T2V-A14B-Diffusers"
    stage_lines: bool = True
    stepwise: bool = False
    inline: bool = False
    eager: bool = False
    cache: str = ""
    profile_dir: str = ""
    patches: int = 1

    def pipeline(self, style: LogStyle) -> Pipeline:
        """The pipeline of the model; a scenario may set a plug-in's in its place (``--custom-pipeline-args``)."""
        found = pipeline_of(self.model)
        if not style.pipeline:
            assert found is not None, f"no pipeline serves {self.model}"
            return found
        base = found or Pipeline(style.pipeline, "", "")
        return replace(
            base,
            name=style.pipeline,
            loop=style.diffuse_stage,
            transformers=(("transformer", style.transformer),),
        )
