"""A real OpenSSH server on loopback for tests and benchmarks: own keys, own configuration, ends with its context."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from anchormatrix.records.settings.things import SshSettings

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin")
KEYGEN = shutil.which("ssh-keygen")
MISSING = "" if SSHD and KEYGEN else "no sshd here (apt-get install openssh-server)"


@contextlib.contextmanager
def running_sshd(folder: Path, also: str = "") -> Iterator[SshSettings]:
    """Run a server as the current user on a free port; yields settings that reach it with a key and a known host.

    ``also`` are more lines of its configuration.
    """
    port = _free_port()
    for name in ("host_key", "user_key"):
        subprocess.run([str(KEYGEN), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\nMaxSessions 50\n"
        f"Subsystem sftp internal-sftp\n{also}"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # a server run by root will not start without it
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen(
            [str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _wait(server, port, folder)
        yield SshSettings(
            host="127.0.0.1",
            port=port,
            user=getpass.getuser(),
            key_file=str(folder / "user_key"),
            known_hosts=str(folder / "known_hosts"),
            connect_timeout_s=10,
        )
    finally:
        server.terminate()
        server.wait(10)


def _wait(server: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError((folder / "sshd.log").read_text())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
