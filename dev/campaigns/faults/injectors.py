"""The injectors of faults: signals, full and read-only disks, damaged files, a shifted clock, a cut connection.

A deed is a function of a :class:`Stage`; what ends its effect is registered with ``stage.lifting``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from anchormatrix.config.merge import merged
from anchormatrix.hosts.processes import descendants, entry, send, visible
from campaigns.faults.project import ROOT, make_project
from campaigns.faults.stage import Deed, Stage
from campaigns.openssh import MISSING, running_sshd

_MOUNT_MB = 128  # room for sessions and captures, as a run asks for before it measures


# -- processes --------------------------------------------------------------------------------------------------------


def kill_snakemake(stage: Stage) -> None:
    """SIGKILL Snakemake alone."""
    _signal_snakemake(stage, signal.SIGKILL)


def terminate_snakemake(stage: Stage) -> None:
    """SIGTERM Snakemake, as a service manager does."""
    _signal_snakemake(stage, signal.SIGTERM)


def interrupt(stage: Stage) -> None:
    """SIGINT everything in the foreground, as Ctrl-C does."""
    assert stage.run is not None
    stage.killed = True
    os.killpg(stage.run.pid, signal.SIGINT)


def kill_group(stage: Stage) -> None:
    """SIGKILL Snakemake and the command it runs at once, as when a login session is torn down."""
    assert stage.run is not None
    stage.killed = True
    os.killpg(stage.run.pid, signal.SIGKILL)


def kill_command(script: str) -> Deed:
    """SIGKILL the Python process of a command of the run."""
    return lambda stage: _kill(stage, lambda words: len(words) > 1 and words[1].endswith(script))


def kill_agent(stage: Stage) -> None:
    """SIGKILL the supervision agent of the running server."""
    _kill(stage, lambda words: any("supervision agent of anchormatrix" in word for word in words))


def kill_server(stage: Stage) -> None:
    """SIGKILL the main process of the running server."""
    _kill_pids(stage, [job.pid for job in stage.project.jobs()])


def kill_rank(stage: Stage) -> None:
    """SIGKILL the last rank of the running server."""
    _kill_pids(stage, [job.ranks[-1].pid for job in stage.project.jobs()])


def _signal_snakemake(stage: Stage, number: signal.Signals) -> None:
    assert stage.run is not None
    stage.killed = True
    stage.run.process.send_signal(number)


def _kill(stage: Stage, wanted: Callable[[list[str]], bool]) -> None:
    _kill_pids(stage, [pid for pid in stage.project.processes() if wanted(_words(pid))])


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _kill_pids(stage: Stage, pids: list[int]) -> None:
    targets = [one for pid in pids if (one := entry(pid))]
    hit = [send(target, signal.SIGKILL) for target in targets]
    if not any(hit):
        stage.problems.append("there was nothing to kill")


# -- disks and files --------------------------------------------------------------------------------------------------


def mountable() -> str:
    """Why no disk can be mounted here; empty when one can."""
    return "" if os.geteuid() == 0 and shutil.which("mount") and _may_mount() else "mounting needs root"


def small_disk(stage: Stage) -> None:
    """Put the results on a disk of their own."""
    results = stage.project.results
    results.mkdir(exist_ok=True)
    mount(stage, "-t", "tmpfs", "-o", f"size={_MOUNT_MB}m", "tmpfs", str(results))


def small_host_disk(stage: Stage) -> None:
    """Put the host's scratch files on a disk of their own."""
    scratch = stage.project.host / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    mount(stage, "-t", "tmpfs", "-o", f"size={_MOUNT_MB}m", "tmpfs", str(scratch))


def fill_results(stage: Stage) -> None:
    """Fill the results' disk to the last byte."""
    fill(stage, stage.project.results)


def fill_scratch(stage: Stage) -> None:
    """Fill the disk of the host's scratch files to the last byte."""
    fill(stage, stage.project.host / "scratch")


def read_only_results(stage: Stage) -> None:
    """Make the results folder read-only for everybody: with a mount where root would write all the same."""
    results = stage.project.results
    results.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        results.chmod(0o555)
        stage.lifting.callback(results.chmod, 0o755)
        return
    mount(stage, "--bind", str(results), str(results))
    subprocess.run(["mount", "-o", "remount,ro,bind", str(results)], check=True)


