"""Pictures of where a step goes: its parts, what differs between forms, the masking bound, one layer in time."""

from __future__ import annotations

from itertools import pairwise

from anchormatrix.report.model import Measured
from anchormatrix.report.plots.svg import WIDTH, Drawing, fitted, note, text_width, ticks
from anchormatrix.report.step_breakdown import COLUMNS, Anatomy, Layer, RankStep

_PLOT = 170.0
_ALIKE = 1.2  # times the least stretched form; step times scatter by a few percent, the profiler's cost by some more
_PARTS = {"computing": "compute", "exposed": "exposed", "free": "free", "bubble": "bubble"}
PART_WORDS = {
    "computing": "computing",
    "exposed": "exposed communication",
    "free": "free",
    "bubble": "pipeline bubble",
}
SEGMENTS = {
    "compute": ("compute", "computing"),
    "communication": ("exposed", "communication, exposed"),
    "hidden": ("hidden", "communication behind compute"),
    "gap_released": ("released", "gap that a collective released"),
    "gap_collective": ("waiting", "gap beside a collective that did not release it"),
    "gap_empty": ("free", "gap with nothing running"),
    "other": ("bubble", "copies and other"),
}


def analysed(measured: Measured) -> dict[str, Anatomy]:
    """The forms of a contract whose capture was analysed."""
    parts = {form: part.value for form, part in measured.anatomy.items()}
    return {form: anatomy for form, anatomy in parts.items() if anatomy and anatomy.ranks}


def unlike_timed(measured: Measured) -> tuple[str, ...]:
    """Forms whose captured step the profiler seems to have stretched far more than the least stretched of the contract.

    The profiler costs forms of one contract about the same, so a step that stands out was slow by itself: a capture
    takes the first step of its request, which need not be like the steps that were timed.
    """
    stretched = {form: anatomy.stretch for form, anatomy in analysed(measured).items() if anatomy.stretch}
    least = min(stretched.values(), default=0.0)
    return tuple(form for form, stretch in stretched.items() if stretch > _ALIKE * least)


def why_not_analysed(measured: Measured) -> str:
    """Why there is no attribution of forms of this contract, forms with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for form, part in measured.anatomy.items():
        if part.value is None:
            reasons.setdefault(part.missing, []).append(form)
        elif not part.value.ranks:
            reasons.setdefault(part.value.reason or part.value.status, []).append(form)
    told = [f"{', '.join(forms)}: {reason}" for reason, forms in reasons.items()]
    return "; ".join(told) or "no form of this contract was measured"


def _why_not(measured: Measured, analysis: str, otherwise: str) -> str:
    reasons = [f"{form}: {why}" for form, anatomy in analysed(measured).items() if (why := anatomy.why_not(analysis))]
    return "; ".join(reasons) or otherwise


def step_parts(measured: Measured) -> Drawing:
    """Each form's captured step on its slowest rank, as one stacked bar; hidden communication above it."""
    title = f"{measured.contract.size} cards · the captured step by cause, slowest rank"
    found = analysed(measured)
    if not found:
        return note(title, why_not_analysed(measured))
    drawing = Drawing(title)
    drawing.heading()
    legend = [("block", _PARTS[part], PART_WORDS[part], False) for part in COLUMNS if _present(found, part)]
    if any(anatomy.slowest.overlapped > 0 for anatomy in found.values() if anatomy.slowest):
        legend.append(("block", "hidden", "communication behind compute", False))
    drawing.legend(38, legend)
    longest = max(anatomy.slowest.stage for anatomy in found.values() if anatomy.slowest)
    scale = (WIDTH - _PLOT - 90) / (longest or 1)
    y = 58.0
    for form, anatomy in found.items():
        rank = anatomy.slowest
        if rank is not None:
            _stacked(drawing, form, rank, scale, y)
            y += 46
    for value in ticks(0, longest):
        drawing.line(_PLOT + value * scale, y, _PLOT + value * scale, y + 4, "muted")
        drawing.text(_PLOT + value * scale, y + 17, f"{value:g}", role="muted", anchor="middle", size=11.5)
    drawing.text(WIDTH, y + 17, "ms, profiler on", role="muted", anchor="end", size=11.5)
    drawing.height = y + 22
    return drawing


def _present(found: dict[str, Anatomy], part: str) -> bool:
    return any(getattr(anatomy.slowest, part, 0) > 0 for anatomy in found.values())


