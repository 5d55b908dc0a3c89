"""Pictures of a captured step: its parts, what differs between forms, and masking against its bound."""

from __future__ import annotations

from collections.abc import Mapping

from anchormatrix.attribution.differences import delta
from anchormatrix.records.attribution import Attribution, StepRow
from anchormatrix.records.waits import MaskBound
from anchormatrix.report.captured_steps import (
    COLUMNS,
    PART_WORDS,
    analysed,
    bounds,
    pairs,
    part_ms,
    slowest,
    why_not_analysed,
    why_without,
)
from anchormatrix.report.model import Measured
from anchormatrix.report.plots.sheet import SMALL, TEXT, WIDTH, Entry, Sheet, note, text_width, x_axis
from anchormatrix.report.words import count_of

_ROLES = {"computing": "compute", "exposed": "exposed", "host": "host", "free": "free", "bubble": "bubble"}
_LABELS = 150.0  # the most that labels at the left may take


def step_parts(measured: Measured) -> Sheet:
    """Each form's captured step on its slowest rank, as one stacked bar; hidden communication above it."""
    title = f"{count_of(measured.contract.size)} · the captured step by cause, slowest rank"
    found = _slowest(analysed(measured))
    if not found:
        return note(title, why_not_analysed(measured))
    sheet = Sheet(title)
    key = [
        Entry("block", _ROLES[part], PART_WORDS[part])
        for part in COLUMNS
        if any(part_ms(rank, part) > 0 for rank in found.values())
    ]
    if any(rank.overlapped_ms > 0 for rank in found.values()):
        key.append(Entry("block", "hidden", "communication behind compute"))
    sheet.key(key)
    left = min(max(text_width(form, TEXT) for form in found) + 12, _LABELS)
    longest = max(rank.stage_ms for rank in found.values()) or 1.0
    right = WIDTH - max(text_width(f"{rank.stage_ms:.1f} ms", SMALL, bold=True) for rank in found.values()) - 8
    bottom = sheet.y + 27 * len(found)
    axes = sheet.chart((left, sheet.y, right, bottom), (0, longest))
    x_axis(axes, "ms, profiler on", lambda value: f"{value:g}", grid=False)
    for form, rank in found.items():
        sheet.text(0, sheet.y + 13, form, room=left - 8)
        _stacked(sheet, form, rank, left, (right - left) / longest)
        sheet.y += 27
    sheet.y = bottom + 26
    return sheet.finish()


def _slowest(found: Mapping[str, Attribution]) -> dict[str, StepRow]:
    return {form: rank for form, attribution in found.items() if (rank := slowest(attribution))}


def _stacked(sheet: Sheet, form: str, rank: StepRow, left: float, scale: float) -> None:
    x, y = left, sheet.y
    for part in COLUMNS:
        value = part_ms(rank, part)
        width = value * scale
        sheet.block(
            x, y + 6, width, 14, _ROLES[part], tip=f"{form}, rank {rank.rank}: {PART_WORDS[part]} {value:.2f} ms"
        )
        if width > text_width(f"{value:.1f}", SMALL, bold=True) + 6:
            sheet.text(x + width / 2, y + 13, f"{value:.1f}", role="paper", align="center", size=SMALL, bold=True)
        x += width
    if rank.overlapped_ms > 0:
        sheet.block(
            left, y + 1.5, rank.overlapped_ms * scale, 3, "hidden", tip=f"{form}: hidden {rank.overlapped_ms:.2f} ms"
        )
    sheet.text(x + 5, y + 13, f"{rank.stage_ms:.1f} ms", size=SMALL, bold=True)


def differences(measured: Measured) -> Sheet:
    """What makes the second form of each pair slower or faster: the parts of ΔStage as a waterfall."""
    title = f"{count_of(measured.contract.size)} · what differs between the forms, captured step, slowest rank"
    found = analysed(measured)
    if len(found) < 2:
        reason = "a difference needs two analysed forms of this size; "
        return note(title, reason + (f"only {next(iter(found))} is there" if found else why_not_analysed(measured)))
    sheet = Sheet(title)
    ranks = _slowest(found)
    for first, second in pairs(measured):
        if first in ranks and second in ranks:
            sheet.text(0, sheet.y + 6, f"from {first} to {second}", bold=True)
            sheet.y += 15
            _waterfall(sheet, ranks[first], ranks[second])
            sheet.y += 10
    return sheet.finish()


