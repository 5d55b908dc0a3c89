"""The effect of every launch feature of a form: proven, void or unproven, by counts and never by "enabled".

A dead feature makes the sessions of its form void: they measured another form than their name says. For an unproven one
nothing speaks; its form may be shown, and wins with no more than low confidence. Against a doubtful one speaks what
is too weak to call it dead; its form wins nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from anchormatrix.decide.effects.masking import masking
from anchormatrix.decide.effects.offload import offload
from anchormatrix.decide.effects.witnesses import DOUBTFUL, PROVEN, UNPROVEN, VOID, Said, Witnesses
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.conclusions.gates import EffectStatus, FeatureEffect
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.session import Proof, Session, SessionStatus
from anchormatrix.records.settings.things import ModelSettings
from anchormatrix.store.sessions import TimedSession


def effects(
    sessions: Iterable[Session], attributions: Mapping[str, Attribution], model: ModelSettings | None
) -> dict[str, tuple[FeatureEffect, ...]]:
    """The effect of every feature of every form that was measured, by the form's name. Forms without any have none."""
    proofs: dict[str, list[Proof]] = {}
    for session in sessions:
        if session.status is SessionStatus.MEASURED:
            proofs.setdefault(session.form, []).extend([session.proof] if session.proof else [])
    known = Witnesses(proofs, attributions, model)
    return {name: tuple(_of_form(parse_form(name), known)) for name in proofs}


def without_dead(
    sessions: Iterable[TimedSession], found: Mapping[str, Sequence[FeatureEffect]]
) -> tuple[TimedSession, ...]:
    """The sessions, those of a form with a dead feature void: they measured another form than their name says."""
    return tuple(TimedSession(voided(timed.session, found), timed.requests) for timed in sessions)


def while_measuring(seen: Sequence[TimedSession], model: ModelSettings | None) -> tuple[TimedSession, ...]:
    """The sessions as they count before any capture is analysed: a dead offload is void by then, dead masking not."""
    return without_dead(seen, effects((timed.session for timed in seen), {}, model))


def voided(session: Session, found: Mapping[str, Sequence[FeatureEffect]]) -> Session:
    """The session as it counts: void when a feature of its form is dead."""
    why = dead(found.get(session.form, ()))
    if session.status is not SessionStatus.MEASURED or not why:
        return session
    reason = f"the form did not take effect: {'; '.join(why)}"
    return msgspec.structs.replace(session, status=SessionStatus.VOID, reason=reason)


def dead(found: Sequence[FeatureEffect]) -> list[str]:
    """The features that were seen not to work, in words."""
    return [effect.words for effect in found if effect.status is VOID]


def unproven(found: Sequence[FeatureEffect]) -> list[str]:
    """The features without evidence, in words."""
    return [effect.words for effect in found if effect.status in (UNPROVEN, DOUBTFUL)]


def doubtful(found: Sequence[FeatureEffect]) -> list[str]:
    """The features that seem not to work, in words."""
    return [effect.words for effect in found if effect.status is DOUBTFUL]


def feature_doubts(winner: str | None, found: Mapping[str, Sequence[FeatureEffect]]) -> list[str]:
    """What is not known of features, one sentence each, the winner's first."""
    names = sorted(found, key=lambda name: name != winner)
    return [f"Whether {name} has its {words}." for name in names for words in unproven(found[name])]


def features_apart(one: Form, other: Form) -> str:
    """What two forms differ in besides their split, as an addition to a sentence; empty when in nothing."""
    own, others = (set(form.name.split("+")[1:]) for form in (one, other))
    if own == others:
        return ""
    pairs = ((one, own - others), (other, others - own))
    only = [f"{form.name} has {' and '.join(sorted(has))}" for form, has in pairs if has]
    also = "not only in the split" if one.split != other.split else "in no split"
    return f" (they differ {also}: {', '.join(only)})"


def _of_form(form: Form, known: Witnesses) -> Iterator[FeatureEffect]:
    if lost := _split_lost(form, known):
        yield FeatureEffect(form.name.partition("+")[0], VOID, lost)
    if form.mask_chunks > 1:
        yield FeatureEffect(f"mask{form.mask_chunks}", *masking(form, known))
    proofs: Sequence[Proof | None] = known.proofs[form.name] or [None]
    if form.offload:
        yield FeatureEffect(form.offload, *_worst(offload(form, proof, known) for proof in proofs))
    if known.model is not None and known.model.sparse_block is not None:
        yield FeatureEffect("sparse attention", *_worst(_sparse(form, proof) for proof in proofs))


def _worst(said: Iterable[Said]) -> Said:
    """A feature that is dead in one window is dead; one without evidence in one window is unproven."""
    return max(said, key=lambda one: list(EffectStatus).index(one[0]))


def _split_lost(form: Form, known: Witnesses) -> str:
    """What the capture lacks of the split itself, which the log had told of."""
    found = known.attributions.get(form.name)
    failures = found.effect.failures if found and found.effect else ()
    degrees = {f"{name}{size}" for name, size in form.degrees.items()}
    return "; ".join(check.text for check in failures if check.name in degrees)


def _sparse(form: Form, proof: Proof | None) -> Said:
    seen = proof.sparse if proof else None
    if seen is None:
        return UNPROVEN, "the log counts neither sparse nor dense calls of attention"
    text = f"{seen.active} of {form.cards} ranks logged a sparse call, {seen.dense} one that stayed dense"
    if seen.active >= form.cards:
        return PROVEN, text
    return (UNPROVEN if seen.active else VOID), text
