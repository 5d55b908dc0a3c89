"""Masking: are there as many more calls as there are chunks, and does compute hide any of their time?

Both are read in the capture. The calls are held against those of the same form without masking: of its own capture,
else by the model's figures. A plug-in may send more or fewer calls than these figures, so only a capture makes an
unmasked count a proof against masking; communication that compute never hides is one by itself.
"""

from __future__ import annotations

from dataclasses import replace

from anchormatrix.decide.effects.witnesses import GATHERS, PROVEN, UNPROVEN, VOID, Said, Witnesses
from anchormatrix.planning.candidates import mask_chunks
from anchormatrix.records.form import Form

# The collective that masking chunks, by the degree that causes it: the first that a form has.
_MASKED = {
    "usp": ("all_to_all", ("alltoall", "alltoallv", "alltoallvc", "sendRecv")),
    "ag": ("all_gather", GATHERS),
}
_CALLS_OFF = 0.02  # a few calls outside the layers are no chunks
_NOTHING_HIDDEN = 0.01  # the share of a family's time that two clock readings can put under compute


def masking(form: Form, known: Witnesses) -> Said:
    """Whether the form's communication is chunked and hidden."""
    degree = next((name for name in _MASKED if form.degrees[name] > 1), None)
    if degree is None:
        return UNPROVEN, "the form has neither all-to-alls nor gathers of K and V in its layers"
    kind, families = _MASKED[degree]
    plain = replace(form, mask_chunks=1)
    seen = known.calls(form.name, families)
    if seen is None:
        return UNPROVEN, known.why_no_capture(form.name)
    bounds = known.attributions[form.name].masking
    shares = [row.measured_family for row in (bounds.ranks if bounds else ()) if row.measured_family is not None]
    if not shares:
        return UNPROVEN, "the capture does not tell how much of the communication compute hides"
    counted, figured = known.calls(plain.name, families), known.figured(plain, kind)
    without, source = (counted, plain.name) if counted is not None else (figured, "the model's figures")
    hidden = max(shares)
    text = f"{seen:g} {families[0]} calls per step, {hidden:.0%} of their time under compute"
    if hidden <= _NOTHING_HIDDEN:
        return VOID, text
    if not without:
        return UNPROVEN, f"{text}; nothing tells how many there are without masking"
    text += f"; {without:g} without masking ({source})"
    if counted is not None and seen <= without * (1 + _CALLS_OFF):
        return VOID, text
    chunks = mask_chunks(form, known.model, form.mask_chunks) if known.model else form.mask_chunks
    chunked = min(without, known.figured(replace(plain, offload=""), kind) or without)  # gathers of weights are not
    if chunks > 1 and seen >= (without + (chunks - 1) * chunked) * (1 - _CALLS_OFF):
        return PROVEN, text
    return UNPROVEN, f"{text}, which is not {chunks} times as many"
