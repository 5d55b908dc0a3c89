"""A session: what it sends, what it believes, and what it does when something goes wrong."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from contracts import store_contract, with_facts
from measured import smoke_record
from PIL import Image
from serving_world import World, rig_of, small_settings, whole_host

from anchormatrix.decide.cells import build_cells
from anchormatrix.errors import BusyError, ContractError, LeaseError, SpaceError
from anchormatrix.hosts.base import Completed
from anchormatrix.measure import live_cards, served
from anchormatrix.measure.order import SessionOrder, planned_command, planned_requests
from anchormatrix.measure.session import run_session
from anchormatrix.measure.smokes.running import run_smoke
from anchormatrix.records.contract import Contract, ContractList, GroupCondition, ListedContract
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import Answer, CaptureFile, CaptureStatus
from anchormatrix.records.settings.whole import Settings
from anchormatrix.records.smoke import Finding, FindingKind
from anchormatrix.store.codec import write_record
from anchormatrix.store.sessions import TimedSession, read_output, read_session, write_session

FORM = parse_form("tp1-usp4")


def order(tmp_path: Path, window: int = 2) -> SessionOrder:
    return SessionOrder(whole_host(), FORM, window, tmp_path / "results")


@pytest.fixture(autouse=True)
def _the_log_is_never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small server writes its log before it answers: nothing is gained by waiting for more of it."""
    monkeypatch.setattr(served, "_LOG_LATE_S", 0.1)


def measure(
    tmp_path: Path, settings: Settings | None = None, window: int = 2, **facts: Any
) -> tuple[TimedSession, World]:
    world = World(tmp_path, **facts)
    return run_session(order(tmp_path, window), rig_of(world, settings)).timed, world


def roles(timed: TimedSession) -> str:
    return " ".join(f"{row.role[0]}{row.steps}" for row in timed.requests)


def test_warm_ups_until_steady_then_few_and_anchor_alternate(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path)
    session = timed.session
    assert (session.status, session.reason) == ("measured", "")
    assert roles(timed) == "r4 r4 r4 r4 r4 m4 m10 m4 m10 m4 m10"
    assert session.ramp.first_steady == 3
    assert [row.step_s for row in timed.requests[5:]] == [pytest.approx(3.0)] * 6
    assert session.proof.ok
    assert session.stop.how == "sigint"
    assert session.findings == ()


