"""One transformer layer as kernels: what is computed, what is moved, in which order, for one form.

Durations follow from the model's figures: matrix products and attention from their floating-point operations, vector
kernels from the bytes they touch, collectives from the bytes each rank puts on the wire: (w−1)/w of the local tensor
for an all-to-all over w ranks, the own shard to each of w−1 peers for an all-gather, 2(w−1)/w of the tensor for an
all-reduce.
"""

from __future__ import annotations

from dataclasses import replace

from virtualhost.host.model import HostModel
from virtualhost.host.split import Split, exchanged_heads, local_tokens, mask_chunks, offload_axis
from virtualhost.step.simulator import COMPUTE, COPY, Op, Simulator

_VECTOR_FIXED_NS = 2500


class Layer:
    """The kernels of one layer under one form, ready to be issued to a simulator."""

    def __init__(self, sim: Simulator, model: HostModel, split: Split) -> None:
        dit, rates, behaviour = model.dit, model.rates, model.behaviour
        self.sim, self.model, self.split = sim, model, split
        active = replace(split, usp=1) if behaviour.inactive_ulysses else split
        active = replace(split, usp=1, ring=1, ag=1) if behaviour.inactive_sequence else active
        self.active = active
        self.chunks = mask_chunks(dit, active)
        self.tokens = local_tokens(dit, active)
        width = dit.head_dim * dit.bytes_per_value
        heads, kv_heads = dit.heads // split.tp, max(dit.kv_heads // split.tp, 1)
        sent, kv_sent = exchanged_heads(dit, active)
        self.q_bytes, self.kv_bytes = self.tokens * sent * width, self.tokens * kv_sent * width
        self.hidden_bytes = self.tokens * dit.hidden * dit.bytes_per_value
        self.hidden, self.heads, self.kv_heads = dit.hidden, heads, kv_heads
        self._flops_per_ns = rates.matmul_tflops * 1e3
        queries = self.tokens * active.usp
        keys = queries * active.ag
        pairs = queries * keys * (sent // active.usp) * dit.head_dim
        self.attention_ns = round(4 * pairs / (rates.attention_tflops * 1e3))
        self.uneven = behaviour.uneven_alltoall

    def matmul_ns(self, tokens: int, inner: int, columns: int) -> int:
        """Return the time of a (tokens × inner) by (inner × columns) product; narrow ones run below the full rate."""
        slowdown = 1 + self.model.rates.half_width / columns
        return round(2 * tokens * inner * columns * slowdown / self._flops_per_ns)

    def vector_ns(self, touched_bytes: int) -> int:
        """Return the time of a vector kernel that reads and writes so many bytes."""
        return _VECTOR_FIXED_NS + round(touched_bytes / self.model.rates.memory_gbs)

    def vector(self, name: str, touched_bytes: int, core: str = "AI_VECTOR_CORE") -> None:
        """Issue a vector kernel on the compute stream."""
        self.sim.run(self.sim.op(Op(name, name, core, COMPUTE)), self.vector_ns(touched_bytes))

    def matmul(self, inner: int, columns: int, *, tokens: int | None = None, core: str = "AI_CORE") -> None:
        """Issue a matrix product on the compute stream."""
        op = self.sim.op(Op("MatMulV2", "MatMulV2", core, COMPUTE))
        self.sim.run(op, self.matmul_ns(self.tokens if tokens is None else tokens, inner, columns))

    def alltoall(self, local_bytes: int, part: str, after: list[int] | None = None) -> list[int]:
        """Issue one Ulysses all-to-all of a local tensor of so many bytes."""
        family, wire = "alltoall", local_bytes * (self.active.usp - 1) // self.active.usp
        if self.uneven is not None:
            family, wire = "alltoallv", round(wire * (1 + self.uneven))
        return self._collective(family, "usp", wire, part, after)

    def allgather(self, kind: str, shard_bytes: int, part: str, after: list[int] | None = None) -> list[int]:
        """Issue one all-gather: every rank sends its shard to each peer."""
        peers = getattr(self.split, kind) - 1
        return self._collective("allGather", kind, shard_bytes * peers, part, after)

    def allreduce(self, tensor_bytes: int, after: list[int] | None = None) -> list[int]:
        """Issue one all-reduce over the tensor-parallel group."""
        wire = 2 * tensor_bytes * (self.split.tp - 1) // self.split.tp
        return self._collective("allReduce", "tp", wire, "sum", after)

    def _collective(self, family: str, kind: str, wire: int, part: str, after: list[int] | None) -> list[int]:
        op = self.sim.op(Op(family, f"hcom_{family}_", "HCCL", kind, family, part))
        return self.sim.collective(op, kind, wire, after, ring=kind == "ring")

    # --- the layer -----------------------------------------------------------------------------------------------

    def issue(self, weights_ready: list[int] | None, *, prefetch: bool) -> list[int] | None:
        """Issue one layer; return the event of the next layer's weights when they are offloaded."""
        if weights_ready is not None:
            self.sim.wait(weights_ready)
        fetched = self._fetch_weights() if prefetch else None
        self._self_attention()
        self._cross_attention()
        self._mlp()
        return fetched

    def _fetch_weights(self) -> list[int]:
        """Bring the next layer's weights to the card: a copy from the host, or of a shard and an all-gather."""
        axis = offload_axis(self.split) if self.split.offload.startswith("distributed") else ""
        shard = self.model.dit.layer_bytes // self.split.tp // (getattr(self.split, axis) if axis else 1)
        copy = self.sim.op(Op("MEMCPY_ASYNC", "MEMCPY_ASYNC", "COPY", COPY))
        copied = self.sim.run_aside(copy, round(shard / self.model.fabric.host_to_card_gbs), COPY, self.sim.mark())
        return self.allgather(axis, shard, "weights", copied) if axis else copied

    def _self_attention(self) -> None:
        width, d = self.model.dit.head_dim, self.hidden
        self.vector("LayerNormV3", 2 * self.hidden_bytes)
        self.vector("Mul", 2 * self.hidden_bytes, "MIX_AIV")
        for heads in (self.heads, self.kv_heads, self.kv_heads):
            self.matmul(d, heads * width)
        for size in (self.q_bytes, self.kv_bytes):
            self.vector("RmsNorm", 2 * size)
            self.vector("RotaryMul", 2 * size)
        if self.chunks > 1:
            self._masked_attention()
        else:
            self._plain_attention()
        self._row_parallel(self.heads * width, summed=not self.model.dit.parallel_block)
        self.vector("Add", 3 * self.hidden_bytes)

    def _plain_attention(self) -> None:
        sim, inputs = self.sim, None
        if self.active.usp > 1:
            sizes = (self.q_bytes, self.kv_bytes, self.kv_bytes)
            for size in sizes:
                self.vector("Transpose", 2 * size)
            for size in sizes:
                inputs = self.alltoall(size, "forward")
            sim.wait(inputs or [])
            for size in sizes:
                self.vector("Transpose", 2 * size)
        if self.active.ag > 1:
            for _ in ("k", "v"):
                inputs = self.allgather("ag", self.kv_bytes, "gather")
            sim.wait(inputs or [])
            for _ in ("k", "v"):
                self.vector("ConcatD", 2 * self.kv_bytes * self.active.ag)
        if self.active.ring > 1:
            self._ring_attention()
        else:
            self._attention(self.attention_ns, inputs)
        if self.active.usp > 1:
            self.vector("Transpose", 2 * self.q_bytes)
            sim.wait(self.alltoall(self.q_bytes, "reverse"))
            self.vector("Transpose", 2 * self.q_bytes)

    def _attention(self, dur_ns: int, inputs: list[int] | None) -> None:
        op = Op("FlashAttentionScore", "FlashAttentionScore", "MIX_AIC", COMPUTE, attention=True)
        self.sim.run(self.sim.op(op), dur_ns, inputs=inputs, track_input=inputs is not None)

    def _ring_attention(self) -> None:
        """Attend to one shard of K and V per turn while the next one arrives from the neighbour."""
        arrived = None
        for turn in range(self.active.ring):
            inputs = arrived
            if turn < self.active.ring - 1:
                ready = self.sim.mark() if inputs is None else inputs
                arrived = self._collective("batchSendRecv", "ring", 2 * self.kv_bytes, "ring", ready)
            self._attention(self.attention_ns, inputs)
            if turn:
                self.vector("Muls", 8 * self.q_bytes)  # merge with the running softmax, in float32

    def _masked_attention(self) -> None:
        """Attention in chunks of heads, collectives on their own stream under the attention of other chunks.

        One communicator's calls go out before another's: interleaving two communicators can hang the library.
        """
        n, two = self.chunks, self.active.ag > 1
        after_all = two or self.model.behaviour.reverse_after_forward
        self.vector("Transpose", 2 * (self.q_bytes + 2 * self.kv_bytes))  # chunk index outermost, once
        packed = self.sim.mark()
        inputs = [self._forward(packed) for _ in range(n if after_all else 1)] if self.active.usp > 1 else [packed] * n
        if two:
            inputs = [self._gather_chunk(event) for event in inputs]
        attended: list[list[int]] = []
        reverse: list[int] = packed
        for chunk in range(n):
            if not after_all and chunk + 1 < n:
                inputs.append(self._forward(packed))
            if not self.model.behaviour.leaked_transforms:
                self.sim.wait(inputs[chunk])
                self.vector("Transpose", 2 * (self.q_bytes + 2 * self.kv_bytes) // n)
            self._attention(self.attention_ns // n, inputs[chunk])
            attended.append(self.sim.mark())
            if not after_all and self.active.usp > 1:
                reverse = self.alltoall(self.q_bytes // n, "reverse", attended[chunk])
        if after_all and self.active.usp > 1:
            for event in attended if two else attended[-1:] * n:
                reverse = self.alltoall(self.q_bytes // n, "reverse", event)
        self.sim.wait(reverse)
        self.vector("Transpose", 2 * self.q_bytes)

    def _forward(self, packed: list[int]) -> list[int]:
        """Issue the forward all-to-all of one chunk (q, k, v); with leaked transforms also their unpacking, which
        materialises what a view would do on the compute stream."""
        n = self.chunks
        done = packed
        for size in (self.q_bytes, self.kv_bytes, self.kv_bytes):
            done = self.alltoall(size // n, "forward", packed)
        if self.model.behaviour.leaked_transforms:
            op = self.sim.op(Op("Transpose", "Transpose", "AI_VECTOR_CORE", "usp"))
            done = self.sim.run_aside(op, self.vector_ns(6 * (self.q_bytes + 2 * self.kv_bytes) // n), "usp", done)
        return done

    def _gather_chunk(self, after: list[int]) -> list[int]:
        for _ in ("k", "v"):
            done = self.allgather("ag", self.kv_bytes // self.chunks, "gather", after)
        return done

    def _cross_attention(self) -> None:
        """Attention to the text; its keys are few, so nothing of it is exchanged between sequence ranks."""
        dit = self.model.dit
        columns = self.heads * dit.head_dim
        self.vector("LayerNormV3", 2 * self.hidden_bytes)
        self.matmul(self.hidden, columns)
        self.matmul(self.hidden, 2 * columns, tokens=dit.text_tokens)
        self.vector("RmsNorm", 2 * self.tokens * columns * dit.bytes_per_value)
        self.matmul(columns, dit.text_tokens, core="MIX_AIC")
        self.vector("SoftmaxV2", 2 * self.tokens * self.heads * dit.text_tokens * dit.bytes_per_value)
        self.matmul(dit.text_tokens, columns, core="MIX_AIC")
        self._row_parallel(columns)
        self.vector("Add", 3 * self.hidden_bytes)

    def _mlp(self) -> None:
        inner = self.model.dit.ffn_dim // self.split.tp
        self.vector("LayerNormV3", 2 * self.hidden_bytes)
        self.matmul(self.hidden, inner)
        self.vector("Gelu", 2 * self.tokens * inner * self.model.dit.bytes_per_value)
        self._row_parallel(inner)
        self.vector("Add", 3 * self.hidden_bytes)

    def _row_parallel(self, inner: int, *, summed: bool = True) -> None:
        """A product whose inner dimension is split over the tensor-parallel group, and the sum of its parts."""
        if self.split.tp > 1 and summed and self.model.behaviour.overlap_tensor_parallel:
            halves = (self.tokens // 2, self.tokens - self.tokens // 2)
            for tokens in halves:
                self.matmul(inner, self.hidden, tokens=tokens)
                last = self.allreduce(tokens * self.hidden * self.model.dit.bytes_per_value)
            self.sim.wait(last)
            return
        self.matmul(inner, self.hidden)
        if self.split.tp > 1 and summed:
            self.sim.wait(self.allreduce(self.hidden_bytes))
