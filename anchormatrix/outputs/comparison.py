"""The comparison of a contract's outputs at one seed: which sessions compute the same picture, and which another.

Forms differ in the order of summation, so the same picture means: close. The measure is the PSNR of the worst frame,
10 · log₁₀(peak² ÷ mean square difference), so that one spoiled frame is not averaged away. Its limit depends on the
precision, see :func:`least_psnr_db`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from math import inf, log10
from pathlib import Path

import numpy as np

from anchormatrix.errors import InputError
from anchormatrix.outputs.decoding import Frame, Output, broken, frames
from anchormatrix.records.outputs import Outputs, OutputStatus, SessionOutput
from anchormatrix.records.session import SessionStatus
from anchormatrix.store.sessions import TimedSession, read_output

_LEVELS = 255.0


@dataclass(frozen=True)
class Computed:
    """The output of one session; ``None`` when no answer of the compared tier arrived."""

    form: str
    window: int
    output: Output | None

    @property
    def name(self) -> str:
        """The session in words."""
        return f"{self.form} in window {self.window}"


def computed(sessions: Sequence[TimedSession], paths: Sequence[Path]) -> tuple[Computed, ...]:
    """The outputs of those sessions that were measured; ``paths`` are the sessions' files."""
    found = []
    for timed, path in zip(sessions, paths, strict=True):
        session = timed.session
        if session.status is SessionStatus.MEASURED:
            data = read_output(path) if session.output else b""
            output = Output(data, session.output.media) if session.output and data else None
            found.append(Computed(session.form, session.window, output))
    return tuple(found)


def least_psnr_db(limits: Mapping[int, float], bytes_per_value: float) -> float:
    """The least PSNR of two outputs that are one picture: that of the widest precision not above the model's."""
    at_most = [width for width in limits if width <= bytes_per_value]
    return limits[max(at_most) if at_most else min(limits)]


def psnr_db(one: Output, other: Output) -> float:
    """PSNR of the worst frame in dB: infinite for equal numbers, −infinite for another geometry or what is no number.

    Latents have no fixed range; their peak is the root mean square of the first, so that 40 dB are a relative distance
    of 1 %. Raises :class:`InputError` for an output that cannot be decoded.
    """
    if one == other:
        return inf
    worst = inf
    for a, b in zip_longest(frames(one), frames(other)):
        if a is None or b is None or a.shape != b.shape:
            return -inf
        peak_square = _mean_square(a) if one.are_latents else _LEVELS**2
        square = _mean_square(np.subtract(a, b, dtype=np.float32))
        if square:
            worst = min(worst, 10 * log10(peak_square / square) if peak_square and np.isfinite(square) else -inf)
    return worst


def _mean_square(values: Frame) -> float:
    return float(np.mean(np.square(values, dtype=np.float32)))


def compare(
    contract: str, computed: Sequence[Computed], *, limit_db: float, by_design: Collection[str] = ()
) -> Outputs:
    """Compare the outputs of a contract's measured sessions, in the order of its forms.

    The picture that counts is the one that more forms compute in every window than compute any other. Without such a
    picture (two forms, two pictures) nothing tells which is right, and all are void; when not even one form repeats its
    own, the seed binds nothing and nothing is said. ``by_design`` are forms that are said to compute another picture.
    """
    return _Comparison(contract, tuple(computed), limit_db, frozenset(by_design)).outputs()


