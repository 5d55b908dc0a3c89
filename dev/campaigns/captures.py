"""Captures and sweeps of a virtual host, read and analysed by the workflow's own functions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from anchormatrix.attribution.of_session import attribute_session
from anchormatrix.measure.bandwidth.curve import Curves
from anchormatrix.measure.bandwidth.plan import TEST_NAMES, plan_sweep, points_of
from anchormatrix.planning.configured import sweep_settings
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.bandwidth import SweepPoint
from anchormatrix.records.form import parse_form
from anchormatrix.records.requests import RequestRow, RequestStatus, Role
from anchormatrix.records.session import Capture, CaptureStatus, SessionStatus
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.sessions import TimedSession
from campaigns.starts import TIERS, Starts
from virtualhost.host.state import HostState
from virtualhost.server.exchange import Outcome
from virtualhost.server.profiler import write_session_capture
from virtualhost.server.serving import ServingSession
from virtualhost.tools.collective_test import measure


def attributions(starts: Starts, seen: Iterable[TimedSession], settings: Settings) -> Mapping[str, Attribution]:
    """The attribution of every form measured in the first window, from the profiler's files of one of its requests."""
    first = [timed for timed in seen if timed.session.window == 1 and timed.session.status is SessionStatus.MEASURED]
    return {timed.session.form: _attribution(starts, timed, settings) for timed in first}


def _attribution(starts: Starts, timed: TimedSession, settings: Settings) -> Attribution:
    form, requests = timed.session.form, len(timed.requests)
    if (form, requests) not in starts.attributions:
        with tempfile.TemporaryDirectory() as folder:
            served, outcome = starts.profiled(form, requests)
            write_session_capture(served, Path(folder))
            capture = Capture(status=CaptureStatus.CAPTURED, request=served.requests, directory=folder)
            session = replace(timed.session, capture=capture)
            rows = (*timed.requests, _captured(served, outcome))
            starts.attributions[form, requests] = attribute_session(session, rows, settings)
    return starts.attributions[form, requests]


def _captured(served: ServingSession, outcome: Outcome) -> RequestRow:
    """The row of the request that was captured."""
    diffuse_s = next(seconds for name, seconds in outcome.durations.items() if name.endswith(".diffuse"))
    return RequestRow(
        request=served.requests,
        role=Role.CAPTURE,
        steps=TIERS["few"],
        iterations=TIERS["few"],
        diffuse_s=diffuse_s,
        ranks=served.split.world,
        status=RequestStatus.OK,
        latency_s=outcome.virtual_s,
        sent_s=0.0,
    )


def sweep(starts: Starts, forms: Iterable[str], settings: Settings) -> Curves:
    """The size sweep of the group, by the host's own collective test."""
    contract = starts.contract
    orders = plan_sweep(map(parse_form, forms), settings.model, contract, **sweep_settings(settings))
    points = list[SweepPoint]()
    for order in orders:
        rows = measure(
            starts.experiment.scenario,
            HostState(None),
            TEST_NAMES[order.collective],
            order.cards,
            order.sizes,
            repeats=order.repeats,
            concurrency=order.concurrency,
        )
        points += points_of(order, ((size, sum(times) / len(times)) for size, times in rows))
    return Curves(tuple(points))
