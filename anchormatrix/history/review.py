"""One night against those before it: what was measured, what changed, and which circumstance changed with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.history.query import (
    ContractRow,
    Point,
    Recorded,
    Series,
    all_series,
    contract_rows,
    contracts_measured,
    had_numbers,
    nights_before,
    points_of,
    sessions_of_night,
)
from anchormatrix.history.store import History
from anchormatrix.history.surroundings import Surroundings, changed_surroundings
from anchormatrix.history.trend import Change, Judgement, judge_series
from anchormatrix.records.contract import changed_facts
from anchormatrix.records.night import (
    NOT_STARTED,
    ChangedCell,
    NightCell,
    NightOutcome,
    NightSession,
    NightSummary,
    Place,
    Tonight,
    missed_nights,
    outcome_of,
)

NIGHTS_SHOWN = 90


@dataclass(frozen=True)
class Limits:
    """A night with more dispersion than this is not judged; a smaller change than the floor is never called."""

    dispersion_pct: float
    floor_pct: float


@dataclass(frozen=True)
class SeriesReview:
    """A series up to a night. ``judgements`` belong to the points with the same index; unusable points have none."""

    series: Series
    size: int
    version: int
    points: tuple[Point, ...]
    judgements: tuple[Judgement | None, ...]
    night: str
    changed: tuple[str, ...] = ()

    @property
    def tonight(self) -> Point | None:
        """The point of the night under review."""
        return self.points[-1] if self.points and self.points[-1].night == self.night else None

    @property
    def judgement(self) -> Judgement | None:
        """What the night under review says, when it was measured and is usable."""
        return self.judgements[-1] if self.tonight is not None else None

    @property
    def last(self) -> Point | None:
        """The point of the night before."""
        before = [point for point in self.points if point.night < self.night]
        return before[-1] if before else None


@dataclass(frozen=True)
class Boundary:
    """Where a size went over to another contract: nothing is compared across it."""

    size: int
    night: str
    before: str
    after: str
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Review:
    """A night: its sessions, its series, the contracts before them, and its outcome. ``problem`` hindered all of it;
    ``history`` is what is to be said of the history it was compared by.
    """

    night: str
    problem: str
    sessions: tuple[Tonight, ...]
    series: tuple[SeriesReview, ...]
    retired: tuple[SeriesReview, ...]
    boundaries: tuple[Boundary, ...]
    missed: tuple[str, ...]
    history: tuple[str, ...] = ()

    @property
    def called(self) -> tuple[SeriesReview, ...]:
        """Series that changed beyond noise, called tonight or still standing."""
        wanted = (Change.REGRESSION, Change.IMPROVEMENT)
        return tuple(item for item in self.series if item.judgement and item.judgement.change in wanted)

    @property
    def regressions(self) -> tuple[SeriesReview, ...]:
        """Those of them that became slower."""
        return tuple(item for item in self.called if item.judgement and item.judgement.change is Change.REGRESSION)

    @property
    def outcome(self) -> NightOutcome:
        """What a scheduler is told."""
        return outcome_of(self.sessions, len(self.regressions), self.problem)

    def summary(self, cells: tuple[NightCell, ...] | None = None) -> NightSummary:
        """What ``nightly/summary.json`` holds; without the cells, what the hook is told on its standard input."""
        return NightSummary(
            night=self.night,
            outcome=self.outcome,
            exit_code=self.outcome.exit_code,
            problem=self.problem,
            changed=tuple(
                ChangedCell(
                    contract=item.series.contract,
                    form=item.series.form,
                    tier=item.series.tier,
                    change=item.judgement.change.value,
                    new=item.judgement.new,
                    shift_pct=round(item.judgement.shift_pct, 3),
                    circumstances=tuple(item.changed),
                )
                for item in self.called
                if item.judgement
            ),
            sessions=tuple(
                NightSession(
                    contract=item.place.contract,
                    form=item.place.form,
                    window=item.place.window,
                    status=item.status,
                    reason=item.reason,
                )
                for item in self.sessions
            ),
            missed_nights=self.missed,
            history=self.history,
            cells=cells,
        )


def review_night(
    history: History, night: str, planned: Sequence[Place], limits: Limits, *, problem: str = ""
) -> Review:
    """Review a night. ``planned`` are the sessions it should have measured; without any, those that it recorded."""
    recorded = sessions_of_night(history, night)
    places = list(planned) or sorted(recorded, key=str)
    since = (nights_before(history, night, NIGHTS_SHOWN - 1) or [night])[0]
    measured = {size: [p for p in pairs if p[0] <= night] for size, pairs in contracts_measured(history, since).items()}
    current = list(dict.fromkeys(place.contract for place in places)) or [p[-1][1] for p in measured.values() if p]
    known = {contract for pairs in measured.values() for _, contract in pairs}
    facts = contract_rows(history, sorted(known | set(current)))
    hosts = {facts[contract].contract.host for contract in current if contract in facts}
    facts = {contract: row for contract, row in facts.items() if row.contract.host in hosts}
    earlier = [contract for contract in facts if contract not in current]
    seen = nights_before(history, night, NIGHTS_SHOWN)
    return Review(
        night,
        problem,
        tuple(_tonight(history, night, place, recorded) for place in places),
        _reviews(history, current, facts, night, limits),
        tuple(item for item in _reviews(history, earlier, facts, night, limits) if item.points[-1].night >= since),
        tuple(_boundaries(measured, facts)),
        tuple(missed_nights(seen, night)),
    )


def place_of(path: Path) -> Place:
    """The place of ``<contract>/<form>/w<window>/session.json``. Raises :class:`InputError` for another path."""
    parts = path.parts[-4:]
    if len(parts) != 4 or parts[3] != "session.json" or not parts[2][1:].isdigit():
        raise InputError("is no session's place", where=str(path), expected="…/<contract>/<form>/w<k>/session.json")
    return Place(parts[0], parts[1], int(parts[2][1:]))


def _tonight(history: History, night: str, place: Place, recorded: Mapping[Place, Recorded]) -> Tonight:
    found = recorded.get(place)
    before = had_numbers(history, place.contract, place.form, night)
    if found is None:
        return Tonight(place, NOT_STARTED, "it was not reached", before)
    return Tonight(place, found.status, found.reason, before)


def _reviews(
    history: History, contracts: Sequence[str], facts: Mapping[str, ContractRow], night: str, limits: Limits
) -> tuple[SeriesReview, ...]:
    known = [contract for contract in contracts if contract in facts]
    reviews = (_review(history, series, facts[series.contract], night, limits) for series in all_series(history, known))
    return tuple(review for review in reviews if review.points)


def _review(history: History, series: Series, row: ContractRow, night: str, limits: Limits) -> SeriesReview:
    points = points_of(history, series, NIGHTS_SHOWN, night)
    usable = [i for i, point in enumerate(points) if point.dispersion_pct <= limits.dispersion_pct]
    judged = judge_series([points[i].step_s for i in usable], floor_pct=limits.floor_pct)
    by_point = dict(zip(usable, judged, strict=True))
    changed: tuple[str, ...] = ()
    last = judged[-1] if judged else None
    if last is not None and last.since is not None and last.level:
        shifted = [points[i] for i in usable[last.since :]]
        level = [points[usable[i]] for i in last.level]
        changed = changed_surroundings(_all(level), _all(shifted))
    judgements = tuple(by_point.get(i) for i in range(len(points)))
    return SeriesReview(series, row.contract.size, row.version, points, judgements, night, changed)


def _all(points: Iterable[Point]) -> list[Surroundings]:
    return [item for point in points for item in point.surroundings]


def _boundaries(
    measured: Mapping[int, Sequence[tuple[str, str]]], facts: Mapping[str, ContractRow]
) -> Iterable[Boundary]:
    for size in sorted(measured):
        before = ""
        for night, contract in measured[size]:
            if contract not in facts:
                continue
            if before and contract != before:
                changed = changed_facts(facts[before].contract, facts[contract].contract)
                words = tuple(f"{item.field}: {item.before} → {item.after}" for item in changed)
                yield Boundary(size, night, before, contract, words)
            before = contract
