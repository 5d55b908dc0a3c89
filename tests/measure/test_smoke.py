"""A smoke's findings are told apart: residue, too slow, straggler, slow first step, thermal slope, unverified."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from contracts import contract_on, store_contract
from measured import smoke_record, timed_session

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.timing import RankTiming, Request
from anchormatrix.measure.smokes.expectation import comparable, expected_step
from anchormatrix.measure.smokes.judging import Expectation, SmokeJudgement, judge_smoke
from anchormatrix.records.contract import Contract
from anchormatrix.records.settings.policies import SmokeSettings
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import write_record
from anchormatrix.store.sessions import write_session

LIMITS = SmokeSettings(
    steps=4, residue_factor=5, straggler_pct=10, first_step_pct=30, slope_pct=10, expected_step_s={8: 2.0}
)
HEALTHY = Expectation(4.0, "its own history")


@pytest.fixture(scope="module")
def settings() -> Settings:
    """The default configuration."""
    return load_settings(DEFAULT_FILE)


def request(*ranks: tuple[float, ...], bars: tuple[tuple[int, int], ...] = ()) -> Request:
    """A request whose ranks logged these steps."""
    timings = tuple(RankTiming(n, "", sum(times), times) for n, times in enumerate(ranks))
    fastest = min((timing.diffuse_s for timing in timings), default=None)
    return Request(0, 4, 4, "bar", fastest, None, None, None, timings, bars, "sent")


def kinds(smoke: SmokeJudgement) -> list[str]:
    return [finding.kind for finding in smoke.findings]


def test_a_fast_even_group_passes() -> None:
    smoke = judge_smoke(request((4.0,) * 4, (4.0,) * 4), HEALTHY, LIMITS)
    assert (smoke.status, smoke.findings, smoke.step_s) == ("passed", (), 4.0)


def test_uniformly_ten_times_slower_is_the_residue_state() -> None:
    smoke = judge_smoke(request((40.0,) * 4, (40.1,) * 4), HEALTHY, LIMITS)
    assert (smoke.status, kinds(smoke)) == ("rejected", ["residue"])
    assert smoke.findings[0].value == 10.0


def test_slow_with_a_slope_is_not_the_residue_state() -> None:
    smoke = judge_smoke(request((30.0, 35.0, 40.0, 45.0)), HEALTHY, LIMITS)
    assert (smoke.status, kinds(smoke)) == ("rejected", ["thermal_slope", "too_slow"])


def test_one_slow_rank_is_a_straggler_and_does_not_reject() -> None:
    smoke = judge_smoke(request((4.0,) * 4, (5.0,) * 4, (4.0,) * 4), HEALTHY, LIMITS)
    assert (smoke.status, kinds(smoke)) == ("passed", ["straggler"])
    assert "rank 1" in smoke.findings[0].text


def test_a_slow_first_step_is_warm_up() -> None:
    assert kinds(judge_smoke(request((6.0, 4.0, 4.0, 4.0)), HEALTHY, LIMITS)) == ["slow_first_step"]


def test_a_rising_slope_is_thermal() -> None:
    assert kinds(judge_smoke(request((4.0, 4.1, 4.4, 4.7)), HEALTHY, LIMITS)) == ["thermal_slope"]


def test_nothing_to_compare_with_is_unverified_not_passed() -> None:
    smoke = judge_smoke(request((40.0,) * 4), None, LIMITS)
    assert (smoke.status, kinds(smoke)) == ("unverified", ["unverified"])


def test_a_slow_reference_is_said() -> None:
    smoke = judge_smoke(request((4.0,) * 4), Expectation(40.0, "cards 4–7"), LIMITS)
    assert (smoke.status, kinds(smoke)) == ("passed", ["reference_slow"])


@pytest.mark.parametrize(("late", "status"), [(1, "rejected"), (0, "passed")])
def test_a_warning_counts_when_its_own_rank_straggles(late: int, status: str) -> None:
    ranks = [(5.0,) * 4 if rank == late else (4.0,) * 4 for rank in range(3)]
    smoke = judge_smoke(request(*ranks), HEALTHY, LIMITS, warned=[7], cards=[6, 7, 8])
    assert smoke.status == status
    assert ("warning_confirmed" in kinds(smoke)) == (late == 1)


def test_a_bar_of_whole_seconds_shows_only_what_is_beyond_its_clock() -> None:
    slight = request((17.0,), bars=((1, 4), (2, 8), (3, 13), (4, 17)))
    assert kinds(judge_smoke(slight, HEALTHY, LIMITS)) == []
    steep = request((40.0,), bars=((1, 4), (2, 12), (3, 24), (4, 40)))
    assert "thermal_slope" in kinds(judge_smoke(steep, Expectation(10.0, ""), LIMITS))


def test_without_stage_lines_the_bar_tells_the_residue_state() -> None:
    slow = request(bars=((1, 40), (2, 80), (3, 120), (4, 160)))
    assert kinds(judge_smoke(slow, HEALTHY, LIMITS)) == ["no_timing", "residue"]
    silent = judge_smoke(request(), HEALTHY, LIMITS)
    assert (silent.status, kinds(silent)) == ("unverified", ["no_timing"])


def contract(cards: tuple[int, ...], link: str = "UB", **facts: str) -> Contract:
    links = tuple(tuple("X" if a == b else link for b in cards) for a in cards)
    return contract_on(cards, links, **facts)


def test_only_groups_that_differ_in_nothing_but_their_cards_are_compared() -> None:
    one = contract((0, 1, 2, 3))
    assert comparable(one, contract((4, 5, 6, 7)))
    assert not comparable(one, contract((4, 5, 6, 7), link="SYS"))
    assert not comparable(one, contract((4, 5, 6, 7), driver="other"))
    assert not comparable(one, contract((0, 1)))


def test_expectations_come_in_order(tmp_path: Path, settings: Settings) -> None:
    ours, other = contract((0, 1, 2, 3)), contract((4, 5, 6, 7))

    def expected(history: float | None = None) -> tuple[float, str] | None:
        found = expected_step(ours, "tp1-usp4", tmp_path, settings, lambda *_: history)
        return (found.step_s, found.source) if found else None

    assert expected() is None
    bounded = msgspec.structs.replace(settings, smoke=LIMITS)
    assert expected_step(contract(tuple(range(8))), "tp1-usp8", tmp_path, bounded) == Expectation(
        2.0, "the bound in the configuration"
    )
    store_contract(tmp_path, other)
    write_record(tmp_path / other.id / "smoke.json", smoke_record(other.id, "rejected", step_s=40.0))
    assert expected() is None
    write_record(tmp_path / other.id / "smoke.json", smoke_record(other.id, "passed", step_s=4.1))
    assert expected() == (4.1, "cards 4–7, a group of the same size and links")
    path = tmp_path / ours.id / "tp1-usp4" / "w1" / "session.json"
    write_session(path, timed_session("tp1-usp4", 1, {"few": [4.2]}, contract=ours.id))
    assert expected() == (4.2, "its own earlier runs")
    assert expected(history=4.3) == (4.3, "its own history")


def test_stage_times_that_something_contradicts_leave_the_bar_and_say_why() -> None:
    refused = "the stage says 0.02 s where the progress bar ran for 0:16: the device was not waited for"
    drawn = request(bars=((1, 4), (2, 8), (3, 12), (4, 16)))
    smoke = judge_smoke(dataclasses.replace(drawn, refused=refused), HEALTHY, LIMITS)
    assert (smoke.step_s, kinds(smoke)) == (4.0, ["no_timing"])
    assert smoke.findings[0].text == f"{refused}: only its progress bar is read, to a second"
