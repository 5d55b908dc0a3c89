"""The triggers by which a decision must be verified again, and the ledger of what every decision rested on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchormatrix.decide.theory.scaling import arm_of
from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.conclusions.decision import Basis, BasisForm, Trigger
from anchormatrix.records.conclusions.verdict import VerdictStatus
from anchormatrix.records.form import parse_form
from anchormatrix.store.codec import line_text, parse_record
from anchormatrix.store.ledger import append_lines

_MANY_RANKS = 4  # from here on a short task can be dominated by its communication


@dataclass(frozen=True)
class TriggerLimits:
    """Thresholds in percent; ``share_points`` is in percentage points of exposed share, ``fixed_pct`` of fixed cost.
    Steps that differ by less than ``floor_pct`` do not differ."""

    drift_pct: float = 5.0
    floor_pct: float = 1.0
    share_points: float = 3.0
    fixed_pct: float = 20.0
    slack_s: float = 0.1


# Words in a fact's key or value that mean the step's structure changes, with what they do to it.
_STRUCTURE = {
    "quant": "quantization shortens compute, so communication's share rises",
    "fp8": "quantization shortens compute, so communication's share rises",
    "int8": "quantization shortens compute, so communication's share rises",
    "sparse": "sparse attention swaps operators",
    "cache": "caching skips forwards",
    "teacache": "caching skips forwards",
    "compile": "compilation changes the operators of the step",
}


def reverify(
    before: Basis | None, now: Basis, limits: TriggerLimits | None = None, *, smaller: Sequence[Basis] = ()
) -> tuple[Trigger, ...]:
    """Test every trigger: ``before`` is what the decision rests on, ``now`` the live configuration and newest numbers.

    The triggers about a single matrix (order flip, step drift, short-task pathology) read ``now``; the others compare,
    and are not evaluated without a ``before``. ``smaller`` are the bases of fewer cards under the same load and stack.
    No trigger reads what a basis has a doubt of.
    """
    limits = limits or TriggerLimits()
    compared = _COMPARED if before is None else ()
    found = (
        _order_flip(now),
        _step_drift(now, limits),
        _exposed_drift(before or now, now, limits),
        _short_task(now, limits, smaller),
        _structure(before or now, now),
        _memory(before or now, now),
        _fixed_cost(before or now, now, limits),
        _other_facts(before or now, now),
        *_tier_drift(now, limits),
    )
    return tuple(_untested(now, item.trigger, _NO_BEFORE) if item.trigger in compared else item for item in found)


def read_bases(path: Path) -> dict[int, list[Basis]]:
    """The ledger's lines by size, oldest first; a line torn by a killed run, or of another form, is left out."""
    found: dict[int, list[Basis]] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # text may hold other line ends
        try:
            basis = parse_record(line, Basis, where=str(path))
            for name in (*basis.possible, *(form.form for form in basis.forms)):
                parse_form(name)
        except (InputError, ConfigError):
            continue
        found.setdefault(basis.size, []).append(basis)
    return found


def append_bases(path: Path, lines: Sequence[Basis], known: Mapping[int, Sequence[Basis]]) -> None:
    """Append the lines that differ from the newest known one of their size; nothing is ever rewritten."""
    fresh = [line for line in lines if not known.get(line.size) or known[line.size][-1] != line]
    if not fresh:
        return
    append_lines(path, lambda: map(line_text, fresh))


_SHARE, _STEPS, _FORMS, _COST, _FACTS = (
    "exposed-communication share drift",
    "step structure changed",
    "memory unlocks forms",
    "new fixed cost",
    "configuration changed",
)
_COMPARED = (_SHARE, _STEPS, _FORMS, _COST, _FACTS)
_NO_BEFORE = "nothing to compare with yet: no earlier decision of this size"


def _tested(now: Basis, trigger: str, fired: bool, text: str) -> Trigger:
    return Trigger(size=now.size, trigger=trigger, fired=fired, text=text)


def _untested(now: Basis, trigger: str, why: str) -> Trigger:
    return Trigger(size=now.size, trigger=trigger, fired=False, text=why, evaluated=False)


