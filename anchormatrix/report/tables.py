"""The report's tables as text, once, for the page and for the Markdown: the same facts in both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from anchormatrix.planning.groups import REJECTED_HEALTH, show
from anchormatrix.records.cells import ALL
from anchormatrix.records.contract import RejectedGroup
from anchormatrix.records.host import Card
from anchormatrix.records.rerun import RerunCell
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.records.smoke import SmokeStatus
from anchormatrix.report.answer import other_missing
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.sessions import capture_words, log_words, proof_words, stop_words, temperatures

CELLS_NOTE = (
    "The dispersion of window all is the worst of its windows; what lies between the windows is their drift. "
    "The median is that of all repeats."
)
NOT_MEASURED_NOTE = (
    "A form that did not run through is not thereby unavailable: that needs a control arm which changes the suspected "
    "dimension alone. A void session ran, but not as its form; its numbers are used nowhere."
)
SMOKES_NOTE = (
    "A smoke is the first request of a cold server, which often runs 10 to 15 % faster than the steady state: "
    "it is compared with smokes, never with cells."
)
_SHORT = 17
_NO_FAILURE = (SessionStatus.MEASURED, SessionStatus.SKIPPED)
_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d).*")


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
    notes = {measured.contract.id: report.note(measured) for measured in report.measured}
    noted = any(notes.values())
    rows = tuple(
        (
            cell.contract,
            cell.form,
            cell.tier,
            cell.window,
            str(cell.repeats),
            number(cell.step_s, 4),
            number(cell.dispersion_pct, 2),
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
        for session in (timed.session for timed in measured.sessions):
            if session.status not in _NO_FAILURE:
                told.add(session.form)
                evidence = "\n".join(session.evidence or proof_words(session))
                window = str(session.window)
                rows.append(_failure(measured, session.form, window, session.status, session.reason, evidence))
        for entry in measured.verdict.value.did_not_run if measured.verdict.value else ():
            if entry.form not in told:
                rows.append(_failure(measured, entry.form, "", SessionStatus.DID_NOT_RUN, entry.reason, ""))
        for missing in other_missing(measured.verdict.value) if measured.verdict.value else ():
            rows.append(_failure(measured, "", "", "missing", missing, ""))
    return Table(
        ("cards", "form", "window", "outcome", "reason", "evidence"),
        tuple(rows),
        empty="Every form of every current contract ran through and proved its effect.",
    )


def left_out(report: Report) -> Table:
    """Sessions that were left out or cut short because nothing they could say would change the decision."""
    rows = tuple(
        (
            str(measured.contract.size),
            session.form,
            str(session.window),
            "not measured" if session.status is SessionStatus.SKIPPED else "stopped early",
            session.reason if session.status is SessionStatus.SKIPPED else session.stopped_early or "",
        )
        for measured, session in _sessions(report)
        if session.status is SessionStatus.SKIPPED or session.stopped_early
    )
    return Table(("cards", "form", "window", "outcome", "reason"), rows, empty="No session was left out.")


def _failure(measured: Measured, form: str, window: str, status: str, reason: str, evidence: str) -> tuple[str, ...]:
    outcome = "did not run through" if status == SessionStatus.DID_NOT_RUN else str(status)
    return (str(measured.contract.size), form, window, outcome, reason, evidence)


def smokes(report: Report) -> Table:
    """The four-step smoke of each group, rejected ones included."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for measured in (*report.measured, *report.rejected):
        smoke, contract = measured.smoke.value, measured.contract
        if smoke is None or smoke.status is SmokeStatus.REJECTED:
            bad.add(len(rows))
        if smoke is None:
            rows.append((contract.id, group(contract.cards), "missing", "", "", measured.smoke.missing))
            continue
        findings = "\n".join(f"{one.kind.replace('_', ' ')}: {one.text}" for one in smoke.findings) or "nothing found"
        expected = (
            f"{number(smoke.expected_s, 3)} ({smoke.expected_source})"
            if smoke.expected_s
            else smoke.expected_source or ""
        )
        rows.append((contract.id, group(contract.cards), smoke.status, number(smoke.step_s, 3), expected, findings))
    columns = ("contract", "cards", "smoke", "s/step", "expected s/step", "findings")
    return Table(columns, tuple(rows), frozenset({"s/step"}), frozenset(bad), "No smoke was run.")


def cards(report: Report) -> Table:
    """Cards as read last."""
    found = report.health.value.cards if report.health.value else ()
    rows = tuple(
        (
            str(card.id),
            card.name,
            card.health,
            f"{card.hbm_used_mb} / {card.hbm_total_mb}",
            number(card.temperature_c, 0),
            "\n".join(tenants(card)) or "none",
        )
        for card in found
    )
    bad = frozenset(i for i, card in enumerate(found) if is_alarmed(card) or card.processes)
    columns = ("card", "model", "health", "memory MB", "°C", "tenants")
    return Table(columns, rows, frozenset({"memory MB", "°C"}), bad, f"No card is listed: {report.health.missing}.")


