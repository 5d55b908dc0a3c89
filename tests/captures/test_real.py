"""Files of real tools, held against values counted independently (a walk over all edges, with exact fractions)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anchormatrix.attribution.bubbles import bubbles
from anchormatrix.attribution.collectives import collectives
from anchormatrix.attribution.steps import check_identities, choose_step, decompose, whole_trace
from anchormatrix.captures.open import load_capture

PROFILER = Path(__file__).resolve().parents[3] / "shared" / "captures" / "profiler"
pytestmark = pytest.mark.skipif(not PROFILER.is_dir(), reason="../shared/captures is not here")
PARTS = ("stage_ns", "computing_ns", "exposed_ns", "overlapped_ns", "communication_ns", "free_ns")


@pytest.fixture
def ascend(tmp_path):
    shutil.copy(PROFILER / "kernel_details_910b_2023.csv", tmp_path / "kernel_details.csv")
    return load_capture(tmp_path)


@pytest.fixture(scope="module")
def kineto():
    return load_capture(PROFILER / "kineto")


def test_a_910b_kernel_table_is_read_whole(ascend):
    assert (ascend.rows_read, ascend.unusable, ascend.ranks, ascend.step_ids) == (591, 0, (0,), (1,))
    assert ascend.kernels["core"].value_counts().to_dict() == {
        "compute": 558,  # 520 vector, 25 MIX_AIV, 13 AI_CORE
        "communication": 19,
        "ai_cpu": 7,
        "other": 7,  # DSA_SQE
        "copy": 0,
        "host": 0,
    }
    assert ascend.kernels["start_ns"].iloc[0] == 1_699_529_622_790_614_800
    assert ascend.kernels["dur_ns"].sum() == 396_807_040


def test_its_step_is_decomposed(ascend):
    row = decompose(ascend).iloc[0]
    assert [row[part] for part in PARTS] == [516_885_540, 47_446_540, 346_398_740, 0, 346_398_740, 123_040_260]


def test_its_collectives_are_grouped_by_family_and_communicator(ascend):
    (found,) = collectives(ascend).ranks
    assert [(f.family, f.communicator, f.calls, f.sum_ms, f.max_ms, f.union_ms) for f in found.families] == [
        ("broadcast", "445", 2, 308.98962, 308.92668, 308.98962),
        ("allReduce", "445", 8, 20.92942, 6.32878, 20.92942),
        ("allReduce", "935", 4, 6.92654, 3.58586, 6.92654),
        ("allGather", "328", 1, 4.6286, 4.6286, 4.6286),
        ("reduceScatter", "328", 1, 4.61442, 4.61442, 4.61442),
        ("allGather", "935", 1, 0.29852, 0.29852, 0.29852),
        ("allReduce", "328", 2, 0.01162, 0.00584, 0.01162),
    ]


def test_a_real_cluster_table_holds_its_identities(tmp_path):
    shutil.copy(PROFILER / "cluster_step_trace_time.csv", tmp_path / "step_trace_time.csv")
    table = decompose(load_capture(tmp_path))
    assert table["rank"].tolist() == list(range(8))
    assert table["stage_ns"].tolist()[:2] == [1_754_645_750, 1_702_431_750]
    assert table["exposed_ns"].iloc[1] == 133_385_977  # µs with eleven decimals, to the nearest ns
    assert check_identities(table) == []


def test_two_gpu_traces_are_read_whole(kineto):
    assert (kineto.rows_read, kineto.unusable, kineto.ranks, kineto.step_ids) == (2358, 0, (0, 1), (551, 552))
    counts = kineto.kernels.groupby(["rank", "core"], observed=True).size().to_dict()
    assert counts == {
        (0, "compute"): 1144,
        (0, "communication"): 10,
        (0, "copy"): 50,
        (1, "compute"): 1094,
        (1, "communication"): 10,
        (1, "copy"): 50,
    }
    found = [(one.rank, f.family, f.calls, f.sum_ms) for one in collectives(kineto).ranks for f in one.families]
    # All ten kernels are called ncclKernel_SendRecv_…; the operator that launched each says which collective it is.
    assert found == [
        (0, "alltoall", 4, 182.403),
        (0, "allReduce", 4, 107.656),
        (0, "allGather", 2, 106.14),
        (1, "alltoall", 4, 229.7),
        (1, "allGather", 2, 104.907),
        (1, "allReduce", 4, 44.446),
    ]


def test_their_kernels_split_over_the_whole_trace(kineto):
    assert whole_trace(kineto)[["rank", *PARTS]].values.tolist() == [
        [0, 1_222_847_000, 210_320_000, 336_983_000, 59_216_000, 396_199_000, 675_544_000],
        [1, 1_231_186_000, 271_973_000, 303_523_000, 75_530_000, 379_053_000, 655_690_000],
    ]


def test_their_kernels_split_per_annotated_step(kineto):
    """The stage of a step is its ``ProfilerStep`` annotation; no kernel of these traces lies outside its own."""
    assert decompose(kineto)[["rank", "step", *PARTS]].values.tolist() == [
        [0, 551, 607_312_000, 106_252_000, 172_259_000, 23_068_000, 195_327_000, 328_801_000],
        [0, 552, 622_928_000, 104_068_000, 164_724_000, 36_148_000, 200_872_000, 354_136_000],
        [1, 551, 607_904_000, 135_548_000, 134_336_000, 33_691_000, 168_027_000, 338_020_000],
        [1, 552, 630_639_000, 136_425_000, 169_187_000, 41_839_000, 211_026_000, 325_027_000],
    ]
    per_step = kineto.kernels.groupby(["rank", "step"]).size().to_dict()
    assert per_step == {(0, 551): 602, (0, 552): 602, (1, 551): 577, (1, 552): 577}


def test_of_two_steps_the_shorter_one_is_the_median_and_that_is_said(kineto):
    choice = choose_step(decompose(kineto))
    assert (choice.step, choice.why) == (551, "step 551, the median of 2 by Stage")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            551,
            [
                (580_157_000, 102_349_000, 477_808_000, 166_037_000, 311_614_000),
                (573_311_000, 131_301_000, 442_010_000, 134_336_000, 305_567_000),
            ],
        ),
        (
            552,
            [
                (596_371_000, 100_140_000, 496_231_000, 164_724_000, 331_336_000),
                (604_163_000, 132_207_000, 471_956_000, 163_082_000, 306_454_000),
            ],
        ),
    ],
)
def test_where_their_compute_stream_waits(kineto, step, expected):
    found = [
        tuple(
            round(1e6 * ms)
            for ms in (one.span_ms, one.busy_ms, one.gap_ms, one.gap_with_collective_ms, one.gap_empty_ms)
        )
        for one in bubbles(kineto, step)
    ]
    assert found == expected