def _order_flip(now: Basis) -> Trigger:
    status = now.status
    if status is VerdictStatus.ORDER_FLIP:
        return _tested(now, "order flip", True, "the tiers rank the forms differently")
    if status in (VerdictStatus.EXTRAPOLATES, VerdictStatus.DRIFT):
        return _tested(now, "order flip", False, "both tiers rank the forms alike")
    return _untested(now, "order flip", f"the tiers cannot be compared: the verdict is {status}")


def _unread(doubts: Iterable[tuple[str, str]], lead: str) -> str:
    """The forms that a trigger could not read, with the reasons, as the end of a sentence."""
    told = "; ".join(f"{form}: {doubt}" for form, doubt in doubts if doubt)
    return f"{lead}{told}" if told else ""


def _step_drift(now: Basis, limits: TriggerLimits) -> Trigger:
    name, unread = "step time drift", [(form.form, form.doubt) for form in now.forms]
    r = {form.form: form.drift for form in now.forms if form.drift is not None}
    if not r:
        return _untested(now, name, f"no form may be read at both tiers{_unread(unread, ': ')}")
    drifted = [f"{form} {100 * (value - 1):+.1f} %" for form, value in r.items() if _apart(value, limits.drift_pct)]
    text = f"every step stays within {limits.drift_pct:g} % between the tiers"
    text = f"{', '.join(drifted)} between the tiers" if drifted else text
    return _tested(now, name, bool(drifted), text + _unread(unread, "; not read: "))


def _apart(ratio: float, limit_pct: float) -> bool:
    return abs(ratio - 1) * 100 > limit_pct


def _exposed_drift(before: Basis, now: Basis, limits: TriggerLimits) -> Trigger:
    if now.forms is before.forms:
        return _untested(now, _SHARE, "nothing was captured since")
    old = {form.form: form.exposed_share for form in before.forms}
    both = [
        (form.form, was, share)
        for form in now.forms
        if (was := old.get(form.form)) is not None and (share := form.exposed_share) is not None
    ]
    unread = [(form.form, form.capture_doubt) for form in now.forms]
    if not both:
        return _untested(now, _SHARE, f"no form has an exposed share from then and from now{_unread(unread, ': ')}")
    moved = [
        f"{name} {100 * was:.1f} % → {100 * share:.1f} %"
        for name, was, share in both
        if abs(share - was) * 100 > limits.share_points
    ]
    text = ", ".join(moved) if moved else f"no exposed share moved by more than {limits.share_points:g} points"
    return _tested(now, _SHARE, bool(moved), text + _unread(unread, "; not read: "))


def _tier_drift(now: Basis, limits: TriggerLimits) -> tuple[Trigger, ...]:
    """Whether the exposed share is another late in an anchor request; nothing where no late step was captured."""
    name = "exposed share drifts between the tiers"
    both = [(form.form, form.exposed_share, form.exposed_share_anchor) for form in now.forms]
    read = [(name, few, late) for name, few, late in both if few is not None and late is not None]
    if not read:
        unread = [(form.form, form.capture_doubt) for form in now.forms]
        why = f"no form's capture may be read at both tiers{_unread(unread, ': ')}"
        return (_untested(now, name, why),) if any(late is not None for _, _, late in both) else ()
    moved = any(abs(late - few) * 100 > limits.share_points for _, few, late in read)
    told = ", ".join(f"{name} {100 * few:.1f} % → {100 * late:.1f} %" for name, few, late in read)
    text = f"from few steps to late in an anchor request: {told}; {limits.share_points:g} points are allowed"
    return (_tested(now, name, moved, text),)


