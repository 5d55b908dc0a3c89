"""The candidate forms of a size, why each other form is excluded, and whether a fair pair is among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.things import ModelSettings

_DEGREES = ("tp", "usp", "ring", "ag", "cfg", "pp")
Refusal = Callable[[Form], str | None]


@dataclass(frozen=True)
class EngineLimits:
    """What the engine can split, whatever the model would allow.

    ``degrees`` are the kinds of parallelism it offers; ``ring_with_mask`` and ``ring_with_sparse`` say whether its ring
    attention honours attention masks and the sparse backend (most do neither: the ring path goes round the attention
    backend); ``mask_chunks`` are the chunk counts of communication masking worth trying (1: off).
    """

    degrees: tuple[str, ...] = ("tp", "usp", "ring", "ag", "cfg")
    ring_with_mask: bool = False
    ring_with_sparse: bool = False
    mask_chunks: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Excluded:
    """A form that is not a candidate, with the reason a person can check."""

    form: Form
    reason: str


@dataclass(frozen=True)
class Candidates:
    """The candidates of one size and what was excluded, both in the order they were looked at."""

    size: int
    forms: tuple[Form, ...]
    excluded: tuple[Excluded, ...]


def check(
    form: Form, model: ModelSettings, limits: EngineLimits | None = None, *, size: int | None = None
) -> str | None:
    """Return why the form cannot run on this model and engine, or None.

    The first broken rule is named with its numbers. Rules: world size; heads, KV heads and FFN width divisible by tp;
    (heads ÷ tp) % usp = 0; sequence divisible by the sequence degree, and by degree × block with sparse attention;
    layers divisible by pp; no more CFG ranks than guidance branches; ring without attention masks and without sparse
    attention; chunks of masking divide the local heads.
    """
    limits = limits or EngineLimits()
    if size is not None and form.cards != size:
        return f"needs {form.cards} cards, not {size}"
    for name, degree in form.degrees.items():
        if degree > 1 and name not in limits.degrees:
            return f"the engine offers no {_LONG[name]} parallelism ({name}{degree})"
    return _tensor(form, model) or _sequence(form, model, limits) or _branches(form, model) or _masking(form, model)


_LONG = {
    "tp": "tensor",
    "usp": "Ulysses",
    "ring": "ring",
    "ag": "all-gather-KV",
    "cfg": "CFG",
    "pp": "pipeline",
}


def _tensor(form: Form, model: ModelSettings) -> str | None:
    if model.heads % form.tp:
        return f"{model.heads} heads are not divisible by tp {form.tp}"
    if not _divides_or_repeats(model.kv_head_count, form.tp):
        return f"{model.kv_head_count} KV heads can neither be divided among nor repeated over tp {form.tp}"
    if model.ffn_dim is not None and model.ffn_dim % form.tp:
        return f"FFN width {model.ffn_dim} is not divisible by tp {form.tp}"
    local = model.heads // form.tp
    if local % form.usp:
        return f"(heads ÷ tp) % usp must be 0: ({model.heads} ÷ {form.tp}) % {form.usp} = {local % form.usp}"
    local_kv = max(model.kv_head_count // form.tp, 1)
    if not _divides_or_repeats(local_kv, form.usp):
        return f"{local_kv} KV heads per tensor rank can neither be divided among nor repeated over usp {form.usp}"
    if model.layers % form.pp:
        return f"{model.layers} layers are not divisible by pp {form.pp}"
    return None


def _divides_or_repeats(kv_heads: int, ranks: int) -> bool:
    return kv_heads % ranks == 0 or ranks % kv_heads == 0


def _sequence(form: Form, model: ModelSettings, limits: EngineLimits) -> str | None:
    degree = form.sequence_degree
    if model.sequence_tokens % degree:
        return f"{model.sequence_tokens} tokens are not divisible by the sequence degree {degree}"
    if form.ring > 1 and form.ag > 1:
        return "ring and all-gather-KV both move K and V; only one of them can be active"
    if form.ring > 1 and model.attention_mask and not limits.ring_with_mask:
        return "ring attention does not support attention masks here"
    block = model.sparse_block
    if block is None:
        return None
    if form.ring > 1 and not limits.ring_with_sparse:
        return "ring attention goes round the sparse attention backend: sparsity would silently not apply"
    if model.sequence_tokens % (degree * block):
        rest = model.sequence_tokens % (degree * block)
        return f"S % (sequence degree × block) must be 0: {model.sequence_tokens} % ({degree} × {block}) = {rest}"
    return None


def _branches(form: Form, model: ModelSettings) -> str | None:
    if form.cfg == 1:
        return None
    if model.guidance_branches < 2:
        return "CFG parallelism needs guidance with two branches; this workload has one"
    if form.cfg > model.guidance_branches or model.guidance_branches % form.cfg:
        return f"{model.guidance_branches} guidance branches cannot be shared by cfg {form.cfg}"
    return None


def _masking(form: Form, model: ModelSettings) -> str | None:
    if form.mask_chunks == 1:
        return None
    if form.usp * form.ag == 1:
        return "communication masking needs a sequence-parallel collective to mask (Ulysses or all-gather-KV)"
    if form.ring > 1:
        return "chunked masking is not defined with ring attention, which overlaps its own transfers"
    local = local_heads(form, model)
    if local % form.mask_chunks:
        usable = mask_chunks(form, model, form.mask_chunks)
        return f"{form.mask_chunks} chunks do not divide the {local} local heads; the largest that does is {usable}"
    return None


def local_heads(form: Form, model: ModelSettings) -> int:
    """Heads that can be cut into chunks on one rank: heads ÷ (tp × usp), or its KV heads where those are fewer.

    A chunk of query heads needs its own KV heads beside it.
    """
    return min(model.heads, max(model.kv_head_count, form.tp * form.usp)) // (form.tp * form.usp)


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
    model: ModelSettings, size: int, limits: EngineLimits | None = None, *, refusal: Refusal | None = None
) -> Candidates:
    """Return every form of ``size`` cards that the model and engine allow (``forms: auto``), and the others with why.

    ``refusal`` is the engine's own word on a form. Masked variants are added where ``limits.mask_chunks`` asks for
    them; a requested count that does not divide the local heads becomes the largest divisor below it.
    """
    limits = limits or EngineLimits()
    plain = list(splits(size))
    masked = [
        replace(form, mask_chunks=chunks)
        for form in plain
        if check(form, model, limits) is None and form.usp * form.ag > 1 and form.ring == 1
        for chunks in sorted({mask_chunks(form, model, n) for n in limits.mask_chunks} - {1})
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
    good: list[Form] = []
    bad: list[Excluded] = []
    for form in dict.fromkeys(forms):
        reason = check(form, model, limits, size=size) or (refusal(form) if refusal else None)
        if reason is None:
            good.append(form)
        else:
            bad.append(Excluded(form, reason))
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
