"""The profiler's files of a captured step, as the Ascend profiler lays them out: one folder per rank."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virtualhost.server.serving import ServingSession
from virtualhost.step.simulator import AI_CPU, COMPUTE, COPY, Op
from virtualhost.step.steptable import step_figures
from virtualhost.step.timeline import StepTimeline, call_key

EPOCH_NS = 1_736_413_971_558_972_912  # a capture's clock: µs with three decimals do not fit a float64 there
STREAM_IDS = {COMPUTE: 16, AI_CPU: 17, "usp": 31, "tp": 32, "ring": 33, "ag": 34, "pp": 35, "cfg": 36, "sp": 37}
_TAIL = (
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
    "aicore_time(us),aic_total_cycles,aic_mac_fp16_ratio,aic_mac_int8_ratio,aic_cube_fops,aic_vector_fops,"
    "aiv_time(us),aiv_total_cycles,aiv_vec_fp32_ratio,aiv_vec_fp16_ratio,aiv_vec_int32_ratio,aiv_vec_misc_ratio,"
    "aiv_cube_fops,aiv_vector_fops"
)
_TAIL_COLUMNS = _TAIL.count(",") + 1
_STEP_COLUMNS = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)


@dataclass(frozen=True)
class AscendStyle:
    """How one version of the profiler writes ``kernel_details.csv``.

    ``first`` is the first column: ``Step Id``, ``Device_id`` or empty. ``collectives`` is the core a collective is
    listed with: ``HCCL`` or ``COMMUNICATION`` (no task, no stream), or ``AI_CPU`` when collectives run as AI-CPU
    kernels; those may share the compute stream's id. ``skew_ns`` sets the ranks' clocks apart.
    """

    first: str = "Step Id"
    block: str = "Block Dim"
    op_state: bool = False
    quoted: bool = True
    collectives: str = "HCCL"
    aicpu_on_compute_stream: bool = False
    skew_ns: tuple[int, ...] = ()

    @property
    def header(self) -> str:
        """The header line of ``kernel_details.csv``."""
        columns = [self.first] if self.first else []
        columns += ["Model ID", "Task ID", "Stream ID", "Name", "Type"]
        columns += ["OP State"] if self.op_state else []
        columns += ["Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", self.block]
        return ",".join([*columns, f"Mix {self.block}", _TAIL])


STYLES = {
    "910b": AscendStyle(),
    "a3": AscendStyle(first="Device_id", op_state=True, collectives="COMMUNICATION"),
    "950": AscendStyle(block="Block Num", op_state=True, collectives="AI_CPU"),
    "plain": AscendStyle(first="", quoted=False),
    "950-one-stream": AscendStyle(block="Block Num", collectives="AI_CPU", aicpu_on_compute_stream=True),
}


TRACES = {"cuda": "nccl", "cpu": "gloo"}  # capture styles that are traces, and their collectives


def microseconds(ns: int) -> str:
    """Return integer nanoseconds as µs with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def collective_name(family: str, gid: int, call: int, step: int, *, aicpu: bool = False) -> str:
    """Return a kernel's name as the collective library gives it: family, communicator, running number, step."""
    return f"hcom_{family}_{'AicpuKernel' if aicpu else ''}_{gid}_{call}_{step}"


