"""The requests of a session: as they were sent, paired with what the server's log timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchormatrix.engines.timing import Request, ServeLog
from anchormatrix.measure.served import Sent
from anchormatrix.records.requests import RequestRow, RequestStatus
from anchormatrix.records.session import LogCounts


@dataclass(frozen=True)
class Row:
    """One request: as it was sent, and as the server timed it (``None`` when the log has no such request)."""

    sent: Sent
    timed: Request | None

    @property
    def status(self) -> RequestStatus:
        """What became of the request."""
        if self.sent.response.status is RequestStatus.ERROR:
            return RequestStatus.ERROR
        if self.timed is None or self.timed.diffuse_s is None:
            return RequestStatus.UNTIMED
        return RequestStatus.LOST if self.sent.response.status is RequestStatus.LOST else RequestStatus.OK

    @property
    def step_s(self) -> float | None:
        """Step time in seconds, when the timing is whole and the server did not refuse."""
        usable = self.timed is not None and self.status in (RequestStatus.OK, RequestStatus.LOST)
        return self.timed.step_s if self.timed is not None and usable else None

    def record(self, number: int) -> RequestRow:
        """The request as a row of ``requests.csv``; times to a nanosecond, those of the client to a millisecond."""
        timed, response = self.timed, self.sent.response
        return RequestRow(
            request=number,
            role=self.sent.role,
            tier=self.sent.tier,
            steps=self.sent.steps,
            iterations=timed.iterations if timed else None,
            denominator=timed.denominator if timed else None,
            basis=timed.basis if timed and timed.diffuse_s is not None else None,
            witness=timed.witness if timed and timed.diffuse_s is not None else None,
            step_s=_rounded(self.step_s),
            diffuse_s=_rounded(timed.diffuse_s if timed else None),
            encode_s=_rounded(timed.encode_s if timed else None),
            decode_s=_rounded(timed.decode_s if timed else None),
            forward_s=_rounded(timed.forward_s if timed else None),
            ranks=len(timed.ranks) if timed else 0,
            rank_spread_s=_rounded(timed.rank_spread_s if timed else None),
            status=self.status,
            latency_s=round(response.latency_s, 3),
            sent_s=round(self.sent.sent_s, 3),
            fingerprint=response.fingerprint or None,
            steps_s=tuple(round(step, 9) for step in timed.steps_s) if timed else (),
        )


def records_of(rows: Sequence[Row]) -> tuple[RequestRow, ...]:
    """The rows of ``requests.csv``; requests are numbered from 1 as they were sent."""
    return tuple(row.record(number) for number, row in enumerate(rows, start=1))


def rows_of(sent: Sequence[Sent], timed: Sequence[Request]) -> tuple[Row, ...]:
    """The requests sent, each with what an engine's reading tells of it at the same place."""
    return tuple(Row(one, timed[number] if number < len(timed) else None) for number, one in enumerate(sent))


def counts_of(log: ServeLog, rows: Sequence[Row], closure_pct: float | None) -> LogCounts:
    """What a session's log held."""
    return LogCounts(
        lines=log.lines,
        unusable_lines=log.unusable_lines,
        stage_lines=log.stage_lines,
        lost_responses=sum(row.status is RequestStatus.LOST for row in rows),
        denominators=dict(log.denominators),
        closure_pct=closure_pct,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)
