"""What a session leaves: one value, and the three files made of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchormatrix.measure.served import Sent
from anchormatrix.measure.serverlog.parse import Request
from anchormatrix.store.files import write_json, write_text

COLUMNS = (
    "request", "role", "tier", "steps", "iterations", "denominator", "step_s", "diffuse_s", "encode_s", "decode_s",
    "forward_s", "ranks", "rank_spread_s", "status", "latency_s", "sent_s", "fingerprint",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One request: as it was sent, and as the server timed it (``None`` when the log has no such request)."""

    sent: Sent
    timed: Request | None

    @property
    def status(self) -> str:
        """``ok``; ``lost`` (no answer, timing whole); ``untimed`` (no whole timing); ``error`` (refused)."""
        if self.sent.response.status == "error":
            return "error"
        if self.timed is None or self.timed.diffuse_s is None:
            return "untimed"
        return "lost" if self.sent.response.status == "lost" else "ok"

    @property
    def step_s(self) -> float | None:
        """Step time in seconds, when the timing is whole and the server did not refuse."""
        return self.timed.step_s if self.timed is not None and self.status in ("ok", "lost") else None

    def fields(self, number: int) -> dict[str, Any]:
        """The request as a row of ``requests.csv``; numbers with nanoseconds, empty where the log says nothing."""
        timed = self.timed
        return {
            "request": number,
            "role": self.sent.role,
            "tier": self.sent.tier,
            "steps": self.sent.steps,
            "iterations": timed.iterations if timed else "",
            "denominator": timed.denominator if timed else "",
            "step_s": _number(self.step_s),
            "diffuse_s": _number(timed.diffuse_s if timed else None),
            "encode_s": _number(timed.encode_s if timed else None),
            "decode_s": _number(timed.decode_s if timed else None),
            "forward_s": _number(timed.forward_s if timed else None),
            "ranks": len(timed.ranks) if timed else 0,
            "rank_spread_s": _number(timed.rank_spread_s if timed else None),
            "status": self.status,
            "latency_s": f"{self.sent.response.latency_s:.3f}",
            "sent_s": f"{self.sent.sent_s:.3f}",
            "fingerprint": self.sent.response.fingerprint or "",
        }


@dataclass(frozen=True)
class Session:
    """One session of one form in one window. ``details`` are the further keys of ``session.json``, in order."""

    contract: str
    form: str
    window: int
    status: str
    reason: str
    evidence: tuple[str, ...]
    command: tuple[str, ...]
    env: Mapping[str, str]
    rows: tuple[Row, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    tries: tuple[Mapping[str, Any], ...] = ()
    log_text: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The session as ``session.json`` holds it."""
        return {
            "contract": self.contract,
            "form": self.form,
            "window": self.window,
            "status": self.status,
            "reason": self.reason,
            "evidence": list(self.evidence),
            "command": list(self.command),
            "env": dict(self.env),
            **self.details,
            "tries": [dict(item) for item in self.tries],
        }


def write_session(session: Session, path: Path, extra: Mapping[str, Any] | None = None) -> None:
    """Write ``server.log`` and ``requests.csv`` beside ``path``, then ``path`` itself: it stands for all three."""
    write_text(path.with_name("server.log"), session.log_text)
    write_text(path.with_name("requests.csv"), requests_csv(session.rows))
    write_json(path, {**session.as_dict(), **(extra or {})})


def requests_csv(rows: Sequence[Row]) -> str:
    """The text of ``requests.csv``; requests are numbered from 1 as they were sent."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.fields(number) for number, row in enumerate(rows, start=1))
    return text.getvalue()


def aligned(sent: Sequence[Sent], timed: Sequence[Request]) -> tuple[Row, ...]:
    """Pair requests sent with requests logged, in order, by their number of steps.

    A log that lost a sampling-parameter line has fewer requests than were sent: the longest common subsequence of step
    counts leaves the lost ones untimed instead of shifting all that follow.
    """
    n, m = len(sent), len(timed)
    best = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            same = sent[i].steps == timed[j].steps
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + 1 if same else 0)
    rows, j = [], 0
    for i in range(n):
        while j < m and best[i][j] == best[i][j + 1] and not _pairs(sent, timed, best, i, j):
            j += 1
        if j < m and _pairs(sent, timed, best, i, j):
            rows.append(Row(sent[i], timed[j]))
            j += 1
        else:
            rows.append(Row(sent[i], None))
    return tuple(rows)


def _pairs(sent: Sequence[Sent], timed: Sequence[Request], best: list[list[int]], i: int, j: int) -> bool:
    return sent[i].steps == timed[j].steps and best[i][j] == best[i + 1][j + 1] + 1


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.9f}"
