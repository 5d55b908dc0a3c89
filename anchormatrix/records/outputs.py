"""The outputs file: whether the forms of a contract compute the same picture."""

from __future__ import annotations

import enum

from msgspec.structs import replace

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.session import Session, SessionStatus


class OutputStatus(enum.StrEnum):
    """What an output says of its session. Nothing is said of one that is ``not_compared``; ``void`` ends its numbers.

    ``other_product``: it is said beforehand to be another picture by design, so its speed is that of something else.
    """

    SAME = "same"
    OTHER_PRODUCT = "other_product"
    VOID = "void"
    NOT_COMPARED = "not_compared"


class SessionOutput(Record, frozen=True):
    """The output of one session. ``psnr_db`` is that of its worst frame against the reference, ``None`` of equal bytes
    and of outputs that were not compared; ``text`` says it in words."""

    form: str
    window: int
    status: OutputStatus
    psnr_db: float | None
    text: str


class Outputs(FileRecord, frozen=True):
    """The outputs of a contract, as ``outputs.json`` holds them. ``reference`` is the form whose picture counts."""

    contract: str
    reference: str | None
    limit_db: float
    sessions: tuple[SessionOutput, ...]

    def of_form(self, form: str) -> tuple[SessionOutput, ...]:
        """The outputs of a form, by window."""
        return tuple(one for one in self.sessions if one.form == form)

    def applied_to(self, session: Session) -> Session:
        """The session, void when its picture is not the one that counts: its numbers are those of another thing."""
        found = (one for one in self.of_form(session.form) if one.window == session.window)
        one = next(found, None)
        if one is None or one.status is not OutputStatus.VOID or session.status is not SessionStatus.MEASURED:
            return session
        return replace(session, status=SessionStatus.VOID, reason=one.text)
