"""Tables of what was concluded from the numbers: collectives, proofs, gates, bandwidth, triggers."""

from __future__ import annotations

import re

from anchormatrix.records.conclusions.gates import EffectStatus
from anchormatrix.report.captured_steps import analysed, bounds, families
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.tables.session_words import capture_words
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import number

_SIZED = re.compile(r"(\d+) cards: (.*)", re.DOTALL)
GATES = ("G1", "G2", "G3", "G4", "G5", "G6", "G7")
GATES_NOTE = (
    "Passed: the form runs and proved itself (G1), fits (G2), its computing alone is shorter than the fastest form's "
    "step (G4), and it is not behind the leader of the selection (G6). The byte bound (G3), the masking "
    "bound (G5) and projections (G7) are theory: they say where to look and fail no form. Unknown: not measured, not "
    "to be read, or contradicted, and not guessed. Only G6 ranks."
)
_MARKS = {"passed": "✓ passed", "failed": "✗ failed", "unknown": "? unknown"}


def collectives(measured: Measured) -> Table:
    """Collectives by family and communicator: calls and times of the rank with the longest sum, over how many ranks."""
    rows = []
    for form, attribution in analysed(measured).items():
        keys = dict.fromkeys((family.family, family.communicator) for family in families(attribution))
        for key in keys:
            ranks = [family for family in families(attribution) if (family.family, family.communicator) == key]
            top = max(ranks, key=lambda family: family.sum_ms)
            spread = f"{min(family.sum_ms for family in ranks):.2f} … {top.sum_ms:.2f}"
            rows.append(
                (
                    form,
                    key[0],
                    key[1],
                    str(len(ranks)),
                    str(top.calls),
                    number(top.calls_per_layer, 2),
                    spread,
                    number(top.median_ms, 3),
                    number(top.union_over_sum, 3),
                )
            )
    columns = (
        "form",
        "family",
        "communicator",
        "ranks",
        "calls",
        "per layer",
        "sum ms, ranks",
        "median ms",
        "union ÷ sum",
    )
    return Table(columns, tuple(rows), frozenset(columns[3:]), empty="No collective in any capture of this size.")


def proofs(measured: Measured) -> Table:
    """The effect of each form's launch features, what its capture proves of it, and how that was taken."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for form, effects in (measured.gates.value.effects if measured.gates.value else {}).items():
        bad |= {len(rows) + i for i, effect in enumerate(effects) if effect.status is not EffectStatus.PROVEN}
        rows.extend((form, effect.feature, effect.status, effect.text) for effect in effects)
    for form, attribution in analysed(measured).items():
        rows.append(
            (
                form,
                "capture",
                capture_words(attribution.capture) or "not stated",
                _rows_words(attribution.rows_read or 0, sum((attribution.rows_unusable or {}).values())),
            )
        )
        for check in attribution.effect.checks if attribution.effect else ():
            if not check.ok:
                bad.add(len(rows))
            rows.append((form, check.name, "holds" if check.ok else "fails", check.text))
        rows.extend((form, "finding", "", finding.text) for finding in attribution.findings or ())
        rows.extend((form, "finding", "", note) for note in attribution.notes or ())
        rows.extend((form, name, "not analysed", reason) for name, reason in (attribution.missing or {}).items())
        for bound in bounds(attribution)[:1]:
            rows.extend((form, "masking", "warning", warning) for warning in bound.warnings)
    return Table(
        ("form", "check", "result", "what was seen"), tuple(rows), bad=frozenset(bad), empty="Nothing to prove."
    )


def _rows_words(read: int, unusable: int) -> str:
    return f"{_grouped(read)} kernel rows read, {_grouped(unusable)} unusable" if read else ""


def _grouped(count: int) -> str:
    return f"{count:,}".replace(",", "\u2009")


def gate_matrix(measured: Measured) -> Table:
    """Gates × forms as marks."""
    found = measured.gates.value.gates if measured.gates.value else ()
    forms = list(dict.fromkeys(gate.form for gate in found))
    status = {(gate.form, gate.gate): _MARKS.get(gate.status, gate.status) for gate in found}
    names = {gate.gate: gate.name for gate in found}
    columns = ("form", *(f"{gate} {names.get(gate, '')}".strip() for gate in GATES))
    rows = tuple((form, *(status.get((form, gate), "not evaluated") for gate in GATES)) for form in forms)
    return Table(columns, rows, empty=measured.gates.missing or "No gate was evaluated.")


def gate_details(measured: Measured) -> Table:
    """Every gate with its number in words and its source."""
    found = measured.gates.value.gates if measured.gates.value else ()
    rows = tuple((gate.form, gate.gate, _MARKS.get(gate.status, gate.status), gate.text, gate.source) for gate in found)
    bad = frozenset(i for i, gate in enumerate(found) if gate.status == "failed")
    return Table(("form", "gate", "status", "evidence", "source"), rows, bad=bad, empty=measured.gates.missing)


def bandwidth(measured: Measured) -> Table:
    """The size sweep of a group."""
    rows = tuple(
        (
            row.collective.replace("_", "-"),
            row.link_class,
            f"{row.bytes / 1e6:g}",
            str(row.concurrency),
            f"{row.time_us:.1f}",
            f"{row.gb_s:.2f}",
        )
        for row in (measured.bandwidth.value.points if measured.bandwidth.value else ())
    )
    columns = ("collective", "links", "MB per rank", "concurrency", "µs", "GB/s on the wire")
    return Table(columns, rows, frozenset(columns[2:]), empty=measured.bandwidth.missing or "The sweep holds no point.")


def triggers(report: Report) -> Table:
    """Reasons to verify again at higher steps, those that hold first; sizes with the same to say together."""
    told: dict[tuple[bool, str, str, str], list[str]] = {}
    for trigger in report.decision.value.reverify_triggers if report.decision.value else ():
        size, text = match.groups() if (match := _SIZED.fullmatch(trigger.text)) else ("", trigger.text)
        holds = "holds: verify again" if trigger.fired else "no" if trigger.evaluated else "not tested"
        told.setdefault((not trigger.fired, trigger.trigger, text, holds), []).append(size)
    found = sorted(told.items(), key=lambda item: item[0][0])
    rows = tuple((name, ", ".join(filter(None, sizes)), holds, text) for (_, name, text, holds), sizes in found)
    bad = frozenset(i for i, ((quiet, *_), _) in enumerate(found) if not quiet)
    return Table(("trigger", "cards", "holds", "what was compared"), rows, bad=bad, empty=report.decision.missing)
