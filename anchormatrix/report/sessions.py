"""Sessions for the report: what was started, what it proved, in what circumstances, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from anchormatrix.report.facts import Output, OwnCheck, SessionRecord
from anchormatrix.report.source import Fields, plain

OUTPUT_COLUMNS = ("role", "tier", "steps", "status", "fingerprint")


def session_from(fields: Fields) -> SessionRecord:
    """Take the report's keys from ``session.json``."""
    proof, ramp, log = fields.child("proof"), fields.child("ramp"), fields.child("log")
    stop, circumstances = fields.child("stop"), fields.child("circumstances")
    return SessionRecord(
        form=fields.text("form"),
        window=fields.text("window"),
        status=fields.text("status"),
        reason=fields.text("reason", ""),
        evidence=fields.texts("evidence"),
        command=fields.texts("command"),
        env=tuple((str(key), plain(value)) for key, value in fields.child("env").values.items()),
        started_at=fields.text("started_at", ""),
        finished_at=fields.text("finished_at", ""),
        duration_s=fields.maybe("duration_s"),
        proof=_proof(proof),
        ramp=_ramp(ramp),
        log=_log(log),
        capture=_capture(fields.child("capture")),
        stopped=_stopped(stop),
        tries=len(fields.items("tries")),
        load=plain(circumstances.values.get("load") or ""),
        before=circumstances.values.get("before"),
        after=circumstances.values.get("after"),
        stopped_early=fields.text("stopped_early", ""),
        check=_check(proof.child("check")),
    )


def output_from(row: Fields) -> Output | None:
    """One row of ``requests.csv``; None for a request that is no warm-up or repeat, or that was refused."""
    if row.text("role") not in ("ramp", "measured") or row.text("status") == "error":
        return None
    return Output(row.text("tier"), row.integer("steps"), row.text("fingerprint", ""))


def _check(check: Fields) -> OwnCheck | None:
    if not check.values:
        return None
    return OwnCheck(check.flag("ok"), check.maybe("relative_distance"), check.number("limit"))


def _proof(proof: Fields) -> tuple[str, ...]:
    failures = proof.texts("failures")
    if failures:
        return failures
    if "ranks_seen" not in proof:
        return ()
    groups = {key: plain(value) for key, value in proof.child("groups_seen").values.items()}
    split = [
        f"{key.removesuffix('_size').removesuffix('_degree')} {value}" for key, value in groups.items() if value != "1"
    ]
    seen = f"{proof.text('ranks_seen')} of {proof.text('ranks_expected', '?')} ranks"
    return (f"{seen}; groups {', '.join(split)}" if split else seen,)


def _ramp(ramp: Fields) -> str:
    if not ramp.values:
        return ""
    steady = f"steady from request {ramp.text('first_steady')}" if "first_steady" in ramp else "no steady state found"
    return ramp.text("why", "") or steady


def _log(log: Fields) -> tuple[tuple[str, str], ...]:
    names = (("unusable_lines", "unusable lines"), ("stage_lines", "stage lines"), ("lost_responses", "lost responses"))
    found = [(label, log.text(key)) for key, label in names if key in log]
    for kind, count in log.child("denominators").values.items():
        found.append((f"requests with iterations counted by {kind}", plain(count)))
    if "closure_pct" in log:
        found.append(("forward closes within", f"{log.number('closure_pct'):.2f} %"))
    return tuple(found)


def _capture(capture: Fields) -> str:
    if not capture.values:
        return ""
    why = capture.text("reason", "") or capture.text("why", "")
    request = f"request {capture.text('request')}" if "request" in capture else ""
    told = why if request in why else ", ".join(word for word in (request, why) if word)
    return ": ".join(word for word in (capture.text("status", "off"), told) if word)


def _stopped(stop: Fields) -> str:
    if "how" not in stop:
        return ""
    seconds = f" after {stop.number('seconds'):.1f} s" if "seconds" in stop else ""
    survivors = stop.integer("survivors", 0)
    return f"{stop.text('how')}{seconds}" + (f", {survivors} survivors" if survivors else "")


def temperatures(reading: object) -> list[float]:
    """All card temperatures in a reading taken before or after a session, in °C."""
    cards = reading.get("cards") if isinstance(reading, Mapping) else reading
    cards = list(cards.values()) if isinstance(cards, Mapping) else cards
    found = (
        [card.get("temperature_c") for card in cards or () if isinstance(card, Mapping)]
        if isinstance(cards, list)
        else []
    )
    return [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]
