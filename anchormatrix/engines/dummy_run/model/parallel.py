"""The split of a transformer over the ranks, by the parallel interfaces of diffusers and torch.

Ulysses, ring and their hybrid are diffusers' context parallelism; tensor parallelism is torch's ``parallelize_module``;
the two guidance branches of CFG parallelism are computed on two halves of the ranks and exchanged once per step.
Ranks are laid out (cfg, ring, ulysses, tp), the last one varying fastest, so that the chattiest groups are neighbours.
What the libraries refuse is not worked around: their exception ends the start-up with their own message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from diffusers import ContextParallelConfig
from diffusers.models._modeling_parallel import ParallelConfig
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from anchormatrix.engines.dummy_run.model import attention
from anchormatrix.engines.dummy_run.model.models import ModelSpec

DIMENSIONS = ("cfg", "ring", "ulysses", "tp")


@dataclass(frozen=True)
class Layout:
    """This rank's place: the mesh of all ranks, with one dimension per degree (size 1 where a degree is not used)."""

    mesh: DeviceMesh
    cfg: int
    ring: int
    ulysses: int
    tp: int

    def group(self, name: str) -> dist.ProcessGroup:
        """The process group of one dimension that this rank belongs to."""
        return self.mesh[name].get_group()

    def rank_in(self, name: str) -> int:
        """This rank's index along one dimension."""
        return self.mesh[name].get_local_rank()

    @property
    def sequence_degree(self) -> int:
        """Over how many ranks the sequence is split."""
        return self.ring * self.ulysses


def make_layout(device: torch.device, *, cfg: int, ring: int, ulysses: int, tp: int) -> Layout:
    """Build the mesh; collective over all ranks."""
    mesh = init_device_mesh(device.type, (cfg, ring, ulysses, tp), mesh_dim_names=DIMENSIONS)
    return Layout(mesh, cfg, ring, ulysses, tp)


def split(transformer: nn.Module, spec: ModelSpec, layout: Layout, device: torch.device) -> None:
    """Split the transformer in place; collective. Raises whatever diffusers or torch refuse with."""
    if layout.tp > 1:
        _split_tensors(transformer, spec, layout.mesh["tp"])
    if layout.sequence_degree > 1:
        _split_sequence(transformer, layout, device)


def _split_sequence(transformer: Any, layout: Layout, device: torch.device) -> None:
    if layout.ring > 1:
        attention.use_ring_backend(transformer, device)
    if device.type == "cpu":
        # diffusers numbers the device as rank % accelerator count, which is rank % 0 on a machine without one;
        # the mesh is ours, so all that is left of that step is to record the configuration.
        def resolve(config: ContextParallelConfig) -> ParallelConfig:
            parallel = ParallelConfig(context_parallel_config=config)
            parallel.setup(dist.get_rank(), dist.get_world_size(), device, mesh=layout.mesh)
            transformer._parallel_config = parallel
            return parallel

        transformer._resolve_parallel_config = resolve
    # Wan's plan also splits a timestep per token (2-D). Here one timestep holds for all tokens, which diffusers would
    # warn about through a logger method that only transformers adds.
    plan = {
        name: entry
        for name, entry in transformer._cp_plan.items()
        if not (isinstance(entry, dict) and "timestep" in entry)
    }
    transformer.enable_parallelism(
        config=ContextParallelConfig(ring_degree=layout.ring, ulysses_degree=layout.ulysses, mesh=layout.mesh),
        cp_plan=plan,
    )


def _split_tensors(transformer: Any, spec: ModelSpec, mesh: DeviceMesh) -> None:
    heads = spec.transformer["num_attention_heads"]
    if heads % mesh.size():
        raise ValueError(f"tensor parallel degree {mesh.size()} does not divide the {heads} heads of {spec.name}")
    if transformer._tp_plan is not None:
        from diffusers.hooks import tensor_parallel as library  # noqa: PLC0415

        library.resolve_tp_shard_specs(transformer, transformer._tp_plan, mesh.size())
        for module, plan in library._resolve_tp_plan(transformer, transformer._tp_plan):
            parallelize_module(module, mesh, library._styles(plan))
        return
    for block in transformer.blocks:
        _split_wan_block(block, mesh)


def _split_wan_block(block: Any, mesh: DeviceMesh) -> None:
    """Heads by columns, output by rows; diffusers has no tensor-parallel plan for Wan."""
    plan: dict[str, Any] = {"ffn.net.0.proj": ColwiseParallel(), "ffn.net.2": RowwiseParallel()}
    for name in ("attn1", "attn2"):
        plan |= {f"{name}.to_{part}": ColwiseParallel() for part in "qkv"}
        plan[f"{name}.to_out.0"] = RowwiseParallel()
        layer = getattr(block, name)
        layer.heads //= mesh.size()
        layer.norm_q = HeadSplitRMSNorm(layer.norm_q, mesh)
        layer.norm_k = HeadSplitRMSNorm(layer.norm_k, mesh)
    parallelize_module(block, mesh, plan)


class HeadSplitRMSNorm(nn.Module):
    """Wan normalises queries and keys over all heads: with heads split, the mean square is summed over the ranks."""

    def __init__(self, whole: Any, mesh: DeviceMesh) -> None:
        super().__init__()
        rank, size = mesh.get_local_rank(), mesh.size()
        self.features = whole.weight.numel()
        self.eps = whole.eps
        self.weight = nn.Parameter(whole.weight.detach().chunk(size)[rank].clone(), requires_grad=False)
        self.group = mesh.get_group()

    def forward(self, values: Tensor) -> Tensor:
        wide = values.float()
        squares = wide.square().sum(dim=-1, keepdim=True)
        dist.all_reduce(squares, group=self.group)
        normed: Tensor = (wide * torch.rsqrt(squares / self.features + self.eps)).type_as(values) * self.weight
        return normed
