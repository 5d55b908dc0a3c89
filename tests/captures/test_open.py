"""Which files of a directory are the capture, and which rank each belongs to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anchormatrix.captures.open import load_capture
from anchormatrix.captures.table import KERNEL_COLUMNS
from anchormatrix.errors import InputError

HEADER = "Stream ID,Name,Accelerator Core,Start Time(us),Duration(us)"
ROW = ",16,K,AI_CORE,6.000,1.000"


def ascend(root: Path, folder: str, *rows: str) -> Path:
    path = root / folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([HEADER, *(rows or ("16,K,AI_CORE,5.000,1.000",)), ""]))
    return path


def trace(root: Path, name: str, rank: int | None = None) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    head = {} if rank is None else {"distributedInfo": {"rank": rank}}
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps({**head, "traceEvents": [event]}))


def test_every_rank_is_read_not_only_the_first(tmp_path):
    for rank in (0, 1, 10):
        ascend(tmp_path, f"host_rank{rank}_ascend_pt")
    assert load_capture(tmp_path).ranks == (0, 1, 10)


def test_the_profilers_own_info_file_says_the_rank(tmp_path):
    for rank, folder in ((5, "a_ascend_pt"), (2, "b_ascend_pt")):
        ascend(tmp_path, folder, f"16,of{rank},AI_CORE,5.000,1.000")
        (tmp_path / folder / f"profiler_info_{rank}.json{'.gz' if rank == 2 else ''}").write_text("{}")
    capture = load_capture(tmp_path)
    assert capture.kernels[["rank", "name"]].values.tolist() == [[2, "of2"], [5, "of5"]]


def test_folders_that_do_not_say_are_numbered_in_order_and_that_is_noted(tmp_path):
    ascend(tmp_path, "x")
    ascend(tmp_path, "y")
    capture = load_capture(tmp_path)
    assert capture.ranks == (0, 1)
    assert "numbered in order" in capture.notes[0]


def test_a_rank_that_occurs_twice_is_refused(tmp_path):
    ascend(tmp_path, "first_rank0")
    ascend(tmp_path, "second_rank0")
    with pytest.raises(InputError, match="rank 0 occurs twice"):
        load_capture(tmp_path)


def test_traces_take_their_rank_from_inside_before_their_name(tmp_path):
    trace(tmp_path, "rank-7.json", rank=1)
    trace(tmp_path, "rank-8.json", rank=0)
    assert load_capture(tmp_path).ranks == (0, 1)


def test_traces_that_all_claim_the_same_rank_go_by_their_names(tmp_path):
    trace(tmp_path, "vllm-rank-0.pt.trace.json", rank=0)
    trace(tmp_path, "vllm-rank-1.pt.trace.json", rank=0)
    assert load_capture(tmp_path).ranks == (0, 1)


def test_other_json_files_are_not_taken_for_traces(tmp_path):
    trace(tmp_path, "rank-0.json")
    (tmp_path / "capture.json").write_text('{"schema": 1, "status": "captured"}')
    (tmp_path / ".rank-1.json.part").write_text("{")
    assert load_capture(tmp_path).ranks == (0,)


def test_ascend_output_wins_over_the_traces_beside_it(tmp_path):
    path = ascend(tmp_path, "rank0")
    trace(path.parent, "trace_view.json")
    assert load_capture(tmp_path).family == "ascend"


def test_the_table_has_its_columns_and_is_ordered_by_start(tmp_path):
    ascend(tmp_path, "rank0", "16,late,AI_CORE,9.000,1.000", "16,early,AI_CORE,5.000,1.000")
    kernels = load_capture(tmp_path).kernels
    assert tuple(kernels.columns) == KERNEL_COLUMNS
    assert kernels["name"].tolist() == ["early", "late"]
    assert kernels.dtypes.astype(str).to_dict() == {
        "rank": "int16",
        "step": "int32",
        **dict.fromkeys(("stream", "core", "name", "family", "communicator"), "category"),
        "start_ns": "int64",
        "dur_ns": "int64",
    }


@pytest.mark.parametrize("make", [lambda root: None, lambda root: (root / "notes.txt").write_text("x")])
def test_a_directory_without_a_capture_is_refused(tmp_path, make):
    make(tmp_path)
    with pytest.raises(InputError, match="holds no profiler output"):
        load_capture(tmp_path)


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file or directory"):
        load_capture(tmp_path / "gone")


def test_a_file_with_a_header_and_no_rows_is_an_empty_capture(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text(HEADER + "\n")
    with pytest.raises(InputError, match="holds no row"):
        load_capture(tmp_path)


def test_a_header_without_a_line_end_is_an_empty_capture(tmp_path):
    ascend(tmp_path, "rank0").write_text(HEADER)
    with pytest.raises(InputError, match="holds no row"):
        load_capture(tmp_path)


@pytest.mark.parametrize("name", ["kernel_details.csv", "trace.json"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"holds no profiler output \(0 files\)"):
        load_capture(tmp_path)


def test_a_link_to_itself_is_named(tmp_path):
    (tmp_path / "kernel_details.csv").symlink_to("kernel_details.csv")
    with pytest.raises(InputError, match=r"kernel_details\.csv: cannot be read"):
        load_capture(tmp_path)


def test_numbers_that_no_rank_and_no_step_has_are_not_taken_for_one(tmp_path):
    folder = ascend(tmp_path, "rank99999").parent
    (folder / "profiler_info_99999.json").write_text("{}")
    (folder / "kernel_details.csv").write_text(f"Step Id,{HEADER}\n99999999999,16,K,AI_CORE,5.000,1.000\n7{ROW}\n")
    capture = load_capture(tmp_path)
    assert capture.ranks == (0,)
    assert capture.kernels["step"].tolist() == [-1, 7]


@pytest.mark.parametrize("rank", [True, 40_000, 10**30, -1, "0", 1.0])
def test_a_trace_with_an_impossible_rank_goes_by_its_name(tmp_path, rank):
    trace(tmp_path, "rank-3.json", rank)
    assert load_capture(tmp_path).ranks == (3,)


def test_a_trace_with_endless_digits_is_one_line(tmp_path):
    (tmp_path / "t.json").write_text('{"traceEvents": [{"ts": ' + "9" * 5000 + "}]}")
    with pytest.raises(InputError, match=r"t\.json: holds no kernel and no operator"):
        load_capture(tmp_path)


def test_fields_beyond_what_a_csv_reader_takes_are_unusable_and_not_a_crash(tmp_path):
    path = ascend(tmp_path, "rank0", "16,K,AI_CORE,5.000,1.000", "x" * 200_000)
    with pytest.raises(InputError, match="1 of 2 rows"):
        load_capture(tmp_path)
    path.write_text("a\rb" + HEADER)
    with pytest.raises(InputError, match="is empty"):
        load_capture(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    ascend(tmp_path, "rank0")
    (tmp_path / "rank0").chmod(0)
    try:
        with pytest.raises(InputError, match=r"rank0: cannot be read \(Permission denied\)"):
            load_capture(tmp_path)
    finally:
        (tmp_path / "rank0").chmod(0o755)


STEPS = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage"


def ranks_with_cluster(root: Path, *, computing: int = 500) -> None:
    """Two ranks with tables of their own, and what msprof-analyze writes beside them."""
    for rank in (0, 1):
        path = ascend(root, f"rank{rank}_ascend_pt")
        (path.parent / "step_trace_time.csv").write_text(f"{STEPS}\n{rank},1,500,100,0,100,0,600\n")
    folder = root / "cluster_analysis_output"
    folder.mkdir()
    rows = [f"1,rank,{rank},{computing},100,0,100,0,600" for rank in (0, 1, 2)]
    header = STEPS.replace("Device_id,Step,", "Step,Type,Index,")
    (folder / "cluster_step_trace_time.csv").write_text("\n".join([header, *rows, ""]))


def test_a_clusters_table_beside_the_ranks_is_compared_with_theirs(tmp_path):
    ranks_with_cluster(tmp_path)
    capture = load_capture(tmp_path)
    assert (capture.ranks, capture.findings) == ((0, 1), ())
    assert capture.steps is not None and capture.steps["rank"].tolist() == [0, 1, 2]
    assert capture.notes == (
        "cluster_step_trace_time.csv and the ranks' own step tables agree on 2 steps",
        "ranks 2 have no step table of their own: cluster_step_trace_time.csv says their steps",
    )


def test_a_clusters_table_that_contradicts_the_ranks_is_a_finding(tmp_path):
    ranks_with_cluster(tmp_path, computing=503)
    capture = load_capture(tmp_path)
    assert capture.steps is not None and capture.steps["computing_ns"].tolist() == [500_000, 500_000, 503_000]
    (finding,) = capture.findings
    assert (finding.kind, finding.ranks) == ("cluster_table", (0, 1))
    assert "in 2 of 2 steps: rank 0 step 1 computing 0.500 ms, there 0.503 ms" in finding.text


def test_an_empty_rank_does_not_refuse_the_others_unless_asked(tmp_path):
    ascend(tmp_path, "rank0")
    ascend(tmp_path, "rank1").write_text(HEADER + "\n\n")
    ascend(tmp_path, "rank2").write_text("")
    capture = load_capture(tmp_path)
    assert capture.ranks == (0,)
    assert [(one.kind, one.ranks) for one in capture.findings] == [("empty_rank", (1,)), ("empty_rank", (2,))]
    with pytest.raises(InputError, match=r"rank1.*holds no row"):
        load_capture(tmp_path, every_rank=True)


def test_a_ranks_folder_without_any_table_is_said(tmp_path):
    ascend(tmp_path, "rank1_ascend_pt")
    (tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    capture = load_capture(tmp_path)
    (finding,) = capture.findings
    assert (capture.ranks, finding.kind, finding.ranks) == ((1,), "empty_rank", (0,))
    assert finding.text.endswith("rank0_ascend_pt holds neither kernels nor steps")
    with pytest.raises(InputError, match="rank0_ascend_pt: holds neither kernels nor steps"):
        load_capture(tmp_path, every_rank=True)


def test_a_trace_with_metadata_only_does_not_refuse_the_others_unless_asked(tmp_path):
    trace(tmp_path, "rank0.json")
    (tmp_path / "rank1.json").write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "args": {}}]}')
    capture = load_capture(tmp_path)
    assert (capture.ranks, [(one.kind, one.ranks) for one in capture.findings]) == ((0,), [("empty_rank", (1,))])
    with pytest.raises(InputError, match=r"rank1\.json: holds no kernel and no operator"):
        load_capture(tmp_path, every_rank=True)


def test_raw_data_of_torch_npu_is_refused_with_the_command_that_analyses_it(tmp_path):
    folder = tmp_path / "diffusion_rank0" / "host_7_20261203_ascend_pt"
    (folder / "FRAMEWORK").mkdir(parents=True)
    (folder / "PROF_000001_20261203_ABC").mkdir()
    (folder / "profiler_info_0.json").write_text("{}")
    with pytest.raises(InputError, match="raw data of torch_npu's profiler") as refused:
        load_capture(tmp_path)
    assert "from torch_npu.profiler.profiler import analyse" in str(refused.value)
    assert str(refused.value).endswith(str(folder))
    ascend(tmp_path, "diffusion_rank1/host_8_20261203_ascend_pt")
    (finding,) = load_capture(tmp_path).findings
    assert finding.text == f"rank 0 is left out: {folder} holds raw data that was not analysed"
