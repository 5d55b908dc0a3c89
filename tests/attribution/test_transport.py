"""The transport audit names what is wrong with an all-to-all."""

from __future__ import annotations

import pytest

from anchormatrix.attribution.transport import reconcile_transport, selftest
from anchormatrix.errors import InputError


def line(rank: int, sent: str, got: str, spost: str | None = None, *, call: int = 0, chunk: int = 0) -> str:
    return f"A2AUD rank={rank} call={call} chunk={chunk} sent={sent} got={got} spre={sent} spost={spost or sent}"


GOOD = [line(0, "11,12", "11,21"), line(1, "21,22", "12,22")]


def test_a_faithful_transport():
    found = reconcile_transport(["noise", f"(Worker pid=3) INFO {GOOD[0]}", GOOD[1] + "\n"])
    assert (found.ok, found.legs, found.equal, found.lines, found.unusable_lines) == (True, 4, 4, 2, 0)


@pytest.mark.parametrize(
    ("lines", "kind", "legs"),
    [
        ([line(0, "11,12", "11,21", "11,99"), line(1, "21,22", "99,22")], "rewritten", [(0, 1)]),
        ([GOOD[0], line(1, "21,22", "77,22")], "placement", [(0, 1)]),
        ([line(0, "11,12", "55,21"), GOOD[1]], "packing", [(0, 0)]),
        ([GOOD[0]], "missing", [(0, 1), (1, 0), (1, 1)]),
        ([GOOD[0], line(1, "21", "12")], "missing", [(1, 1)]),
    ],
)
def test_each_fault_has_its_name(lines, kind, legs):
    found = reconcile_transport(lines)
    assert not found.ok
    assert {leg.fault for leg in found.faults} == {kind}
    assert [(leg.source, leg.destination) for leg in found.faults] == legs


def test_a_buffer_rewritten_without_harm_is_still_a_finding():
    found = reconcile_transport([line(0, "11,12", "11,21", "11,99"), GOOD[1]])
    assert (found.ok, found.faults, found.rewritten_blocks) == (False, (), 1)


def test_missing_legs_are_counted_and_not_assumed_equal():
    found = reconcile_transport([GOOD[0]])
    assert (found.legs, found.equal, found.missing, found.unequal) == (4, 1, 3, 0)


@pytest.mark.parametrize(
    "bad",
    [
        "A2AUD rank=1 call=0 chunk=0 sent=21,22 got=12,2",  # cut off
        GOOD[1] + " " + GOOD[0],  # two workers on one line
        "A2AUD rank=1 call=0 chunk=0 sent=21,22 got=12 spre=21,22 spost=21,22",
        "A2AUD rank=1 call=0 chunk=0 sent=21, got=12,22 spre=21,22 spost=21,22",
    ],
)
def test_unusable_lines_are_counted_and_never_guessed_at(bad):
    found = reconcile_transport([GOOD[0], bad])
    assert (found.unusable_lines, found.missing) == (1, 3)


def test_a_line_that_contradicts_an_earlier_one_is_unusable_and_a_repeated_one_is_harmless():
    assert reconcile_transport([*GOOD, *GOOD]).unusable_lines == 0
    assert reconcile_transport([*GOOD, line(1, "21,22", "13,22")]).unusable_lines == 1


def test_calls_and_chunks_are_reconciled_by_themselves():
    lines = [
        line(r, s, g, call=call, chunk=chunk)
        for call in (0, 1)
        for chunk in (0, 1)
        for r, s, g in ((0, "11,12", "11,21"), (1, "21,22", "12,22"))
    ]
    found = reconcile_transport(lines)
    assert (found.calls, found.chunks, found.legs, found.equal) == (2, 2, 16, 16)


def test_logs_without_any_audit_line_cannot_be_reconciled():
    with pytest.raises(InputError, match="no usable A2AUD line"):
        reconcile_transport(["nothing here"])


def test_the_selftest_recognises_every_fault():
    assert [name for name, right in selftest() if right] == ["faithful", "rewritten", "placement", "packing", "missing"]


BARE = ["A2AUD rank=0 call=1 chunk=0 sent=10,20 got=10,30", "A2AUD rank=1 call=1 chunk=0 sent=30,41 got=20,41"]


def test_a_log_without_the_optional_fields_reconciles():
    found = reconcile_transport(BARE)
    assert (found.ok, found.legs, found.equal, found.unusable_lines) == (True, 4, 4, 0)
    wrong = reconcile_transport([BARE[0], BARE[1].replace("got=20", "got=29")])
    assert [(leg.fault, leg.source, leg.destination) for leg in wrong.faults] == [("placement", 0, 1)]


def test_one_optional_field_tells_nothing_of_rewriting():
    found = reconcile_transport([f"{BARE[0]} spre=10,99", f"{BARE[1]} spre=30,41"])
    assert (found.ok, found.equal, found.rewritten_blocks, found.unusable_lines) == (True, 4, 0, 0)


def test_a_line_with_fewer_fields_than_the_others_is_cut_off():
    found = reconcile_transport([GOOD[0], GOOD[1].rsplit(" ", 1)[0], GOOD[1].split(" spre")[0]])
    assert (found.unusable_lines, found.missing) == (2, 3)
