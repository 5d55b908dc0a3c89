"""What a matrix can tell at the noise of this host, and what it will cost: said before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

from anchormatrix.history.progress import Durations
from anchormatrix.planning.adaptive import MatrixDesign
from anchormatrix.planning.ranking import resolution_pct
from anchormatrix.records.night import Place, duration_words
from anchormatrix.records.plan import ContractPlan

_ASSUMED_PCT = 1.0


@dataclass(frozen=True)
class Forecast:
    """The server starts of a size, ``least`` and ``most`` of them, and what ``each`` of a form tell.

    ``tells_pct`` is the smallest margin that counts and is told where starts differ by ``sd_pct``, which is ``known``
    or an example; None when nothing can be told. ``session_s`` is what a session takes by history, None when unknown.
    """

    size: int
    least: int
    most: int
    each: int
    sd_pct: float
    known: bool
    tells_pct: float | None
    session_s: float | None

    @property
    def words(self) -> str:
        """The forecast in a line that may hold for several sizes."""
        return f"{self._cost()}. {self._told()}"

    def _cost(self) -> str:
        starts = sorted({self.least, self.most})
        text = f"{_to([f'{count}' for count in starts])} server starts"
        if self.session_s is None:
            return text
        taken_s = [count * self.session_s for count in starts]
        cards = _to([f"{seconds * self.size / 3600:.2g}" for seconds in taken_s])
        return f"{text}, about {_to([duration_words(seconds) for seconds in taken_s])} ({cards} card-hours)"

    def _told(self) -> str:
        if self.tells_pct is None:
            return "One start of each form decides nothing"
        known = f"Starts differ by {self.sd_pct:.2g} % here:"
        unknown = f"How far starts differ here is unknown: if by {self.sd_pct:g} %,"
        return f"{known if self.known else unknown} {self.each} of each form tell margins above {self.tells_pct:.1f} %"


def forecast(planned: ContractPlan, design: MatrixDesign, durations: Durations) -> Forecast | None:
    """What measuring a contract will tell and cost; None where no two forms are compared."""
    forms, rule = len(planned.forms), design.rule
    if forms < 2:
        return None
    # at least the first window, and without known noise two forms in every further one that must be looked at
    least = forms + (0 if rule.known else 2 * (rule.first_window - 1))
    most = forms * design.windows
    sd_pct = rule.known.sd_pct if rule.known else _ASSUMED_PCT
    told = rule.known or design.windows > 1
    tells = max(rule.zone_pct, resolution_pct(sd_pct, rule, forms=forms, starts=design.windows)) if told else None
    taken = [durations.of(Place(planned.id, form, 1)) for form in planned.forms]
    known_s = [seconds for seconds in taken if seconds is not None]
    return Forecast(
        size=planned.size,
        least=least if design.adaptive else most,
        most=most,
        each=design.windows,
        sd_pct=sd_pct,
        known=rule.known is not None,
        tells_pct=tells,
        session_s=fmean(known_s) if known_s else None,
    )


def forecast_lines(forecasts: Iterable[Forecast]) -> Iterator[str]:
    """A line for each size, or one for several that it holds for."""
    alike: dict[str, list[str]] = {}
    for found in forecasts:
        alike.setdefault(found.words, []).append(f"{found.size}")
    for words, sizes in alike.items():
        yield f"{', '.join(sizes)} cards: {words}"


def _to(ends: list[str]) -> str:
    return " to ".join(dict.fromkeys(ends))
