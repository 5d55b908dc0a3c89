"""The evidence of an offline reading as Markdown: what each log holds, what was made of it, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anchormatrix.engines.timing import Request, closure_pct
from anchormatrix.offline.reading import Reading, ReadLog
from anchormatrix.records.conclusions.verdict import Verdict


def evidence_markdown(reading: Reading, tiers: dict[str, int]) -> str:
    """Everything a reader needs to follow the verdict from the logs."""
    lines = ["# Few-step probe: evidence", ""]
    lines += [f"Read without a device. Tiers: few {tiers['few']} steps, anchor {tiers['anchor']} steps.", ""]
    for verdict in reading.verdicts:
        lines += _verdict(verdict)
    lines += ["## Cells", ""]
    lines += _table(
        ("form", "tier", "window", "repeats", "step (s)", "dispersion (%)", "usable"),
        [
            (c.form, c.tier, c.window, len(c.values_s), f"{c.step_s:.6f}", f"{c.dispersion_pct:.2f}", c.reason or "yes")
            for c in reading.cells
        ],
    )
    for item in reading.logs:
        lines += _log(item)
    return "\n".join(lines) + "\n"


def _verdict(verdict: Verdict) -> list[str]:
    lines = [f"## Verdict for {verdict.size} ranks: {verdict.status}", "", f"{_safe(verdict.reason)}.", ""]
    lines += [f"What to do: {verdict.cure}.", ""]
    rows = [(form, f"{value:.4f}", f"{(value - 1) * 100:+.2f} %") for form, value in verdict.r.items()]
    return lines + _table(("form", "r = anchor ÷ few", "r − 1"), rows) if rows else lines


def _log(item: ReadLog) -> list[str]:
    log, session = item.log, item.session
    lines = [f"## {_safe(item.path.name)}", "", f"Status: {session.status}. {_safe(session.reason)}".rstrip(), ""]
    facts = [
        f"{len(log.ranks)} ranks ({', '.join(filter(None, log.ranks)) or 'no worker tags'})",
        "groups "
        + (", ".join(f"{key} {'/'.join(map(str, sizes))}" for key, sizes in log.groups.items()) or "not told"),
        f"{log.lines} lines, {len(log.requests)} requests, {log.stage_lines} stage lines, {log.bars} progress bars, "
        + (", ".join(f"{count} unusable ({why})" for why, count in log.spoiled.items()) or "0 unusable"),
        f"{log.lost_responses} lost responses whose timing is whole",
        *(f"forward differs from its stages by up to {pct:.1f} %" for pct in [closure_pct(log.requests)] if pct),
    ]
    lines += [f"- {_safe(fact)}" for fact in (*facts, *log.findings, *log.remarks)]
    if item.first_steady is not None:
        lines.append(f"- steady from request {item.first_steady + 1} on")
    if session.ramp is not None and log.requests:
        lines.append(f"- the first {session.ramp.requests} timed requests are no repeats; {session.ramp.why}")
    rows = [
        (
            request.index + 1,
            request.steps,
            f"{request.iterations} ({request.denominator})",
            "" if request.step_s is None else f"{request.step_s:.6f}",
            _by_bar(request),
            len(request.ranks),
            request.response,
            "; ".join([*request.notes, *(["under the profiler"] if request.profiled else [])]),
        )
        for request in log.requests
    ]
    table = _table(("request", "steps", "iterations", "step (s)", "by the bar (s)", "ranks", "response", "notes"), rows)
    return [*lines, "", *table] if rows else [*lines, ""]


def _by_bar(request: Request) -> str:
    """The step time by the bar's clock, from and to: it counts whole seconds."""
    found = request.bar_step_s
    return f"{found[0]:.3g} … {sum(found):.3g}" if found else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_safe(str(cell)) for cell in row)} |" for row in rows]
    return [*lines, ""]


def _safe(text: str) -> str:
    """Text from a log or a file name, made harmless for Markdown tables and HTML renderers."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
