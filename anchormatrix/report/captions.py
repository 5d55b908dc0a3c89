"""One sentence of reading per picture, made from the picture's own numbers."""

from __future__ import annotations

from anchormatrix.attribution.differences import delta
from anchormatrix.attribution.reading import collectives_words, masking_words, waits_words
from anchormatrix.decide.captured import own_stretch
from anchormatrix.decide.fastest import fastest
from anchormatrix.records.attribution import Attribution, Family
from anchormatrix.records.conclusions.cells import ALL
from anchormatrix.records.session import CaptureStatus
from anchormatrix.records.settings.values import ANCHOR
from anchormatrix.records.waits import MaskBound
from anchormatrix.report.captured_steps import (
    COLUMNS,
    PART_WORDS,
    analysed,
    bounds,
    pairs,
    part_ms,
    slowest,
    unlike_timed,
    why_not_analysed,
)
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.words import listed

_ALSO = 0.25
_TOLD = 3  # forms that a sentence speaks of; the picture shows all


def of_step_times(report: Report, measured: Measured) -> str:
    """The two shortest steps at the anchor, and what the server starts say of the fastest form."""
    cells = [cell for form in measured.measured_forms if (cell := measured.cell(form, ANCHOR))]
    ranked = sorted(cells, key=lambda cell: cell.step_s)
    if len(ranked) < 2:
        return "Fewer than two forms have a number at the anchor, so nothing is ranked here."
    first, second = ranked[:2]
    text = (
        f"At the anchor {first.form} takes {first.step_s:.3f} s per step and {second.form} {second.step_s:.3f} s, "
        f"{100 * (second.step_s / first.step_s - 1):.1f} % more"
    )
    verdict = measured.verdict.value
    return f"{text}. {fastest(verdict.selection).text}." if verdict else f"{text}."


def of_ratios(report: Report) -> str:
    """Which forms' step times drift with the step count."""
    ratios = [(m, f, r) for m in report.measured if m.verdict.value for f, r in m.verdict.value.r.items()]
    if not ratios:
        return "No form has both tiers measured, so no ratio exists."
    found = [(form, ratio) for measured, form, ratio in ratios if measured.readable(form)]
    if not found:
        return "Every ratio rests on a cell too noisy to use, so none is read."
    if noisy := [form for measured, form, _ in ratios if not measured.readable(form)]:
        return f"{_ratio_words(report, found)} Not read, for they rest on cells too noisy to use: {listed(noisy)}."
    return _ratio_words(report, found)


def _ratio_words(report: Report, found: list[tuple[str, float]]) -> str:
    limit = report.limits.drift_pct
    outside = [f"{form} ({ratio:.3f})" for form, ratio in found if 100 * abs(ratio - 1) > limit]
    farthest = max(found, key=lambda item: abs(item[1] - 1))
    if outside:
        return (
            f"{listed(outside)} {'lies' if len(outside) == 1 else 'lie'} outside ±{limit:g} %: "
            "few-step times of such forms are not the anchor's, measure at the anchor or higher before choosing."
        )
    where = f"the farthest from one is {farthest[0]} with r = {farthest[1]:.3f}"
    return f"All {len(found)} forms stay within ±{limit:g} %; {where}."


def of_dispersions(report: Report) -> str:
    """How many cells may be used for a ranking."""
    cells = [cell for measured in report.measured for cell in measured.cells.value or () if cell.window == ALL]
    if not cells:
        return "No cell holds repeats."
    worst = max(cells, key=lambda cell: cell.dispersion_pct)
    where = f"{worst.form} at the {worst.tier} tier with {worst.dispersion_pct:.2f} %"
    unusable = [cell for cell in cells if not cell.usable]
    if unusable:
        return (
            f"{len(unusable)} of {len(cells)} cells cannot be used for any ranking, the worst is {where}: "
            "more repeats, another window or another group would cure it."
        )
    limit = f"{report.limits.dispersion_pct:g} %"
    return f"All {len(cells)} cells can be used; the most dispersed is {where} against a limit of {limit}."


