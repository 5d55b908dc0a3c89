"""Ascend profiler files: every header, every odd row."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchormatrix.attribution.steps import decompose
from anchormatrix.captures.ascend import read_kernel_details, read_step_trace
from anchormatrix.captures.csvfile import OPEN_QUOTE, WRONG_FIELDS
from anchormatrix.captures.open import load_capture
from anchormatrix.errors import InputError

HEADER = "Step Id,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Input Shapes"
MATMUL = '1,7,16,MatMul_1,MatMul,AI_CORE,"1736413971558972.912\t",13.805,"""1,16;16,5"""'
ALLTOALL = "1,N/A,N/A,hcom_alltoall__445_12_1,hcom_alltoall_,HCCL,1736413971558990.001,20,N/A"


def written(tmp_path: Path, *lines: str, end: str = "\n") -> Path:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(end.join([*lines, ""]).encode("utf-8", errors="surrogateescape"))
    return path


def rows_of(path: Path) -> list[dict[str, object]]:
    return read_kernel_details(path).table.to_pylist()


def test_a_row_becomes_integers_and_categories(tmp_path):
    assert rows_of(written(tmp_path, HEADER, MATMUL, ALLTOALL)) == [
        {
            "step": 1,
            "stream": "16",
            "core": "compute",
            "name": "MatMul_1",
            "family": "",
            "communicator": "",
            "start_ns": 1_736_413_971_558_972_912,
            "dur_ns": 13_805,
        },
        {
            "step": 1,
            "stream": "N/A 445",
            "core": "communication",
            "name": "hcom_alltoall__445_12_1",
            "family": "alltoall",
            "communicator": "445",
            "start_ns": 1_736_413_971_558_990_001,
            "dur_ns": 20_000,
        },
    ]


@pytest.mark.parametrize(
    ("name", "family", "communicator"),
    [
        ("hcom_allGather_AicpuKernel_527_0_1", "allGather", "527"),
        ("hcom_alltoall__445_12_1", "alltoall", "445"),
        ("hcom_alltoallv__445_12_1", "alltoallv", "445"),
        ("hcom_allReduce__503_96_4", "allReduce", "503"),  # a double underscore
        ("hcom_broadcast__445_0", "broadcast", "445"),
        ("hcom_reduceScatter__328_1", "reduceScatter", "328"),
        ("hcom_batchSendRecv__445_3_1", "batchSendRecv", "445"),
        ("hcom_receive__532_0_1", "receive", "532"),
        ("allgatherAicpuKernel", "allGather", ""),
        ("HcclAllGather", "allGather", ""),
        ("hcom_somethingNew__1_2", "unrecognised", ""),  # never silently dropped
    ],
)
def test_family_and_communicator_come_from_the_name(tmp_path, name, family, communicator):
    row = f"1,N/A,N/A,{name},,HCCL,1.000,2.000,N/A"
    found = rows_of(written(tmp_path, HEADER, row))[0]
    assert (found["family"], found["communicator"]) == (family, communicator)


def test_the_type_says_the_family_when_the_name_does_not(tmp_path):
    row = "1,N/A,N/A,group_name_0,hcom_allReduce_,COMMUNICATION,1.000,2.000,N/A"
    assert rows_of(written(tmp_path, HEADER, row))[0]["family"] == "allReduce"


@pytest.mark.parametrize("name", ["GatherV2_3", "ReduceSumD", "BroadcastTo", "ScatterNd", "allgather_matmul"])
def test_a_compute_kernel_with_a_similar_name_is_no_collective(tmp_path, name):
    row = f"1,7,16,{name},{name},AI_VECTOR_CORE,1.000,2.000,N/A"
    assert rows_of(written(tmp_path, HEADER, row))[0]["family"] == ""


@pytest.mark.parametrize(
    ("core", "expected"),
    [
        ("AI_CORE", "compute"),
        ("AI_VECTOR_CORE", "compute"),
        ("MIX_AIC", "compute"),
        ("MIX_AIV", "compute"),
        ("AI_CPU", "ai_cpu"),
        ("HCCL", "communication"),
        ("COMMUNICATION", "communication"),
        ("DSA_SQE", "other"),
    ],
)
def test_core_classes(tmp_path, core, expected):
    assert rows_of(written(tmp_path, HEADER, f"1,7,16,K,K,{core},1.000,2.000,N/A"))[0]["core"] == expected


@pytest.mark.parametrize("first", ["Step Id,", "Device_id,", ""])
@pytest.mark.parametrize("block", ["Block Dim", "Block Num"])
def test_headers_of_every_version(tmp_path, first, block):
    header = f"{first}Stream ID,Name,OP State,Accelerator Core,Start Time(us),Duration(us),{block}"
    row = f"{'3,' if first else ''}16,K,static,AI_CORE,5.000,2.000,48"
    found = rows_of(written(tmp_path, header, row))[0]
    assert found["step"] == (3 if first == "Step Id," else 0)
    assert found["start_ns"] == 5000


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_byte_order_mark_and_line_ends(tmp_path, end):
    assert len(rows_of(written(tmp_path, "\ufeff" + HEADER, MATMUL, ALLTOALL, end=end))) == 2


def test_gzip_is_read_by_its_name(tmp_path):
    path = tmp_path / "kernel_details.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{MATMUL}\n".encode()))
    assert len(rows_of(path)) == 1


def test_a_row_broken_over_lines_is_left_out_and_counted_once(tmp_path):
    broken = ["1,7,16,Mat", "Mul_1,MatMul,AI_CORE,1736413971558972.912,13.805,N/A"]
    found = read_kernel_details(written(tmp_path, HEADER, MATMUL, *broken, ALLTOALL))
    assert (found.table.num_rows, found.rows_read) == (2, 3)
    assert dict(found.bad.causes) == {WRONG_FIELDS: 1}
    assert (found.bad.first_line, found.bad.first_text) == (3, "1,7,16,Mat")


def test_neighbouring_short_lines_that_make_no_row_are_counted_one_by_one(tmp_path):
    found = read_kernel_details(written(tmp_path, HEADER, MATMUL, "1,2", "3,4", ALLTOALL))
    assert dict(found.bad.causes) == {WRONG_FIELDS: 2}


def test_an_open_quotation_mark_does_not_swallow_the_rows_behind_it(tmp_path):
    bad = '1,7,16,"MatMul_1,MatMul,AI_CORE,1.000,2.000,N/A'
    found = read_kernel_details(written(tmp_path, HEADER, MATMUL, bad, ALLTOALL, MATMUL))
    assert found.table.num_rows == 3
    assert dict(found.bad.causes) == {OPEN_QUOTE: 1}
    assert found.bad.first_line == 3


def test_a_line_break_inside_quotes_is_part_of_the_field(tmp_path):
    row = '1,7,16,"Mat\nMul",MatMul,AI_CORE,1.000,2.000,N/A'
    found = read_kernel_details(written(tmp_path, HEADER, MATMUL, row, ALLTOALL))
    assert (found.table.num_rows, found.bad.total) == (3, 0)
    assert found.table["name"].to_pylist()[1] == "Mat Mul"


def test_blank_lines_and_bytes_that_are_no_utf8_do_no_harm(tmp_path):
    odd = "1,7,16,Mat\udcffMul,MatMul,AI_CORE,1.000,2.000,N/A"
    found = read_kernel_details(written(tmp_path, HEADER, "", MATMUL, odd, ""))
    assert (found.table.num_rows, found.bad.total) == (2, 0)


@pytest.mark.parametrize(
    ("start", "dur", "cause"),
    [
        ("N/A", "2.000", "start time is not an exact number"),
        ("1.7e+15", "2.000", "start time is not an exact number"),
        ("5.000", "", "duration is not an exact number"),
        ("5.000", "-1.000", "duration is negative"),
    ],
)
def test_rows_without_times_are_counted_by_cause(tmp_path, start, dur, cause):
    found = read_kernel_details(written(tmp_path, HEADER, MATMUL, f"1,7,16,K,K,AI_CORE,{start},{dur},N/A", ALLTOALL))
    assert dict(found.bad.causes) == {cause: 1}
    assert found.table.num_rows == 2


def test_thousands_separators(tmp_path):
    row = '1,7,16,K,K,AI_CORE,"1,736,413,971,558,972.912","1,000.5",N/A'
    found = rows_of(written(tmp_path, HEADER, row))[0]
    assert (found["start_ns"], found["dur_ns"]) == (1_736_413_971_558_972_912, 1_000_500)


def test_a_zero_duration_kernel_is_kept(tmp_path):
    assert rows_of(written(tmp_path, HEADER, "1,7,16,K,K,AI_CORE,5.000,0,N/A"))[0]["dur_ns"] == 0


def test_above_one_percent_the_capture_is_refused_with_the_first_such_line(tmp_path):
    written(tmp_path, HEADER, *[MATMUL] * 98, "1,7", ALLTOALL, "1,8")
    with pytest.raises(InputError, match=r"kernel_details.csv:100: 2 of 101 rows are unusable .*«1,7».* at most 1 %"):
        load_capture(tmp_path)
    assert load_capture(tmp_path, limit_pct=2).rows_unusable == {WRONG_FIELDS: 2}


def test_one_percent_is_still_read(tmp_path):
    written(tmp_path, HEADER, *[MATMUL] * 98, "1,7", ALLTOALL)
    found = load_capture(tmp_path)
    assert (found.rows_read, found.unusable, len(found.kernels)) == (100, 1, 99)


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(InputError, match=r"has no column 'Duration\(us\)'"):
        read_kernel_details(written(tmp_path, HEADER.replace("Duration(us)", "Duration"), MATMUL))


def test_an_empty_file_is_named(tmp_path):
    with pytest.raises(InputError, match="is empty"):
        read_kernel_details(written(tmp_path))


NAMES = st.sampled_from(["MatMul_1", "hcom_alltoall__445_12_1", "a,b", 'say ""x""', "x" * 40])
ROWS = st.lists(st.tuples(NAMES, st.integers(0, 2**62), st.integers(0, 10**9), st.booleans()), min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(rows=ROWS, crlf=st.booleans(), bom=st.booleans())
def test_generated_files_come_back_as_they_were_written(tmp_path, rows, crlf, bom):
    lines = []
    for name, start, dur, quoted in rows:
        at = f"{start // 1000}.{start % 1000:03d}"
        at = f'"{at}\t"' if quoted else at
        lines.append(f'1,7,16,"{name}",K,AI_CORE,{at},{dur // 1000}.{dur % 1000:03d},"""1,2"""')
    path = written(tmp_path, ("\ufeff" if bom else "") + HEADER, *lines, end="\r\n" if crlf else "\n")
    found = rows_of(path)
    assert [(row["start_ns"], row["dur_ns"]) for row in found] == [(start, dur) for _, start, dur, _ in rows]
    assert [row["name"] for row in found] == [name.replace('""', '"') for name, *_ in rows]


STEP_HEADER = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"
)


def test_the_step_table_is_matched_by_exact_column_names(tmp_path):
    path = tmp_path / "step_trace_time.csv"
    path.write_text(f"{STEP_HEADER}\n0,7,10.5,3,1,4,2.25,15.75,0,0.5\n")
    assert read_step_trace(path, 3).to_dict("records") == [
        {
            "rank": 3,
            "step": 7,
            "computing_ns": 10_500,
            "exposed_ns": 3_000,
            "overlapped_ns": 1_000,
            "communication_ns": 4_000,  # not 3: «Communication» is a substring of the exposed column's name
            "free_ns": 2_250,
            "stage_ns": 15_750,
            "bubble_ns": 0,
            "preparing_ns": 500,
        }
    ]


def test_a_cluster_table_gives_its_ranks_and_not_its_summaries(tmp_path):
    path = tmp_path / "cluster_step_trace_time.csv"
    names = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
    path.write_text(f'{names}\n,rank,0,1,2,3,5,4,7,0\n,rank,5,1,2,3,5,4,7,0\n,stage,"(0, 5)",1,2,3,5,4,7,0\n')
    assert read_step_trace(path, 0)["rank"].tolist() == [0, 5]


def test_a_bad_step_table_is_refused_with_its_line(tmp_path):
    path = tmp_path / "step_trace_time.csv"
    path.write_text(f"{STEP_HEADER}\n0,7,ten,3,1,4,2.25,15.75,0,0\n")
    with pytest.raises(InputError, match=r"step_trace_time.csv:2: Computing is 'ten'"):
        read_step_trace(path, 0)


def test_a_collective_on_an_ai_vector_core_is_communication(tmp_path):
    """With HCCL_OP_EXPANSION_MODE=AIV the collective is a kernel of its own beside the row of the operation."""
    written(
        tmp_path,
        HEADER,
        "1,1,2,MatMul,MatMul,AI_CORE,1000.000,500.000,N/A",
        "1,N/A,N/A,hcom_allReduce__445_1_1,hcom_allReduce_,COMMUNICATION,1500.000,100.000,N/A",
        "1,3,2,aiv_all_reduce_910b_bfloat16_t,aiv,AI_VECTOR_CORE,1505.000,90.000,N/A",
        "1,1,2,MatMul,MatMul,AI_CORE,1600.000,500.000,N/A",
    )
    step = decompose(load_capture(tmp_path)).iloc[0]
    assert (step["computing_ns"], step["communication_ns"]) == (1_000_000, 100_000)


def test_calls_without_a_stream_are_kept_apart_by_communicator(tmp_path):
    rows = [
        f"1,N/A,N/A,hcom_alltoall__{group}_{call}_1,,HCCL,{call}.000,2.000,N/A" for call in (0, 1) for group in "45"
    ]
    found = rows_of(written(tmp_path, HEADER, MATMUL, *rows))
    assert [row["stream"] for row in found] == ["16", "N/A 4", "N/A 5", "N/A 4", "N/A 5"]


def test_a_fused_operator_computes_and_is_a_finding(tmp_path):
    written(tmp_path, HEADER, MATMUL, "1,7,16,AllGatherMatmul_3,AllGatherMatmul,MIX_AIC,1.000,2.000,N/A")
    capture = load_capture(tmp_path)
    assert capture.kernels["core"].tolist() == ["compute", "compute"]
    assert [one.kind for one in capture.findings] == ["fused_computing"]
