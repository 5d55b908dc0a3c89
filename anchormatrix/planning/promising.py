"""The most promising forms of a size, where not all are to be measured: judged before any run, from the model alone.

The forms of a size share the same computing; they differ in what waits for it and in what they send. First come forms
that need no offload; of these, forms without pipeline stages, which idle while others compute; of these, the best of
each way to split (by heads, sequence and guidance), those that send less first. A rank's bytes of one denoise step are
those of its collectives (:mod:`anchormatrix.planning.collective_calls`) over all layers and over the guidance branches
that it computes. That is no measurement: links, overlap and kernels may say otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil

from anchormatrix.planning.candidates import Candidates, Excluded
from anchormatrix.planning.collective_calls import collectives
from anchormatrix.records.form import Form
from anchormatrix.records.plan import ContractPlan
from anchormatrix.records.settings.things import ModelSettings

SOURCE = "matrix.most_forms"


def sent_gb(form: Form, model: ModelSettings) -> float:
    """GB (10⁹ bytes) that one rank puts on the wire in a denoise step."""
    of_layer = sum(sum(call.bytes_to_peers(0).values()) for call in collectives(form, model))
    return of_layer * ceil(model.layers / form.pp) * model.guidance_branches / form.cfg / 1e9


def idle_share(form: Form, model: ModelSettings) -> float:
    """The share of a step that a rank waits for other stages: (stages − 1) ÷ (stages − 1 + branches in turn)."""
    return (form.pp - 1) / (form.pp - 1 + model.guidance_branches / form.cfg)


def by_promise(forms: Sequence[Form], model: ModelSettings) -> list[Form]:
    """The forms, most promising first; among equals in the order they are given."""
    least = sorted(forms, key=lambda form: (bool(form.offload), sent_gb(form, model)))
    number = dict(_numbered(least))
    return sorted(least, key=lambda form: (bool(form.offload), idle_share(form, model), number[form]))


def keep_promising(found: Candidates, model: ModelSettings, most: int | None) -> Candidates:
    """At most so many forms, in their order; the others are excluded with their place. ``None`` keeps all."""
    if most is None or len(found.forms) <= most:
        return found
    ranked = by_promise(found.forms, model)
    kept = set(ranked[:most])
    out = [Excluded(form, _why(form, place, ranked, model), SOURCE) for place, form in enumerate(ranked, 1)]
    left = tuple(one for one in out if one.form not in kept)
    return Candidates(found.size, tuple(form for form in found.forms if form in kept), (*found.excluded, *left))


def _numbered(forms: Sequence[Form]) -> Iterator[tuple[Form, int]]:
    """Every form with how many before it split the same things: heads, sequence, guidance and layers as often."""
    seen: Counter[tuple[int, int, int, int, str]] = Counter()
    for form in forms:
        kind = (form.tp, form.sequence_degree, form.cfg, form.pp, form.offload)
        yield form, seen[kind]
        seen[kind] += 1


def _why(form: Form, place: int, ranked: Sequence[Form], model: ModelSettings) -> str:
    waits = f" and wait {100 * idle_share(form, model):.0f} % of it" if form.pp > 1 else ""
    return (
        f"number {place} of {len(ranked)} by promise: a rank would send {sent_gb(form, model):.1f} GB a step{waits};"
        " matrix.most_forms: null measures all"
    )


def left_out_words(planned: ContractPlan) -> str:
    """How many possible forms of a size are not measured for want of promise; empty when all are."""
    left = [out for out in planned.excluded if out.source == SOURCE]
    if not left:
        return ""
    measured, all_forms = len(planned.forms), len(planned.forms) + len(left)
    next_ones = ", ".join(out.form for out in left[:3])
    return (
        f"{measured} of {all_forms} possible forms are measured, the most promising ({', '.join(planned.forms)}); next"
        f" would come {next_ones}; matrix.most_forms: null measures all"
    )