def of_drifts(report: Report) -> str:
    """Whether the host was the same in both windows."""
    found = [drift for m in report.measured if m.verdict.value for drift in m.verdict.value.window_drift]
    if not found:
        return "No cell was measured in two windows, so the self-check is missing."
    beyond = [drift for drift in found if drift.exceeds]
    largest = max(found, key=lambda drift: abs(drift.drift_pct))
    where = f"{largest.form} at the {largest.tier} tier with {largest.drift_pct:+.2f} %"
    limit = f"{report.limits.window_drift_pct:g} %"
    if beyond:
        return f"{len(beyond)} of {len(found)} cells moved by more than {limit} between the windows, the most {where}."
    return f"No cell moved by more than {limit} between the windows; the largest move is {where}."


def of_step_parts(measured: Measured) -> str:
    """How long each form waits for communication, of how long a step, and how far the capture can be believed."""
    found = analysed(measured)
    if not found:
        return f"Not attributed: {why_not_analysed(measured)}."
    told = _told(measured)
    sentences = []
    for form, attribution in told.items():
        rank, steps, capture = slowest(attribution), attribution.steps, attribution.capture
        if rank is None or steps is None or not rank.stage_ms:
            continue
        on_ramp = capture is not None and capture.status is CaptureStatus.ON_RAMP
        share = ", no share: its capture hit the ramp" if on_ramp else ""
        if steps.exposed_share is not None and steps.unprofiled_step_s is not None:
            step = f"its {steps.unprofiled_step_s:.3f} s at the few tier without the profiler"
            share = f", {100 * steps.exposed_share:.1f} % of {step}"
        sentences.append(f"{form} waits for communication for {rank.exposed_ms:.1f} ms{share}")
    slow = [
        f"{form} {attribution.steps.spread_pct:.1f} %"
        for form, attribution in found.items()
        if attribution.steps and attribution.steps.spread_pct > 1
    ]
    spread = f"The ranks differ in stage by {listed(slow)}." if slow else "All ranks agree within 1 %."
    words = ("; ".join(sentences) + ".", _stretch_words(measured, told), _outside_words(found), spread)
    return " ".join(word for word in words if word)


def _outside_words(found: dict[str, Attribution]) -> str:
    """What the captures hold beside the steps, on the rank with most of it."""
    told = []
    for form, attribution in found.items():
        rows = attribution.steps.outside if attribution.steps else ()
        if rows:
            row = max(rows, key=lambda one: one.computing_ms + one.communication_ms + one.copy_ms + one.other_ms)
            parts = {"computing": row.computing_ms, "communication": row.communication_ms, "copies": row.copy_ms}
            times = [f"{time:.3f} ms of {part}" for part, time in parts.items() if time]
            told.append(f"{form} {listed(times) if times else 'other work'} (rank {row.rank})")
    return f"Outside every step, and in none of these parts: {'; '.join(told)}." if told else ""


def _stretch_words(measured: Measured, told: dict[str, Attribution]) -> str:
    """How much longer the profiler made the rest of the step, and whether the captured steps are like the timed."""
    stretched = {form: found for form, attribution in told.items() if (found := own_stretch(attribution))}
    if not stretched:
        return ""
    times = listed(f"{factor:.2f}" for factor in stretched.values())
    text = f"With the profiler on, the rest of the step took {times} times as long"
    if unlike := unlike_timed(measured):
        return (
            f"{text}: too uneven for the profiler's doing, so the captured step of {listed(unlike)} is not like the "
            "timed ones (a capture takes the first step of its request), and its parts and share do not speak for them."
        )
    return f"{text}, so computing and free are drawn too long, exposed communication is not."


