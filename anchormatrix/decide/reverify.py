"""The triggers by which a decision must be verified again, and the ledger of what every decision rested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.decision import Basis, Trigger
from anchormatrix.records.form import parse_form
from anchormatrix.records.verdict import VerdictStatus
from anchormatrix.store.codec import line_text, parse_record
from anchormatrix.store.ledger import append_lines

_MANY_RANKS = 4  # from here on a short task can be dominated by its communication


@dataclass(frozen=True)
class TriggerLimits:
    """Thresholds in percent; ``share_points`` is in percentage points of exposed share, ``fixed_pct`` of fixed cost."""

    drift_pct: float = 5.0
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


def reverify(before: Basis | None, now: Basis, limits: TriggerLimits | None = None) -> tuple[Trigger, ...]:
    """Test every trigger: ``before`` is what the decision rests on, ``now`` the live configuration and newest numbers.

    The triggers about a single matrix (order flip, step drift, short-task pathology) read ``now``; the others compare,
    and are not evaluated without a ``before``.
    """
    limits = limits or TriggerLimits()
    compared = _COMPARED if before is None else ()
    found = (
        _order_flip(now),
        _step_drift(now, limits),
        _exposed_drift(before or now, now, limits),
        _short_task(now, limits),
        _structure(before or now, now),
        _memory(before or now, now),
        _fixed_cost(before or now, now, limits),
        _other_facts(before or now, now),
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


def _step_drift(now: Basis, limits: TriggerLimits) -> Trigger:
    if not now.r:
        return _untested(now, "step time drift", "no form was measured at both tiers")
    drifted = {n: r for n, r in now.r.items() if abs(r - 1) * 100 > limits.drift_pct}
    listed = ", ".join(f"{name} {100 * (r - 1):+.1f} %" for name, r in drifted.items())
    text = (
        f"{listed} between the tiers"
        if drifted
        else f"every step stays within {limits.drift_pct:g} % between the tiers"
    )
    return _tested(now, "step time drift", bool(drifted), text)


def _exposed_drift(before: Basis, now: Basis, limits: TriggerLimits) -> Trigger:
    if now.forms is before.forms:
        return _untested(now, _SHARE, "nothing was captured since")
    old = {form.form: form.exposed_share for form in before.forms}
    both = [
        (form.form, was, share)
        for form in now.forms
        if (was := old.get(form.form)) is not None and (share := form.exposed_share) is not None
    ]
    if not both:
        return _untested(now, _SHARE, "no form has an exposed share from then and from now")
    moved = [
        f"{name} {100 * was:.1f} % → {100 * share:.1f} %"
        for name, was, share in both
        if abs(share - was) * 100 > limits.share_points
    ]
    text = ", ".join(moved) if moved else f"no exposed share moved by more than {limits.share_points:g} points"
    return _tested(now, _SHARE, bool(moved), text)


def _short_task(now: Basis, limits: TriggerLimits) -> Trigger:
    """A few-step request whose steps are slower than the anchor's, on many ranks: communication has not settled."""
    name = "short-task communication pathology"
    measured = [
        form for form in now.forms if form.few_s and form.anchor_s and parse_form(form.form).cards >= _MANY_RANKS
    ]
    if not measured:
        return _untested(now, name, f"no form on {_MANY_RANKS} or more ranks was measured at both tiers")
    limit = 1 + limits.drift_pct / 100
    slow = [form for form in measured if (form.few_s or 0) > (form.anchor_s or 0) * limit]
    listed = ", ".join(f"{form.form} {100 * ((form.few_s or 0) / (form.anchor_s or 1) - 1):+.1f} %" for form in slow)
    text = (
        f"few-step steps are slower than the anchor's: {listed}"
        if slow
        else f"no few-step step is slower than its anchor's by more than {limits.drift_pct:g} %"
    )
    return _tested(now, name, bool(slow), text)


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
