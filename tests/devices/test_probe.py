"""Versions of the software as a host's own commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.devices.probe import read_version
from anchormatrix.errors import HostError
from anchormatrix.hosts.base import Completed, Host

SETTINGS = load_settings(DEFAULT_FILE)


def version(printed: str) -> str:
    class Printing:
        def run(self, argv: Sequence[str], **_: Any) -> Completed:
            return Completed(tuple(argv), 0, printed, "", 0.0)

    return read_version(cast(Host, Printing()), ("vllm", "--version"), SETTINGS, "engine.version")


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("0.11.0\n", "0.11.0"),
        ("\n  vllm 0.11.0rc1+cpu  \n", "vllm 0.11.0rc1+cpu"),
        ("INFO 11-30 17:03:04 [__init__.py:36] Available plugins\n0.11.0\n", "0.11.0"),
        ("(EngineCore pid=7) x 17:03:04 y\nUserWarning: torch 2 is old\n0.11.0\n", "0.11.0"),
        ("version=9.0.0\ninnerversion=V100R001\n", "version=9.0.0"),
    ],
)
def test_the_version_is_the_line_that_holds_one(printed, found):
    assert version(printed) == found


@pytest.mark.parametrize("printed", ["", "\n \n", "driver not loaded\n", "ERROR 507 in aclInit\n", "Traceback 1\n"])
def test_words_that_are_no_version_never_become_part_of_a_contract(printed):
    with pytest.raises(HostError, match="vllm --version: prints no version"):
        version(printed)
