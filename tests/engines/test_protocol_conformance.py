"""Every server speaks one protocol: the same checks against the virtual host, the dummy run and SGLang."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from protocol_suite import (
    CHECKS,
    DUMMY_RUN,
    DUMMY_RUN_IMAGE,
    SGLANG,
    SGLANG_IMAGE,
    VIRTUAL,
    VIRTUAL_IMAGE,
    VIRTUAL_LIGHTX2V,
    VIRTUAL_Z_IMAGE,
    Kind,
    Serving,
    needs_dummy_run,
    serving,
)
from sglang_env import needs_sglang

from anchormatrix.measure.causes import failure_of
from anchormatrix.records.form import parse_form

FORM = "tp1-usp2"


def real(kind: Kind) -> object:
    """A server that needs torch."""
    return pytest.param(
        kind,
        id=kind.name,
        marks=[pytest.mark.real_engine, needs_dummy_run, pytest.mark.xdist_group("real_engine")],
    )


def others(kind: Kind) -> object:
    """A server that other people wrote, of an environment of its own."""
    return pytest.param(
        kind,
        id=kind.name,
        marks=[pytest.mark.real_engine, needs_sglang, pytest.mark.xdist_group("sglang")],
    )


def virtual(kind: Kind) -> object:
    """The virtual host's server."""
    return pytest.param(kind, id=kind.name, marks=[pytest.mark.xdist_group("protocol")])


STRICT = [virtual(VIRTUAL), real(DUMMY_RUN)]  # LightX2V's parser takes every flag (server/__main__.py:18)
VIDEO = [*STRICT, virtual(VIRTUAL_LIGHTX2V)]
ALL = [
    *VIDEO,
    virtual(VIRTUAL_IMAGE),
    virtual(VIRTUAL_Z_IMAGE),
    real(DUMMY_RUN_IMAGE),
    others(SGLANG_IMAGE),
    others(SGLANG),
]


@pytest.fixture(scope="module", params=ALL)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all checks of its kind."""
    with serving(request.param, FORM, tmp_path_factory.mktemp(request.param.name)) as running:
        yield running


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_protocol(server: Serving, check: Callable[[Serving], None]) -> None:
    check(server)


@pytest.mark.parametrize("kind", VIDEO)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_and_its_ranks(kind: Kind, number: int, tmp_path: Path) -> None:
    with serving(kind, FORM, tmp_path) as running:
        ranks = running.children()
        assert len(ranks) >= 2
        assert running.stop(number, within_s=20) == 0
        assert psutil.wait_procs(ranks, timeout=5)[1] == []


@pytest.mark.parametrize("kind", VIDEO)
def test_a_rank_that_is_killed_ends_the_server_with_a_line_that_says_so(kind: Kind, tmp_path: Path) -> None:
    with serving(kind, FORM, tmp_path) as running:
        ranks = running.children()
        ranks[1].kill()
        assert running.process.wait(30) != 0
        assert failure_of(running.log_text()).id == "killed"
        assert psutil.wait_procs(ranks, timeout=5)[1] == []


@pytest.mark.parametrize("kind", VIDEO)
def test_a_taken_port_is_a_failure_with_its_cause(kind: Kind, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with serving(kind, FORM, folders[0]) as running:
        late = Serving(kind, parse_form(FORM), folders[1], port=running.port)
        try:
            assert late.process.wait(60) not in (0, None)
        finally:
            late.process.kill()
        assert failure_of(late.log_text()).id == "port_in_use"
        assert running.client.ready()


@pytest.mark.parametrize("kind", STRICT)
def test_a_flag_the_server_does_not_have_ends_it_at_once(kind: Kind, tmp_path: Path) -> None:
    strange = Serving(kind, parse_form(FORM), tmp_path, more=("--no-such-flag",))
    try:
        assert strange.process.wait(60) == 2
    finally:
        strange.process.kill()
    assert "--no-such-flag" in strange.log_text()