def test_its_files_are_read_back_as_cells(tmp_path: Path) -> None:
    finished = run_session(replace(order(tmp_path), generation=1), rig_of(World(tmp_path)))
    path = tmp_path / "w2" / "session.json"
    write_session(path, finished.timed, finished.log_text)
    assert read_session(path) == finished.timed
    cells = build_cells([read_session(path)], repeats=3, dispersion_pct=3)
    assert [(cell.tier, cell.window, cell.step_s, cell.usable) for cell in cells] == [
        ("few", "2", 3.0, True), ("few", "all", 3.0, True), ("anchor", "2", 3.0, True), ("anchor", "all", 3.0, True),
    ]  # fmt: skip
    with path.with_name("requests.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["role"] for row in rows].count("measured") == 6
    assert rows[4]["ranks"] == "4"
    assert json.loads(path.read_text())["generation"] == 1
    assert "sampling params" in path.with_name("server.log").read_text()


def test_a_ramp_that_never_settles_is_said_and_measured_all_the_same(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, ramp=(0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9))
    session = timed.session
    assert session.status == "measured"
    assert session.ramp.steady is False
    assert session.findings[0].kind == "ramp"


def test_the_first_window_captures_after_the_repeats(tmp_path: Path) -> None:
    settings = small_settings(capture={"enabled": True})
    timed, world = measure(tmp_path, settings, window=1)
    session = timed.session
    capture = session.capture
    assert (capture.status, capture.request, capture.files) == ("captured", 12, 1)
    assert roles(timed).endswith("m10 c4")
    folder = tmp_path / "results" / session.contract / FORM.name / "capture"
    assert (folder / "rank0" / "kernel_details.csv").exists()
    assert json.loads((folder / "capture.json").read_text())["status"] == "captured"
    assert "--profiler-config" in world.started[0]


def test_a_captured_step_that_was_slow_by_itself_is_captured_again_and_the_shorter_one_kept(tmp_path: Path) -> None:
    slow_twelfth = (0.87, 0.9, *[1.0] * 9, 2.0)
    timed, _ = measure(tmp_path, small_settings(capture={"enabled": True}), 1, ramp=slow_twelfth)
    assert roles(timed).endswith("m4 m10 c4 c4")
    assert (timed.session.capture.status, timed.session.capture.request) == ("captured", 13)


BOTH = {"enabled": True, "tiers": ("few", "anchor")}


def test_the_second_window_captures_late_in_an_anchor_request_where_both_tiers_are_asked_for(tmp_path: Path) -> None:
    settings = small_settings(capture=BOTH, engine={"extra_args": ("--step-execution",)})
    timed, world = measure(tmp_path, settings, 2)
    capture = timed.session.capture
    assert roles(timed).endswith("m4 m10 c10")
    assert (capture.status, capture.tier, Path(capture.directory).name) == ("captured", "anchor", "capture-anchor")
    config = json.loads(world.started[0][world.started[0].index("--profiler-config") + 1])
    assert (config["delay_iterations"], config["max_iterations"]) == (9, 1)


def test_an_engine_that_profiles_whole_requests_captures_no_late_step_and_says_so(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, small_settings(capture=BOTH), 2)
    assert roles(timed).endswith("m4 m10")
    assert (timed.session.capture.status, timed.session.capture.why) == (
        "off",
        "vllm-omni profiles whole requests: a late step needs --step-execution in engine.extra_args",
    )


def test_a_capture_without_rows_is_empty(tmp_path: Path) -> None:
    settings = small_settings(capture={"enabled": True})
    timed, _ = measure(tmp_path, settings, window=1, profile="Name\n")
    session = timed.session
    assert session.capture.status == "empty"
    assert not (tmp_path / "results" / session.contract / FORM.name / "capture").exists()


def test_a_failed_capture_costs_no_measurement(tmp_path: Path) -> None:
    settings = small_settings(capture={"enabled": True})
    timed, _ = measure(tmp_path, settings, window=1, faults={12: "die"})
    session = timed.session
    assert session.status == "measured"
    assert session.capture.status == "failed"


def test_a_repeat_whose_line_was_spoiled_is_sent_again(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, faults={7: "spoil"})
    session = timed.session
    assert session.status == "measured"
    assert roles(timed).endswith("m10 m4 m10 m10")
    assert [row.status for row in timed.requests].count("untimed") == 1


def test_a_lost_answer_keeps_its_timing(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, faults={6: "lost"})
    session = timed.session
    assert [row.status for row in timed.requests].count("lost") == 1
    assert session.log.lost_responses == 1
    assert len([row for row in timed.requests if row.role == "measured" and row.step_s]) == 6


def test_a_form_that_cannot_start_keeps_its_evidence(tmp_path: Path) -> None:
    timed, world = measure(tmp_path, start="oom")
    session = timed.session
    assert session.status == "did_not_run"
    assert session.failure.id == "out_of_memory_card"
    assert "the card's memory is full" in session.reason
    assert any("OutOfMemoryError" in line for line in session.evidence)
    assert world.servers == 1


def test_a_server_that_died_once_is_tried_again(tmp_path: Path) -> None:
    timed, world = measure(tmp_path, faults={6: "die"}, faulty_servers=1)
    session = timed.session
    assert (session.status, world.servers) == ("measured", 2)
    assert [item.status for item in session.tries] == ["did_not_run", "measured"]


def test_a_server_that_always_dies_did_not_run_through(tmp_path: Path) -> None:
    timed, world = measure(tmp_path, faults={6: "die"})
    session = timed.session
    assert (session.status, world.servers) == ("did_not_run", 2)
    assert "request 6" in session.reason
    assert any("device lost" in line for line in session.evidence)


def test_a_refused_form_is_not_started(tmp_path: Path) -> None:
    world = World(tmp_path)
    refused = replace(order(tmp_path), form=parse_form("tp1-usp4+mask4"))
    session = run_session(refused, rig_of(world)).session
    assert (session.status, world.servers) == ("did_not_run", 0)
    assert "masking" in session.reason


@pytest.mark.parametrize(
    ("facts", "words"), [({"ranks": 1}, "1 of 4 ranks"), ({"sp_size": 2}, "sp_size is 2, 4 asked")]
)
def test_a_form_that_did_not_take_effect_is_void(tmp_path: Path, facts: dict[str, int], words: str) -> None:
    timed, _ = measure(tmp_path, **facts)
    session = timed.session
    assert session.status == "void"
    assert words in session.reason


@pytest.mark.parametrize("start", ["ready", "exit"])
def test_a_form_whose_own_check_fails_is_void_whether_or_not_it_is_served(tmp_path: Path, start: str) -> None:
    timed, _ = measure(tmp_path, distance="2.00e-02", start=start)
    session = timed.session
    assert session.status == "void"
    assert "relative distance 2.00e-02, limit 1.00e-05" in session.reason
    assert session.proof.check.ok is False


def test_a_model_without_stage_times_is_unmeasurable_after_two_requests(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, stage_lines=False)
    session = timed.session
    assert (session.status, len(timed.requests)) == ("unmeasurable", 2)
    assert "logs no stage times" in session.reason


def test_stage_times_that_did_not_wait_for_the_device_are_unmeasurable_live_as_offline(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, waited_for=False)
    session = timed.session
    assert (session.status, len(timed.requests)) == ("unmeasurable", 2)
    assert "stage times of 2 of 2 requests are not usable: forward says" in session.reason
    assert [row.step_s for row in timed.requests] == [None, None]


def test_a_full_disk_on_the_host_is_not_taken_for_a_silent_model(tmp_path: Path, monkeypatch) -> None:
    rig = rig_of(World(tmp_path, stage_lines=False))
    fill_host(rig, monkeypatch, free_kb=[100_000, 0])
    with pytest.raises(SpaceError, match=r"the disk is full \(0 kB free\)"):
        run_session(order(tmp_path), rig)


def test_a_session_that_was_measured_while_the_disk_ran_full_is_no_result(tmp_path: Path, monkeypatch) -> None:
    rig = rig_of(World(tmp_path))
    fill_host(rig, monkeypatch, free_kb=[100_000, 12])
    with pytest.raises(SpaceError, match=r"\(12 kB free\): log and capture may not be whole.*measures it again"):
        run_session(order(tmp_path), rig)


def test_without_room_nothing_is_started_and_how_much_is_needed_is_said(tmp_path: Path, monkeypatch) -> None:
    world = World(tmp_path)
    rig = rig_of(world)
    fill_host(rig, monkeypatch, free_kb=[1000])
    with pytest.raises(SpaceError, match="1 MB free, and a session needs 16 MB; make room there and run again"):
        run_session(order(tmp_path), rig)
    assert world.finished == 0


def test_an_earlier_capture_tells_how_much_room_is_needed(tmp_path: Path, monkeypatch) -> None:
    rig = rig_of(World(tmp_path), small_settings(capture={"enabled": True}))
    found = CaptureFile(status=CaptureStatus.CAPTURED, size_mb=300.0, made="20261130T230000")
    write_record(order(tmp_path).results / "c4-x" / "tp1-usp4" / "capture" / "capture.json", found)
    fill_host(rig, monkeypatch, free_kb=[500_000])
    with pytest.raises(SpaceError, match="512 MB free, and a session needs 600 MB"):
        run_session(order(tmp_path, window=1), rig)


def fill_host(rig: Any, monkeypatch: pytest.MonkeyPatch, free_kb: Sequence[int]) -> None:
    """Let ``df`` on the host tell of this much room, one after the other."""
    left, run = list(free_kb), rig.host.run

    def df(argv: Sequence[str], **facts: Any) -> Completed:
        if argv[0] != "df":
            return run(argv, **facts)
        free = left.pop(0) if len(left) > 1 else left[0]
        table = f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 100 100 {free} 100% /\n"
        return Completed(tuple(argv), 0, table, "", 0.0)

    monkeypatch.setattr(rig.host, "run", df)


def test_a_tenant_who_came_makes_the_session_contaminated_and_it_is_measured_again(tmp_path: Path) -> None:
    settings = small_settings(health={"on_busy": "wait", "busy_wait_s": 0.5, "contaminated_tries": 2})
    world = World(tmp_path, tenant_after=range(1, 2))
    rig = rig_of(world, settings)
    reads = 0

    def leaves(state: object = None, *, timeout_s: float = 0) -> Any:
        nonlocal reads
        reads += 1
        found = world.state()
        if world.finished == 1:
            world.tenant_after = range(0)
        return found

    object.__setattr__(rig.device, "read", leaves)
    session = run_session(order(tmp_path), rig).session
    assert [item.status for item in session.tries] == ["contaminated", "measured"]
    assert "intruder (pid 4242" in session.tries[0].reason


def test_numbers_beside_a_tenant_are_void_when_he_stays(tmp_path: Path) -> None:
    settings = small_settings(health={"contaminated_tries": 1})
    timed, _ = measure(tmp_path, settings, tenant_after=range(1, 9))
    session = timed.session
    assert session.status == "contaminated"


def test_a_card_that_alarms_inside_the_session_voids_it(tmp_path: Path) -> None:
    timed, _ = measure(tmp_path, alarm_after=range(1, 9))
    session = timed.session
    assert (session.status, "card 1 says Alarm" in session.reason) == ("void", True)


def test_waiting_for_cards_in_use_is_no_part_of_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_late(*given: Any) -> Any:
        time.sleep(1.5)
        return read_fit(*given)

    read_fit = live_cards.read_fit
    monkeypatch.setattr(live_cards, "read_fit", read_late)
    began, clock = datetime.now(UTC), time.monotonic()
    session = measure(tmp_path)[0].session
    assert session.duration_s is not None and session.started_at is not None
    assert time.monotonic() - clock - session.duration_s >= 1.5
    assert datetime.fromisoformat(session.started_at) > began


def test_a_stale_contract_a_tenant_or_a_lease_stop_it_before_the_start(tmp_path: Path) -> None:
    for facts, error in (({"alarm_after": range(9)}, ContractError), ({"tenant_after": range(9)}, BusyError)):
        world = World(tmp_path, **facts)  # type: ignore[arg-type]
        with pytest.raises(error):
            run_session(order(tmp_path), rig_of(world))
        assert world.servers == 0
    world = World(tmp_path)
    other = with_facts(whole_host(), driver="0")
    with pytest.raises(ContractError, match="driver is 1, not 0"):
        run_session(SessionOrder(other, FORM, 1, tmp_path), rig_of(world))
    rig = rig_of(world)
    rig.host.held = True  # type: ignore[attr-defined]
    with pytest.raises(LeaseError):
        run_session(order(tmp_path), rig)


def smoked(tmp_path: Path, contract: Contract, step_s: float) -> Path:
    path = tmp_path / "results" / contract.id / "smoke.json"
    write_record(path, smoke_record(contract.id, step_s=step_s))
    return path


def test_a_residue_that_came_after_the_smoke_voids_the_numbers(tmp_path: Path) -> None:
    world = World(tmp_path)
    contract = whole_host()
    smoke = smoked(tmp_path, contract, 0.3)
    session = run_session(order(tmp_path), rig_of(world)).session
    assert session.status == "void"
    assert "10.0 times the smoke of these cards: the residue state" in session.reason
    with pytest.raises(ContractError, match="suspect"):
        run_session(order(tmp_path), rig_of(world))
    assert json.loads(smoke.read_text())["status"] == "rejected"


def test_a_killed_server_makes_the_cards_suspect_until_a_smoke_passes(tmp_path: Path) -> None:
    world = World(tmp_path, stop_how="sigkill")
    contract = whole_host()
    smoked(tmp_path, contract, 3.0)
    mark = tmp_path / "results" / contract.id / "suspect.json"
    assert run_session(order(tmp_path), rig_of(world)).session.status == "measured"
    assert mark.exists()
    world.stop_how, before = "sigint", world.servers
    assert run_session(order(tmp_path), rig_of(world)).session.status == "measured"
    assert (mark.exists(), world.servers - before) == (False, 2)


def test_cards_on_which_another_clone_had_to_kill_a_job_need_a_smoke_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    smoked(tmp_path, whole_host(), 3.0)
    rig = rig_of(world)
    rig.host.killed.add(0)
    assert run_session(order(tmp_path), rig).session.status == "measured"
    assert (rig.host.killed, world.servers) == (set(), 2)


def test_a_dry_run_names_the_exact_command_and_requests(tmp_path: Path) -> None:
    world = World(tmp_path)
    rig = rig_of(world, small_settings(capture={"enabled": True}))
    command = planned_command(order(tmp_path, 1), rig)
    assert command.argv[:2] == ("vllm", "serve")
    assert planned_requests(order(tmp_path, 1), rig)[-1] == "1 excluded request of 4 steps under the profiler"
    assert world.servers == 0


def test_a_smoke_uses_the_first_form_that_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    contract, rig = whole_host(), rig_of(world)
    forms = [parse_form("tp1-usp4+mask4"), FORM]
    smoke, stopped = run_smoke(contract, forms, rig, tmp_path / "results")
    assert (smoke.status, smoke.form, smoke.step_s) == ("unverified", FORM.name, pytest.approx(3.0 * 0.87))
    assert smoke.tried == ("tp1-usp4+mask4", FORM.name)
    assert stopped is not None


RESIDUE = Finding(FindingKind.RESIDUE, "ten times slower")


def smoke_of_cards_0_and_1(results: Path, **smoke: str) -> str:
    """Store the smoke of a pair inside the host's four cards."""
    pair = with_facts(whole_host(), cards=(0, 1), links=(("X", "UB"), ("UB", "X")))
    store_contract(results, pair)
    write_record(results / pair.id / "smoke.json", smoke_record(pair.id, "rejected", findings=(RESIDUE,), **smoke))
    listed = ListedContract(**pair.facts, version=1, rank=0, reason="test", state=GroupCondition.FIT)
    write_record(results / "contracts.json", ContractList(contracts=(listed,)))
    return pair.id


def test_a_group_of_unknown_speed_that_holds_cards_in_the_residue_state_is_rejected(tmp_path: Path) -> None:
    results = tmp_path / "results"
    pair = smoke_of_cards_0_and_1(results)
    smoke, _ = run_smoke(whole_host(), [FORM], rig_of(World(tmp_path)), results)
    assert (smoke.status, [finding.kind for finding in smoke.findings]) == ("rejected", ["unverified", "residue"])
    assert smoke.findings[-1].text == (
        f"it holds damaged cards: cards 0,1 are in the residue state (smoke of {pair}); "
        "reset the driver or use another group"
    )


def test_a_smoke_that_passes_on_its_own_keeps_a_group_with_such_cards(tmp_path: Path) -> None:
    smoke_of_cards_0_and_1(tmp_path / "results")
    smoke, _ = run_smoke(whole_host(), [FORM], rig_of(World(tmp_path)), tmp_path / "results", history=lambda *_: 3.0)
    assert smoke.status == "passed"


@pytest.mark.parametrize(("stored", "night"), [({"state": "busy"}, ""), ({"night": "2026-11-29"}, "2026-11-30")])
def test_a_residue_of_another_state_or_night_rejects_nothing(
    tmp_path: Path, stored: dict[str, str], night: str
) -> None:
    smoke_of_cards_0_and_1(tmp_path / "results", **stored)
    smoke, _ = run_smoke(whole_host(), [FORM], rig_of(World(tmp_path)), tmp_path / "results", night=night)
    assert smoke.status == "unverified"


def test_a_smoke_in_which_no_form_runs_rejects_the_group(tmp_path: Path) -> None:
    world = World(tmp_path, start="exit")
    smoke, _ = run_smoke(whole_host(), [FORM], rig_of(world), tmp_path / "results")
    assert (smoke.status, [finding.kind for finding in smoke.findings]) == ("rejected", ["did_not_run"])


def test_a_smoke_that_cannot_start_says_why_and_what_helps(tmp_path: Path) -> None:
    smoke, _ = run_smoke(whole_host(), [FORM], rig_of(World(tmp_path, start="oom")), tmp_path / "results")
    assert smoke.status == "rejected"
    assert "the card's memory is full" in smoke.findings[0].text
    assert smoke.failure.id == "out_of_memory_card"
    assert smoke.failure.advice.startswith("Check: npu-smi info")


def png(level: int, corner: int) -> bytes:
    """A picture of one level but for its first pixel."""
    stream = io.BytesIO()
    picture = Image.new("RGB", (16, 16), (level,) * 3)
    picture.putpixel((0, 0), (corner,) * 3)
    picture.save(stream, format="PNG")
    return stream.getvalue()


@pytest.mark.parametrize(("corner", "status", "said"), [(0, "rejected", ["is black"]), (200, "unverified", [])])
def test_a_smoke_whose_output_is_black_fails(tmp_path: Path, corner: int, status: str, said: list[str]) -> None:
    world = World(tmp_path, picture=png(0, corner))
    smoke, _ = run_smoke(whole_host(), [FORM], rig_of(world), tmp_path / "results")
    broken = [finding.text for finding in smoke.findings if finding.kind is FindingKind.BROKEN_OUTPUT]
    assert (smoke.status, broken) == (status, [f"tp1-usp4: the output {why}" for why in said])


def test_the_first_anchor_output_is_kept_to_be_compared(tmp_path: Path) -> None:
    finished = run_session(order(tmp_path), rig_of(World(tmp_path)))
    assert (finished.output, finished.session.output) == (b"video of 10", Answer(7, "image/png"))
    path = tmp_path / "w2" / "session.json"
    write_session(path, finished.timed, finished.log_text, finished.output)
    assert read_output(path) == b"video of 10"
