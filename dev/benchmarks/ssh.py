"""The cost of SSH on loopback: one session's overhead over the local path, and the speed of fetching a capture.

Figures to reach: at most 1.5 s per session; 200 MB at no less than half of scp's speed on the same connection.
Starts its own OpenSSH server as the current user.

    python benchmarks/ssh.py
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from campaigns.openssh import running_sshd

from anchormatrix.hosts.base import SupervisedCommand
from anchormatrix.hosts.open import open_host
from anchormatrix.records.settings.things import HostSettings, SshSettings

ROOT = Path(__file__).resolve().parents[2]

ROUNDS = 5
SIZE_MB = 200


def session_s(settings: HostSettings, folder: Path) -> float:
    """Everything a measuring session asks of a host, with a server that needs no time of its own."""
    begin = time.perf_counter()
    host = open_host(settings)
    try:
        for _ in range(6):  # topology, health and map, before and after
            host.run(["cat", "/proc/loadavg"], timeout_s=20)
        scratch = host.scratch("benchmark")
        log = f"{scratch}/server.log"
        with host.lease([0, 1], holder={"what": "benchmark"}, wait_s=0) as lease:
            port = host.free_port()
            argv = ["python3", "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", scratch]
            server = host.start(SupervisedCommand(argv, log), lease=lease)
            url = f"http://127.0.0.1:{host.local_port(port)}/server.log"
            while True:
                server.poll()
                with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=20) as answer:
                    answer.read()
                    break
                time.sleep(0.02)
            for _ in range(30):
                with urllib.request.urlopen(url, timeout=20) as answer:
                    answer.read()
                host.read_from(log, 0)
            server.stop(grace_s=10)
        host.fetch(log, folder / "server.log")
    finally:
        host.close()
    return time.perf_counter() - begin


def fetch_and_scp_mb_s(ssh: SshSettings, folder: Path) -> tuple[list[float], list[float]]:
    """Speeds in turn, so that both see the same machine."""
    origin = folder / "capture"
    with origin.open("wb") as stream:
        for _ in range(SIZE_MB):
            stream.write(os.urandom(1_000_000))
    os.sync()
    fetched, copied = [], []
    host = open_host(HostSettings("there", kind="ssh", ssh=ssh))
    try:
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            host.fetch(str(origin), folder / "fetched")
            fetched.append(SIZE_MB / (time.perf_counter() - begin))
            (folder / "fetched").unlink()
            begin = time.perf_counter()
            options = [
                "-q",
                "-P",
                str(ssh.port),
                "-i",
                str(ssh.key_file),
                "-o",
                f"UserKnownHostsFile={ssh.known_hosts}",
            ]
            subprocess.run(["scp", *options, f"{ssh.user}@{ssh.host}:{origin}", str(folder / "copied")], check=True)
            copied.append(SIZE_MB / (time.perf_counter() - begin))
            (folder / "copied").unlink()
    finally:
        host.close()
    return fetched, copied


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, running_sshd(Path(name)) as ssh:
        folder = Path(name)
        common = {"lease_dir": f"{folder}/leases", "scratch_dir": f"{folder}/scratch"}
        local = HostSettings("here", **common)
        remote = HostSettings("there", kind="ssh", ssh=ssh, **common)
        session_s(remote, folder)  # imports
        pairs = [(session_s(local, folder), session_s(remote, folder)) for _ in range(ROUNDS)]
        here, there = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"one session: local {here:.2f} s, over SSH {there:.2f} s, overhead {there - here:.2f} s (limit 1.5 s)")
        fetched, copied = fetch_and_scp_mb_s(ssh, folder)
        mine, scp = statistics.median(fetched), statistics.median(copied)
        print(f"{SIZE_MB} MB: fetch {mine:.0f} MB/s, scp {scp:.0f} MB/s, ratio {mine / scp:.2f} (limit 0.5)")


if __name__ == "__main__":
    main()
