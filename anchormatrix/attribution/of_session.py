"""The attribution of one measured session: its capture, set against the step time measured without the profiler."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from anchormatrix.attribution.summary import AttributionOptions, attribute_directory
from anchormatrix.errors import InputError
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings import Settings
from anchormatrix.store.shapes import Maybe

SESSION_SHAPE = {
    "contract": str,
    "form": str,
    "window": int,
    "status": str,
    "reason": Maybe(str),
    "capture": Maybe({"status": str, "directory": Maybe(str), "reason": Maybe(str), "why": Maybe(str)}),
}


def attribute_session(
    session: Mapping[str, Any], requests: Iterable[Mapping[str, str]], settings: Settings
) -> dict[str, Any]:
    """Return every analysis of a session's capture, or why there is none.

    ``session`` is ``session.json``, ``requests`` the rows of ``requests.csv``. A capture on the ramp gives seconds and
    no share: its step is not the one that was measured. A session that is no measurement has no attribution either:
    a form that did not take effect must not be explained as if it had.
    """
    head = {key: session[key] for key in ("contract", "form", "window")}
    capture = session.get("capture") or {"status": "off", "reason": "nothing was captured"}
    if session["status"] != "measured":
        return {**head, "status": "refused", "reason": f"the session is {session['status']}: {session.get('reason')}"}
    if capture["status"] not in ("captured", "on_ramp"):
        reason = capture.get("reason") or capture.get("why")
        return {**head, "status": "refused", "reason": f"the capture is {capture['status']}: {reason}"}
    form = parse_form(session["form"])
    heads = min(settings.model.heads, settings.model.kv_heads or settings.model.heads) // (form.tp * form.usp)
    options = AttributionOptions(
        form=form,
        layers=settings.model.layers,
        local_heads=max(1, heads),
        unprofiled_step_s=None if capture["status"] == "on_ramp" else _few_step_s(requests),
        release_ns=round(settings.attribution.release_us * 1000),
        drain_ratio=settings.attribution.drain_ratio,
    )
    found = attribute_directory(capture["directory"], options, limit_pct=settings.attribution.unusable_rows_pct)
    return {**head, **found, "capture": dict(capture)}


def with_own_capture(session: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The session with its capture's folder where it lies now: beside the windows of the form that ``path`` belongs to.

    ``path`` is the ``session.json``; the project may have been moved since. Files in the folder are packed or deleted,
    so no other folder is ever taken from what a file says.
    """
    capture = session.get("capture") or {}
    if not capture.get("directory"):
        return dict(session)
    name = Path(capture["directory"]).name
    if name in ("", ".."):
        raise InputError(f"capture.directory is {capture['directory']!r}", where=str(path), expected="a folder's path")
    return {**session, "capture": {**capture, "directory": str(path.absolute().parent.parent / name)}}


def keep_capture(directory: Path, keep: str, *, compress: bool) -> None:
    """Keep, pack or drop the profiler's files once they are analysed, as ``capture.keep`` says.

    Files are packed one by one beside the original, which goes only when its packed copy is whole.
    """
    if keep == "none":
        shutil.rmtree(directory, ignore_errors=True)
        return
    if not compress:
        return
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in (".csv", ".json") and path.name != "capture.json":
            packed = path.with_name(path.name + ".gz")
            part = path.with_name(f".{path.name}.part")
            with path.open("rb") as source, gzip.open(part, "wb", compresslevel=3) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            os.replace(part, packed)
            path.unlink()


def _few_step_s(requests: Iterable[Mapping[str, str]]) -> float | None:
    """Median step time of the measured few-step requests, the kind of request that the capture was made in."""
    steps = [
        float(row["step_s"]) for row in requests if row["role"] == "measured" and row["tier"] == "few" and row["step_s"]
    ]
    return median(steps) if steps else None
