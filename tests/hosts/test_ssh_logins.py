"""Logins that print: what can be told apart is passed over, else it is shown with the cure."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from campaigns.openssh import MISSING, running_sshd

from anchormatrix.errors import HostError
from anchormatrix.hosts.ssh.host import SshHost
from anchormatrix.records.settings.things import HostSettings

pytestmark = [pytest.mark.ssh, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

THEN_RUN = 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


@contextmanager
def host_whose_login(does: str, folder: Path) -> Iterator[SshHost]:
    """A host on which a login runs these lines of shell in place of its command."""
    login = folder / "login"
    login.write_text(f"#!/bin/sh\n{does}\n")
    login.chmod(0o755)
    with running_sshd(folder, f"ForceCommand {login}\n") as server:
        ssh = msgspec.structs.replace(server, python=sys.executable)
        host = SshHost(HostSettings("there", kind="ssh", ssh=ssh, lease_dir=str(folder / "leases")))
        try:
            yield host
        finally:
            host.close()


@pytest.mark.parametrize(
    "prints",
    [
        "echo Welcome to node7",
        "printf 'no line end'",
        "printf '\\033[31mred\\033[0m\\n\\n'",
        "echo '{}'; echo '{\"id\": 1, \"code\": 0}'",
        "echo \"stty: 'standard input': Inappropriate ioctl for device\" >&2",
        "head -c 1000000 /dev/zero | tr '\\0' x",
        'echo "$SSH_ORIGINAL_COMMAND"',
    ],
    ids=["line", "no line end", "colours", "JSON", "stderr", "1 MB", "the command itself"],
)
def test_what_a_login_prints_first_is_passed_over(prints: str, tmp_path: Path):
    (tmp_path / "capture").write_bytes(os.urandom(300_000))
    with host_whose_login(f"{prints}\n{THEN_RUN}", tmp_path) as host:
        assert host.run(["echo", "hi"], timeout_s=10).stdout == "hi\n"
        host.fetch(str(tmp_path / "capture"), tmp_path / "fetched")
        assert (tmp_path / "fetched").read_bytes() == (tmp_path / "capture").read_bytes()
        with host.lease([3], holder={"what": "behind a banner"}, wait_s=0):
            assert [(card["card"], card["what"]) for card in host.holders()] == [(3, "behind a banner")]


def test_what_a_login_prints_when_the_command_has_ended_harms_nothing(tmp_path: Path):
    with host_whose_login('/bin/sh -c "$SSH_ORIGINAL_COMMAND"\necho bye', tmp_path) as host:
        assert host.run(["echo", "hi"], timeout_s=10).stdout == "hi\n"


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("printf 'This account\\033[31m\\nis closed\\n'; exit 1", r"«This account\x1b[31m / is closed»"),
        ("echo only backups here; head -c 99 > /dev/null; echo done", "«only backups here / done»"),
        ("yes", "«y / y / y», 4 MiB of it"),
    ],
    ids=["prints and exits", "another command", "without end"],
)
def test_a_login_that_runs_no_command_is_shown_with_the_cure(does: str, says: str, tmp_path: Path):
    begin = time.monotonic()
    with host_whose_login(does, tmp_path) as host, pytest.raises(HostError) as caught:
        host.run(["echo", "hi"], timeout_s=10)
    assert f"there: the login there prints {says}, and no agent answers after it; try" in str(caught.value)
    assert "put `case $- in *i*) ;; *) return;; esac` first in the start-up file that prints" in str(caught.value)
    assert time.monotonic() - begin < 20


def test_a_login_that_only_complains_is_quoted(tmp_path: Path):
    with (
        host_whose_login("echo 'no login for you' >&2; exit 1", tmp_path) as host,
        pytest.raises(HostError, match=r"ended unexpectedly \(no login for you\)"),
    ):
        host.run(["echo", "hi"], timeout_s=10)
