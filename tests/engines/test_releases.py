"""A version selects what its release has; one that is not known is tried as the nearest, and said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.releases import number_of
from anchormatrix.engines.vllm_omni.releases import release_of
from anchormatrix.records.form import parse_form

SETTINGS = load_settings(DEFAULT_FILE)


@pytest.mark.parametrize(
    ("version", "number", "caution"),
    [
        ("0.30.0", (0, 30), ""),
        ("vllm 0.28.1+cu130", (0, 28), ""),
        ("0.27.0", (0, 26), "vllm-omni 0.27.0 is not known here: taken as 0.26"),
        ("1.2.0", (0, 30), "vllm-omni 1.2.0 is not known here: taken as 0.30"),
        ("0.9.2", (0, 14), "vllm-omni 0.9.2 is not known here: taken as 0.14"),
        ("nightly", (0, 30), "no version number in 'nightly': taken as vllm-omni 0.30"),
        ("", (0, 30), ""),
    ],
)
def test_a_version_is_one_of_the_known_releases_or_said_to_be_none(
    version: str, number: tuple[int, int], caution: str
) -> None:
    found = release_of(version)
    assert (found.number, found.caution) == (number, caution)


def test_a_number_is_not_cut_out_of_another():
    assert number_of("torch 2.13.0") == (2, 13, 0)
    assert number_of("build 20260301") is None


@pytest.mark.parametrize(
    ("version", "degrees", "refused"),
    [
        ("0.16.0", ("tp", "usp", "ring", "cfg"), "vllm-omni 0.16 logs no stage times"),
        ("0.20.0", ("tp", "usp", "ring", "cfg"), ""),
        ("0.24.0", ("tp", "usp", "ring", "cfg", "pp"), ""),
        ("0.26.0", ("tp", "usp", "ring", "ag", "cfg", "pp"), ""),
    ],
)
def test_an_older_release_splits_less_and_may_not_be_measured_at_all(
    version: str, degrees: tuple[str, ...], refused: str
) -> None:
    engine = open_engine(SETTINGS, version)
    assert engine.limits().degrees == degrees
    assert (engine.refusal(parse_form("tp1-usp4")) or "").startswith(refused)
    assert bool(engine.refusal(parse_form("tp1-usp4"))) is bool(refused)
    command = engine.serve_command if not refused else None
    if command is not None:
        argv = command(parse_form("tp1-usp1"), port=1, visible_env={}, capture_dir=None).argv
        assert "--distributed-executor-backend" not in argv  # since 0.28 one card is another process


def test_an_offload_that_came_later_is_refused_by_name():
    form = parse_form("tp1-usp4+distributed-layerwise-offload")
    assert open_engine(SETTINGS, "0.24.0").refusal(form) == (
        "vllm-omni 0.24 has no distributed-layerwise-offload: 0.26 is the first that does"
    )
    assert open_engine(SETTINGS, "0.26.0").refusal(form) is None


def test_sglang_knows_one_release():
    settings = replace(SETTINGS, engine=replace(SETTINGS.engine, kind="sglang"))
    assert open_engine(settings, "0.5.23").caution == ""
    assert open_engine(settings, "0.5.24").caution == "SGLang 0.5.24 is not known here: taken as 0.5.23"