def write_ascend(
    timeline: StepTimeline,
    directory: Path,
    *,
    style: AscendStyle = STYLES["910b"],
    step: int = 1,
    start_ns: int = EPOCH_NS,
    folder_of: Callable[[int], str] = "vllm-omni_rank{}_ascend_pt".format,
) -> list[Path]:
    """Write ``<folder_of(k)>/ASCEND_PROFILER_OUTPUT`` for every rank; return the rank folders.

    ``start_ns`` is the wall clock at which the captured step began. Copies from the host are not in the kernel table,
    as in the real tool's: only the wait they cause is visible.
    """
    folders = []
    for rank in timeline.ranks:
        folder = directory / folder_of(rank)
        output = folder / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True, exist_ok=True)
        begin = start_ns + (style.skew_ns[rank] if rank < len(style.skew_ns) else 0)
        device = timeline.cards[rank]
        info = {"rank_id": rank, "device_id": device, "config": {"common_config": {"activities": ["CPU", "NPU"]}}}
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps(info), encoding="utf-8")
        rows = _kernel_rows(timeline, rank, style, step, begin)
        text = "\n".join([style.header, *rows, ""])
        (output / "kernel_details.csv").write_text(text, encoding="utf-8")
        (output / "step_trace_time.csv").write_text(_step_table(timeline, rank, step), encoding="utf-8")
        (output / "communication.json").write_text(_communication(timeline, rank, step, begin), encoding="utf-8")
        folders.append(folder)
    return folders


def _kernel_rows(timeline: StepTimeline, rank: int, style: AscendStyle, step: int, begin: int) -> Iterator[str]:
    """Yield the lines of one rank's kernel table, in order of start."""
    first = {"Step Id": f"{step},", "Device_id": f"{timeline.cards[rank]},", "": ""}[style.first]
    aicpu = style.collectives == "AI_CPU"
    heads: dict[Op, tuple[str, str]] = {}
    last_end = 0
    for task, kernel in enumerate(timeline.kernels(rank)):
        op, start, took = kernel.op, kernel.start_ns, kernel.dur_ns
        if op.stream == COPY:
            continue
        if op not in heads:
            heads[op] = _fixed_parts(op, style, timeline)
        before, after = heads[op]
        at = microseconds(begin + start)
        took_us = microseconds(took)
        wait = 0 if op.family or start <= last_end else start - last_end
        if not op.family:
            last_end = start + took
        name, place = op.name, f"4294967295,{task},{STREAM_IDS[op.stream]},"
        if op.family:
            name = collective_name(op.family, timeline.group(rank, op.stream).gid, kernel.call, step, aicpu=aicpu)
            stream = STREAM_IDS[COMPUTE if style.aicpu_on_compute_stream else op.stream]
            place = f"4294967295,{task},{stream}," if aicpu else "4294967295,N/A,N/A,"
        if style.quoted:
            at = f'"{at}\t"'
        yield f"{first}{place}{name}{before}{at},{took_us},{microseconds(wait)}{after.replace('@', took_us)}"


def _fixed_parts(op: Op, style: AscendStyle, timeline: StepTimeline) -> tuple[str, str]:
    """Return what stands between a row's name and its times, and behind them (``@``: the duration again)."""
    state = ",static" if style.op_state and not op.family else ",N/A" if style.op_state else ""
    if op.family:
        kind = f"{op.family}AicpuKernel" if style.collectives == "AI_CPU" else op.type
        cells = ["0", *["N/A"] * (_TAIL_COLUMNS + 1)]
        return f",{kind}{state},{style.collectives},", "," + ",".join(cells)
    shape = f'"""{timeline.model.dit.sequence_tokens // timeline.split.sequence_degree},{timeline.model.dit.hidden}"""'
    kinds = [shape, "DT_BF16", "ND", shape, "DT_BF16", "ND", "N/A"]
    counters = ["N/A"] * 14
    if op.core in ("AI_CORE", "MIX_AIC"):
        counters = ["@", "4620018", "0.87", "0", "0", "0", *["0"] * 8]
    elif op.core in ("AI_VECTOR_CORE", "MIX_AIV"):
        counters = [*["0"] * 6, "@", "1210330", "0.2", "0.31", "0.01", "0.02", "0", "0"]
    blocks = ["1" if op.core == "AI_CPU" else "48", "24" if op.core.startswith("MIX") else "0"]
    return f",{op.type}{state},{op.core},", "," + ",".join([*blocks, *kinds, *counters])


