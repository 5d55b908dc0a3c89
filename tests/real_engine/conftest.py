"""Every test here needs the dummy run's environment, and the cores for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocol_suite import needs_dummy_run

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real_engine)
            item.add_marker(needs_dummy_run)
            item.add_marker(pytest.mark.xdist_group("real_engine"))