def of_differences(measured: Measured) -> str:
    """Which part makes the difference in each pair."""
    found = analysed(measured)
    sentences = []
    for first, second in pairs(measured)[: _TOLD - 1]:
        timed = _timed_difference_ms(measured, first, second)
        a, b = slowest(found[first]), slowest(found[second])
        if a is None or b is None:
            continue
        change = delta(a, b)
        stage, parts = change.stage_ms, {name: part_ms(change, name) for name in COLUMNS}
        sentences.append(
            f"{second} is {abs(stage):.1f} ms {'longer' if stage >= 0 else 'shorter'} than {first}, "
            f"{what_differs(stage, parts)}; the parts leave {abs(change.residual_ms):.2f} ms unexplained"
            + (
                f"; timed at the anchor without the profiler, the difference is {timed:+.1f} ms"
                if timed is not None
                else ""
            )
        )
    if not sentences:
        return "There is no pair of analysed forms of this size to subtract."
    return "In the captured step " + "; ".join(sentences) + "."


def what_differs(stage: float, parts: dict[str, float]) -> str:
    """The part that makes most of a difference, and the next where it makes a quarter of it or more."""
    toward = {name: value if stage >= 0 else -value for name, value in parts.items()}
    first, second, *_ = sorted(toward, key=lambda name: -toward[name])
    told = [first, second] if toward[second] > 0 and toward[second] >= _ALSO * abs(stage) else [first]
    how = "most" if toward[first] >= abs(stage) / 2 else "the largest part"
    return f"{how} of it {' and '.join(f'{PART_WORDS[name]} ({parts[name]:+.1f} ms)' for name in told)}"


def _timed_difference_ms(measured: Measured, first: str, second: str) -> float | None:
    """What the second form's anchor step takes longer, without the profiler; nothing unless both cells are usable."""
    cells = [measured.cell(form, ANCHOR) for form in (first, second)]
    steps = [cell.step_s for cell in cells if cell and cell.usable]
    return 1000 * (steps[1] - steps[0]) if len(steps) == 2 else None


def of_masking(measured: Measured) -> str:
    """Whether more masking is to be had, and how; forms of which the same is to be said together."""
    told: dict[str, list[str]] = {}
    for form, attribution in _told(measured).items():
        if found := bounds(attribution):
            told.setdefault(masking_words(min(found, key=_shown_share)), []).append(form)
    sentences = [f"{listed(forms)}: {words}" for words, forms in told.items()]
    return "; ".join(sentences) + "." if sentences else "No masking bound could be computed for this size."


def _shown_share(bound: MaskBound) -> tuple[float, int]:
    return bound.under_attention, bound.rank


def of_layers(measured: Measured) -> str:
    """What the compute stream waits for, on the rank that waits most."""
    waits = {form: one.bubbles.ranks for form, one in _told(measured).items() if one.bubbles and one.bubbles.ranks}
    sentences = [f"{form}: {waits_words(max(ranks, key=lambda rank: rank.gap_ms))}" for form, ranks in waits.items()]
    return "; ".join(sentences) + "." if sentences else "The gaps of the compute stream were not analysed."


def of_collectives(measured: Measured) -> str:
    """The family that holds most time, on the rank that spends most in it, and whether its calls run one at a time."""
    sentences = []
    for form, attribution in _told(measured).items():
        ranks = attribution.collectives.ranks if attribution.collectives else ()
        found = max((one.families for one in ranks), key=_longest_ms, default=())
        sentences.append(f"{form}: {collectives_words(found)}")
    return "; ".join(sentences) + "." if sentences else f"Not attributed: {why_not_analysed(measured)}."


def _longest_ms(families: tuple[Family, ...]) -> float:
    return max((family.sum_ms for family in families), default=0.0)


def _told(measured: Measured) -> dict[str, Attribution]:
    """The analysed forms that sentences speak of: the anchor's order first, no more than a reader keeps in mind."""
    found = analysed(measured)
    order = measured.verdict.value.order_anchor if measured.verdict.value else ()
    names = dict.fromkeys([form for tied in order for form in tied if form in found] + list(found))
    return {form: found[form] for form in list(names)[:_TOLD]}
