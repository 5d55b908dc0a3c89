"""The captured step of a form: its parts, its collective families and what masking could hide, from an attribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from anchormatrix.attribution.hiding import equal_bound
from anchormatrix.attribution.slowest import slowest_rank
from anchormatrix.captures.stretch import stands_out, stretch, usual_stretch
from anchormatrix.planning.candidates import mask_chunks
from anchormatrix.records.attribution import Attribution, Family, StepRow
from anchormatrix.records.form import Form
from anchormatrix.records.session import CaptureStatus
from anchormatrix.records.settings.things import ModelSettings
from anchormatrix.records.waits import MaskBound

_MOST_CHUNKS = 8  # more chunks cost more calls than they hide


@dataclass(frozen=True)
class StepParts:
    """One step of a form, all in ms, from its capture. ``communication_ms`` = exposed + overlapped.

    A capture inflates computing and idle time while the seconds of exposed communication stay, so ``computing_ms``,
    ``free_ms`` and ``host_ms`` are deflated, by one factor for all forms of a contract. They are None where the step
    without the profiler is not known: an inflated time is never compared with a deflated one. ``doubt`` says why the
    step speaks for no timed one. ``exposed_share`` is the attribution's: captured exposed seconds ÷ step time without
    the profiler.

    ``masked_ms`` is the communication of the family that masking hides, ``mask_bound`` the share of it that could be
    hidden at best with ``mask_chunks`` chunks (of an unmasked form: with masking turned on), ``mask_hidden`` the share
    that attention hides now; None where the form has no such family or no capture tells. ``mask_doubt``: which of the
    bound's inputs the capture contradicts.
    """

    computing_ms: float | None
    exposed_ms: float
    overlapped_ms: float
    free_ms: float | None
    host_ms: float | None = 0.0
    exposed_share: float | None = None
    doubt: str = ""
    mask_bound: float | None = None
    mask_hidden: float = 0.0
    mask_chunks: int = 1
    masked_ms: float = 0.0
    mask_doubt: str = ""

    @property
    def communication_ms(self) -> float:
        """All communication of the step."""
        return self.exposed_ms + self.overlapped_ms

    @property
    def exposed_at_bound_ms(self) -> float | None:
        """Exposed communication if attention hid all of its family that the bound allows; all else as measured."""
        if self.mask_bound is None:
            return None
        return max(0.0, self.exposed_ms - self.masked_ms * max(0.0, self.mask_bound - self.mask_hidden))


def capture_inflation(attributions: Iterable[Attribution]) -> float | None:
    """By how much the profiler stretches computing and idle time, one factor for all forms of a contract.

    Each form's own factor would carry the noise of its few timed steps into the difference between forms. None when no
    form has a step without the profiler.
    """
    return usual_stretch(own for attribution in attributions if (own := own_stretch(attribution)) is not None)


def unlike_timed(attributions: Mapping[str, Attribution]) -> tuple[str, ...]:
    """The forms of a contract whose captured step was slow by itself and speaks for no timed one."""
    usual = capture_inflation(attributions.values())
    found = {form: own_stretch(attribution) for form, attribution in attributions.items()}
    return tuple(form for form, own in found.items() if own and usual and stands_out(own, usual))


def late_shares(attributions: Mapping[str, Attribution]) -> dict[str, float]:
    """The exposed share of a late step by form, where its capture speaks for the timed steps of the anchor."""
    unlike = unlike_timed(attributions)
    shares = {form: found.steps.exposed_share for form, found in attributions.items() if found.steps}
    return {form: share for form, share in shares.items() if share is not None and form not in unlike}


def step_parts(
    attribution: Attribution | None,
    form: Form | None = None,
    model: ModelSettings | None = None,
    *,
    inflation: float | None = None,
) -> StepParts | None:
    """The parts of the slowest rank's captured step, or None when none was analysed.

    ``inflation`` is :func:`capture_inflation` of the contract.
    """
    if attribution is None or (slowest := _slowest(attribution)) is None or attribution.steps is None:
        return None
    own = own_stretch(attribution)
    doubt = _doubt(attribution, own, inflation)
    deflation = 1 / inflation if inflation and own is not None and not stands_out(own, inflation) else None
    rows = attribution.masking.ranks if attribution.masking else ()
    found = next((row for row in rows if row.rank == slowest.rank), None)
    mask_bound, chunks = _bound(found, form, model) if found else (None, 1)
    return StepParts(
        computing_ms=None if deflation is None else slowest.computing_ms * deflation,
        exposed_ms=slowest.exposed_ms,
        overlapped_ms=slowest.overlapped_ms,
        free_ms=None if deflation is None else slowest.free_ms * deflation,
        host_ms=None if deflation is None else slowest.host_ms * deflation,
        exposed_share=attribution.steps.exposed_share,
        doubt=doubt,
        mask_bound=mask_bound,
        mask_hidden=found.under_attention if found else 0.0,
        mask_chunks=chunks,
        masked_ms=_family_ms(attribution, found) if found else 0.0,
        mask_doubt=found.warnings[0] if found and (found.achievement or 0.0) > 1 else "",
    )


def _doubt(attribution: Attribution, own: float | None, inflation: float | None) -> str:
    if attribution.capture and attribution.capture.status is CaptureStatus.ON_RAMP:
        return "the capture fell on the ramp"
    if own is None or inflation is None:
        return "no step without the profiler to compare its capture with"
    return "the captured step is not like the timed ones" if stands_out(own, inflation) else ""


def family_times(attribution: Attribution | None) -> tuple[Family, ...]:
    """The collective families of the slowest rank, which waits for no other inside its calls."""
    if attribution is None or (slowest := _slowest(attribution)) is None:
        return ()
    return _families_of(attribution, slowest.rank)


def own_stretch(attribution: Attribution) -> float | None:
    """How many times longer the profiler made computing and idle time of the captured step."""
    rank = _slowest(attribution)
    if rank is None or attribution.steps is None or attribution.steps.unprofiled_step_s is None:
        return None
    timed_ms = attribution.steps.unprofiled_step_s * 1e3
    return stretch(rank.computing_ms + rank.host_ms + rank.free_ms, rank.exposed_ms, timed_ms)


def _slowest(attribution: Attribution) -> StepRow | None:
    return slowest_rank(attribution.steps.ranks) if attribution.steps else None


def _families_of(attribution: Attribution, rank: int) -> tuple[Family, ...]:
    ranks = attribution.collectives.ranks if attribution.collectives else ()
    return next((one.families for one in ranks if one.rank == rank), ())


def _family_ms(attribution: Attribution, found: MaskBound) -> float:
    """Time of the family that a masking row speaks of, on its rank."""
    wanted = found.family, found.communicator
    families = _families_of(attribution, found.rank)
    return sum(row.sum_ms for row in families if (row.family, row.communicator) == wanted)


def _bound(found: MaskBound, form: Form | None, model: ModelSettings | None) -> tuple[float | None, int]:
    """The masking bound and its chunks: as it is, or, of a form that could be masked and is not, as it could be.

    Attention is as long as in the step without the profiler, where that is known: the captured one hides too much.
    """
    if found.chunks > 1:
        return (found.bound if found.bound_timed is msgspec.UNSET else found.bound_timed), found.chunks
    if form is None or model is None or form.usp * form.ag == 1 or form.ring > 1 or not found.c_total_ms:
        return None, 1
    chunks = mask_chunks(form, model, _MOST_CHUNKS)
    return equal_bound(found.c_total_ms, found.f_timed_ms or found.f_total_ms, chunks), chunks
