"""Two fused operators of sgl-kernel in plain torch: Wan's layer norms on a CPU call them (SGLang 0.5.23,
``multimodal_gen/runtime/layers/layernorm.py:863`` and ``:1019``).

The package sgl-kernel has no build without CUDA. Where it is installed all the same, its operators stay.
"""

import torch

_WEIGHTS = "Tensor? weight, Tensor? bias, Tensor scale, Tensor shift, str norm_type, float eps"
_NORM = "fused_norm_scale_shift_cpu"
_RESIDUAL_NORM = "fused_scale_residual_norm_scale_shift_cpu"
_library = torch.library.Library("sgl_kernel", "FRAGMENT")


def register():
    """Define the operators that are missing; SGLang calls this once in each of its processes."""
    if not hasattr(torch.ops.sgl_kernel, _NORM):
        _library.define(f"{_NORM}(Tensor x, {_WEIGHTS}) -> Tensor")
        _library.impl(_NORM, norm_scale_shift, "CompositeExplicitAutograd")
    if not hasattr(torch.ops.sgl_kernel, _RESIDUAL_NORM):
        _library.define(f"{_RESIDUAL_NORM}(Tensor residual, Tensor x, Tensor? gate, {_WEIGHTS}) -> (Tensor, Tensor)")
        _library.impl(_RESIDUAL_NORM, residual_norm_scale_shift, "CompositeExplicitAutograd")


def norm_scale_shift(x, weight, bias, scale, shift, norm_type, eps):
    """``norm(x) * (1 + scale) + shift``, computed in single precision and returned as ``x`` came."""
    values = x.float()
    weight, bias = (None if part is None else part.float() for part in (weight, bias))
    if norm_type == "layer":
        normed = torch.nn.functional.layer_norm(values, values.shape[-1:], weight, bias, eps)
    else:
        normed = torch.nn.functional.rms_norm(values, values.shape[-1:], weight, eps)
    return (normed * (1 + scale.float()) + shift.float()).to(x.dtype)


def residual_norm_scale_shift(residual, x, gate, weight, bias, scale, shift, norm_type, eps):
    """The residual sum ``residual + gate * x``, normed, scaled and shifted, and the sum itself."""
    total = residual.float() + (x.float() if gate is None else gate.float() * x.float())
    normed = norm_scale_shift(total, weight, bias, scale, shift, norm_type, eps)
    return normed.to(x.dtype), total.to(residual.dtype)
