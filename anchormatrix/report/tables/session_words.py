"""A session in words: what it proved, where it was captured, how it ended, in what circumstances."""

from __future__ import annotations

from anchormatrix.records.session import Capture, SeenCards, Session


def proof_words(session: Session) -> tuple[str, ...]:
    """What the start-up log shows of the form, or each failure of the proof."""
    proof = session.proof
    if proof is None:
        return ()
    if proof.failures:
        return proof.failures
    groups = {key: str(value) for key, value in proof.groups_seen.items()}
    split = [
        f"{key.removesuffix('_size').removesuffix('_degree')} {value}" for key, value in groups.items() if value != "1"
    ]
    seen = f"{proof.ranks_seen} of {proof.ranks_expected} ranks"
    peak = f"; {proof.peak_memory_mb:.0f} MiB at the peak" if proof.peak_memory_mb else ""
    return ((f"{seen}; groups {', '.join(split)}" if split else seen) + peak,)


def log_words(session: Session) -> str:
    """The state of the server's log."""
    log = session.log
    if log is None:
        return ""
    counts = {
        "unusable lines": log.unusable_lines,
        "stage lines": log.stage_lines,
        "lost responses": log.lost_responses,
        **{f"requests with iterations counted by {kind}": count for kind, count in log.denominators.items()},
    }
    found = [f"{name} {count}" for name, count in counts.items()]
    if log.closure_pct is not None:
        found.append(f"forward closes within {log.closure_pct:.2f} %")
    return ", ".join(found)


def capture_words(capture: Capture | None) -> str:
    """What became of a session's capture, and why there."""
    if capture is None:
        return ""
    why = capture.reason or capture.why
    request = f"request {capture.request}" if capture.request is not None else ""
    told = why if request in why else ", ".join(word for word in (request, why) if word)
    return ": ".join(word for word in (str(capture.status), told) if word)


def stop_words(session: Session) -> str:
    """How the server ended."""
    stop = session.stop
    if stop is None or not stop.how:
        return ""
    seconds = f" after {stop.seconds:.1f} s" if stop.seconds is not None else ""
    return f"{stop.how}{seconds}" + (f", {stop.survivors} survivors" if stop.survivors else "")


def temperatures(seen: SeenCards | None) -> list[float]:
    """All card temperatures of a reading taken before or after a session, in °C."""
    return [card.temperature_c for card in seen.cards if card.temperature_c is not None] if seen else []