class _Comparison:
    """The outputs of one contract while they are compared; each pair of different outputs is decoded once."""

    def __init__(
        self, contract: str, computed: tuple[Computed, ...], limit_db: float, by_design: frozenset[str]
    ) -> None:
        self._contract, self._computed, self._limit_db, self._by_design = contract, computed, limit_db, by_design
        self._psnr: Callable[[Output, Output], float] = cache(psnr_db)
        self._broken: Callable[[Output], str] = cache(broken)

    def outputs(self) -> Outputs:
        told: dict[Computed, SessionOutput] = {}
        whole: list[Computed] = []
        for one in self._computed:
            unusable = self._unusable(one)
            if unusable:
                told[one] = unusable
            else:
                whole.append(one)
        groups = self._groups([one for one in whole if one.form not in self._by_design])
        leader = self._leader(groups)
        for one in whole:
            told[one] = self._against(one, leader, groups)
        sessions = tuple(told[one] for one in self._computed)
        return Outputs(self._contract, leader.form if leader else None, self._limit_db, sessions)

    def _unusable(self, one: Computed) -> SessionOutput | None:
        """Why an output takes no part: it is no picture, or nothing tells whether it is."""
        if one.output is None:
            return _told(
                one, OutputStatus.NOT_COMPARED, "outputs not compared, because no answer at the anchor arrived"
            )
        try:
            why = self._broken(one.output)
        except InputError as error:
            return _told(one, OutputStatus.NOT_COMPARED, f"outputs not compared, because {error}")
        return _told(one, OutputStatus.VOID, f"the output {why}") if why else None

    def _groups(self, whole: Sequence[Computed]) -> list[list[Computed]]:
        """Outputs that are close to the first of their group."""
        groups: list[list[Computed]] = []
        for one in whole:
            near = next((group for group in groups if self._between(one, group[0]) >= self._limit_db), None)
            if near is None:
                groups.append([one])
            else:
                near.append(one)
        return groups

    def _between(self, one: Computed, other: Computed) -> float:
        assert one.output is not None and other.output is not None, "an output that takes no part"
        return inf if one.output == other.output else self._psnr(other.output, one.output)

    @staticmethod
    def _leader(groups: Sequence[Sequence[Computed]]) -> Computed | None:
        """The first output of the group that counts."""
        steady = [_steady(group, groups) for group in groups]
        most = max(steady, default=0)
        return groups[steady.index(most)][0] if most and steady.count(most) == 1 else None

    def _against(self, one: Computed, leader: Computed | None, groups: Sequence[Sequence[Computed]]) -> SessionOutput:
        if leader is None:
            return self._without_leader(one, groups)
        if one == leader:
            return _told(one, OutputStatus.SAME, "the picture that the others are held against")
        psnr = self._between(one, leader)
        words = _words(psnr, self._limit_db)
        if one.form in self._by_design:
            if psnr == inf:
                text = f"the same as {leader.name} to the last digit, although it is said to differ: it is not active"
                return _told(one, OutputStatus.VOID, text, psnr)
            return _told(
                one, OutputStatus.OTHER_PRODUCT, f"another product than {leader.form} by design: {words}", psnr
            )
        if psnr >= self._limit_db:
            return _told(one, OutputStatus.SAME, f"the same picture as {leader.name}: {words}", psnr)
        return _told(one, OutputStatus.VOID, f"it computes another picture than {leader.name}: {words}", psnr)

    def _without_leader(self, one: Computed, groups: Sequence[Sequence[Computed]]) -> SessionOutput:
        if one.form in self._by_design or not any(_steady(group, groups) for group in groups):
            text = "outputs not compared, because no form repeats its own output at the same seed"
            return _told(one, OutputStatus.NOT_COMPARED, text)
        other = next(group[0] for group in groups if one not in group)
        psnr = self._between(one, other)
        apart = f"it computes another picture than {other.name} ({_words(psnr, self._limit_db)})"
        text = f"{apart}, and nothing tells which is right"
        return _told(one, OutputStatus.VOID, text, psnr)


def _steady(group: Sequence[Computed], groups: Sequence[Sequence[Computed]]) -> int:
    """How many forms compute the picture of this group in every window."""
    elsewhere = {one.form for other in groups if other is not group for one in other}
    return len({one.form for one in group} - elsewhere)


def _words(psnr: float, limit: float) -> str:
    if psnr == inf:
        return "equal to the last digit"
    if psnr == -inf:
        return "of another size, or no numbers"
    return f"PSNR {psnr:.1f} dB, at least {limit:g} dB are asked"


def _told(one: Computed, status: OutputStatus, text: str, psnr: float | None = None) -> SessionOutput:
    finite = psnr if psnr is not None and np.isfinite(psnr) else None
    return SessionOutput(one.form, one.window, status, None if finite is None else round(finite, 2), text)
