"""The report's tables as text, once, for the page and for the Markdown: the same facts in both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anchormatrix.report.answer import other_missing
from anchormatrix.report.facts import POOLED, SessionRecord
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.sessions import temperatures
from anchormatrix.report.source import plain
from anchormatrix.report.step_pictures import analysed

GATES = ("G1", "G2", "G3", "G4", "G5", "G6", "G7")
_SHORT = 17
_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d).*")
_MARKS = {"passed": "✓ passed", "failed": "✗ failed", "unknown": "? unknown"}


@dataclass(frozen=True)
class Table:
    """A table of text. ``numeric`` names right-aligned columns; rows in ``bad`` are marked; ``empty`` replaces none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    bad: frozenset[int] = frozenset()
    empty: str = ""

    @property
    def unbroken(self) -> frozenset[str]:
        """Columns of short values, which are not broken over lines."""
        columns = zip(self.columns, zip(*self.rows, strict=True), strict=True) if self.rows else ()
        return frozenset(name for name, values in columns if max(map(len, values)) <= _SHORT)


def cells(report: Report) -> Table:
    """Every cell with its contract, window, repeats, median and dispersion."""
    found = [cell for measured in report.measured for cell in measured.cells.value or ()]
    notes = {measured.contract.id: measured.contract.note for measured in report.measured}
    noted = any(notes.values())
    rows = tuple(
        (
            cell.contract,
            cell.form,
            cell.tier,
            cell.window,
            str(cell.repeats),
            _number(cell.step_s, 4),
            _number(cell.dispersion_pct, 2),
            "yes" if cell.usable else "no" + (f": {cell.reason}" if cell.reason else ""),
            *((notes.get(cell.contract, ""),) if noted else ()),
        )
        for cell in found
    )
    columns = ("contract", "form", "tier", "window", "repeats", "median s/step", "dispersion %", "usable")
    return Table(
        (*columns, "note") if noted else columns,
        rows,
        frozenset({"repeats", "median s/step", "dispersion %"}),
        frozenset(i for i, cell in enumerate(found) if not cell.usable),
        "No cell was measured under a current contract.",
    )


def not_measured(report: Report) -> Table:
    """Forms and sessions without a number, with the reason and the lines of the log that show it."""
    rows = []
    for measured in (*report.measured, *report.rejected):
        told = set()
        for session in measured.sessions:
            if session.status not in ("measured",):
                told.add(session.form)
                evidence = "\n".join(session.evidence) or "\n".join(session.proof)
                rows.append(_failure(measured, session.form, session.window, session.status, session.reason, evidence))
        for form, reason in measured.verdict.value.did_not_run if measured.verdict.value else ():
            if form not in told:
                rows.append(_failure(measured, form, "", "did_not_run", reason, ""))
        for missing in other_missing(measured.verdict.value) if measured.verdict.value else ():
            rows.append(_failure(measured, "", "", "missing", missing, ""))
    return Table(
        ("cards", "form", "window", "outcome", "reason", "evidence"),
        tuple(rows),
        empty="Every form of every current contract ran through and proved its effect.",
    )


def _failure(measured: Measured, form: str, window: str, status: str, reason: str, evidence: str) -> tuple[str, ...]:
    outcome = {"did_not_run": "did not run through"}.get(status, status)
    return (str(measured.contract.size), form, window, outcome, reason, evidence)


