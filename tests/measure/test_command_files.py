"""The files of a server's command are on its host before it starts, here and over SSH, as they were written."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from campaigns.openssh import MISSING, running_sshd

from anchormatrix.errors import HostError
from anchormatrix.hosts.base import Host
from anchormatrix.hosts.open import open_host
from anchormatrix.measure.served import write_files
from anchormatrix.records.settings.things import HostSettings

TEXTS = {"one.json": '{"prompt": "it\'s $HOME `x` 100% \\\\n é"}', "empty": "", "long": "line\n" * 20_000}
over_ssh = pytest.param("ssh", marks=[pytest.mark.ssh, pytest.mark.skipif(bool(MISSING), reason=MISSING)])


@contextlib.contextmanager
def opened(kind: str, folder: Path) -> Iterator[Host]:
    places = {"lease_dir": str(folder / "leases"), "scratch_dir": str(folder / "scratch")}
    with contextlib.ExitStack() as stack:
        settings = HostSettings("here", **places)
        if kind == "ssh":
            ssh = msgspec.structs.replace(stack.enter_context(running_sshd(folder / "sshd")), python=sys.executable)
            settings = HostSettings("there", kind="ssh", ssh=ssh, **places)
        host = open_host(settings)
        stack.callback(host.close)
        yield host


@pytest.mark.parametrize("kind", ["local", over_ssh])
def test_every_text_arrives_as_it_is(kind: str, tmp_path: Path) -> None:
    (tmp_path / "sshd").mkdir()
    with opened(kind, tmp_path) as host:
        directory = host.scratch("files")
        write_files(host, directory, TEXTS, timeout_s=20)
        assert {name: host.read_from(f"{directory}/{name}", 0).decode() for name in TEXTS} == TEXTS


def test_a_directory_that_is_not_there_is_an_error_of_the_host(tmp_path: Path) -> None:
    with opened("local", tmp_path) as host, pytest.raises(HostError):
        write_files(host, str(tmp_path / "nowhere"), {"a": "b"}, timeout_s=20)
