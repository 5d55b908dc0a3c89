"""The nightly page: what changed since last night, the trends, the matrix of tonight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anchormatrix.history.nights import Night
from anchormatrix.history.review import Boundary, Review, SeriesReview
from anchormatrix.history.trend import MIN_NIGHTS, Change
from anchormatrix.records.night import NightCell, NightOutcome, Tonight
from anchormatrix.records.settings.whole import Settings
from anchormatrix.report.html import rendered
from anchormatrix.report.plots.figures import fonts_kept_in, trend_pictures
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import count_of
from anchormatrix.store.codec import write_record
from anchormatrix.store.files import write_text

_NIGHTS_LISTED = 14


def write_nightly(review: Review, nights: Sequence[Night], settings: Settings, out: Path) -> None:
    """Write ``index.html`` and ``summary.json`` of a night into ``out``."""
    write_record(out / "summary.json", review.summary(tuple(map(_cell, review.series))))
    with fonts_kept_in(out.parent / ".run" / "matplotlib"):
        write_text(out / "index.html", page(review, nights, settings))


def page(review: Review, nights: Sequence[Night], settings: Settings) -> str:
    """The page as text; everything from outside is escaped by the template."""
    return rendered(
        "nightly.html.j2",
        title=settings.report.title,
        host=settings.host.alias,
        model=settings.engine.model,
        review=review,
        opening=opening(review),
        good=review.outcome is NightOutcome.FINE,
        changes=changes(review),
        trends=trend_pictures(review),
        boundaries=[_boundary_words(boundary) for boundary in review.boundaries],
        matrix=_matrix(review, settings.verdict.dispersion_pct),
        sessions=_sessions(review),
        nights=_nights(nights),
        learning=MIN_NIGHTS,
        floor_pct=settings.verdict.noise_floor_pct,
    )


def opening(review: Review) -> str:
    """The night in one sentence."""
    measured = sum(item.status == "measured" for item in review.sessions)
    count = f"{measured} of {len(review.sessions)} sessions measured"
    slower = len(review.regressions) + sum(item.lost for item in review.sessions)
    if review.outcome is NightOutcome.REGRESSION:
        return f"Regression: {slower} {'finding' if slower == 1 else 'findings'} beyond noise, {count}."
    if review.outcome is NightOutcome.COULD_NOT_MEASURE:
        return f"Could not measure everything: {review.problem or count}."
    if not any(item.last for item in review.series):
        return f"Fine: {count}; there is no earlier night to compare with."
    return f"Fine: {count}, nothing became slower beyond noise."


def changes(review: Review) -> list[str]:
    """What changed since the night before, the worst first; one sentence each."""
    called = sorted(review.called, key=lambda item: -_shift(item))
    found = [*review.history, *(_called_words(item) for item in called)]
    lost = [item for item in review.sessions if item.lost]
    found += [f"{item.place} no longer runs through: {item.reason}" for item in lost]
    found += _gaps(review.sessions)
    found += [
        f"{item.series.form} {item.series.tier}: {item.judgement.change.value}"
        for item in review.series
        if item.judgement and item.judgement.change in (Change.BACK, Change.NEW_LEVEL)
    ]
    found += [_boundary_words(boundary) for boundary in review.boundaries if boundary.night == review.night]
    if review.missed:
        found.append(f"no sweep in {len(review.missed)} nights before: {', '.join(review.missed[-7:])}")
    return found


def _gaps(sessions: Sequence[Tonight]) -> list[str]:
    """Sessions without a number, those of one reason in one sentence."""
    by_reason: dict[str, list[Tonight]] = {}
    for item in sessions:
        if item.unmeasured:
            by_reason.setdefault(f"{item.status.replace('_', ' ')}: {item.reason}", []).append(item)
    return [
        f"{len(items)} {'session' if len(items) == 1 else 'sessions'} {reason} ({items[0].place}"
        f"{' and others' if len(items) > 1 else ''})"
        for reason, items in by_reason.items()
    ]


def _shift(item: SeriesReview) -> float:
    return item.judgement.shift_pct if item.judgement else 0.0


def _called_words(item: SeriesReview) -> str:
    judged = item.judgement
    if judged is None or judged.level_s is None:
        return ""
    speed = "slower" if judged.shift_pct > 0 else "faster"
    judged_nights = [p.night for p, j in zip(item.points, item.judgements, strict=True) if j is not None]
    since = judged_nights[judged.since or 0]
    when = "tonight" if judged.new and since == item.night else f"since {since}"
    cause = f"with it changed {'; '.join(item.changed)}" if item.changed else "no recorded circumstance changed with it"
    return (
        f"{item.series.form} {item.series.tier} on {count_of(item.size)}"
        f" is {abs(judged.shift_pct):.1f} % {speed} {when}"
        f" (before {judged.level_s:.4g} s, noise {judged.noise_pct or 0:.2f} % in {len(judged.level)} nights); {cause}"
    )


def _boundary_words(boundary: Boundary) -> str:
    changed = "; ".join(boundary.changed[:6]) or "nothing that is recorded"
    return (
        f"{count_of(boundary.size)}: contract {boundary.before} gave way to {boundary.after} on {boundary.night},"
        f" not compared across; changed: {changed}"
    )


def _matrix(review: Review, limit_pct: float) -> Table:
    rows, bad = [], set()
    for i, item in enumerate(review.series):
        point, last, judged = item.tonight, item.last, item.judgement
        change = f"{100 * (point.step_s / last.step_s - 1):+.2f}" if point and last else "–"
        rows.append(
            (
                item.series.contract,
                item.series.form,
                item.series.tier,
                f"{point.step_s:.4f}" if point else "–",
                f"{last.step_s:.4f}" if last else "–",
                change,
                f"{point.dispersion_pct:.2f}" if point else "–",
                _words(item, limit_pct),
            )
        )
        if judged is not None and judged.change is Change.REGRESSION:
            bad.add(i)
    columns = ("contract", "form", "tier", "tonight s/step", "last s/step", "change %", "dispersion %", "trend")
    return Table(columns, tuple(rows), frozenset(columns[3:7]), frozenset(bad), "No cell is in the history yet.")


def _words(item: SeriesReview, limit_pct: float) -> str:
    judged = item.judgement
    if item.tonight is None:
        return "not measured tonight"
    if judged is None:
        return f"not judged: dispersion above {limit_pct:g} %"
    if judged.change is Change.LEARNING:
        return f"learning: {sum(j is not None for j in item.judgements)} of {MIN_NIGHTS + 1} nights"
    shift = f" {judged.shift_pct:+.1f} %" if judged.since is not None else ""
    return f"{judged.change.value}{shift}"


def _sessions(review: Review) -> Table:
    shown = [item for item in review.sessions if item.status != "measured"]
    rows = tuple(
        (
            item.place.contract,
            item.place.form,
            str(item.place.window),
            item.status.replace("_", " "),
            item.reason,
        )
        for item in shown
    )
    bad = frozenset(i for i, item in enumerate(shown) if item.lost or item.unmeasured)
    columns = ("contract", "form", "window", "what became of it", "why")
    return Table(columns, rows, bad=bad, empty="Every session of the night was measured.")


def _nights(nights: Sequence[Night]) -> Table:
    shown = list(reversed(nights[-_NIGHTS_LISTED:]))
    rows = tuple(
        (
            night.night,
            night.started_at,
            night.finished_at or "never: killed, or still running",
            night.outcome or "half-finished",
            str(night.starts),
            "\n".join(night.notes),
        )
        for night in shown
    )
    bad = frozenset(i for i, night in enumerate(shown) if night.outcome != NightOutcome.FINE.value)
    columns = ("night", "started", "ended", "outcome", "starts", "notes")
    return Table(columns, rows, frozenset({"starts"}), bad, "No sweep was recorded; results came from single runs.")


def _cell(item: SeriesReview) -> NightCell:
    judged, point, last = item.judgement, item.tonight, item.last
    return NightCell(
        contract=item.series.contract,
        form=item.series.form,
        tier=item.series.tier,
        step_s=point.step_s if point else None,
        dispersion_pct=point.dispersion_pct if point else None,
        last_step_s=last.step_s if last else None,
        trend=judged.change.value if judged else None,
        shift_pct=round(judged.shift_pct, 3) if judged else None,
    )
