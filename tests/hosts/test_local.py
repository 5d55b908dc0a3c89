"""This machine as a host: commands, files, supervised processes, and how these end whatever happens to us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_servers import POLITE, STUBBORN, lives, wait_until

from anchormatrix.config.secrets import VARIABLE
from anchormatrix.errors import HostError
from anchormatrix.hosts import locks, processes
from anchormatrix.hosts.base import Lease, SupervisedCommand
from anchormatrix.hosts.local import LocalHost
from anchormatrix.hosts.open import open_host
from anchormatrix.records.settings.things import HostSettings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    settings = HostSettings(
        "here",
        path=("virtualhost/bin",),
        env={"FROM_SETTINGS": "1"},
        lease_dir=str(tmp_path / "leases"),
        scratch_dir=str(tmp_path / "scratch"),
    )
    opened = LocalHost(settings)
    yield opened
    opened.close()


def no_cards(host: LocalHost) -> Lease:
    """A lease under which anything may run at once."""
    return host.lease([], holder={}, wait_s=0)


def python(host: LocalHost, code: str, log: Path, *, lease: Lease | None = None, **more):
    command = SupervisedCommand([sys.executable, "-u", "-c", code], str(log), **more)
    process = host.start(command, lease=lease or no_cards(host))
    wait_until(lambda: "up" in log.read_text())
    return process


def test_a_program_is_found_in_a_folder_that_path_cannot_name(tmp_path: Path) -> None:
    for name in ("plain", "a:b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a:b" / "tool").write_text("#!/bin/sh\necho from the odd one\n")
    (tmp_path / "a:b" / "tool").chmod(0o755)
    paths = (str(tmp_path / "plain"), str(tmp_path / "a:b"))
    opened = LocalHost(HostSettings("here", path=paths, scratch_dir=str(tmp_path / "scratch")))
    try:
        assert opened.run(["tool"], timeout_s=10).stdout == "from the odd one\n"
        (tmp_path / "plain" / "tool").symlink_to("/bin/true")
        assert opened.run(["tool"], timeout_s=10).stdout == ""
        assert "a:b" not in opened.run(["sh", "-c", "echo $PATH"], timeout_s=10).stdout
    finally:
        opened.close()


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def _hf_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({"engine.env.HF_TOKEN": "hf_1234567"}))


@pytest.mark.usefixtures("_hf_token")
def test_a_command_gets_the_secrets_it_is_given_and_no_other_and_what_it_prints_of_them_is_masked(
    host: LocalHost,
) -> None:
    told = ["sh", "-c", 'echo ${#HF_TOKEN} ${#1} ${#2}; echo "$HF_TOKEN"; env | grep -c ^ANCHORMATRIX_SECRETS=', "sh"]
    told += ["{secret:engine.env.HF_TOKEN}", "{files}"]
    done = host.run(told, env={"HF_TOKEN": "{secret:engine.env.HF_TOKEN}"}, timeout_s=10, check=False)
    assert done.stdout.split("\n") == ["10 10 7", "{secret:engine.env.HF_TOKEN}", "0", ""]


@pytest.mark.usefixtures("_hf_token")
def test_a_server_gets_the_secrets_it_is_given(host: LocalHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os; print(os.environ['HF_TOKEN'], 'ANCHORMATRIX_SECRETS' in os.environ, 'up')"
    python(host, code, log, env={"HF_TOKEN": "{secret:engine.env.HF_TOKEN}"})
    assert log.read_text() == "hf_1234567 False up\n"


# --- commands -------------------------------------------------------------------------------------------------------


def test_relative_paths_of_the_configuration_start_in_the_projects_folder_from_wherever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = LocalHost(HostSettings("here", lease_dir=str(tmp_path / "leases"), scratch_dir=str(tmp_path / "scratch")))
    assert opened.run(["cat", "virtualhost/toolkit-version.txt"], timeout_s=10).stdout == "CANN 9.0.0\n"
    log = tmp_path / "log"
    process = python(opened, "import os, time\nprint('up', os.getcwd(), flush=True)\ntime.sleep(60)", log)
    assert log.read_text() == f"up {ROOT}\n"
    process.stop(grace_s=2)
    opened.close()


def test_a_folder_with_the_code_linked_in_keeps_leases_and_scratch_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    opened = LocalHost(HostSettings("here", lease_dir="results/leases", scratch_dir="results/scratch"))
    assert opened.run(["pwd"], timeout_s=10).stdout == f"{tmp_path}\n"
    with opened.lease([0], holder={"what": "test"}, wait_s=1):
        assert (tmp_path / "results" / "leases" / "card-0.lock").exists()
    assert Path(opened.scratch("a")).parent == tmp_path / "results" / "scratch"
    opened.close()


def test_a_command_sees_the_host_s_environment_and_path(host: LocalHost):
    done = host.run(["sh", "-c", 'echo "$FROM_SETTINGS $HERE $PATH"'], env={"HERE": "a b'\"c"}, timeout_s=10)
    assert done.stdout.startswith(f"1 a b'\"c {ROOT}/virtualhost/bin:")
    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_is_not_utf8_is_replaced_and_not_an_error(host: LocalHost):
    assert host.run(["printf", r"\377ok"], timeout_s=10).stdout == "�ok"


def test_a_missing_program_is_an_error_that_shows_the_path(host: LocalHost):
    with pytest.raises(HostError, match=r"`no-such-tool` was not found; expected it on PATH \(.*host.path"):
        host.run(["no-such-tool", "info"], timeout_s=10)


def test_a_program_given_by_its_path_is_not_looked_for_on_the_path(host: LocalHost):
    with pytest.raises(HostError, match=r"`no/such/tool` was not found; install it there, or correct its path"):
        host.run(["no/such/tool"], timeout_s=5)


def test_a_failing_command_is_an_error_with_its_last_line_unless_not_checked(host: LocalHost):
    argv = ["sh", "-c", "echo first; echo the reason >&2; exit 3"]
    with pytest.raises(HostError, match="failed with exit code 3: the reason"):
        host.run(argv, timeout_s=10)
    assert host.run(argv, timeout_s=10, check=False).returncode == 3


def test_a_command_that_hangs_is_ended_with_its_children(host: LocalHost, tmp_path: Path):
    with pytest.raises(HostError, match=r"`sh -c .*` hangs: no end after 1 s"):
        host.run(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], timeout_s=1)
    wait_until(lambda: not lives(int((tmp_path / "pid").read_text())))


def test_a_command_that_prints_without_end_is_ended(host: LocalHost):
    with pytest.raises(HostError, match=r"`yes x` printed more than 64 MiB and was ended; try it by hand there"):
        host.run(["yes", "x"], timeout_s=60)


def test_a_grandchild_that_keeps_the_output_open_does_not_keep_us_waiting(host: LocalHost):
    assert host.run(["sh", "-c", "setsid sleep 5 & echo done"], timeout_s=4).stdout == "done\n"


# --- files and ports ------------------------------------------------------------------------------------------------


def test_a_folder_is_fetched_without_links(host: LocalHost, tmp_path: Path):
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "a.csv").write_text("1")
    (tmp_path / "from" / "link").symlink_to("/etc/passwd")
    host.fetch(str(tmp_path / "from"), tmp_path / "to")
    assert [str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*.*")] == ["deep/a.csv"]
    assert not (tmp_path / "to" / "link").exists()


def test_a_growing_file_is_read_from_an_offset(host: LocalHost, tmp_path: Path):
    (tmp_path / "log").write_text("12345")
    assert host.read_from(str(tmp_path / "log"), 3) == b"45"
    assert host.read_from(str(tmp_path / "log"), 5) == b""
    with pytest.raises(HostError, match=r"here:.*none: cannot be read"):
        host.read_from(str(tmp_path / "none"), 0)


def test_scratch_folders_are_own_empty_and_gone_when_the_host_is_closed(host: LocalHost):
    first, second = Path(host.scratch("w1")), Path(host.scratch("w1"))
    assert first != second
    assert first.is_dir()
    assert not list(first.iterdir())
    host.close()
    assert not first.exists()
    assert not second.exists()


def test_a_scratch_folder_that_cannot_be_made_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"here: no scratch folder can be made .*correct host.scratch_dir"):
        open_host(HostSettings("here", scratch_dir=str(tmp_path / "file" / "x"))).scratch("w1")


def test_a_free_port_is_its_own_local_port(host: LocalHost):
    port = host.free_port()
    assert 0 < port < 65536
    assert host.local_port(port) == port


# --- supervised processes -------------------------------------------------------------------------------------------


def test_a_server_that_hears_sigint_ends_by_it(host: LocalHost, tmp_path: Path):
    server = python(host, POLITE, tmp_path / "log")
    assert server.poll() is None
    assert server.pid in server.tree()
    assert server.pid in host.own_pids()
    record = server.stop(grace_s=10)
    assert (record.how, record.exit_code, record.survivors) == ("sigint", 0, 0)
    assert (tmp_path / "log").read_text() == "up\nbye\n"
    assert server.stop(grace_s=10) == record
    assert server.poll() == 0
    assert server.tree() == ()


def test_a_server_that_ended_by_itself_was_not_stopped(host: LocalHost, tmp_path: Path):
    server = host.start(SupervisedCommand(["sh", "-c", "exit 7"], str(tmp_path / "log")), lease=no_cards(host))
    wait_until(lambda: server.poll() == 7)
    assert (server.stop(grace_s=5).how, server.stop(grace_s=5).exit_code) == ("exited", 7)


def test_a_server_that_hears_nothing_is_killed_last_and_its_cards_become_suspect(host: LocalHost, tmp_path: Path):
    with host.lease([3, 4], holder={"what": "test"}, wait_s=0) as lease:
        assert lease.suspect == ()
        record = python(host, STUBBORN, tmp_path / "log", lease=lease).stop(grace_s=0.4)
        assert (record.how, record.exit_code) == ("sigkill", -9)
    assert [(card["card"], card["held"], "suspect" in card) for card in host.holders()] == [
        (3, False, True),
        (4, False, True),
    ]
    with host.lease([4], holder={}, wait_s=0) as lease:
        assert lease.suspect == (4,)
        lease.trust()
    assert [card["card"] for card in host.holders()] == [3]


def test_children_that_left_the_session_or_lost_their_parent_are_stopped_too(host: LocalHost, tmp_path: Path):
    script = f"(setsid sleep 60 & echo $! > {tmp_path}/pid); echo up; exec sleep 60"
    server = host.start(SupervisedCommand(["sh", "-c", script], str(tmp_path / "log")), lease=no_cards(host))
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
    orphan = int((tmp_path / "pid").read_text())
    assert {server.pid, orphan} <= set(server.tree())
    server.stop(grace_s=1)
    assert not lives(orphan)


def test_a_process_started_by_somebody_else_on_its_behalf_is_stopped_by_its_token(host: LocalHost, tmp_path: Path):
    """As with ``docker exec -e ANCHORMATRIX_RUN …``: the real server is a child of a daemon, not of the wrapper."""
    script = 'echo "up $ANCHORMATRIX_RUN"; exec sleep 60'
    server = host.start(SupervisedCommand(["sh", "-c", script], str(tmp_path / "log")), lease=no_cards(host))
    wait_until(lambda: "up" in (tmp_path / "log").read_text())
    token = (tmp_path / "log").read_text().split()[1]
    elsewhere = subprocess.Popen(["sleep", "60"], env={**os.environ, "ANCHORMATRIX_RUN": token}, start_new_session=True)
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        wait_until(lambda: elsewhere.pid in server.tree())
        server.stop(grace_s=5)
        assert elsewhere.wait(5) == -signal.SIGINT
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_stop_command_reaches_a_server_that_signals_do_not(host: LocalHost, tmp_path: Path):
    deaf = STUBBORN.replace(
        "time.sleep(60)", f"import os\nwhile not os.path.exists({str(tmp_path / 'end')!r}): time.sleep(0.02)"
    )
    server = python(
        host,
        deaf,
        tmp_path / "log",
        stop_command=["sh", "-c", f"echo $0 > {tmp_path}/now; mv {tmp_path}/now {tmp_path}/end", "{pid}"],
    )
    assert server.stop(grace_s=20).how == "sigint"
    assert (tmp_path / "end").read_text().split() == [str(server.pid)]


def test_a_signal_never_goes_to_a_later_process_with_the_same_id():
    child = subprocess.Popen(["sleep", "60"])
    try:
        now = processes.entry(child.pid)
        assert now is not None
        assert not processes.send(processes.Entry(child.pid, now.parent, now.start - 1, "S"), signal.SIGKILL)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("argv", "says"), [(["no-such-tool"], "was not found"), (["/etc/passwd"], "could not be started")]
)
def test_a_server_that_cannot_be_started_is_an_error(host: LocalHost, tmp_path: Path, argv, says):
    with pytest.raises(HostError, match=says):
        host.start(SupervisedCommand(argv, str(tmp_path / "log")), lease=no_cards(host))


def test_a_log_that_cannot_be_written_is_an_error(host: LocalHost, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"could not be started: .*/file.*scratch folder can be written"):
        host.start(SupervisedCommand(["true"], str(tmp_path / "file" / "log")), lease=no_cards(host))


def test_an_interrupted_question_does_not_spoil_the_next_answer(host: LocalHost, tmp_path: Path, monkeypatch):
    server = python(host, POLITE, tmp_path / "log")
    wire = server.client._wire
    receive = wire.receive

    def interrupted(timeout_s: float) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(wire, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        server.tree()
    monkeypatch.setattr(wire, "receive", receive)
    assert server.poll() is None
    assert server.stop(grace_s=10).how == "sigint"


def test_closing_the_host_stops_what_still_runs(host: LocalHost, tmp_path: Path):
    server = python(host, POLITE, tmp_path / "log")
    host.close()
    assert not lives(server.pid)
    assert "bye" in (tmp_path / "log").read_text()


def test_a_server_whose_agent_was_killed_is_still_stopped(host: LocalHost, tmp_path: Path):
    server = python(host, STUBBORN, tmp_path / "log")
    parent = processes.entry(server.pid)
    assert parent is not None
    os.kill(parent.parent, signal.SIGKILL)
    with pytest.raises(HostError, match="the supervision agent ended unexpectedly"):
        server.poll()
    assert server.stop(grace_s=0.4).how == "sigkill"
    assert not lives(server.pid)


def test_cards_whose_agent_was_killed_become_suspect_when_their_server_is(host: LocalHost, tmp_path: Path):
    with host.lease([2], holder={"what": "test"}, wait_s=0) as lease:
        server = python(host, STUBBORN, tmp_path / "log", lease=lease)
        parent = processes.entry(server.pid)
        assert parent is not None
        os.kill(parent.parent, signal.SIGKILL)
        assert [(card["card"], card["held"]) for card in host.holders()] == [(2, True)]  # by the server
        assert server.stop(grace_s=0.4).how == "sigkill"
    with host.lease([2], holder={}, wait_s=1) as lease:
        assert lease.suspect == (2,)


def test_an_agent_that_gave_its_cards_back_serves_the_next_lease(host: LocalHost, tmp_path: Path):
    parents = []
    for name in ("first", "second"):
        with host.lease([0], holder={}, wait_s=0) as lease:
            server = python(host, POLITE, tmp_path / name, lease=lease)
            entry = processes.entry(server.pid)
            assert entry is not None
            parents.append(entry.parent)
        assert not lives(server.pid)
        assert host.holders() == []
        assert server.poll() == 0
    assert parents[0] == parents[1]


# --- when the measuring script is gone ------------------------------------------------------------------------------

MEASURING = """
import sys
from anchormatrix.hosts.base import SupervisedCommand
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings
host = LocalHost(HostSettings("here", lease_dir=sys.argv[1]))
lease = host.lease([0, 1], holder={"what": "measuring"}, wait_s=0)
command = SupervisedCommand([sys.executable, "-u", "-c", sys.argv[3]], sys.argv[2], grace_s=float(sys.argv[4]))
server = host.start(command, lease=lease)
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("code", "grace_s", "how"), [(POLITE, 20, "sigint"), (STUBBORN, 0.4, "sigkill")])
def test_a_measuring_script_that_is_killed_leaves_nothing_running(tmp_path: Path, code: str, grace_s: float, how: str):
    log = tmp_path / "log"
    script = subprocess.Popen(
        [sys.executable, "-c", MEASURING, str(tmp_path / "leases"), str(log), code, str(grace_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    with script:
        assert script.stdout is not None
        pid = int(script.stdout.readline())
        wait_until(lambda: "up" in log.read_text())
        assert [card["what"] for card in locks.holders(str(tmp_path / "leases"))] == ["measuring", "measuring"]
        script.kill()
    wait_until(lambda: not lives(pid))
    wait_until(lambda: not any(card["held"] for card in locks.holders(str(tmp_path / "leases"))))
    wait_until(lambda: Path(f"{log}.stop.json").exists())
    record = json.loads(Path(f"{log}.stop.json").read_text())
    assert record["how"] == how
    assert [card["card"] for card in locks.holders(str(tmp_path / "leases"))] == ([0, 1] if how == "sigkill" else [])