def damaged(pattern: str, how: str = "half", *, rebuild: bool = True) -> Deed:
    """Damage result files of an earlier run without a trace in their times: ``half``, ``empty`` or ``garbage``.

    ``rebuild`` also removes the report, so that the damaged files are read again.
    """

    def deed(stage: Stage) -> None:
        results = stage.project.results
        paths = sorted(results.glob(pattern))
        if not paths:
            stage.problems.append(f"no {pattern} to damage")
        for path in paths[:1]:
            content, times = path.read_bytes(), path.stat()
            spoiled = {"half": content[: len(content) // 2], "empty": b"", "garbage": b"\x00\xff{]" * 64}[how]
            path.write_bytes(spoiled)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            stage.spoiled.add(str((path.parent / "session.json").relative_to(results)))
        if rebuild:
            for path in (results / "matrix_report").glob("*.*"):
                if path.name != "decision.json":
                    path.unlink()

    return deed


def _may_mount() -> bool:
    effective = next(
        line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith("CapEff")
    )
    return bool(int(effective.split()[1], 16) >> 21 & 1)  # CAP_SYS_ADMIN


def mount(stage: Stage, *words: str) -> None:
    subprocess.run(["mount", *words], check=True)
    stage.lifting.callback(_unmount_keeping, Path(words[-1]))


def _unmount_keeping(folder: Path) -> None:
    """Take a mounted disk away and leave its files in the folder it was mounted on."""
    aside = folder.with_name(f".{folder.name}-kept")
    if subprocess.run(["mountpoint", "-q", str(folder)], check=False).returncode:
        return
    subprocess.run(["cp", "-a", f"{folder}/.", str(aside)], check=True)
    subprocess.run(["umount", "-l", str(folder)], check=True)
    subprocess.run(["cp", "-a", f"{aside}/.", str(folder)], check=True)
    shutil.rmtree(aside)


def fill(stage: Stage, folder: Path) -> None:
    filler = folder / ".filler"
    stage.lifting.callback(filler.unlink, missing_ok=True)
    with filler.open("wb", buffering=0) as stream:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(b"\0" * size)


def sshd_here() -> str:
    """Why no OpenSSH server can be started here; empty when one can."""
    return MISSING


# -- the run's surroundings -------------------------------------------------------------------------------------------


def compilable() -> str:
    """Why no C program can be made here; empty when one can."""
    return "" if shutil.which("cc") else "no C compiler"


def shiftable_clock(stage: Stage) -> None:
    """Let every process of the run see a wall clock that :func:`shift_clock` puts back by an hour."""
    library = stage.project.folder / "clock_shift.so"
    source = Path(__file__).with_name("clock_shift.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    stage.env |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(stage.project.folder / "clock-shifted")}


def shift_clock(stage: Stage) -> None:
    """Put the wall clock back by an hour."""
    file = Path(stage.env["CLOCK_SHIFT_FILE"])
    file.touch()
    stage.lifting.callback(file.unlink)
    stage.lifting.callback(stage.env.clear)


def over_ssh(stage: Stage, also: str = "") -> None:
    """Reach the host through an OpenSSH server on loopback; ``also`` are more lines of its configuration."""
    folder, host, device = _sshd_folder(stage), stage.project.host, merged([])["device"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    server = stage.closing.enter_context(running_sshd(folder, also))
    reach = {key: getattr(server, key) for key in ("host", "port", "user", "key_file", "known_hosts")}
    stage.project.adjust(
        {
            "host": {
                "kind": "ssh",
                "ssh": {**reach, "python": sys.executable},
                "path": [str(Path(sys.executable).parent), str(ROOT / "virtualhost" / "bin")],
                "env": {
                    "VIRTUALHOST_SCENARIO": str(stage.project.folder / "scenario.yaml"),
                    "VIRTUALHOST_STATE": str(host / "state"),
                },
                "lease_dir": str(host / "leases"),
                "scratch_dir": str(host / "scratch"),
            },
            "device": {**device, "toolkit": ["cat", str(ROOT / "virtualhost" / "toolkit-version.txt")]},
        }
    )


def drop_connections(stage: Stage) -> None:
    """End every connection of the SSH server at once, as when the network breaks."""
    table, configuration = visible(), f"{_sshd_folder(stage)}/sshd_config"
    children = [child.pid for child in table.values() if child.parent == os.getpid()]
    listeners = {pid for pid in children if configuration in " ".join(_words(pid))}  # sshd puts its title in one word
    connections = [table[pid] for pid in descendants(table, listeners) if table[pid].parent in listeners]
    hit = [send(connection, signal.SIGKILL) for connection in connections]
    if not any(hit):
        stage.problems.append("there was no connection to drop")


def second_sweep(stage: Stage) -> None:
    """Start a second run in the same folder: it must refuse in one line and change nothing."""
    other = stage.project.start("matrix_report")
    code, text = other.wait(120), other.text()
    if code in (0, None) or "in use by pid" not in text:
        stage.problems.append(f"a second run in the folder ended with {code}")


def second_clone(stage: Stage) -> None:
    """Start a run of another clone on the same host and let both end."""
    clone = make_project(stage.project.folder.with_name(f"{stage.project.folder.name}-clone"))
    clone.host.symlink_to(stage.project.host)
    shutil.copy(stage.project.folder / "scenario.yaml", clone.folder / "scenario.yaml")
    stage.clones.append((clone, clone.start("matrix_report")))


def _sshd_folder(stage: Stage) -> Path:
    return stage.project.folder.with_name(f"{stage.project.folder.name}-sshd")
