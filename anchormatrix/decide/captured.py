"""The captured step of a form: its parts, its collective families and what masking could hide, from an attribution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import msgspec

from anchormatrix.attribution.hiding import equal_bound
from anchormatrix.planning.candidates import mask_chunks
from anchormatrix.records.attribution import Attribution, Family, MaskBound, StepRow
from anchormatrix.records.form import Form
from anchormatrix.records.settings.things import ModelSettings

_ALIKE = 1.2  # forms that the profiler stretches more unequally than this were not captured in a step like the timed
_MOST_CHUNKS = 8  # more chunks cost more calls than they hide


@dataclass(frozen=True)
class StepParts:
    """One step of a form, all in ms, from its capture. ``communication_ms`` = exposed + overlapped.

    A capture inflates computing and idle time while the seconds of exposed communication stay, so ``computing_ms`` and
    ``free_ms`` are deflated, by one factor for all forms of a contract. Both are None where no step without the
    profiler is known (a capture on the ramp): an inflated time is never compared with a deflated one.
    ``unlike_timed``: the captured step, the first of its request, was slow by itself and speaks for no timed one.
    ``exposed_share`` is the attribution's: captured exposed seconds ÷ step time without the profiler.

    ``masked_ms`` is the communication of the family that masking hides, ``mask_bound`` the share of it that could be
    hidden at best with ``mask_chunks`` chunks (of an unmasked form: with masking turned on), ``mask_hidden`` the share
    that attention hides now; None where the form has no such family or no capture tells. ``mask_doubt``: which of the
    bound's inputs the capture contradicts.
    """

    computing_ms: float | None
    exposed_ms: float
    overlapped_ms: float
    free_ms: float | None
    exposed_share: float | None = None
    unlike_timed: bool = False
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

    The median over the forms of captured computing and idle time ÷ (step without the profiler − exposed). Each form's
    own factor would carry the noise of its few timed steps into the difference between forms. The profiler costs forms
    of one contract about the same, so a step that stands out was slow by itself and takes no part. None when no form
    has a step without the profiler.
    """
    found = [own for attribution in attributions if (own := _stretch(attribution)) is not None]
    return median(own for own in found if own <= _ALIKE * min(found)) if found else None


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
    if attribution is None or attribution.steps is None or (slowest := _slowest(attribution)) is None:
        return None
    own = _stretch(attribution)
    unlike = inflation is not None and own is not None and own > _ALIKE * inflation
    deflation = 1 / inflation if inflation and own is not None and not unlike else None
    rows = attribution.masking.ranks if attribution.masking else ()
    found = next((row for row in rows if row.rank == slowest.rank), None)
    mask_bound, chunks = _bound(found, form, model) if found else (None, 1)
    return StepParts(
        computing_ms=None if deflation is None else slowest.computing_ms * deflation,
        exposed_ms=slowest.exposed_ms,
        overlapped_ms=slowest.overlapped_ms,
        free_ms=None if deflation is None else slowest.free_ms * deflation,
        exposed_share=attribution.steps.exposed_share,
        unlike_timed=unlike,
        mask_bound=mask_bound,
        mask_hidden=found.under_attention if found else 0.0,
        mask_chunks=chunks,
        masked_ms=_family_ms(attribution, found) if found else 0.0,
        mask_doubt=found.warnings[0] if found and (found.achievement or 0.0) > 1 else "",
    )


def family_times(attribution: Attribution | None) -> tuple[Family, ...]:
    """The collective families of the first listed rank."""
    if attribution is None or attribution.collectives is None or not attribution.collectives.ranks:
        return ()
    return attribution.collectives.ranks[0].families


def _stretch(attribution: Attribution) -> float | None:
    """The form's own factor."""
    rank = _slowest(attribution)
    if rank is None or attribution.steps is None or attribution.steps.unprofiled_step_s is None:
        return None
    captured, rest = rank.computing_ms + rank.free_ms, attribution.steps.unprofiled_step_s * 1e3 - rank.exposed_ms
    return captured / rest if captured > 0 and rest > 0 else None


def _slowest(attribution: Attribution) -> StepRow | None:
    ranks = attribution.steps.ranks if attribution.steps else ()
    return max(ranks, key=lambda rank: rank.stage_ms, default=None)


def _family_ms(attribution: Attribution, found: MaskBound) -> float:
    """Time of the family that a masking row speaks of, on its rank."""
    ranks = attribution.collectives.ranks if attribution.collectives else ()
    families = next((rank.families for rank in ranks if rank.rank == found.rank), ())
    wanted = found.family, found.communicator
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