def smokes(report: Report) -> Table:
    """The four-step smoke of each group, rejected ones included."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for measured in (*report.measured, *report.rejected):
        smoke, contract = measured.smoke.value, measured.contract
        if smoke is None or smoke.status == "rejected":
            bad.add(len(rows))
        if smoke is None:
            rows.append((contract.id, _group(contract.cards), "missing", "", "", measured.smoke.missing))
            continue
        findings = "\n".join(f"{kind.replace('_', ' ')}: {text}" for kind, text in smoke.findings) or "nothing found"
        expected = (
            f"{_number(smoke.expected_s, 3)} ({smoke.expected_source})" if smoke.expected_s else smoke.expected_source
        )
        rows.append((contract.id, _group(contract.cards), smoke.status, _number(smoke.step_s, 3), expected, findings))
    columns = ("contract", "cards", "smoke", "s/step", "expected s/step", "findings")
    return Table(columns, tuple(rows), frozenset({"s/step"}), frozenset(bad), "No smoke was run.")


def cards(report: Report) -> Table:
    """Cards as read last."""
    found = report.cards.value or ()
    rows = tuple(
        (
            str(card.id),
            card.name,
            card.health,
            f"{card.used_mb:.0f} / {card.total_mb:.0f}",
            _number(card.temperature_c, 0),
            "\n".join(card.foreign) or "none",
        )
        for card in found
    )
    bad = frozenset(i for i, card in enumerate(found) if card.alarmed or card.foreign)
    columns = ("card", "model", "health", "memory MB", "°C", "tenants")
    return Table(columns, rows, frozenset({"memory MB", "°C"}), bad, f"No card is listed: {report.cards.missing}.")


def rejected_groups(report: Report) -> Table:
    """Groups that were not used, each with its reason."""
    found = report.contracts.value.rejected if report.contracts.value else ()
    rows = tuple((str(len(group.cards)), _group(group.cards), group.reason) for group in found)
    return Table(("size", "cards", "why not"), rows, empty="No other group was considered.")


def collectives(measured: Measured) -> Table:
    """Collectives by family and communicator: calls and times of the rank with the longest sum, over how many ranks."""
    rows = []
    for form, anatomy in analysed(measured).items():
        keys = dict.fromkeys((family.family, family.communicator) for family in anatomy.families)
        for key in keys:
            ranks = [family for family in anatomy.families if (family.family, family.communicator) == key]
            top = max(ranks, key=lambda family: family.sum_ms)
            spread = f"{min(family.sum_ms for family in ranks):.2f} … {top.sum_ms:.2f}"
            rows.append(
                (
                    form,
                    key[0],
                    key[1],
                    str(len(ranks)),
                    str(top.calls),
                    _number(top.calls_per_layer, 2),
                    spread,
                    _number(top.median_ms, 3),
                    _number(top.union_over_sum, 3),
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
    """What the captures prove of each form's effect, and how they were taken."""
    rows, bad = [], set()
    for form, anatomy in analysed(measured).items():
        rows.append(
            (form, "capture", anatomy.captured or "not stated", _rows_words(anatomy.rows_read, anatomy.rows_unusable))
        )
        for name, ok, text in anatomy.checks:
            if not ok:
                bad.add(len(rows))
            rows.append((form, name, "holds" if ok else "fails", text))
        rows.extend((form, "finding", "", text) for text in anatomy.findings)
        rows.extend((form, name, "not analysed", reason) for name, reason in anatomy.missing)
        for bound in anatomy.bounds[:1]:
            rows.extend((form, "masking", "warning", warning) for warning in bound.warnings)
    return Table(
        ("form", "check", "result", "what was seen"), tuple(rows), bad=frozenset(bad), empty="Nothing to prove."
    )


def _rows_words(read: int, unusable: int) -> str:
    return f"{read:,} kernel rows read, {unusable:,} unusable".replace(",", "\u2009") if read else ""


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
            f"{row.size_bytes / 1e6:g}",
            str(row.concurrency),
            f"{row.time_us:.1f}",
            f"{row.gb_s:.2f}",
        )
        for row in measured.bandwidth.value or ()
    )
    columns = ("collective", "links", "MB", "concurrency", "µs", "GB/s")
    return Table(columns, rows, frozenset(columns[2:]), empty=measured.bandwidth.missing or "The sweep holds no point.")


def shared_facts(report: Report) -> Table:
    """Facts that all current contracts have in common."""
    return Table(("fact", "value"), tuple(_shared(report)), empty="There is no current contract.")


def own_facts(report: Report) -> Table:
    """One row per current contract: its group, and the facts that differ between contracts."""
    common = {name for name, _ in _shared(report)}
    others = dict.fromkeys(
        name for measured in report.measured for name, _ in measured.contract.facts if name not in common
    )
    rows = []
    for measured in report.measured:
        contract, facts = measured.contract, dict(measured.contract.facts)
        domains = "one domain" if contract.one_domain else "crosses domains"
        group = (
            contract.id,
            str(contract.version),
            _group(contract.cards),
            contract.link_class,
            domains,
            contract.reason,
        )
        rows.append((*group, *(facts.get(name, "") for name in others)))
    columns = ("contract", "version", "cards", "links", "domains", "why this group", *others)
    return Table(columns, tuple(rows), empty=report.contracts.missing or "There is no current contract.")


def _shared(report: Report) -> list[tuple[str, str]]:
    sets = [set(measured.contract.facts) for measured in report.measured]
    if not sets:
        return []
    common = set.intersection(*sets)
    return [fact for fact in report.measured[0].contract.facts if fact in common]