def rejected_groups(report: Report) -> Table:
    """Groups that were not used: those of one size with the same kind of reason together, one reason spelled out."""
    kinds: dict[tuple[int, str], list[RejectedGroup]] = {}
    for refusal in report.contracts.value.rejected if report.contracts.value else ():
        kinds.setdefault((len(refusal.cards), refusal.reason.split(": ")[0]), []).append(refusal)
    rows = []
    for (size, kind), found in kinds.items():
        same = len({refusal.reason for refusal in found}) == 1
        detail = found[0].reason.removeprefix(f"{kind}: ")
        reason = found[0].reason if same else f"{kind} (the first: {detail})"
        rows.append((str(size), reason, str(len(found)), " · ".join(group(refusal.cards) for refusal in found)))
    columns = ("size", "why not", "groups", "cards")
    return Table(columns, tuple(rows), frozenset({"groups"}), empty="No other group was considered.")


def sessions(report: Report) -> Table:
    """Every server session: when, how long, what it proved, how it ended."""
    found = list(_sessions(report))
    rows = tuple(
        (
            session.form,
            str(session.window),
            session.status.replace("_", " "),
            minute(session.started_at or ""),
            number(session.duration_s, 1),
            "\n".join(proof_words(session)),
            session.ramp.why if session.ramp else "",
            capture_words(session),
            stop_words(session),
        )
        for _, session in found
    )
    bad = frozenset(i for i, (_, session) in enumerate(found) if session.status not in _NO_FAILURE)
    columns = ("form", "window", "status", "started", "s", "proof", "ramp", "capture", "stopped")
    return Table(columns, rows, frozenset({"s"}), bad, "No session was run under a current contract.")


def circumstances(report: Report) -> Table:
    """Temperatures, load and the state of the log round every session."""
    rows = [
        (
            session.form,
            str(session.window),
            _range(temperatures(seen.before if seen else None)),
            _range(temperatures(seen.after if seen else None)),
            f"{seen.load:.6g}" if seen and seen.load else "not stated",
            str(len(session.tries) or 1),
            log_words(session),
        )
        for _, session in _sessions(report)
        for seen in [session.circumstances]
    ]
    columns = ("form", "window", "°C before", "°C after", "host load", "tries", "log")
    return Table(columns, tuple(rows), frozenset(columns[2:4]), empty="No session recorded its circumstances.")


def commands(report: Report) -> list[tuple[str, Session]]:
    """The exact command of every session, with the contract it ran under."""
    return [(measured.contract.id, session) for measured, session in _sessions(report)]


def versions(report: Report) -> Table:
    """Versions read from the host."""
    rows = tuple(msgspec.structs.asdict(report.health.value.versions).items()) if report.health.value else ()
    return Table(("what", "version"), rows, empty="No version was read from the host.")


def reruns(report: Report) -> Table:
    """Cells that were measured again: the old and the new value."""
    rows = []
    for rerun in report.reruns:
        change = ""
        if rerun.before.step_s and rerun.after.step_s:
            change = f"{100 * (rerun.after.step_s / rerun.before.step_s - 1):+.2f} %"
        rows.append(
            (
                minute(rerun.when),
                rerun.contract,
                f"{rerun.form} {rerun.tier}",
                _with_dispersion(rerun.before),
                _with_dispersion(rerun.after),
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
    return sum(cell.window == ALL for measured in report.measured for cell in measured.cells.value or ())


def _with_dispersion(cell: RerunCell) -> str:
    return number(cell.step_s, 4) + (f" ({cell.dispersion_pct:.2f} %)" if cell.dispersion_pct is not None else "")


def _sessions(report: Report) -> Iterator[tuple[Measured, Session]]:
    for measured in report.measured:
        yield from ((measured, timed.session) for timed in measured.sessions)


def is_alarmed(card: Card) -> bool:
    """Whether a card is rejected for its health alone."""
    return card.health.upper() in REJECTED_HEALTH


def tenants(card: Card) -> tuple[str, ...]:
    """Somebody else's processes on a card, in words."""
    return tuple(f"{one.name or 'unnamed'} (pid {one.pid}, {one.memory_mb} MB)" for one in card.processes)


def minute(when: str) -> str:
    """A time stamp to the minute; anything else as it is."""
    return _MINUTE.sub(r"\1 \2", when)


def number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f} … {max(values):.0f}" if values else "–"


def group(ids: Iterable[int]) -> str:
    """Card ids in short: ``0–3``."""
    return show(tuple(ids))
