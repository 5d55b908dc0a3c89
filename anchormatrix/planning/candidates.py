"""The candidate forms of a size, why each other form is excluded and who says so, and whether a fair pair is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from anchormatrix.engines.base import EngineLimits, EngineRule
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.things import ModelSettings

_DEGREES = ("tp", "usp", "ring", "ag", "cfg", "pp")
_MODEL, _CONFIGURATION = "model", "configuration"
Refusal = Callable[[Form], str | None]
_Broken = tuple[str, str]  # the rule with its numbers, and whose rule it is


@dataclass(frozen=True)
class Excluded:
    """A form that is not a candidate, with the reason a person can check and the source of the rule."""

    form: Form
    reason: str
    source: str


@dataclass(frozen=True)
class Candidates:
    """The candidates of one size and what was excluded, both in the order they were looked at."""

    size: int
    forms: tuple[Form, ...]
    excluded: tuple[Excluded, ...]


def check(
    form: Form, model: ModelSettings, limits: EngineLimits | None = None, *, size: int | None = None
) -> Excluded | None:
    """Return the form with the first rule that it breaks on this model and engine, or None.

    What is arithmetic of the model is the model's rule; what could be padded, repeated or combined is the engine's,
    and holds only as far as the engine declares it.
    """
    limits = limits or EngineLimits()
    broken = (
        _offered(form, limits, size)
        or _tensor(form, model, limits)
        or _heads(form, model, limits)
        or _sequence(form, model, limits)
        or _ring(form, model, limits)
        or _branches(form, model)
        or _masking(form, model)
    )
    return Excluded(form, *broken) if broken else None


_LONG = {
    "tp": "tensor",
    "usp": "Ulysses",
    "ring": "ring",
    "ag": "all-gather-KV",
    "cfg": "CFG",
    "pp": "pipeline",
}


def _offered(form: Form, limits: EngineLimits, size: int | None) -> _Broken | None:
    if size is not None and form.cards != size:
        return f"needs {form.cards} cards, not {size}", _CONFIGURATION
    for name, degree in form.degrees.items():
        if degree > 1 and name not in limits.degrees:
            rule = EngineRule.PIPELINE if name == "pp" else EngineRule.DEGREES
            return f"the engine offers no {_LONG[name]} parallelism ({name}{degree})", limits.source(rule)
    if form.ring > 1 and form.ag > 1:
        return "ring and all-gather-KV both move K and V; only one of them can be active", limits.source(EngineRule.AG)
    if form.usp > 1 and form.ag > 1 and not limits.ag_with_ulysses:
        return "all-gather-KV is not combined with Ulysses", limits.source(EngineRule.AG)
    return None


def _tensor(form: Form, model: ModelSettings, limits: EngineLimits) -> _Broken | None:
    source = limits.source(EngineRule.TENSOR)
    if model.heads % form.tp:
        return f"{model.heads} heads are not divisible by tp {form.tp}", source
    if model.kv_head_count % form.tp and form.tp % model.kv_head_count:
        return f"{model.kv_head_count} KV heads can neither be divided among nor repeated over tp {form.tp}", source
    if model.ffn_dim is not None and model.ffn_dim % form.tp:
        return f"FFN width {model.ffn_dim} is not divisible by tp {form.tp}", source
    if form.pp > model.layers:
        return f"{model.layers} layers are fewer than pp {form.pp}", _MODEL
    return None


def _heads(form: Form, model: ModelSettings, limits: EngineLimits) -> _Broken | None:
    if limits.pads_heads:
        return None
    local, source = model.heads // form.tp, limits.source(EngineRule.HEADS)
    if local % form.usp:
        return f"(heads ÷ tp) % usp must be 0: ({model.heads} ÷ {form.tp}) % {form.usp} = {local % form.usp}", source
    local_kv = max(model.kv_head_count // form.tp, 1)
    if local_kv % form.usp:
        return f"{local_kv} KV heads per tensor rank cannot be divided among usp {form.usp}", source
    return None


def _sequence(form: Form, model: ModelSettings, limits: EngineLimits) -> _Broken | None:
    degree, block = form.sequence_degree, model.sparse_block
    rest = model.sequence_tokens % degree
    if rest and not (limits.pads_sequence and form.ring == 1):
        padding = " and padding needs a mask, which ring attention does not take" if limits.pads_sequence else ""
        text = f"{model.sequence_tokens} tokens are not divisible by the sequence degree {degree}{padding}"
        return text, limits.source(EngineRule.SEQUENCE)
    if block is not None and model.sequence_tokens % (degree * block):
        rest = model.sequence_tokens % (degree * block)
        text = f"S % (sequence degree × block) must be 0: {model.sequence_tokens} % ({degree} × {block}) = {rest}"
        return text, _MODEL
    return None


def _ring(form: Form, model: ModelSettings, limits: EngineLimits) -> _Broken | None:
    if form.ring > 1 and model.attention_mask and not limits.ring_with_mask:
        return "ring attention does not support attention masks here", limits.source(EngineRule.RING)
    if form.ring > 1 and model.sparse_block is not None and not limits.ring_with_sparse:
        text = "ring attention goes round the sparse attention backend: sparsity would silently not apply"
        return text, limits.source(EngineRule.RING)
    return None


def _branches(form: Form, model: ModelSettings) -> _Broken | None:
    if form.cfg == 1:
        return None
    if model.guidance_branches < 2:
        return "CFG parallelism needs guidance with two branches; this workload has one", _MODEL
    if form.cfg > model.guidance_branches:
        return f"{model.guidance_branches} guidance branches cannot be shared by cfg {form.cfg}", _MODEL
    return None


def _masking(form: Form, model: ModelSettings) -> _Broken | None:
    if form.mask_chunks == 1:
        return None
    if form.usp * form.ag == 1:
        text = "communication masking needs a sequence-parallel collective to mask (Ulysses or all-gather-KV)"
        return text, _CONFIGURATION
    if form.ring > 1:
        text = "chunked masking is not defined with ring attention, which overlaps its own transfers"
        return text, _CONFIGURATION
    local = local_heads(form, model)
    if local % form.mask_chunks:
        usable = mask_chunks(form, model, form.mask_chunks)
        text = f"{form.mask_chunks} chunks do not divide the {local} local heads; the largest that does is {usable}"
        return text, _MODEL
    return None


def local_heads(form: Form, model: ModelSettings) -> int:
    """Heads that can be cut into chunks on one rank: heads ÷ (tp × usp), or its KV heads where those are fewer.

    A chunk of query heads needs its own KV heads beside it.
    """
    return min(model.heads, max(model.kv_head_count, form.tp * form.usp)) // (form.tp * form.usp)


def forwards_per_step(form: Form, model: ModelSettings) -> int:
    """How many forwards of the transformer one rank does in a step: guidance branches are dealt out whole."""
    return -(-model.guidance_branches // form.cfg)


def mask_chunks(form: Form, model: ModelSettings, requested: int) -> int:
    """The chunks masking can really use: the largest divisor of the local heads that is not above ``requested``."""
    local = local_heads(form, model)
    return max(n for n in range(1, max(1, min(requested, local)) + 1) if local % n == 0)


def splits(size: int, degrees: Sequence[str] = _DEGREES) -> Iterator[Form]:
    """Every form without features whose degrees multiply to ``size``; pure Ulysses first, then by rising tp."""
    found = [_form(dict(zip(degrees, factors, strict=True))) for factors in _factorisations(size, len(degrees))]
    yield from sorted(found, key=lambda form: (form.tp, form.pp, form.ring, form.ag, form.cfg, form.usp))


def _form(degrees: Mapping[str, Any]) -> Form:
    return Form(**degrees)


def _factorisations(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (size,)
        return
    for factor in (n for n in range(1, size + 1) if size % n == 0):
        for rest in _factorisations(size // factor, parts - 1):
            yield (factor, *rest)


def enumerate_forms(
    model: ModelSettings,
    size: int,
    limits: EngineLimits | None = None,
    *,
    chunks: Sequence[int] = (1,),
    refusal: Refusal | None = None,
) -> Candidates:
    """Return every form of ``size`` cards that the model and engine allow (``forms: auto``), and the others with why.

    ``refusal`` is the engine's own word on a form. Masked variants are added for the ``chunks`` worth trying (1: off);
    a count that does not divide the local heads becomes the largest divisor below it.
    """
    plain = list(splits(size))
    masked = [
        replace(form, mask_chunks=usable)
        for form in plain
        if check(form, model, limits) is None and form.usp * form.ag > 1 and form.ring == 1
        for usable in sorted({mask_chunks(form, model, n) for n in chunks} - {1})
    ]
    return judge([*plain, *masked], model, size, limits, refusal=refusal)


def explicit_forms(
    names: Iterable[str],
    model: ModelSettings,
    size: int,
    limits: EngineLimits | None = None,
    *,
    refusal: Refusal | None = None,
) -> Candidates:
    """Check a configured list of forms by the same rules as :func:`enumerate_forms`, keeping its order."""
    return judge([parse_form(name) for name in names], model, size, limits, refusal=refusal)


def judge(
    forms: Iterable[Form],
    model: ModelSettings,
    size: int,
    limits: EngineLimits | None = None,
    *,
    refusal: Refusal | None = None,
) -> Candidates:
    """Sort forms into candidates and excluded."""
    limits = limits or EngineLimits()
    good: list[Form] = []
    bad: list[Excluded] = []
    for form in dict.fromkeys(forms):
        broken = check(form, model, limits, size=size)
        said = refusal(form) if refusal and broken is None else None
        if said is not None:
            broken = Excluded(form, said, limits.release)
        if broken is None:
            good.append(form)
        else:
            bad.append(broken)
    return Candidates(size, tuple(good), tuple(bad))


def same_size_pair(forms: Iterable[Form]) -> tuple[Form, Form] | None:
    """Return the pair of one size that differs in its split: pure Ulysses against tp2 where possible.

    Two forms that differ only in features (offload, masking) are not a pair: their split is the same.
    """
    pairs = [(a, b) for a, b in combinations(forms, 2) if a.split != b.split and a.cards == b.cards]
    if not pairs:
        return None
    return min(pairs, key=lambda pair: -sum(_pair_rank(form) for form in pair))


def _pair_rank(form: Form) -> int:
    pure = form.usp == form.cards
    half = form.tp == 2 and form.usp * 2 == form.cards
    return 2 * (pure or half) + (form.offload == "") + (form.mask_chunks == 1)


def pair_statement(size: int, forms: Sequence[Form], excluded: Mapping[str, str] | None = None) -> str:
    """One sentence: which same-size pair the matrix rests on, or why there is none and what then holds.

    ``excluded`` maps the names of forms that were tried and could not run to their reasons.
    """
    pair = same_size_pair(forms)
    if pair:
        return f"{size} cards: {pair[0]} against {pair[1]} is the same-size pair."
    reasons = "; ".join(f"{name}: {reason}" for name, reason in (excluded or {}).items())
    cause = reasons or ("no form can run" if not forms else f"only the split of {forms[0]} is possible")
    return (
        f"{size} cards: the same-size pair is missing ({cause}). Form comparisons rest on the next size; "
        "numbers of different card counts are scaling statements, not form comparisons."
    )
