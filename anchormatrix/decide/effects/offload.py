"""Offload: did weights leave the card?

Heard in this order: a log that refuses, or that names another kind; the device memory, against that of the same form
without offload (as its server took it, else by the model's figures); in the capture, gathers of weights under the
distributed kind, copies where the profiler lists them (Ascend's does not); where memory is not told, the blocks that
the log counts as hooked.
"""

from __future__ import annotations

from dataclasses import replace

from anchormatrix.decide.effects.witnesses import DOUBTFUL, GATHERS, PROVEN, UNPROVEN, VOID, Said, Witnesses
from anchormatrix.planning.memory import memory_of
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.session import OffloadSeen, Proof
from anchormatrix.records.settings.things import ModelSettings

# An offload that saves a smaller share of the card's memory does not show: readings are as exact as an allocator is,
# masking moves a few percent, and the figures of a model only tell large savings apart from what they leave out.
_READ, _READ_OTHERWISE_MASKED, _FIGURED = 0.01, 0.05, 0.4
_SHARED = "distributed-layerwise-offload"


def offload(form: Form, proof: Proof | None, known: Witnesses) -> Said:
    """Whether the weights of one session of the form were offloaded as its name says."""
    seen = proof.offload if proof else None
    if otherwise := _logged_otherwise(form, seen):
        return VOID, otherwise
    memory = _by_memory(form, proof.peak_memory_mb, known) if proof and proof.peak_memory_mb else None
    if memory is not None and memory[0] in (PROVEN, VOID):
        return memory
    said = _by_capture(form, known) or memory or _by_log(form, seen, known.model)
    return said or (UNPROVEN, "neither device memory nor a capture nor the log's count of blocks tells of it")


def _logged_otherwise(form: Form, seen: OffloadSeen | None) -> str:
    """What the log says against the offload asked for."""
    if seen is None:
        return ""
    if not seen.kind:
        return f"the log says: {seen.refusal}" if seen.refusal else ""
    if seen.kind != form.offload:
        return f"the log says that {seen.kind} is enabled"
    if form.offload == _SHARED and seen.group == 1:
        return "no ranks share the weights: each streams whole layers, as under plain layerwise offload"
    return ""


def _by_memory(form: Form, peak_mb: float, known: Witnesses) -> Said | None:
    """Peak memory nearer to what the form needs with offload than without; the first rank's."""
    if known.model is None:
        return None
    plain = replace(form, offload="")
    needs = memory_of(plain, known.model)
    saved = needs.total_gb - memory_of(form, known.model).total_gb
    peak, (without, source, least) = _gb(peak_mb), _without(plain, known) or (needs.total_gb, "", _FIGURED)
    told = f"as {source} took" if source else "by the model's figures"
    text = f"{peak:.1f} GB of the card at the peak; {without:.1f} GB without offload {told}, it saves {saved:.1f} GB"
    if not source and form.offload != "cpu-offload" and peak < needs.weights_gb:
        return PROVEN, f"{peak:.1f} GB of the card at the peak, less than its weights of {needs.weights_gb:.1f} GB"
    if saved < least * without or not (source or known.model.activation_gb):
        against = not source and known.model.activation_gb and peak >= without
        text += ", too little to tell" + ("" if source else f"; measure {plain.name} beside it")
        return (DOUBTFUL if against else UNPROVEN), text
    return (PROVEN if peak < without - saved / 2 else VOID), text


def _without(plain: Form, known: Witnesses) -> tuple[float, str, float] | None:
    """The memory (GB) of a form of the same split without offload, its name, and the share that tells beside it."""
    forms = sorted(map(parse_form, known.proofs), key=lambda form: form != plain)  # the same masking before any other
    for form in forms:
        peaks = [proof.peak_memory_mb for proof in known.proofs[form.name] if proof.peak_memory_mb]
        if form.split == plain.split and not form.offload and peaks:
            return _gb(max(peaks)), form.name, _READ if form == plain else _READ_OTHERWISE_MASKED
    return None


def _gb(mebibytes: float) -> float:
    return mebibytes * 2**20 / 1e9


def _by_capture(form: Form, known: Witnesses) -> Said | None:
    """One gather or copy for each layer, but for one that may stay."""
    if known.model is None or form.offload == "cpu-offload":
        return None
    layers = known.model.layers // form.pp
    if form.offload == _SHARED:
        return _by_gathers(form, layers, known)
    copies = known.copies(form.name)
    if copies is None:
        return None
    aside, listed = copies
    text = f"{listed:g} copies per step for {layers} layers"
    if aside >= layers - 1:
        return PROVEN, text
    return (VOID, text) if 0 < listed < layers - 1 else None


def _by_gathers(form: Form, layers: int, known: Witnesses) -> Said | None:
    plain = replace(form, offload="")
    seen, counted = known.calls(form.name, GATHERS), known.calls(plain.name, GATHERS)
    without = known.figured(plain, "all_gather") if counted is None else counted
    if seen is None or without is None:
        return None
    text = f"{seen:g} gathers per step, {without:g} without offload"
    if seen - without >= layers - 1:
        return PROVEN, text
    return (VOID, text) if counted is not None or not without else None


def _by_log(form: Form, seen: OffloadSeen | None, model: ModelSettings | None) -> Said | None:
    if seen is None or model is None or not seen.blocks or seen.ranks != form.cards:
        return None
    if seen.blocks % (model.layers // form.pp):
        return None
    return PROVEN, f"by the log alone: {seen.blocks} blocks are hooked on each of {seen.ranks} ranks"
