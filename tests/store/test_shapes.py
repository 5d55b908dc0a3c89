"""What a stored file must look like inside, and how it is said that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from anchormatrix.errors import InputError
from anchormatrix.store.shapes import MapOf, Maybe, check_shape

SHAPE = {
    "r": Maybe(MapOf(float)),
    "name": str,
    "ranks": [{"rank": int, "stage_ms": float}],
    "note": Maybe(str),
    "ok": bool,
    "any": Maybe(MapOf(Any)),
}
GOOD = {
    "name": "a",
    "ranks": [{"rank": 0, "stage_ms": 1}, {"rank": 1, "stage_ms": 2.5}],
    "ok": True,
    "any": {"a": None},
}


def test_the_shape_holds_with_more_keys_and_without_optional_ones():
    check_shape(GOOD, SHAPE, "f.json")
    check_shape(GOOD | {"note": None, "more": [None]}, SHAPE, "f.json")
    check_shape(GOOD | {"note": "x", "ranks": []}, SHAPE, "f.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 5}, "f.json: name is 5; expected text; delete the file; the next run makes it again"),
        ({"name": None}, "f.json: name is None; expected text"),
        ({"ranks": {}}, "f.json: ranks is {}; expected a list"),
        ({"ranks": [{"rank": 0}]}, "f.json: ranks[0].stage_ms is missing; expected a number"),
        ({"ranks": [GOOD["ranks"][0], None]}, "f.json: ranks[1] is None; expected an object"),
        ({"ranks": [{"rank": True, "stage_ms": 1}]}, "f.json: ranks[0].rank is True; expected a whole number"),
        ({"ranks": [{"rank": 1.0, "stage_ms": 1}]}, "f.json: ranks[0].rank is 1.0; expected a whole number"),
        ({"ranks": [{"rank": 1, "stage_ms": "1"}]}, "f.json: ranks[0].stage_ms is '1'; expected a number"),
        ({"note": ["x"]}, "f.json: note is ['x']; expected text"),
        ({"r": {"tp1-usp4": 1.0, "tp2-usp2": None}}, "f.json: r.tp2-usp2 is None; expected a number"),
        ({"r": [1.0]}, "f.json: r is [1.0]; expected an object"),
        ({"any": 3}, "f.json: any is 3; expected an object"),
        ({"ok": 1}, "f.json: ok is 1; expected true or false"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change, message):
    with pytest.raises(InputError) as caught:
        check_shape(GOOD | change, SHAPE, "f.json")
    assert str(caught.value).startswith(message)
