"""Tables of sessions: how each ran, in what circumstances, by which command, and those without a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.report.answer import other_missing
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.tables.session_words import capture_words, log_words, proof_words, stop_words, temperatures
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import minute, number

NOT_MEASURED_NOTE = (
    "A form that did not run through is not thereby unavailable: that needs a control arm which changes the suspected "
    "dimension alone. A void session ran, but not as its form; its numbers are used nowhere."
)
_NO_FAILURE = (SessionStatus.MEASURED, SessionStatus.SKIPPED)


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
            capture_words(session.capture),
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


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f} … {max(values):.0f}" if values else "–"


def commands(report: Report) -> list[tuple[str, Session]]:
    """The exact command of every session, with the contract it ran under."""
    return [(measured.contract.id, session) for measured, session in _sessions(report)]


def not_measured(report: Report) -> Table:
    """Forms and sessions without a number, with the reason, what to do, and the lines of the log that show it."""
    rows = []
    for measured in (*report.measured, *report.rejected):
        told = set()
        for session in (timed.session for timed in measured.sessions):
            if session.status not in _NO_FAILURE:
                told.add(session.form)
                evidence = "\n".join(session.evidence or proof_words(session))
                window = str(session.window)
                todo = session.failure.advice if session.failure else ""
                rows.append(_failure(measured, session.form, window, session.status, session.reason, todo, evidence))
        for entry in measured.verdict.value.did_not_run if measured.verdict.value else ():
            if entry.form not in told:
                rows.append(_failure(measured, entry.form, "", SessionStatus.DID_NOT_RUN, entry.reason))
        for missing in other_missing(measured.verdict.value) if measured.verdict.value else ():
            rows.append(_failure(measured, "", "", "missing", missing))
    return Table(
        ("cards", "form", "window", "outcome", "reason", "what to do", "evidence"),
        tuple(rows),
        empty="Every form of every current contract ran through and proved its effect.",
    )


def _failure(
    measured: Measured, form: str, window: str, status: str, reason: str, todo: str = "", evidence: str = ""
) -> tuple[str, ...]:
    outcome = "did not run through" if status == SessionStatus.DID_NOT_RUN else str(status)
    return (str(measured.contract.size), form, window, outcome, reason, todo, evidence)


def left_out(report: Report) -> Table:
    """Sessions that were left out because nothing they could say would change the decision."""
    rows = tuple(
        (
            str(measured.contract.size),
            session.form,
            str(session.window),
            session.reason,
        )
        for measured, session in _sessions(report)
        if session.status is SessionStatus.SKIPPED
    )
    return Table(("cards", "form", "window", "reason"), rows, empty="No session was left out.")


def _sessions(report: Report) -> Iterator[tuple[Measured, Session]]:
    for measured in report.measured:
        yield from ((measured, timed.session) for timed in measured.sessions)
