"""Cells and the verdict: medians, dispersion, ties within the noise floor, and every status with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import timed_session
from msgspec.structs import replace

from anchormatrix.decide.cells import build_cells, read_cells, write_cells
from anchormatrix.decide.verdict import judge
from anchormatrix.errors import InputError
from anchormatrix.planning.adaptive import MatrixDesign
from anchormatrix.planning.ranking import Rule
from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.conclusions.verdict import NotRun, Verdict
from anchormatrix.records.settings.policies import VerdictSettings
from anchormatrix.store.codec import columns
from anchormatrix.store.files import write_text
from anchormatrix.store.sessions import TimedSession

A, B, C = "tp1-usp4", "tp2-usp2", "tp4-usp1"
LIMITS = VerdictSettings(dispersion_pct=3, drift_pct=5, noise_floor_pct=1, window_drift_pct=3)


def around(step_s: float, pct: float = 0.4) -> tuple[float, ...]:
    """Three repeats whose median is ``step_s`` and whose dispersion is ``pct``."""
    return (step_s * (1 - pct / 200), step_s * (1 + pct / 200), step_s)


def session(
    form: str, window: int, few: float, anchor: float, *, pct: float = 0.4, steady: bool = True
) -> TimedSession:
    values_s = {"few": around(few, pct), "anchor": around(anchor, pct)}
    return timed_session(form, window, values_s, contract="c4-0123456789", steady=steady)


def failed(form: str, window: int, status: str, reason: str) -> TimedSession:
    return timed_session(form, window, {}, status, contract="c4-0123456789", reason=reason)


def both(form: str, few: float, anchor: float, **facts: float) -> list[TimedSession]:
    return [session(form, window, few, anchor, **facts) for window in (1, 2)]  # type: ignore[arg-type]


def verdict(*sessions: TimedSession, forms: tuple[str, ...] = (A, B), windows: int = 2) -> Verdict:
    cells = build_cells(sessions, repeats=3, dispersion_pct=3)
    design = MatrixDesign(repeats=3, windows=windows, rule=Rule(first_window=windows, far_pct=None))
    return judge("c4-0123456789", 4, cells, sessions, forms=forms, design=design, limits=LIMITS)


def test_a_cell_is_the_median_with_its_dispersion() -> None:
    cells = build_cells([session(A, 1, 2.0, 2.2), session(A, 2, 2.1, 2.2)], repeats=3, dispersion_pct=3)
    found = {(cell.tier, cell.window): cell for cell in cells}
    assert found["few", "1"].step_s == 2.0
    assert found["few", "1"].dispersion_pct == pytest.approx(0.4)
    assert found["few", "all"].step_s == pytest.approx(2.05, abs=0.005)
    assert len(found["few", "all"].values_s) == 6
    assert found["few", "all"].dispersion_pct == pytest.approx(5.3, abs=0.05)  # of the six together: 1.996 … 2.1042
    assert found["few", "all"].reason == "dispersion 5.3 % of 6 repeats is above 3 %"


def test_extrapolates_when_both_tiers_agree() -> None:
    result = verdict(*both(A, 1.0, 1.01), *both(B, 1.1, 1.12))
    assert (result.status, result.winner) == ("extrapolates", A)
    assert result.r == pytest.approx({A: 1.01, B: 1.12 / 1.1})
    assert (result.order_few, result.order_anchor) == (((A,), (B,)), ((A,), (B,)))
    assert result.margin_pct == pytest.approx(10.9, abs=0.1)


def test_drift_when_a_step_time_changes_between_the_tiers() -> None:
    result = verdict(*both(A, 1.0, 1.09), *both(B, 1.1, 1.2))
    assert (result.status, result.winner) == ("drift", A)
    assert "measure at the anchor" in result.cure


def test_order_flip_follows_the_anchor() -> None:
    result = verdict(*both(A, 1.0, 1.08), *both(B, 1.05, 1.02))
    assert (result.status, result.winner) == ("order_flip", B)


def test_a_flip_within_the_noise_floor_is_a_tie() -> None:
    result = verdict(*both(A, 1.0, 1.004, pct=0.2), *both(B, 1.004, 1.0, pct=0.2))
    assert (result.status, result.winner, result.tied_with) == ("extrapolates", None, (B, A))
    assert "No difference" in result.reason
    assert result.ties == ((A, B, 1.0),)


def test_the_noise_floor_grows_with_the_dispersion_of_the_cells() -> None:
    assert verdict(*both(A, 1.0, 1.0), *both(B, 1.02, 1.02)).winner == A
    assert verdict(*both(A, 1.0, 1.0, pct=2.5), *both(B, 1.02, 1.02)).winner is None


def test_noise_forbids_the_few_step_ranking_and_the_anchor_is_decided_where_its_starts_allow() -> None:
    result = verdict(*both(A, 1.0, 1.0, pct=7), *both(B, 1.6, 1.6))
    assert (result.status, result.winner) == ("unstable", A)
    assert "dispersion 7.0 % of 6 repeats is above 3 %" in result.reason
    assert "another window" in result.cure
    open_ = verdict(*both(A, 1.0, 1.0, pct=7), *both(B, 1.05, 1.05))
    assert (open_.status, open_.winner) == ("unstable", None)
    assert f"No winner: {A} leads {B} by 5.0 %" in open_.reason


def test_a_ramp_that_did_not_settle_makes_its_cells_unusable() -> None:
    result = verdict(session(A, 1, 1, 1, steady=False), session(A, 2, 1, 1), *both(B, 1.2, 1.2))
    assert result.status == "unstable"
    assert "ramp" in result.reason


def test_a_form_that_did_not_run_through_is_named_with_its_reason() -> None:
    result = verdict(*both(A, 1.0, 1.0), *(failed(B, w, "did_not_run", "killed") for w in (1, 2)))
    assert (result.status, result.winner) == ("incomplete", None)
    assert result.did_not_run == (NotRun(B, "did not run through: killed"),)


def test_a_form_that_failed_once_and_was_then_left_out_is_named() -> None:
    left = failed(C, 2, "skipped", "it gave no numbers in an earlier window")
    result = verdict(
        *both(A, 1.0, 1.0), *both(B, 1.2, 1.2), failed(C, 1, "void", "masking is dead"), left, forms=(A, B, C)
    )
    assert result.did_not_run == (NotRun(C, "void: masking is dead"),)


def test_the_others_are_still_ranked_beside_a_form_that_did_not_run() -> None:
    sessions = [*both(A, 1.0, 1.0), *both(B, 1.2, 1.2), failed(C, 1, "void", "2 of 4 ranks seen")]
    result = verdict(*sessions, forms=(A, B, C))
    assert (result.status, result.winner) == ("incomplete", A)


def test_a_void_session_yields_no_number() -> None:
    assert build_cells([failed(A, 1, "void", "x")], repeats=3, dispersion_pct=3) == ()


def test_a_missing_window_is_incomplete_and_never_decides() -> None:
    result = verdict(session(A, 1, 1.0, 1.0), *both(B, 1.2, 1.2))
    assert (result.status, result.winner) == ("incomplete", None)
    assert f"{A}/anchor in window 2" in result.missing


def test_too_few_repeats_is_incomplete_not_noise() -> None:
    values_s = {"few": (1.0, 1.001), "anchor": around(1.0)}
    short = timed_session(A, 1, values_s, contract="c4-0123456789")
    result = verdict(short, session(A, 2, 1.0, 1.0), *both(B, 1.2, 1.2))
    assert result.status == "incomplete"
    assert "2 of 3 repeats" in result.reason


def test_one_form_alone_is_no_comparison() -> None:
    result = verdict(*both(A, 1.0, 1.0), forms=(A,))
    assert (result.status, result.winner) == ("incomplete", None)
    assert "different splits" in result.missing[0]


def test_drift_between_the_windows_says_whether_the_conclusion_stands() -> None:
    stands = verdict(session(A, 1, 1.0, 1.0), session(A, 2, 1.05, 1.05), *both(B, 1.5, 1.5))
    assert (stands.winner, stands.conclusion_stands) == (A, True)
    assert "still stands" in stands.reason
    assert [d.exceeds for d in stands.window_drift] == [True, True, False, False]
    falls = verdict(session(A, 1, 1.0, 1.0), session(A, 2, 1.2, 1.2), *both(B, 1.1, 1.1))
    assert (falls.status, falls.winner, falls.conclusion_stands) == ("unstable", None, False)


def test_where_noise_decides_nothing_no_conclusion_is_said_to_stand() -> None:
    noisy = [session(A, 1, 1.0, 1.0, pct=5.0), session(A, 2, 1.05, 1.05, pct=5.0), *both(B, 1.1, 1.1)]
    result = verdict(*noisy)
    assert (result.status, result.winner) == ("unstable", None)
    assert f"Between the windows {A}/few +5.0 %, {A}/anchor +5.0 %" in result.reason
    assert "conclusion" not in result.reason


def test_iterations_counted_in_two_ways_are_not_compared() -> None:
    odd = session(B, 1, 1.2, 1.2)
    rows = (replace(row, denominator="requested", iterations=5) if row.tier == "few" else row for row in odd.requests)
    odd = TimedSession(odd.session, tuple(rows))
    result = verdict(*both(A, 1.0, 1.0), odd, session(B, 2, 1.2, 1.2))
    assert result.status == "unstable"
    assert "counted alike" in result.reason


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=3), st.lists(st.floats(0.1, 10), min_size=2, max_size=3))
@settings(max_examples=80, deadline=None)
def test_the_winner_is_never_slower_than_another_form_beyond_the_floor(few: list[float], anchor: list[float]) -> None:
    forms = (A, B, C)[: min(len(few), len(anchor))]
    result = verdict(*(s for f, x, y in zip(forms, few, anchor, strict=False) for s in both(f, x, y)), forms=forms)
    best = min(anchor[: len(forms)])
    if result.winner:
        assert anchor[forms.index(result.winner)] == best
        assert not result.tied_with
    else:
        assert len(result.tied_with) > 1


def test_cells_survive_their_file(tmp_path: Path) -> None:
    cells = build_cells([session(A, 1, 1.0, 1.1), session(A, 2, 1.0, 1.1)], repeats=1, dispersion_pct=3)
    write_cells(tmp_path / "cells.csv", cells)
    found = read_cells(tmp_path / "cells.csv")
    assert [cell.values_s for cell in found] == [pytest.approx(cell.values_s, rel=1e-8) for cell in cells]
    assert [(cell.form, cell.tier, cell.window, cell.usable) for cell in found] == [
        (A, tier, window, True) for tier in ("few", "anchor") for window in ("1", "2", "all")
    ]


_HEADER = ",".join(name for name in columns(Cell) if name not in Cell.added) + "\n"  # as earlier versions wrote it
_GOOD = "c4,tp1-usp4,few,1,1,1,0.5,true,,1,1,1.0\nc4,tp1-usp4,few,all,1,1,0.5,true,,1,1,1.0\n"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (",1.0\n", ",nan\n", "cells.csv:2: values_s"),
        (",1.0\n", ",1;-1\n", "cells.csv:2: values_s"),
        (",0.5,", ",inf,", "cells.csv:2: dispersion_pct"),
        (",true,", ",maybe,", "cells.csv:2: usable"),
        (",all,", ",1,", "lists tp1-usp4/few/1 twice"),
        (",all,", ",2,", "has no row of tp1-usp4/few for all windows"),
        (",0.5,true,,1,1,1.0\n", "\n", "cells.csv:2: has 6 fields"),
    ],
)
def test_a_wrong_cell_names_its_file(tmp_path: Path, before: str, after: str, message: str) -> None:
    write_text(tmp_path / "cells.csv", _HEADER + _GOOD)
    assert len(read_cells(tmp_path / "cells.csv")) == 2
    write_text(tmp_path / "cells.csv", _HEADER + _GOOD.replace(before, after))
    with pytest.raises(InputError, match=message):
        read_cells(tmp_path / "cells.csv")
