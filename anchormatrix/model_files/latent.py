"""The compression of a VAE: how many frames and pixels of a side become one latent value, from its configuration.

Every rule is that of the class in diffusers 0.42.1, below ``models/autoencoders/``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from anchormatrix.model_files.values import ModelFile, NotFound

Compression = tuple[int, int]
"""Frames and pixels of a side that one latent value stands for."""


def compression(vae: ModelFile) -> Compression:
    """The compression of a VAE, frames first. Raises :class:`NotFound`."""
    if vae.problem:
        raise NotFound(f"{vae.name} {vae.problem}")
    rule = _RULES.get(vae.kind)
    if rule is None:
        raise NotFound(f"{vae.name}: no rule is known for the VAE class {vae.kind or '(none is named)'}")
    return rule(vae)


def _image(vae: ModelFile) -> Compression:
    """``2 ** (len(block_out_channels) - 1)``: pipelines/flux/pipeline_flux.py:208 and those of its kind."""
    return 1, 2 ** (vae.length("block_out_channels") - 1)


def _wan(vae: ModelFile) -> Compression:
    """``scale_factor_*`` (autoencoder_kl_wan.py:980); files older than these keys tell it by the layers that halve."""
    if vae.has("scale_factor_temporal") and vae.has("scale_factor_spatial"):
        return vae.count("scale_factor_temporal"), vae.count("scale_factor_spatial")
    return _halving(vae)


def _halving(vae: ModelFile) -> Compression:
    """``temperal_downsample``: every entry halves the sides, every true one the frames (autoencoder_kl_wan.py:578-582).

    Raises :class:`NotFound`.
    """
    halved = vae.counts("temperal_downsample")
    return 2 ** sum(map(bool, halved)), 2 ** len(halved)


def _stated(vae: ModelFile) -> Compression:
    """``*_compression_ratio`` as the file has them (autoencoder_kl_hunyuan_video.py:637-660)."""
    return vae.count("temporal_compression_ratio"), vae.count("spatial_compression_ratio")


def _ltx(vae: ModelFile) -> Compression:
    """The stated ratios, else patch × 2 for each layer that scales (autoencoder_kl_ltx.py:1145-1154)."""
    if vae.has("spatial_compression_ratio") and vae.has("temporal_compression_ratio"):
        return _stated(vae)
    halved = 2 ** sum(map(bool, vae.counts("spatio_temporal_scaling")))
    return vae.count("patch_size_t") * halved, vae.count("patch_size") * halved


def _cogvideo(vae: ModelFile) -> Compression:
    """pipelines/cogvideo/pipeline_cogvideox.py:192-197."""
    return vae.count("temporal_compression_ratio"), _image(vae)[1]


def _mochi(vae: ModelFile) -> Compression:
    """The product of the expansions (autoencoder_kl_mochi.py:746-747)."""
    return math.prod(vae.counts("temporal_expansions")), math.prod(vae.counts("spatial_expansions"))


def _deep(vae: ModelFile) -> Compression:
    """``2 ** (len(encoder_block_out_channels) - 1)`` (autoencoder_dc.py:483)."""
    return 1, 2 ** (vae.length("encoder_block_out_channels") - 1)


_RULES: Mapping[str, Callable[[ModelFile], Compression]] = {
    "AutoencoderKL": _image,
    "AutoencoderKLFlux2": _image,
    "AutoencoderKLWan": _wan,
    "AutoencoderKLQwenImage": _halving,
    "AutoencoderKLHunyuanVideo": _stated,
    "AutoencoderKLLTXVideo": _ltx,
    "AutoencoderKLCogVideoX": _cogvideo,
    "AutoencoderKLMochi": _mochi,
    "AutoencoderDC": _deep,
}
