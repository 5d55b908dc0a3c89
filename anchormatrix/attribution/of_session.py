"""The attribution of one measured session: its capture, set against the step time measured without the profiler."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import msgspec

from anchormatrix.attribution.summary import AttributionOptions, attribute_directory
from anchormatrix.captures.cutting.request import Request
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import Attribution, AttributionStatus
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.requests import RequestRow, Role
from anchormatrix.records.session import USABLE, Capture, CaptureStatus, Session, SessionStatus
from anchormatrix.records.settings.values import KeepCaptures, Tier
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.files import replacing


def attribute_session(session: Session, requests: Iterable[RequestRow], settings: Settings) -> Attribution:
    """Return every analysis of a session's capture, or why there is none.

    ``requests`` are those of the session. A capture on the ramp gives seconds and no share: its step is not the one
    that was measured. A session that is no measurement has no attribution either: a form that did not take effect must
    not be explained as if it had.
    """
    requests = tuple(requests)
    capture = session.capture or Capture(status=CaptureStatus.OFF, reason="nothing was captured")
    if session.status is not SessionStatus.MEASURED:
        return _refused(session, f"the session is {session.status}: {session.reason}")
    if capture.status not in USABLE or not capture.directory:
        return _refused(session, f"the capture is {capture.status}: {capture.reason or capture.why}")
    form = parse_form(session.form)
    heads = min(settings.model.heads, settings.model.kv_head_count) // (form.tp * form.usp)
    options = AttributionOptions(
        form=form,
        request=_captured(requests, capture, form, settings),
        layers=settings.model.layers,
        local_heads=max(1, heads),
        captured_ranks=capture.ranks,
        unprofiled_step_s=None if capture.status is CaptureStatus.ON_RAMP else _timed_step_s(requests, capture.tier),
        release_ns=round(settings.attribution.release_us * 1000),
        drain_ratio=settings.attribution.drain_ratio,
    )
    limit_pct = settings.attribution.unusable_rows_pct
    found = attribute_directory(capture.directory, options, limit_pct=limit_pct, contract=session.contract)
    return msgspec.structs.replace(found, window=session.window, capture=capture)


def _refused(session: Session, reason: str) -> Attribution:
    return Attribution(
        contract=session.contract,
        form=session.form,
        window=session.window,
        status=AttributionStatus.REFUSED,
        reason=reason,
    )


def with_own_capture(session: Session, path: Path) -> Session:
    """The session with its capture's folder where it lies now: beside the windows of the form that ``path`` belongs to.

    ``path`` is the ``session.json``; the project may have been moved since. Files in the folder are packed or deleted,
    so no other folder is ever taken from what a file says.
    """
    capture = session.capture
    if capture is None or not capture.directory:
        return session
    name = Path(capture.directory).name
    if name in ("", ".."):
        raise InputError(f"capture.directory is {capture.directory!r}", where=str(path), expected="a folder's path")
    here = str(path.absolute().parent.parent / name)
    return msgspec.structs.replace(session, capture=msgspec.structs.replace(capture, directory=here))


def keep_capture(directory: Path, keep: KeepCaptures, *, compress: bool) -> None:
    """Keep, pack or drop the profiler's files once they are analysed, as ``capture.keep`` says.

    Files are packed one by one beside the original, which goes only when its packed copy is whole.
    """
    if keep == KeepCaptures.NONE:
        shutil.rmtree(directory, ignore_errors=True)
        return
    if not compress:
        return
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in (".csv", ".json") and path.name != "capture.json":
            packed = path.with_name(path.name + ".gz")
            with (
                replacing(packed) as part,
                path.open("rb") as source,
                gzip.open(part, "wb", compresslevel=3) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
            path.unlink()


def _captured(requests: Iterable[RequestRow], capture: Capture, form: Form, settings: Settings) -> Request | None:
    """The request that was captured, as the server timed it; by the timed requests of its tier where it did not."""
    row = next((row for row in requests if row.role is Role.CAPTURE and row.request == capture.request), None)
    if row is None:
        return None
    timed = _timed_step_s(requests, capture.tier)
    iterations = row.iterations or row.steps
    return Request(
        iterations=iterations,
        branches=max(1, settings.model.guidance_branches // form.cfg),
        layers=settings.model.layers // form.pp,
        diffuse_s=row.diffuse_s or (timed * iterations if timed else None),
    )


def _timed_step_s(requests: Iterable[RequestRow], tier: Tier) -> float | None:
    """Median step time of the measured requests of the tier that the capture belongs to."""
    steps = [row.step_s for row in requests if row.role is Role.MEASURED and row.tier == tier and row.step_s]
    return median(steps) if steps else None