def _step_table(timeline: StepTimeline, rank: int, step: int) -> str:
    """Return ``step_trace_time.csv``: Stage is the rank's whole step, so Bubble and Preparing are zero in it."""
    figures = step_figures(timeline, rank)
    receive = sum(kernel.dur_ns for kernel in timeline.kernels(rank) if kernel.op.family == "receive")
    without = max(0, figures.exposed_ns - receive)
    cells = [microseconds(value) for value in figures]
    row = [str(timeline.cards[rank]), str(step), *cells, "0.000", microseconds(without), "0.000"]
    return f"{_STEP_COLUMNS}\n{','.join(row)}\n"


def _communication(timeline: StepTimeline, rank: int, step: int, begin: int) -> str:
    """Return ``communication.json``: elapsed, transit and wait time of every collective call of one rank."""
    parts: dict[str, list[str]] = {"p2p": [], "collective": []}
    for kernel in timeline.kernels(rank):
        family = kernel.op.family
        if not family:
            continue
        group = timeline.group(rank, kernel.op.stream)
        transit = timeline.transit_ns[group.gid, call_key(kernel)]
        elapsed, wait = kernel.dur_ns / 1e6, (kernel.dur_ns - transit) / 1e6
        ratio = round(wait / elapsed, 4) if elapsed else 0.0
        name = f"{collective_name(family, group.gid, kernel.call, step)}@{group.gid:019d}"
        parts["p2p" if family in ("send", "receive", "batchSendRecv") else "collective"].append(
            f'"{name}":{{"Communication Time Info":{{"Start Timestamp(us)":{microseconds(begin + kernel.start_ns)},'
            f'"Elapse Time(ms)":{elapsed:.6f},"Transit Time(ms)":{transit / 1e6:.6f},"Wait Time(ms)":{wait:.6f},'
            f'"Synchronization Time(ms)":{wait:.6f},"Idle Time(ms)":0.0,"Wait Time Ratio":{ratio},'
            f'"Synchronization Time Ratio":{ratio}}},"Communication Bandwidth Info":{{}}}}'
        )
    body = ",".join(f'"{kind}":{{{",".join(entries)}}}' for kind, entries in parts.items())
    return f'{{"step{step}":{{{body}}}}}'


def write_session_capture(session: ServingSession, directory: Path) -> list[Path]:
    """Write the profiler's files of a session's latest profiled request, with the session's capture faults; return the
    folders or the traces of the ranks.

    On GPUs and CPUs the traces lie in a folder of the session, ``trace_rank<k>.json`` (``profiler/
    omni_torch_profiler.py:132-180``); on NPUs each rank has its own folder beside an empty one of the session
    (``platforms/npu/profiler.py:70-95``).
    """
    folder = directory / session.grammar.capture_folder(session.clock_s)
    folder.mkdir(parents=True, exist_ok=True)
    request, named = session.captured_request(), session.scenario.serving.capture_style
    if request is None:
        return []
    if named in TRACES:
        from virtualhost.server.chrome import write_kineto  # noqa: PLC0415 - it imports this module

        annotation = "diffusion_step" if session.options.stepwise else "diffusion_forward"
        return write_kineto(
            request,
            folder,
            backend=TRACES[named],
            compress=False,
            annotation=annotation,
            name_of="trace_rank{}.json".format,
        )

    def folder_of(rank: int) -> str:
        stamp = folder.name.partition("_")[0].replace("-", "")
        return f"diffusion_rank{rank}/virtual-ascend_{session.pids[rank]}_{stamp}000_ascend_pt"

    plan = session.plan
    folders = write_ascend(request, directory, style=STYLES[named], folder_of=folder_of)
    tables = [path for folder in folders for path in folder.rglob("*.csv")]
    if plan.whole_session("capture_empty"):
        for path in tables:
            path.write_text(path.read_text(encoding="utf-8").splitlines(keepends=True)[0], encoding="utf-8")
    if plan.whole_session("capture_truncated"):
        for path in tables:
            path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 5])
    if plan.whole_session("capture_missing_rank"):
        for path in folders[-1].rglob("*"):
            if path.is_file():
                path.unlink()
    return folders
