"""Attention kernels for ring parallelism, which has to merge partial results by their log-sum-exp."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_RING_BACKENDS = {"cuda": "_native_flash", "npu": "_native_npu"}


def use_ring_backend(transformer: Any, device: torch.device) -> None:
    """Choose an attention backend that returns the log-sum-exp.

    diffusers' default one does not. On a CPU torch has a fused kernel that does, which diffusers does not offer: it is
    registered here in the place of the default, for this process only.
    """
    if device.type == "cpu":
        _register_cpu_kernel()
    else:
        transformer.set_attention_backend(_RING_BACKENDS[device.type])


def _register_cpu_kernel() -> None:
    from diffusers.models import attention_dispatch as library  # noqa: PLC0415

    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None,
        dropout_p: float,
        is_causal: bool,
        scale: float | None,
        enable_gqa: bool,
        return_lse: bool,
        **_: Any,
    ) -> Any:
        if enable_gqa:
            raise ValueError("the CPU flash attention kernel does not take grouped keys and values")
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *(part.transpose(1, 2) for part in (query, key, value)),
            dropout_p,
            is_causal,
            attn_mask=attn_mask,
            scale=scale,
        )
        out = out.transpose(1, 2)
        return (out, lse.transpose(1, 2)) if return_lse else out

    @library._AttentionBackendRegistry.register(
        library.AttentionBackendName.NATIVE, constraints=[], supports_context_parallel=True
    )
    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
        _parallel_config: Any = None,
    ) -> Any:
        options = (attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse)
        if _parallel_config is None:
            return forward(None, query, key, value, *options)
        return library._templated_context_parallel_attention(
            query,
            key,
            value,
            *options,
            forward_op=forward,
            backward_op=library._native_attention_backward_op,
            _parallel_config=_parallel_config,
        )
