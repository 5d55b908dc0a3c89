"""A stored size sweep is checked point by point."""

from __future__ import annotations

import json

import pytest

from anchormatrix.errors import InputError
from anchormatrix.records.bandwidth import SizeSweep, SweepPoint
from anchormatrix.store.codec import parse_record, record_text

POINT = SweepPoint("all_reduce", "UB", 2, 1, 1, 1.0, 1.0)
SWEEP = SizeSweep(contract="c4-x", points=(POINT,), source="hccl-test")


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ({"collective": "gossip"}, "collective"),
        ({"time_us": "nan"}, "time_us"),
        ({"ranks": 1}, "ranks"),
        ({"bytes": None}, "bytes"),
    ],
)
def test_a_stored_sweep_is_checked_point_by_point(row: dict[str, object], place: str) -> None:
    values = json.loads(record_text(SWEEP))
    values["points"][0] |= row
    with pytest.raises(InputError, match=place):
        parse_record(json.dumps(values), SizeSweep, where="bandwidth")


def test_a_sweep_survives_its_file() -> None:
    assert parse_record(record_text(SWEEP), SizeSweep, where="bandwidth") == SWEEP
