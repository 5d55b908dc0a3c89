"""The capture of a session: how it is made, where it goes, and what is said of one that failed or is empty."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import asdict, replace

from anchormatrix.captures.ascend_files.raw import ANALYSED, analyse_command, raw_listed
from anchormatrix.captures.ascend_files.raw import FOLDER as FOLDER_OF_RANK
from anchormatrix.captures.stretch import slow_by_itself
from anchormatrix.errors import HostError, cannot_write
from anchormatrix.hosts.base import Host
from anchormatrix.measure.rig import Rig
from anchormatrix.measure.served import DidNotRunError, Served
from anchormatrix.records.requests import Role
from anchormatrix.records.session import Capture, CaptureFile, CaptureStatus
from anchormatrix.records.settings.values import ANCHOR, FEW, KeepCaptures, Tier
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import write_record
from anchormatrix.store.seals import seal_folder

FOLDER = "capture"
_KERNELS = "kernel_details.csv"


def capture_steps(
    served: Served, rig: Rig, tier: Tier, directory: str, timed_s: Sequence[float]
) -> tuple[Capture, str]:
    """Capture a step of a tier in a request of its own; returns it and the host's directory that holds it.

    A step much longer than the ``timed_s`` of its tier was slow by itself: another is captured, once, and the shorter
    of the two is kept.
    """
    first, first_s = _captured(served, rig, tier)
    if not slow_by_itself(first_s, timed_s):
        return first, directory
    kept = f"{directory}-first"
    rig.say(f"the captured step took {first_s:.3g} s, unlike the timed ones: another is captured")
    rig.host.run(("mv", directory, kept), timeout_s=rig.settings.host.command_timeout_s)
    second, second_s = _captured(served, rig, tier)
    shorter = second.status is CaptureStatus.CAPTURED and second_s is not None and second_s < (first_s or 0.0)
    return (second, directory) if shorter else (first, kept)


def _captured(served: Served, rig: Rig, tier: Tier) -> tuple[Capture, float | None]:
    """One captured request, and its step time in seconds under the profiler."""
    tiers = rig.settings.matrix.tiers
    steps = tiers.anchor if tier is ANCHOR else rig.engine.capture_request_steps(tiers.few)
    number, request = len(served.sent) + 1, None
    problem = served.client.start_profile()
    if problem is None:
        try:
            request = served.ask(Role.CAPTURE, tier if steps == getattr(tiers, tier) else "", steps)
            problem = served.client.stop_profile()
        except DidNotRunError as error:  # the repeats are measured already
            problem = str(error)
    status = CaptureStatus.FAILED if problem else CaptureStatus.CAPTURED
    return Capture(status, number, reason=problem or "", tier=tier), request.step_s if request else None


def fetch_capture(capture: Capture, host: Host, directory: str, folder: Path, settings: Settings) -> Capture:
    """Fetch the profiler's files of all ranks to ``<folder>/capture``, of the anchor to ``capture-anchor``, and write
    ``capture.json`` beside them.

    An earlier capture of the form is replaced; with ``capture.keep: all`` it is first moved to
    ``capture-<time it was made>``. When nothing usable comes back, the earlier one is left alone and not used. What
    torch_npu has only recorded is analysed first, by the engine's own Python; ``reason`` says where that fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = FOLDER if capture.tier is FEW else f"{FOLDER}-{capture.tier}"
    fetched = Path(tempfile.mkdtemp(prefix=".capture.", dir=folder))
    try:
        not_analysed = _analyse(host, directory, settings)
        try:
            host.fetch(directory, fetched / name)
        except HostError as error:
            return replace(capture, status=CaptureStatus.FAILED, reason=f"cannot be fetched: {error}")
        files = [path for path in (fetched / name).rglob("*") if path.is_file()]
        sizes = [path.stat().st_size for path in files]
        if not any(sizes):
            return replace(capture, status=CaptureStatus.EMPTY, reason="the profiler wrote no file")
        tables = [path for path in files if path.name == _KERNELS]
        if tables and not any(_has_rows(path) for path in tables):
            return replace(capture, status=CaptureStatus.EMPTY, reason=f"the profiler's {_KERNELS} have no rows")
        capture = replace(capture, reason=not_analysed or capture.reason)
        done = replace(capture, directory=str(folder / name), files=len(sizes), size_mb=round(sum(sizes) / 1e6, 3))
        made = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        write_record(fetched / name / "capture.json", CaptureFile(**asdict(done), made=made))
        _replace(fetched / name, folder / name, keep=settings.capture.keep == KeepCaptures.ALL)
        return done
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def _analyse(host: Host, directory: str, settings: Settings) -> str:
    """Analyse the folders of torch_npu's profiler that hold raw data only; return why that was not possible."""
    made = [word for name in ANALYSED for word in ("-o", "-name", name)]
    try:
        listed = host.run(
            ("find", directory, "-type", "d", "-name", FOLDER_OF_RANK, *made),
            timeout_s=settings.host.command_timeout_s,
            check=False,
        )
        raw = raw_listed(listed.stdout.splitlines())
        if raw:
            command = analyse_command(settings.engine.python, raw)
            host.run(command, env=settings.engine.env, timeout_s=settings.engine.request_timeout_s)
    except HostError as error:
        return f"the profiler's raw data could not be analysed: {error}"
    return ""


def _has_rows(table: Path) -> bool:
    """Whether a table holds anything below its header."""
    with table.open("rb") as stream:
        stream.readline()
        return bool(stream.readline().strip())


def _replace(new: Path, place: Path, *, keep: bool) -> None:
    try:
        _put(new, place, keep=keep)
    except OSError as error:
        raise cannot_write(error, place) from None


def _put(new: Path, place: Path, *, keep: bool) -> None:
    seal_folder(new, place)
    if place.exists():
        stamp = datetime.fromtimestamp(place.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%S")
        old = place.with_name(f"{place.name}-{stamp}" if keep else f".{place.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(place, old)
        if not keep:
            shutil.rmtree(old, ignore_errors=True)
    os.replace(new, place)
