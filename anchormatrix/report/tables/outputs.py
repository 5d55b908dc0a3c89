"""The outputs of the forms: fingerprints held against one reference, and the engine's own check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from anchormatrix.records.outputs import OutputStatus, SessionOutput
from anchormatrix.records.requests import RequestRow, RequestStatus, Role
from anchormatrix.records.session import Check, SessionStatus
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.report.model import Measured, Report, fixed_facts
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import count_of
from anchormatrix.store.sessions import TimedSession

NOTE = (
    "A fingerprint is the beginning of the sha256 of a response; warm-ups and repeats count, the captured request does "
    "not. Outputs of a contaminated session count, its times do not. The reference is one rank under the same "
    "workload, else the first form of the size. The engine's own check is what its ranks log before they serve: how "
    "far this form is from the unsplit computation, and how far it may be. The picture is the decoded answer to the "
    "first anchor request of a session: forms add up in another order, so its worst frame has to be close, by the PSNR "
    "that is asked for at the model's precision. A session that computes another picture is void."
)
REFERENCE, IDENTICAL, DIFFERS, VARIES, NOT_COMPARABLE = (
    "reference",
    "identical",
    "differs",
    "varies",
    "not comparable",
)

_COUNTED = (SessionStatus.MEASURED, SessionStatus.CONTAMINATED, SessionStatus.UNMEASURABLE)


@dataclass(frozen=True)
class FormOutput:
    """The outputs of one form and tier. ``fingerprints`` are the different ones of ``requests`` answered requests.

    ``picture`` is what the comparison says of the form's sessions at their worst.
    """

    measured: Measured
    form: str
    tier: str
    check: Check | None
    steps: int | None = None
    fingerprints: tuple[str, ...] = ()
    requests: int = 0
    printed: int = 0
    windows: int = 0
    outcome: str = NOT_COMPARABLE
    reference: str = ""
    reason: str = ""
    picture: SessionOutput | None = None

    @property
    def stable(self) -> bool:
        """Whether all its requests gave one and the same output."""
        return len(self.fingerprints) == 1

    @property
    def doubtful(self) -> bool:
        """Whether nothing vouches for the result: it varies, or differs without a check that it holds."""
        failed = self.check is not None and not self.check.ok
        vouched = self.check is not None or (self.picture is not None and self.picture.status is OutputStatus.SAME)
        return failed or self.outcome == VARIES or (self.outcome == DIFFERS and not vouched)


def outputs(report: Report) -> tuple[FormOutput, ...]:
    """Every form and tier of the current contracts, in the order of the report."""
    return tuple(
        row for measured in report.measured for form in measured.forms for row in _rows_of_form(report, measured, form)
    )


def _rows_of_form(report: Report, measured: Measured, form: str) -> list[FormOutput]:
    sessions = _sessions_of(measured, form)
    if not _counted(sessions):
        gone = [timed for timed in sessions if timed.session.status is not SessionStatus.SKIPPED]
        why = "; ".join(dict.fromkeys(timed.session.status.replace("_", " ") for timed in gone))
        row = FormOutput(measured, form, "", _worst_check(gone), reason=why, picture=_worst_picture(measured, form))
        return [row] if gone else []
    return [_compared(report, measured, _gathered(measured, form, tier)) for tier in (FEW, ANCHOR)]


def _sessions_of(measured: Measured, form: str) -> list[TimedSession]:
    return [timed for timed in measured.sessions if timed.session.form == form]


def _counted(sessions: list[TimedSession]) -> list[TimedSession]:
    """Sessions whose outputs count: somebody else on the cards, or no stage times, spoil the speed alone."""
    return [timed for timed in sessions if timed.session.status in _COUNTED]


def _gathered(measured: Measured, form: str, tier: str) -> FormOutput:
    sessions = _counted(_sessions_of(measured, form))
    rows = [(timed.session.window, row) for timed in sessions for row in _answered(timed) if row.tier == tier]
    found = [row for _, row in rows]
    prints = [row.fingerprint for row in found if row.fingerprint]
    windows = {window for window, _ in rows}
    return FormOutput(
        measured,
        form,
        tier,
        _worst_check(sessions),
        steps=found[0].steps if found else None,
        fingerprints=tuple(dict.fromkeys(prints)),
        requests=len(found),
        printed=len(prints),
        windows=len(windows),
        picture=_worst_picture(measured, form),
    )


def _answered(timed: TimedSession) -> Iterator[RequestRow]:
    """The requests whose outputs count: warm-ups and repeats that were answered."""
    for row in timed.requests:
        if row.role in (Role.RAMP, Role.MEASURED) and row.status is not RequestStatus.ERROR:
            yield row


def _worst_check(sessions: list[TimedSession]) -> Check | None:
    found = [proof.check for timed in sessions if (proof := timed.session.proof) and proof.check is not None]
    return max(found, key=lambda check: (not check.ok, _distance(check)), default=None)


def _worst_picture(measured: Measured, form: str) -> SessionOutput | None:
    worst_first = (OutputStatus.VOID, OutputStatus.NOT_COMPARED, OutputStatus.OTHER_PRODUCT, OutputStatus.SAME)
    found = measured.outputs.value.of_form(form) if measured.outputs.value else ()
    ranked = sorted(found, key=lambda one: (worst_first.index(one.status), one.psnr_db is None, one.psnr_db or 0.0))
    return ranked[0] if ranked else None


def _distance(check: Check) -> float:
    return inf if check.relative_distance is None else check.relative_distance


def _compared(report: Report, measured: Measured, own: FormOutput) -> FormOutput:
    if not own.requests:
        return replace(own, reason="no request of this tier was recorded")
    if not own.fingerprints:
        return replace(own, reason="the server gives no fingerprint")
    if not own.stable:
        return replace(own, outcome=VARIES, reason="its own outputs differ with one seed")
    reference = _reference(report, measured, own)
    if (reference.measured, reference.form) == (measured, own.form):
        return replace(own, outcome=REFERENCE, reference=own.form)
    name = reference.form + ("" if reference.measured is measured else " on 1 card")
    same = reference.fingerprints == own.fingerprints
    return replace(own, outcome=IDENTICAL if same else DIFFERS, reference=name)


def _reference(report: Report, measured: Measured, own: FormOutput) -> FormOutput:
    """One rank under the same workload and stack, else the first form of the size; only outputs that never vary."""
    single = [
        one
        for one in report.measured
        if one.contract.size == 1 and fixed_facts(one.contract) == fixed_facts(measured.contract)
    ]
    found = [_gathered(one, form, own.tier) for one in (*single, measured) for form in one.forms]
    return next(one for one in found if one.stable)


def table(report: Report) -> Table:
    """The comparison as a table; rows that nothing vouches for are marked."""
    found = outputs(report)
    rows = tuple(
        (
            str(row.measured.contract.size),
            row.form,
            f"{row.tier}, {row.steps} steps" if row.steps else row.tier or "–",
            "\n".join(row.fingerprints) or "–",
            _repeats(row),
            _against(row),
            row.picture.text if row.picture else row.measured.outputs.missing or "not compared",
            check_words(row.check),
        )
        for row in found
    )
    columns = (
        "cards",
        "form",
        "tier",
        "output fingerprint",
        "windows and repeats",
        "result",
        "picture",
        "the engine's own check",
    )
    bad = frozenset(i for i, row in enumerate(found) if row.doubtful)
    return Table(columns, rows, bad=bad, empty="No session was run under a current contract.")


def _repeats(row: FormOutput) -> str:
    if not row.fingerprints:
        return "–"
    windows = f"{row.windows} window{'' if row.windows == 1 else 's'}"
    some = "" if row.printed == row.requests else f"{row.printed} of "
    what = "identical" if row.stable else f"{len(row.fingerprints)} different outputs"
    return f"{what} in {some}{row.requests} requests, {windows}"


def _against(row: FormOutput) -> str:
    if row.outcome == REFERENCE:
        return "the reference"
    if row.outcome == IDENTICAL:
        return f"identical to {row.reference}"
    if row.outcome == DIFFERS:
        return f"differs from {row.reference}"
    return f"not comparable: {row.reason}"


def check_words(check: Check | None) -> str:
    """The engine's check: the largest relative difference it saw, its tolerance, and whether it holds."""
    if check is None:
        return "none logged"
    seen = "no finite number" if check.relative_distance is None else f"{check.relative_distance:.1e}"
    return f"largest relative difference {seen}, tolerance {check.limit:.1e}: {'holds' if check.ok else 'fails'}"


def reading(report: Report) -> str:
    """What the table says, one sentence per size, and whether an engine vouches for it."""
    found = [row for row in outputs(report) if row.outcome in (IDENTICAL, DIFFERS)]
    if not found:
        return "No two forms have outputs that could be compared."
    sizes = dict.fromkeys(row.measured.contract.size for row in found)
    parts = [_of_size(size, [row for row in found if row.measured.contract.size == size]) for size in sizes]
    if all(row.check is None and row.picture is None for row in found):
        parts.append("No engine logged a check of its own, so this rests on the responses alone.")
    return " ".join(parts)


def _of_size(size: int, found: list[FormOutput]) -> str:
    different = {row.form: row for row in found if row.outcome == DIFFERS}
    same = dict.fromkeys(row.form for row in found if row.form not in different)
    reference = found[0].reference
    parts = [f"{', '.join(same)} bit-identical to {reference}"] if same else []
    parts += [f"{form} not bit-identical to {row.reference}, {_vouching(row)}" for form, row in different.items()]
    return f"{count_of(size)}: {'; '.join(parts)}."


def _vouching(row: FormOutput) -> str:
    if row.check is None and row.picture is not None:
        return row.picture.text
    return f"its own check: {check_words(row.check)}"
