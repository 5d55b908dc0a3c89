"""All analyses of one capture in one result, and the sentences that follow from it."""

from __future__ import annotations

import pytest
from attribution_tables import attention, capture_of, collective, compute

from anchormatrix.attribution.summary import AttributionOptions, attribute, attribute_directory
from anchormatrix.cli.tables import text_table
from anchormatrix.records.attribution import Attribution, AttributionStatus
from anchormatrix.records.form import parse_form
from anchormatrix.store.codec import parse_record, plain, record_text

LAYER = [
    compute(0, 10),
    *(collective(10 + 10 * k, 20 + 10 * k) for k in range(3)),
    attention(40, 80),
    collective(80, 90),
    compute(90, 100),
]


def ranks(*rows, count=2):
    return capture_of([row | {"rank": rank} for rank in range(count) for row in rows])


def test_every_analysis_is_there_and_is_plain_json():
    found = attribute(ranks(*LAYER), AttributionOptions(form=parse_form("usp2"), layers=1, unprofiled_step_s=0.0002))
    assert parse_record(record_text(found), Attribution, where="attribution") == found
    assert [row.rank for row in found.steps.ranks] == [0, 1]
    assert [row.rank for row in found.masking.ranks] == [0, 1]
    assert [row.rank for row in found.bubbles.ranks] == [0, 1]
    assert found.missing == {}
    assert found.findings == ()
    assert {sentence.about for sentence in found.reading} == {"steps", "collectives", "masking", "bubbles"}


def test_the_exposed_share_is_of_the_step_without_the_profiler():
    found = attribute(ranks(*LAYER), AttributionOptions(unprofiled_step_s=0.0002))
    assert found.steps.exposed_share == pytest.approx(0.2)  # 40 µs of 200 µs, not of the captured 100 µs
    assert attribute(ranks(*LAYER), AttributionOptions()).steps.exposed_share is None


def test_the_masking_bound_is_also_that_of_attention_as_long_as_without_the_profiler():
    """C = 40, F = 40 and 60 of computing are captured; the timed step is 80 long, so F is 40 × 40 ÷ 60."""
    options = AttributionOptions(form=parse_form("usp2+mask4"), layers=1, unprofiled_step_s=0.00008)
    (found, _) = attribute(ranks(*LAYER), options).masking.ranks
    assert (found.c_total_ms, found.f_total_ms, found.c_over_f, found.bound) == (0.04, 0.04, 1.0, 0.75)
    assert (found.f_timed_ms, found.c_over_f_timed) == (pytest.approx(0.026667, abs=1e-6), 1.5)
    assert found.bound_timed == pytest.approx(26.6667 / 40)
    assert "c/f is 1.50 with attention as long as without the profiler: the captured bound is optimistic" in (
        found.warnings
    )
    on_ramp = attribute(ranks(*LAYER), AttributionOptions(form=parse_form("usp2+mask4"), layers=1))
    assert "bound_timed" not in plain(on_ramp.masking.ranks[0])


def test_an_all_to_all_is_split_into_its_forward_calls_and_one_reverse_call_per_attention_kernel():
    found = attribute(ranks(*LAYER), AttributionOptions(form=parse_form("usp2"), layers=1))
    groups = found.bubbles.ranks[0].groups
    assert [(group.group, group.calls) for group in groups] == [
        ("alltoall:445 forward", 3),
        ("alltoall:445 reverse", 1),
    ]


def test_the_timeline_shows_a_layer_with_gaps_by_cause_and_hidden_communication():
    rows = [*LAYER, collective(95, 130), compute(150, 160)]
    timeline = attribute(ranks(*rows), AttributionOptions()).timeline
    lanes = {lane.name: lane.segments for lane in timeline.lanes}
    assert set(lanes) == {"compute", "alltoall:445"}
    for lane in lanes.values():
        for segment in lane:
            assert 0 <= segment.start_ms <= segment.start_ms + segment.duration_ms <= timeline.duration_ms + 1e-9


def test_gaps_of_a_timeline_carry_their_cause():
    rows = [attention(0, 100), collective(100, 500), attention(500, 600), compute(900, 950), attention(1000, 1100)]
    timeline = attribute(ranks(*rows), AttributionOptions(layers=3)).timeline
    kinds = {segment.kind for lane in timeline.lanes for segment in lane.segments}
    assert {"compute", "gap_empty"} <= kinds


def test_what_does_not_apply_says_why_and_leaves_the_rest():
    found = attribute(ranks(compute(0, 10), compute(20, 30)), AttributionOptions())
    assert found.masking.ranks == ()
    assert "no compute kernel that looks like attention" in found.missing["masking"]
    assert len(found.bubbles.ranks) == 2


def test_a_form_that_is_not_in_effect_is_a_finding():
    found = attribute(ranks(*LAYER), AttributionOptions(form=parse_form("tp2"), layers=1))
    assert not found.effect.ok
    assert [finding.kind for finding in found.findings] == ["proof: tp2"]


def test_a_directory_without_a_capture_is_refused_in_the_result(tmp_path):
    found = attribute_directory(tmp_path, AttributionOptions())
    assert found.status is AttributionStatus.REFUSED
    assert "holds no profiler output" in found.reason


def test_a_table_is_aligned_and_shows_what_is_missing():
    rows = [{"rank": 0, "family": "alltoall", "ms": 1.5}, {"rank": 10, "family": "x\x1b[31m", "ms": None}]
    assert text_table(rows).splitlines() == [
        "rank  family        ms",
        "   0  alltoall  1.5000",
        "  10  x [31m         –",
    ]
    assert text_table([]) == "(none)"
