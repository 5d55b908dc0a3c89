"""The checks of the machine itself: clock, ports, disks."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

from anchormatrix.config.project import in_project, project_folder
from anchormatrix.doctor.lines import Line, failed, not_checked, ok, wrong
from anchormatrix.doctor.visit import Visit
from anchormatrix.errors import AnchorMatrixError, HostError
from anchormatrix.records.settings.values import HostKind

_CLOCK_S = 5.0
_DISK_GB = 5.0  # a profiler's capture of eight ranks is a few GB before it is compressed
_SPACE = 'd=$1; while [ ! -e "$d" ]; do d=$(dirname -- "$d"); done; [ -d "$d" ] && [ -w "$d" ]; echo $?; df -Pk -- "$d"'


def clock(visit: Visit) -> Iterator[Line]:
    """Whether the host's clock and this one agree: logs, leases and nights carry both."""
    if visit.settings.host.kind == HostKind.LOCAL:
        yield ok("clock", f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, this machine's own")
        return
    before = time.time()
    try:
        said = visit.host.run(("date", "+%s"), timeout_s=visit.limit_s).stdout.strip()
    except AnchorMatrixError as error:
        yield failed("clock", error, "make `date` work there")
        return
    after = time.time()
    if not (said.isascii() and said.isdigit() and len(said) < 12):
        yield not_checked("clock", f"`date +%s` prints {ascii(said)[:60]} there")
        return
    apart_s = max(before - int(said) - 1, int(said) - after, 0.0)
    if apart_s > _CLOCK_S:
        cure = "set both by a time server (chronyc makestep), or times of leases and nights cannot be compared"
        yield wrong("clock", f"the host's clock and this machine's are {apart_s:.0f} s apart", cure)
    else:
        yield ok("clock", "agrees with this machine's to a second" if not apart_s else f"{apart_s:.0f} s apart")


def ports(visit: Visit) -> Iterator[Line]:
    """Whether a loopback port is free there and can be reached from here. Nothing listens on it yet."""
    try:
        port = visit.host.free_port()
        here = visit.host.local_port(port)
    except AnchorMatrixError as error:
        yield failed("ports", error, "allow TCP forwarding in the host's sshd (AllowTcpForwarding)")
        return
    way = "" if here == port else f", reached over port {here} here"
    yield ok("ports", f"port {port} of the host's loopback is free{way}")


def disks(visit: Visit) -> Iterator[Line]:
    """Whether logs and captures find room: on the host while they are made, here for good."""
    yield _there(visit)
    results = project_folder() / "results"
    below = results if results.exists() else project_folder()
    if os.access(below, os.W_OK):
        free_gb = shutil.disk_usage(below).free / 1e9
        yield _room("disk here", free_gb, f"{results}", "free some: results, logs and captures are kept here")
    else:
        yield wrong("disk here", f"{below} cannot be written", "run in a clone of your own")


def folder_state(visit: Visit, folder: str) -> tuple[bool, float]:
    """Whether a folder of the configuration can be written on the host, or made, and the GB that are free for it.

    Nothing is made. Raises :class:`HostError`.
    """
    local = visit.settings.host.kind == HostKind.LOCAL
    path = str(in_project(folder)) if local else folder.removeprefix("~/")
    said = visit.host.run(("sh", "-c", _SPACE, "sh", path), timeout_s=visit.limit_s).stdout.split()
    try:
        return said[0] == "0", int(said[-3]) * 1024 / 1e9  # POSIX: … Available Capacity Mounted-on
    except (IndexError, ValueError):
        raise HostError("prints no table", where=f"`df -Pk` of {folder}", todo="run it on the host by hand") from None


def _there(visit: Visit) -> Line:
    topic, folder = "disk there", visit.settings.host.scratch_dir
    try:
        writable, free_gb = folder_state(visit, folder)
    except AnchorMatrixError as error:
        return failed(topic, error, "correct host.scratch_dir")
    if not writable:
        cure = "correct host.scratch_dir, or have its folder opened to you"
        return wrong(topic, f"{folder} (host.scratch_dir) cannot be written", cure)
    cure = "free some, or point host.scratch_dir to a larger disk"
    return _room(topic, free_gb, f"{folder} (host.scratch_dir)", cure)


def _room(topic: str, free_gb: float, where: str, cure: str) -> Line:
    if free_gb < _DISK_GB:
        return wrong(topic, f"{free_gb:.1f} GB free for {where}, less than {_DISK_GB:g} GB", cure)
    return ok(topic, f"{free_gb:.0f} GB free for {where}")
