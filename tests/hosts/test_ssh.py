"""A host behind a real OpenSSH server on loopback: it behaves like this machine, keys are verified, breaks survived."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from campaigns.openssh import MISSING, running_sshd
from small_servers import POLITE, lives, wait_until

from anchormatrix.errors import HostError, InputError, LeaseError
from anchormatrix.hosts import processes
from anchormatrix.hosts.base import Lease, SupervisedCommand
from anchormatrix.hosts.copying import RemoteFile, parse_listing
from anchormatrix.hosts.local import LocalHost
from anchormatrix.hosts.open import open_host
from anchormatrix.hosts.ssh.host import SshHost
from anchormatrix.records.settings.things import HostSettings, SshSettings

pytestmark = [pytest.mark.ssh, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshSettings]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as settings:
        yield msgspec.structs.replace(settings, python=sys.executable)


@pytest.fixture
def host(server: SshSettings, tmp_path: Path) -> Iterator[SshHost]:
    opened = open_host(settings_for(server, tmp_path))
    assert isinstance(opened, SshHost)
    yield opened
    opened.close()


def settings_for(server: SshSettings, folder: Path) -> HostSettings:
    return HostSettings(
        "there",
        kind="ssh",
        ssh=server,
        path=(f"{ROOT}/virtualhost/bin", "below home"),
        env={"FROM_SETTINGS": "1"},
        lease_dir=str(folder / "leases"),
        scratch_dir=str(folder / "scratch"),
    )


def no_cards(host: SshHost) -> Lease:
    """A lease under which anything may run at once."""
    return host.lease([], holder={}, wait_s=0)


def polite(host: SshHost, log: Path, *, lease: Lease | None = None, **more):
    command = SupervisedCommand([sys.executable, "-u", "-c", POLITE], str(log), **more)
    process = host.start(command, lease=lease or no_cards(host))
    wait_until(lambda: b"up" in host.read_from(str(log), 0))
    return process


def break_connection(host: SshHost) -> None:
    """As when a cable is pulled and the other side notices."""
    assert host._agents._connection is not None
    host._agents._connection.transport.sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not host._agents._connection.alive)


# --- commands -------------------------------------------------------------------------------------------------------


def test_words_and_values_arrive_as_they_were_given(host: SshHost):
    odd = "a b'\"$HOME`id`\n;&|*"
    done = host.run(["printf", "%s|%s|%s", odd, "", "-n"], env={}, timeout_s=10)
    assert done.stdout == f"{odd}||-n"
    assert host.run(["sh", "-c", 'printf %s "$ODD"'], env={"ODD": odd}, timeout_s=10).stdout == odd


def test_path_entries_come_first_and_relative_ones_are_below_home(host: SshHost):
    done = host.run(["sh", "-c", 'echo "$FROM_SETTINGS $PATH"'], timeout_s=10)
    home = pwd.getpwuid(os.getuid()).pw_dir  # where a login starts, whatever $HOME says here
    assert done.stdout.startswith(f"1 {ROOT}/virtualhost/bin:{home}/below home:")


def test_environment_values_never_show_in_the_process_list(host: SshHost):
    shown = host.run(["ps", "-eo", "args"], env={"SECRET": "hunter-two"}, timeout_s=10).stdout
    assert "hunter-two" not in shown


def test_missing_failing_and_hanging_commands_are_errors(host: SshHost, tmp_path: Path):
    with pytest.raises(HostError, match=r"there: `no-such-tool` was not found; expected it on PATH"):
        host.run(["no-such-tool"], timeout_s=10)
    with pytest.raises(HostError, match="failed with exit code 3: the reason"):
        host.run(["sh", "-c", "echo the reason >&2; exit 3"], timeout_s=10)
    with pytest.raises(HostError, match=r"hangs: no end after 0\.3 s"):
        host.run(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], timeout_s=0.3)
    wait_until(lambda: not lives(int((tmp_path / "pid").read_text())))
    assert host.run(["echo", "still here"], timeout_s=10).stdout == "still here\n"


def test_nothing_of_ours_is_left_there_after_closing(server: SshSettings, tmp_path: Path):
    host = SshHost(settings_for(server, tmp_path))
    folder = host.scratch("w1")
    assert Path(folder).is_dir()
    process = polite(host, Path(folder) / "log")
    host.close()
    host.close()
    assert not Path(folder).exists()
    wait_until(lambda: not lives(process.pid))


# --- keys -----------------------------------------------------------------------------------------------------------


def test_an_unknown_host_key_is_refused_with_its_fingerprint(server: SshSettings, tmp_path: Path):
    (tmp_path / "known_hosts").write_text("")
    stranger = msgspec.structs.replace(server, known_hosts=str(tmp_path / "known_hosts"))
    with pytest.raises(
        HostError, match=r"key is not known: ssh-ed25519 SHA256:.*refused.*ssh-keyscan -p \d+ 127.0.0.1"
    ):
        SshHost(settings_for(stranger, tmp_path))


def test_a_changed_host_key_is_refused(server: SshSettings, tmp_path: Path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}\n")
    changed = msgspec.structs.replace(server, known_hosts=str(tmp_path / "known_hosts"))
    with pytest.raises(HostError, match=r"key has CHANGED: it is SHA256:.*refused.*ssh-keygen -f .* -R"):
        SshHost(settings_for(changed, tmp_path))


def test_a_key_that_the_host_does_not_know_is_refused(server: SshSettings, tmp_path: Path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "mine")], check=True)
    with pytest.raises(HostError, match=r"the host refused our keys; .*passwords are not used"):
        SshHost(settings_for(msgspec.structs.replace(server, key_file=str(tmp_path / "mine")), tmp_path))
    with pytest.raises(HostError, match=r"nowhere: no such key file"):
        SshHost(settings_for(msgspec.structs.replace(server, key_file=str(tmp_path / "nowhere")), tmp_path))


def test_a_key_with_a_passphrase_is_left_to_the_agent(server: SshSettings, tmp_path: Path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "mine")], check=True)
    with pytest.raises(HostError, match=r"locked with a passphrase; add it to ssh-agent"):
        SshHost(settings_for(msgspec.structs.replace(server, key_file=str(tmp_path / "mine")), tmp_path))


def test_a_host_that_is_not_there_is_an_error(server: SshSettings, tmp_path: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = msgspec.structs.replace(server, port=probe.getsockname()[1])
        with pytest.raises(HostError, match=r"@127.0.0.1:\d+: cannot be reached .*try `ssh -p"):
            SshHost(settings_for(nobody, tmp_path))


def test_a_host_without_the_configured_python_is_an_error(server: SshSettings, tmp_path: Path):
    host = SshHost(settings_for(msgspec.structs.replace(server, python="/no/python3"), tmp_path))
    try:
        with pytest.raises(HostError, match=r"there: the supervision agent ended unexpectedly \(.*/no/python3"):
            host.run(["true"], timeout_s=10)
    finally:
        host.close()


def test_a_jump_host_is_gone_through_and_verified_too(server: SshSettings, tmp_path: Path):
    host = SshHost(settings_for(msgspec.structs.replace(server, jump=server), tmp_path))
    try:
        assert host.run(["echo", "through"], timeout_s=10).stdout == "through\n"
    finally:
        host.close()
    (tmp_path / "known_hosts").write_text("")
    stranger = msgspec.structs.replace(server, known_hosts=str(tmp_path / "known_hosts"))
    with pytest.raises(HostError, match="key is not known"):
        SshHost(settings_for(msgspec.structs.replace(server, jump=stranger), tmp_path))


# --- leases and servers ---------------------------------------------------------------------------------------------


def test_a_card_leased_over_ssh_is_leased_for_those_on_the_host_too(host: SshHost, tmp_path: Path):
    local = LocalHost(HostSettings("here", lease_dir=str(tmp_path / "leases")))
    with host.lease([1, 0], holder={"what": "over ssh"}, wait_s=0) as lease:
        assert (lease.cards, lease.suspect) == ((0, 1), ())
        with pytest.raises(LeaseError, match=r"card 1 is held by .*: over ssh"):
            local.lease([1], holder={}, wait_s=0)
        with pytest.raises(LeaseError, match=r"card 0 is held by .* after waiting 0\.1 s"):
            host.lease([0], holder={}, wait_s=0.1)
        assert [(card["card"], card["what"]) for card in host.holders()] == [(0, "over ssh"), (1, "over ssh")]
    with local.lease([1], holder={"what": "local"}, wait_s=0), pytest.raises(LeaseError, match="local"):
        host.lease([1], holder={}, wait_s=0)
    assert host.holders() == []


def test_servers_follow_one_another_under_a_lease(host: SshHost, tmp_path: Path):
    with host.lease([0], holder={}, wait_s=0) as lease:
        for name in ("first", "second"):
            process = polite(host, tmp_path / name, lease=lease)
            assert process.pid in process.tree()
            assert process.pid in host.own_pids()
            with pytest.raises(HostError, match="another server still runs under this lease"):
                host.start(SupervisedCommand(["true"], str(tmp_path / "log")), lease=lease)
            assert (process.poll(), process.stop(grace_s=10).how, process.poll()) == (None, "sigint", 0)
        last = polite(host, tmp_path / "third", lease=lease)
    wait_until(lambda: not lives(last.pid))


def test_a_killed_job_makes_its_cards_suspect(host: SshHost, tmp_path: Path):
    script = "trap '' INT TERM; echo up; while :; do sleep 0.05; done"
    with host.lease([5], holder={}, wait_s=0) as lease:
        process = host.start(SupervisedCommand(["sh", "-c", script], str(tmp_path / "log")), lease=lease)
        wait_until(lambda: b"up" in host.read_from(str(tmp_path / "log"), 0))
        assert process.stop(grace_s=0.4).how == "sigkill"
    with host.lease([5], holder={}, wait_s=0) as lease:
        assert lease.suspect == (5,)
        lease.trust()
    assert host.holders() == []


def test_a_program_that_cannot_be_started_is_an_error(host: SshHost, tmp_path: Path):
    with pytest.raises(HostError, match="`no-such-server` was not found"):
        host.start(SupervisedCommand(["no-such-server"], str(tmp_path / "log")), lease=no_cards(host))
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="could not be started"):
        host.start(SupervisedCommand(["true"], str(tmp_path / "file" / "log")), lease=no_cards(host))


def test_the_serving_port_is_reached_through_the_connection(host: SshHost, tmp_path: Path):
    (tmp_path / "page").write_text("x" * 100_000)
    port = host.free_port()
    argv = [sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    process = host.start(SupervisedCommand(argv, str(tmp_path / "log")), lease=no_cards(host))
    near = host.local_port(port)
    assert near != port
    assert host.local_port(port) == near
    wait_until(lambda: b"Serving" in host.read_from(str(tmp_path / "log"), 0))
    for _ in range(3):
        with urllib.request.urlopen(f"http://127.0.0.1:{near}/page", timeout=10) as answer:
            assert len(answer.read()) == 100_000
    process.stop(grace_s=5)
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        urllib.request.urlopen(f"http://127.0.0.1:{near}/page", timeout=10)


# --- breaks ---------------------------------------------------------------------------------------------------------


def test_a_broken_connection_stops_the_server_gently_and_says_how(host: SshHost, tmp_path: Path):
    lease = host.lease([0], holder={}, wait_s=0)
    process = polite(host, tmp_path / "log", lease=lease, grace_s=10)
    break_connection(host)
    with pytest.raises(HostError, match="stopped gently by itself"):
        process.poll()
    assert process.stop(grace_s=10).how == "sigint"
    assert not lives(process.pid)
    assert host.read_from(str(tmp_path / "log"), 0) == b"up\nbye\n"
    lease.release()
    host.lease([0], holder={}, wait_s=5).release()


def test_commands_work_again_after_a_break(host: SshHost):
    assert host.run(["echo", "before"], timeout_s=10).stdout == "before\n"
    break_connection(host)
    assert host.run(["echo", "after"], timeout_s=10).stdout == "after\n"


def test_a_server_whose_agent_was_killed_is_still_stopped(host: SshHost, tmp_path: Path):
    process = polite(host, tmp_path / "log")
    parent = processes.entry(process.pid)
    assert parent is not None
    os.kill(parent.parent, 9)
    process.stop(grace_s=5)
    assert not lives(process.pid)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_folder_is_fetched_whole(host: SshHost, tmp_path: Path):
    (tmp_path / "from" / "rank 0").mkdir(parents=True)
    (tmp_path / "from" / "rank 0" / "ünï'x.csv").write_bytes(os.urandom(3_000_000))
    (tmp_path / "from" / "empty").write_bytes(b"")
    (tmp_path / "from" / "link").symlink_to("/etc/passwd")
    host.fetch(str(tmp_path / "from"), tmp_path / "to")
    assert (
        not shutil.which("diff")
        or subprocess.run(
            ["diff", "-r", "--exclude=link", str(tmp_path / "from"), str(tmp_path / "to")], check=False
        ).returncode
        == 0
    )
    assert not (tmp_path / "to" / "link").exists()


def test_a_file_that_broke_off_is_continued(host: SshHost, tmp_path: Path):
    data = os.urandom(2_000_000)
    origin = tmp_path / "big"
    origin.write_bytes(data)
    part = tmp_path / f".copy.{len(data)}-{int(origin.stat().st_mtime)}.part"
    part.write_bytes(b"!" * 1_500_000)  # marks what must not be fetched again
    (tmp_path / ".copy.1-1.part").write_bytes(b"of another version")
    host.fetch(str(origin), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"!" * 1_500_000 + data[1_500_000:]
    assert not list(tmp_path.glob("*.part"))


def test_a_fetch_survives_a_break_in_the_middle(host: SshHost, tmp_path: Path, monkeypatch):
    data = os.urandom(8_000_000)
    (tmp_path / "big").write_bytes(data)
    received: list[int] = []
    client = host._agents.service()
    receive = client._wire.receive

    def breaking(timeout_s: float) -> bytes:
        received.append(1)
        if len(received) == 12:
            break_connection(host)
        return receive(timeout_s)

    monkeypatch.setattr(client._wire, "receive", breaking)
    host.fetch(str(tmp_path / "big"), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data
    assert len(received) >= 12


def test_what_is_not_there_is_an_error(host: SshHost, tmp_path: Path):
    with pytest.raises(HostError, match=r"there:.*/none: cannot be fetched \(No such file or directory\)"):
        host.fetch(str(tmp_path / "none"), tmp_path / "to")
    with pytest.raises(HostError, match=r"there:.*/none: cannot be read"):
        host.read_from(str(tmp_path / "none"), 0)
    assert not (tmp_path / "to").exists()


def test_a_place_that_cannot_be_written_is_an_error(host: SshHost, tmp_path: Path):
    (tmp_path / "big").write_text("x")
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"cannot be kept at .*see the free space here"):
        host.fetch(str(tmp_path / "big"), tmp_path / "file" / "to")


def test_a_listing_cannot_lead_outside():
    assert parse_listing("3 1700000000.25 a/b\0", "there") == (RemoteFile("a/b", 3, 1700000000),)
    for name in ("../x", "/etc/passwd", "a/../../x"):
        with pytest.raises(InputError, match="outside"):
            parse_listing(f"3 1700000000 {name}\0", "there")