def _waterfall(sheet: Sheet, first: StepRow, second: StepRow) -> None:
    found = delta(first, second)
    stage = found.stage_ms
    steps = [(part, value) for part in COLUMNS if abs(value := part_ms(found, part)) > 1e-9]
    levels = [0.0]
    for _, value in steps:
        levels.append(levels[-1] + value)
    low, high = min(*levels, stage, 0.0), max(*levels, stage, 0.0)
    left, right = 128.0, WIDTH - 84
    scale = (right - left) / ((high - low) or 1)
    zero = left - low * scale
    sheet.line([zero, zero], [sheet.y, sheet.y + 14 * (len(steps) + 1)], "muted")
    for (part, value), at in zip(steps, levels, strict=False):
        x1, x2 = sorted((zero + at * scale, zero + (at + value) * scale))
        y, end = sheet.y, zero + (at + value) * scale
        sheet.text(0, y + 7, f"Δ {PART_WORDS[part]}", role="muted", size=SMALL)
        sheet.block(x1, y + 2, max(x2 - x1, 0.8), 10, _ROLES[part], tip=f"Δ {PART_WORDS[part]}: {_signed_ms(value)}")
        sheet.line([end, end], [y + 12, y + 16], "muted", width=0.6)
        sheet.text(WIDTH, y + 7, _signed_ms(value), align="right", size=SMALL)
        sheet.y += 14
    x1, x2 = sorted((zero, zero + stage * scale))
    sheet.text(0, sheet.y + 7, "Δ stage", size=SMALL, bold=True)
    sheet.block(x1, sheet.y + 2, max(x2 - x1, 0.8), 10, "ink", tip=f"Δ stage: {_signed_ms(stage)}")
    sheet.text(WIDTH, sheet.y + 7, _signed_ms(stage), align="right", size=SMALL, bold=True)
    sheet.text(
        WIDTH, sheet.y + 18, f"residual {_signed_ms(found.residual_ms)}", role="muted", align="right", size=SMALL
    )
    sheet.y += 24


def masking(measured: Measured) -> Sheet:
    """Masking against its bound, for the rank of each form that hides least."""
    title = f"{count_of(measured.contract.size)} · what attention hides of the masked family, against the bound"
    found = {form: ranks for form, attribution in analysed(measured).items() if (ranks := bounds(attribution))}
    if not found:
        return note(title, why_without(measured, "masking", "no capture of this contract has a masking bound"))
    sheet = Sheet(title)
    sheet.key([Entry("block", "hidden", "hidden"), Entry("bar", "ink", "bound")])
    bottom = sheet.y + 30 * len(found)
    axes = sheet.chart((0, sheet.y, WIDTH, bottom), (0, 1))
    x_axis(axes, "share of the family that lies under attention", lambda value: f"{100 * value:g} %", grid=False)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    first, *_, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    for form, ranks in found.items():
        worst = min(ranks, key=lambda bound: (bound.under_attention, bound.rank))
        words, y = _masking_words(worst), sheet.y
        room = WIDTH - text_width(words, SMALL) - 12
        sheet.text(0, y + 6, form, room=room)
        sheet.text(WIDTH, y + 6, words, align="right", size=SMALL)
        sheet.block(0, y + 14, WIDTH, 9, "panel")
        sheet.block(0, y + 14, _within(worst.under_attention) * WIDTH, 9, "hidden")
        x = _within(worst.bound) * WIDTH
        sheet.line([x, x], [y + 12, y + 25], "ink", width=1.8)
        sheet.y += 30
    sheet.y = bottom + 26
    return sheet.finish()


def _masking_words(bound: MaskBound) -> str:
    ratio = f"c/f {bound.c_ms / bound.f_ms:.2f}" if bound.f_ms else "no compute to hide behind"
    reached = "off" if bound.chunks <= 1 else f"{_share(bound.under_attention)} of at most {_share(bound.bound)}"
    return f"{reached} · n {bound.chunks} · {ratio} · rank {bound.rank}"


def _within(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _signed_ms(value: float) -> str:
    sign = "−" if value < -0.005 else "+" if value > 0.005 else "±"
    return f"{sign}{abs(value):.2f} ms"