def _stacked(drawing: Drawing, form: str, rank: RankStep, scale: float, y: float) -> None:
    drawing.text(0, y + 25.5, fitted(form, _PLOT - 8))
    x = _PLOT
    for part in COLUMNS:
        value = getattr(rank, part)
        width = value * scale
        tip = f"{form}, rank {rank.rank}: {PART_WORDS[part]} {value:.2f} ms"
        drawing.rect(x, y + 9, width, 24, _PARTS[part], tip=tip)
        words = f"{value:.1f}"
        if width > text_width(words, 12) + 8:
            drawing.text(x + width / 2, y + 25.5, words, role="paper", anchor="middle", size=12, bold=True)
        x += width
    drawing.rect(_PLOT, y + 2, rank.overlapped * scale, 5, "hidden", tip=f"{form}: hidden {rank.overlapped:.2f} ms")
    drawing.text(x + 8, y + 25.5, f"{rank.stage:.1f} ms", size=12, bold=True)


def pairs(measured: Measured) -> list[tuple[str, str]]:
    """The pairs of forms to subtract: the winner against every other one; without a winner, neighbours."""
    forms = list(analysed(measured))
    winner = measured.verdict.value.winner if measured.verdict.value else None
    if winner in forms:
        return [(winner, form) for form in forms if form != winner]
    return list(pairwise(forms))


def differences(measured: Measured) -> Drawing:
    """What makes the second form of each pair slower or faster: the parts of ΔStage as a waterfall."""
    title = f"{measured.contract.size} cards · what differs between the forms, captured step, slowest rank"
    found = analysed(measured)
    if len(found) < 2:
        reason = "a difference needs two analysed forms of this size; "
        return note(title, reason + (f"only {next(iter(found))} is there" if found else why_not_analysed(measured)))
    drawing = Drawing(title)
    drawing.heading()
    y = 32.0
    for first, second in pairs(measured):
        a, b = found[first].slowest, found[second].slowest
        if a is not None and b is not None:
            y = _waterfall(drawing, (first, a), (second, b), y)
    drawing.height = y
    return drawing


def delta(a: RankStep, b: RankStep) -> tuple[dict[str, float], float, float]:
    """Δ of every part from ``a`` to ``b``, ΔStage, and the residual ΔStage − Σ Δ; in milliseconds."""
    parts = {part: getattr(b, part) - getattr(a, part) for part in COLUMNS}
    stage = b.stage - a.stage
    return parts, stage, stage - sum(parts.values())


def _waterfall(drawing: Drawing, first: tuple[str, RankStep], second: tuple[str, RankStep], y: float) -> float:
    parts, stage, residual = delta(first[1], second[1])
    steps = [(part, value) for part, value in parts.items() if abs(value) > 1e-9]
    levels, level = [0.0], 0.0
    for _, value in steps:
        level += value
        levels.append(level)
    low, high = min(*levels, stage, 0.0), max(*levels, stage, 0.0)
    left, right = 350.0, WIDTH - 250
    scale = (right - left) / ((high - low) or 1)
    zero = left - low * scale
    drawing.text(0, y + 14, fitted(f"from {first[0]} to {second[0]}", WIDTH), size=12.5, bold=True)
    y += 24
    bottom = y + 24 * (len(steps) + 1)
    drawing.line(zero, y - 2, zero, bottom, "muted")
    at = 0.0
    for part, value in steps:
        x1, x2 = sorted((zero + at * scale, zero + (at + value) * scale))
        drawing.text(170, y + 14, f"Δ {PART_WORDS[part]}", role="muted", size=12)
        drawing.rect(x1, y + 3, max(x2 - x1, 1), 16, _PARTS[part], radius=2)
        drawing.text(WIDTH, y + 15, _signed_ms(value), anchor="end", size=12)
        at += value
        drawing.line(zero + at * scale, y + 3, zero + at * scale, y + 27, "muted", dash="2 2")
        y += 24
    x1, x2 = sorted((zero, zero + stage * scale))
    drawing.text(170, y + 14, "Δ stage", size=12, bold=True)
    drawing.frame(x1, y + 3, max(x2 - x1, 1), 16, "ink", radius=2)
    drawing.text(
        WIDTH, y + 15, f"{_signed_ms(stage)}, residual {_signed_ms(residual)}", anchor="end", size=12, bold=True
    )
    return y + 40


