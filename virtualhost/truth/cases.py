"""Named attribution cases: small models whose profiles show one thing each, with the truth of all of it.

>>> timeline, truth = build_case("reverse_exposed")
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from virtualhost.host.model import Behaviour, DiT, Fabric, HostModel, LinkClass
from virtualhost.host.split import Split
from virtualhost.step.timeline import StepTimeline, simulate_step
from virtualhost.truth.audit import audit
from virtualhost.truth.brute_force import timeline_truth

QUAD, PAIR, ALL = (0, 1, 2, 3), (0, 1), tuple(range(8))
SMALL = DiT(layers=6, heads=24, kv_heads=24, sequence_tokens=16384, ffn_dim=8192, weights_gb=4.0, guidance_branches=1)
QUADS = ((0, 1, 2, 3), (4, 5, 6, 7))
JITTER = 0.06  # no two layers and ranks alike, so mean, median and longest call differ


@dataclass(frozen=True)
class Case:
    """One case: what it shows, and how its step is made. ``fault`` strikes the all-to-all's transport."""

    shows: str
    split: Split
    cards: tuple[int, ...] = QUAD
    dit: DiT = SMALL
    behaviour: Behaviour = field(default_factory=Behaviour)
    fast_gbs: float = 60.0
    fault: str | None = None

    def timeline(self) -> StepTimeline:
        """Simulate the case's step."""
        fabric = Fabric.of_domains(QUADS, fast=LinkClass("UB", self.fast_gbs, 20.0))
        model = HostModel(dit=self.dit, fabric=fabric, behaviour=replace(self.behaviour, jitter=JITTER))
        return simulate_step(model, self.split, self.cards)


_MASKED = Split(usp=4, mask_chunks=3)
CASES: dict[str, Case] = {
    "unmasked": Case("every all-to-all is exposed", Split(usp=4)),
    "masked": Case("chunks of heads hide the all-to-all under attention", _MASKED, fast_gbs=30.0),
    "masked_slow_links": Case("transfers longer than attention: more chunks would not help", _MASKED, fast_gbs=8.0),
    "reverse_exposed": Case(
        "all forward chunks before the first reverse one",
        _MASKED,
        behaviour=Behaviour(reverse_after_forward=True),
        fast_gbs=16.0,
    ),
    "two_communicators": Case("all-to-all and all-gather run at once", Split(usp=2, ag=2, mask_chunks=4)),
    "offload_gather": Case(
        "weights are gathered in the same group as K and V", Split(ag=4, offload="distributed-layerwise-offload")
    ),
    "layerwise_offload": Case(
        "copies from the host delay the layers",
        Split(usp=4, offload="layerwise-offload"),
        dit=replace(SMALL, weights_gb=9),
    ),
    "leaked_transforms": Case(
        "AI-core work on the masking stream", _MASKED, behaviour=Behaviour(leaked_transforms=True)
    ),
    "alltoallv": Case("the unequal all-to-all is in use", Split(usp=4), behaviour=Behaviour(uneven_alltoall=0.2)),
    "tensor_parallel": Case("all-reduces after every row-parallel product", Split(tp=4)),
    "tensor_parallel_overlapped": Case(
        "half of the all-reduces under the next product",
        Split(tp=2),
        PAIR,
        behaviour=Behaviour(overlap_tensor_parallel=True),
    ),
    "tensor_and_ulysses": Case("two kinds of communicators in a layer", Split(tp=2, usp=2)),
    "ring": Case("K and V travel round the ring under attention", Split(ring=4)),
    "allgather_kv": Case("every rank gathers all K and V", Split(ag=4)),
    "pipeline": Case(
        "half of the layers each, two branches in flight", Split(pp=2, usp=2), dit=replace(SMALL, guidance_branches=2)
    ),
    "cfg": Case(
        "a guidance branch each, one exchange at the end", Split(cfg=2, usp=2), dit=replace(SMALL, guidance_branches=2)
    ),
    "gqa": Case("K and V have a third of the heads", Split(usp=4), dit=replace(SMALL, kv_heads=8)),
    "straggler": Case(
        "the others wait for card 2 inside their collectives", Split(usp=4), behaviour=Behaviour(slow_cards=((2, 1.2),))
    ),
    "inactive_ulysses": Case(
        "Ulysses was asked for and does nothing", Split(usp=2), PAIR, behaviour=Behaviour(inactive_ulysses=True)
    ),
    "cross_domain": Case("one all-to-all over two domains", Split(usp=8), ALL),
    "transport_faithful": Case("what was sent is what was received", _MASKED),
    "transport_rewritten": Case("a send buffer is overwritten after the launch", _MASKED, fault="rewritten"),
    "transport_placement": Case("received blocks lie in the wrong places", _MASKED, fault="placement"),
    "transport_packing": Case("a rank's own block is packed wrongly", _MASKED, fault="packing"),
    "transport_missing": Case("a rank did not log its legs", _MASKED, fault="missing"),
}


def build_case(name: str) -> tuple[StepTimeline, dict[str, Any]]:
    """Return a case's timeline and its truth (``KeyError`` for an unknown name).

    Of the ``transport_…`` cases the truth holds ``audit_logs`` (lines by rank) and ``audit`` (what they add up to).
    """
    case = CASES[name]
    timeline = case.timeline()
    truth = timeline_truth(timeline)
    if name.startswith("transport_"):
        checked = audit(case.split.world, SMALL.layers, case.split.mask_chunks, fault=case.fault)
        truth |= {"audit_logs": checked.logs, "audit": checked.truth}
    return timeline, truth