def _short_task(now: Basis, limits: TriggerLimits, smaller: Sequence[Basis]) -> Trigger:
    """Few steps on many ranks whose communication has not settled: slower than the anchor's own steps, or slower than
    the same arm's on fewer cards although the anchor's are faster."""
    name, unread = "short-task communication pathology", [(form.form, form.doubt) for form in now.forms]
    many = [form for form in now.forms if form.drift and parse_form(form.form).cards >= _MANY_RANKS]
    if not many:
        why = f"no form on {_MANY_RANKS} or more ranks may be read at both tiers"
        return _untested(now, name, why + _unread(unread, ": "))
    slow = [form for form in many if 1 / (form.drift or 1) > 1 + limits.drift_pct / 100]
    texts = [f"{form.form} {100 * (1 / (form.drift or 1) - 1):+.1f} %" for form in slow]
    found = [f"few-step steps are slower than the anchor's: {', '.join(texts)}"] if slow else []
    pairs = [
        (form, other)
        for form in many
        for basis in smaller
        for other in basis.forms
        if other.drift and arm_of(parse_form(other.form)) == arm_of(parse_form(form.form))
    ]
    found += [text for form, other in pairs if (text := _reversed(form, other, limits.floor_pct))]
    quiet = f"no few-step step is slower than its anchor's by more than {limits.drift_pct:g} %"
    quiet += ", none slower than on fewer cards and faster at the anchor" if pairs else ""
    return _tested(now, name, bool(found), ("; ".join(found) or quiet) + _unread(unread, "; not read: "))


def _reversed(form: BasisForm, other: BasisForm, floor_pct: float) -> str:
    """What there is to say when few steps take longer on more cards and the anchor's do not."""
    few, anchor = (a / b if a and b else 1.0 for a, b in ((form.few_s, other.few_s), (form.anchor_s, other.anchor_s)))
    if few <= 1 + floor_pct / 100 or anchor > 1 + floor_pct / 100:
        return ""
    return (
        f"{form.form} is slower than {other.form} on fewer cards at few steps ({100 * (few - 1):+.1f} %) "
        f"and not at the anchor ({100 * (anchor - 1):+.1f} %)"
    )


def _changed(before: Basis, now: Basis) -> dict[str, tuple[Any, Any]]:
    keys = before.facts.keys() | now.facts.keys()
    pairs = {key: (before.facts.get(key), now.facts.get(key)) for key in sorted(keys)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _structural(key: str, pair: tuple[Any, Any]) -> str | None:
    text = f"{key} {pair[0]} {pair[1]}".lower()
    if key.endswith("bytes_per_value"):
        return _STRUCTURE["quant"]
    return next((why for word, why in _STRUCTURE.items() if word in text), None)


def _structure(before: Basis, now: Basis) -> Trigger:
    found = [
        f"{key} {old} → {new}: {why}"
        for key, (old, new) in _changed(before, now).items()
        if (why := _structural(key, (old, new)))
    ]
    text = "; ".join(found) if found else "no quantization, sparsity, caching or compilation was changed"
    return _tested(now, _STEPS, bool(found), text)


def _memory(before: Basis, now: Basis) -> Trigger:
    fresh = [form for form in now.possible if form not in before.possible]
    text = f"newly possible: {', '.join(fresh)}" if fresh else "no new form became possible"
    return _tested(now, _FORMS, bool(fresh), text)


def _fixed_cost(before: Basis, now: Basis, limits: TriggerLimits) -> Trigger:
    if not now.fixed_s:
        return _untested(now, _COST, "no stage outside the DiT was timed")
    grown = []
    for stage, seconds in now.fixed_s.items():
        was = before.fixed_s.get(stage, 0.0)
        if seconds > was * (1 + limits.fixed_pct / 100) and seconds - was > limits.slack_s:
            grown.append(f"{stage} {was:.2f} s → {seconds:.2f} s")
    text = "; ".join(grown) if grown else "no new fixed cost outside the DiT stage"
    return _tested(now, _COST, bool(grown), text)


def _other_facts(before: Basis, now: Basis) -> Trigger:
    found = [
        f"{key} {pair[0]} → {pair[1]}" for key, pair in _changed(before, now).items() if not _structural(key, pair)
    ]
    text = "; ".join(found) if found else "nothing else that shapes the step was changed"
    return _tested(now, _FACTS, bool(found), text)
