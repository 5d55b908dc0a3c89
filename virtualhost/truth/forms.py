"""The forms that this host can run, by what its engine starts and what fits on its cards: no planner is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from virtualhost.host.scenario import Scenario
from virtualhost.host.split import DEGREES, OFFLOADS, Split, mask_chunks, memory, offload_axis, refusal


def startable(scenario: Scenario, size: int, *, chunks: Sequence[int] = (1,)) -> tuple[Split, ...]:
    """Every form of ``size`` cards that starts, as it fits: without offload, else with the first one that lets it.

    ``chunks`` are the counts of masking chunks to look at; a count that would not take effect as asked is left out.
    """
    found = []
    for split in _splits(size):
        for count in chunks:
            form = replace(split, mask_chunks=count)
            if refusal(scenario.dit, form) is None and mask_chunks(scenario.dit, form) == count:
                found += [variant for variant in variants(form) if fits(scenario, variant)][:1]
    return tuple(found)


def variants(form: Split) -> tuple[Split, ...]:
    """The form without offload and with each kind, distributed only where ranks hold the same weights."""
    offloads = [kind for kind in OFFLOADS if offload_axis(form) or not kind.startswith("distributed")]
    return tuple(replace(form, offload=kind) for kind in offloads)


def fits(scenario: Scenario, form: Split) -> bool:
    """Whether an idle host has the memory, on its cards and of its own."""
    need = memory(scenario.dit, form)
    free = scenario.cards.memory_mb - scenario.cards.driver_memory_mb - 4  # a few MB of difference between cards
    return need.card_gb * 1e9 / 2**20 <= free and need.host_gb * form.world <= scenario.serving.host_memory_gb


def _splits(size: int) -> Iterator[Split]:
    """Every way to write the size as a product of degrees."""
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    for degrees in product(divisors, repeat=len(DEGREES)):
        if prod(degrees) == size:
            tp, usp, ring, ag, pp, cfg = degrees
            yield Split(tp, usp, ring, ag, pp, cfg)
