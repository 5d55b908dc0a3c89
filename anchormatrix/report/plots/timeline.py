"""One layer in time: a lane per stream, gaps coloured by their cause, all forms of a contract on one scale."""

from __future__ import annotations

from anchormatrix.records.waits import Timeline
from anchormatrix.report.captured_steps import analysed, layer_of, why_without
from anchormatrix.report.model import Measured
from anchormatrix.report.plots.sheet import SMALL, WIDTH, Entry, Sheet, note, text_width, x_axis
from anchormatrix.report.words import count_of

SEGMENTS = {
    "compute": ("compute", "computing"),
    "communication": ("exposed", "communication, exposed"),
    "hidden": ("hidden", "communication behind compute"),
    "gap_released": ("released", "gap that a collective released"),
    "gap_collective": ("waiting", "gap beside a collective that did not release it"),
    "gap_empty": ("free", "gap with nothing running"),
    "other": ("bubble", "copies and other"),
}
_LABELS = 120.0  # the most that the names of lanes may take


def layers(measured: Measured) -> Sheet:
    """One layer of each form of a contract."""
    title = f"{count_of(measured.contract.size)} · one layer in time"
    found = {form: drawn for form, one in analysed(measured).items() if (drawn := layer_of(one))}
    if not found:
        return note(title, why_without(measured, "timeline", "no capture of this contract gave a layer's timeline"))
    sheet = Sheet(title)
    used = {segment.kind for layer, _ in found.values() for lane in layer.lanes for segment in lane.segments}
    sheet.key([Entry("block", *SEGMENTS[kind]) for kind in SEGMENTS if kind in used])
    names = [lane.name for layer, _ in found.values() for lane in layer.lanes]
    left = min(max((text_width(name, SMALL) for name in names), default=0.0) + 10, _LABELS)
    longest = max(duration_ms for _, duration_ms in found.values())
    top = sheet.y
    for form, (layer, duration_ms) in found.items():
        _lanes(sheet, form, layer, duration_ms, left, (WIDTH - left) / longest)
    axes = sheet.chart((left, top, WIDTH, sheet.y), (0, longest))
    x_axis(axes, "ms", lambda value: f"{value:g}", about=8, grid=False)
    sheet.y += 26
    return sheet.finish()


def _lanes(sheet: Sheet, form: str, layer: Timeline, duration_ms: float, left: float, scale: float) -> None:
    words = f"{duration_ms:.2f} ms"
    name = f"{form} · rank {layer.rank}" + (f", {layer.layer}" if layer.layer else "")
    sheet.text(0, sheet.y + 7, name, bold=True, room=WIDTH - text_width(words, SMALL) - 12)
    sheet.text(WIDTH, sheet.y + 7, words, align="right", size=SMALL)
    sheet.y += 15
    for lane in layer.lanes:
        sheet.text(0, sheet.y + 6, lane.name, role="muted", size=SMALL, room=left - 6)
        sheet.block(left, sheet.y, duration_ms * scale, 11, "panel")
        for segment in lane.segments:
            role, cause = SEGMENTS.get(segment.kind, SEGMENTS["other"])
            tip = f"{segment.name or cause}: {cause}, {segment.duration_ms:.3f} ms from {segment.start_ms:.3f} ms"
            width = segment.duration_ms * scale
            width = width - 0.3 if width > 1.5 else max(width, 0.3)  # neighbours of one colour stay apart
            sheet.block(left + segment.start_ms * scale, sheet.y, width, 11, role, tip=tip)
        sheet.y += 14
    sheet.y += 4