def masking(measured: Measured) -> Drawing:
    """Measured masking against its bound, for the rank with the most exposed time of each form."""
    title = f"{measured.contract.size} cards · masked share of communication: measured against the bound"
    found = {form: anatomy.bounds for form, anatomy in analysed(measured).items() if anatomy.bounds}
    if not found:
        return note(title, _why_not(measured, "masking", "no capture of this contract has a masking bound"))
    drawing = Drawing(title)
    drawing.heading()
    drawing.legend(
        38,
        [("block", "hidden", "measured", False), ("tick", "ink", "bound at c and f", False)],
    )
    y, left, right = 56.0, _PLOT, WIDTH - 330
    for form, bounds in found.items():
        worst = min(bounds, key=lambda bound: (bound.measured if bound.measured is not None else 1, bound.rank))
        measured_share, bound = worst.measured or 0.0, worst.bound
        drawing.text(0, y + 16, fitted(form, _PLOT - 8))
        drawing.rect(left, y + 4, right - left, 16, "panel", radius=2)
        drawing.rect(left, y + 4, min(max(measured_share, 0), 1) * (right - left), 16, "hidden", radius=2)
        if bound is not None:
            x = left + min(max(bound, 0), 1) * (right - left)
            drawing.line(x, y, x, y + 24, "ink", width=2.6)
        ratio = f"c/f {worst.c_ms / worst.f_ms:.2f}" if worst.f_ms else "no compute to hide behind"
        reached = "off" if worst.chunks <= 1 else f"{_share(worst.measured)} of at most {_share(bound)}"
        words = f"{reached} · n {worst.chunks} · {ratio} · rank {worst.rank}"
        drawing.text(WIDTH, y + 16, words, anchor="end", size=12)
        y += 32
    for value in (0, 0.25, 0.5, 0.75, 1):
        drawing.text(
            left + value * (right - left), y + 12, f"{100 * value:g} %", role="muted", anchor="middle", size=11.5
        )
    drawing.height = y + 20
    return drawing


def layers(measured: Measured) -> Drawing:
    """One layer of each form in time: a lane per stream, gaps coloured by their cause, all on one time scale."""
    title = f"{measured.contract.size} cards · one layer in time"
    found = {form: a.layer for form, a in analysed(measured).items() if a.layer and a.layer.duration_ms > 0}
    if not found:
        return note(title, _why_not(measured, "timeline", "no capture of this contract gave a layer's timeline"))
    drawing = Drawing(title)
    drawing.heading()
    used = {segment.kind for layer in found.values() for _, lane in layer.lanes for segment in lane}
    shown = [SEGMENTS[kind] for kind in SEGMENTS if kind in used]
    drawing.legend(38, [("block", role, words, False) for role, words in shown[:4]])
    drawing.legend(58 if len(shown) > 4 else 38, [("block", role, words, False) for role, words in shown[4:]])
    longest = max(layer.duration_ms for layer in found.values())
    scale = (WIDTH - _PLOT - 70) / longest
    y = 60.0 + (20 if len(shown) > 4 else 0)
    for form, layer in found.items():
        y = _lanes(drawing, form, layer, scale, y)
    for value in ticks(0, longest, 8):
        drawing.line(_PLOT + value * scale, y, _PLOT + value * scale, y + 4, "muted")
        drawing.text(_PLOT + value * scale, y + 17, f"{value:g}", role="muted", anchor="middle", size=11.5)
    drawing.text(WIDTH, y + 17, "ms", role="muted", anchor="end", size=11.5)
    drawing.height = y + 22
    return drawing


def _lanes(drawing: Drawing, form: str, layer: Layer, scale: float, y: float) -> float:
    name = f"{form} · rank {layer.rank}" + (f", {layer.layer}" if layer.layer else "")
    drawing.text(0, y + 13, fitted(name, WIDTH), bold=True)
    y += 20
    for lane, segments in layer.lanes:
        drawing.text(0, y + 15, fitted(lane, _PLOT - 10, 12), role="muted", size=12)
        drawing.rect(_PLOT, y + 2, layer.duration_ms * scale, 18, "panel")
        for segment in segments:
            role, words = SEGMENTS.get(segment.kind, SEGMENTS["other"])
            tip = f"{segment.name or words}: {words}, {segment.duration_ms:.3f} ms from {segment.start_ms:.3f} ms"
            width = segment.duration_ms * scale
            drawing.rect(_PLOT + segment.start_ms * scale, y + 2, max(width - 0.4, 0.3), 18, role, tip=tip)
        y += 24
    drawing.text(_PLOT + layer.duration_ms * scale + 6, y - 10, f"{layer.duration_ms:.2f} ms", size=12)
    return y + 10


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def _signed_ms(value: float) -> str:
    sign = "−" if value < -0.005 else "+" if value > 0.005 else "±"
    return f"{sign}{abs(value):.2f} ms"