def history(report: Report) -> Table:
    """Every contract version ever entered, newest first; current ones say so."""
    states = {measured.contract.id: "current" for measured in report.measured}
    states |= {measured.contract.id: "rejected by its smoke" for measured in report.rejected}
    rows = tuple(
        (
            minute(entry.when),
            entry.id,
            f"v{entry.version}",
            _group(entry.cards),
            states.get(entry.id, "retired"),
            "\n".join(entry.changed) or "first version",
            entry.why,
        )
        for entry in reversed(report.ledger)
    )
    columns = ("when", "contract", "version", "cards", "state", "what changed", "why")
    return Table(columns, rows, empty="The ledger of contracts is empty or missing.")


def sessions(report: Report) -> Table:
    """Every server session: when, how long, what it proved, how it ended."""
    found = [(measured, session) for measured in report.measured for session in measured.sessions]
    rows = tuple(
        (
            session.form,
            session.window,
            session.status.replace("_", " "),
            minute(session.started_at),
            _number(session.duration_s, 1),
            "\n".join(session.proof),
            session.ramp,
            session.capture,
            session.stopped,
        )
        for _, session in found
    )
    bad = frozenset(i for i, (_, session) in enumerate(found) if session.status != "measured")
    columns = ("form", "window", "status", "started", "s", "proof", "ramp", "capture", "stopped")
    return Table(columns, rows, frozenset({"s"}), bad, "No session was run under a current contract.")


def circumstances(report: Report) -> Table:
    """Temperatures, load and the state of the log round every session."""
    rows = [
        (
            session.form,
            session.window,
            _range(temperatures(session.before)),
            _range(temperatures(session.after)),
            session.load or "not stated",
            str(session.tries) if session.tries else "1",
            ", ".join(f"{name} {value}" for name, value in session.log),
        )
        for measured in report.measured
        for session in measured.sessions
    ]
    columns = ("form", "window", "°C before", "°C after", "host load", "tries", "log")
    return Table(columns, tuple(rows), frozenset(columns[2:4]), empty="No session recorded its circumstances.")


def commands(report: Report) -> list[tuple[str, SessionRecord]]:
    """The exact command of every session, with the contract it ran under."""
    return [(measured.contract.id, session) for measured in report.measured for session in measured.sessions]


def versions(report: Report) -> Table:
    """Versions read from the host."""
    return Table(("what", "version"), report.versions, empty="No version was read from the host.")


def triggers(report: Report) -> Table:
    """Reasons to verify again at higher steps, those that hold first."""
    found = sorted(report.choices.value.triggers, key=lambda trigger: not trigger.fired) if report.choices.value else []
    rows = tuple((trigger.name, "holds: verify again" if trigger.fired else "no", trigger.text) for trigger in found)
    bad = frozenset(i for i, trigger in enumerate(found) if trigger.fired)
    return Table(("trigger", "holds", "what was compared"), rows, bad=bad, empty=report.choices.missing)


def reruns(report: Report) -> Table:
    """Cells that were measured again: the old and the new value."""
    rows = []
    for rerun in report.reruns:
        change = ""
        if rerun.before_s and rerun.after_s:
            change = f"{100 * (rerun.after_s / rerun.before_s - 1):+.2f} %"
        rows.append(
            (
                minute(rerun.when),
                rerun.contract,
                f"{rerun.form} {rerun.tier}",
                _with_dispersion(rerun.before_s, rerun.before_dispersion_pct),
                _with_dispersion(rerun.after_s, rerun.after_dispersion_pct),
                change,
                "\n".join(rerun.changed) or "nothing but the measurement",
            )
        )
    columns = ("when", "contract", "cell", "old s/step", "new s/step", "change", "what else changed")
    return Table(columns, tuple(rows), frozenset(columns[3:6]), empty="No cell was measured again.")


def problems(report: Report) -> Table:
    """Files that could not be used."""
    return Table(("file", "why it was not used"), tuple((problem.file, problem.text) for problem in report.problems))


def pooled_count(report: Report) -> int:
    """How many cells the report rests on."""
    return sum(cell.window == POOLED for measured in report.measured for cell in measured.cells.value or ())


def _with_dispersion(step_s: float | None, dispersion_pct: float | None) -> str:
    return _number(step_s, 4) + (f" ({dispersion_pct:.2f} %)" if dispersion_pct is not None else "")


def minute(when: str) -> str:
    """A time stamp to the minute; anything else as it is."""
    return _MINUTE.sub(r"\1 \2", when)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f} … {max(values):.0f}" if values else "–"


def _group(ids: Iterable[int]) -> str:
    return plain(list(ids))
