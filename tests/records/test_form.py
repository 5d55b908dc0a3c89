"""Forms have one canonical name and know their world size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.errors import ConfigError
from anchormatrix.records.form import OFFLOADS, Form, parse_form


@pytest.mark.parametrize(
    ("name", "form", "cards"),
    [
        ("tp1-usp4", Form(usp=4), 4),
        ("tp2-usp2", Form(tp=2, usp=2), 4),
        ("usp4", Form(usp=4), 4),
        ("tp1-usp2-ring2-cfg2", Form(usp=2, ring=2, cfg=2), 8),
        ("tp1-usp4+layerwise-offload", Form(usp=4, offload="layerwise-offload"), 4),
        ("tp1-usp4+mask4", Form(usp=4, mask_chunks=4), 4),
        ("ag2-usp4", Form(usp=4, ag=2), 8),
    ],
)
def test_a_name_gives_degrees_and_world_size(name, form, cards):
    assert parse_form(name) == form
    assert form.cards == cards


def test_names_are_canonical_and_safe_as_a_path_component():
    assert parse_form("usp4").name == "tp1-usp4"
    assert parse_form("cfg2-usp2-tp1+mask4+layerwise-offload").name == "tp1-usp2-cfg2+layerwise-offload+mask4"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tp1-usq4", "'usq4' is not a degree"),
        ("tp0-usp2", "'tp0' is not a degree"),
        ("tp1-tp2", "tp is given twice"),
        ("tp1-usp4+turbo", "'turbo' is not a feature"),
        ("", "'' is not a degree"),
        ("../etc", "'../etc' is not a degree"),
        ("tp1-usp2+cpu-offload+cpu-offload", "is not a feature"),
    ],
)
def test_a_wrong_name_says_which_part_is_wrong(name, words):
    with pytest.raises(ConfigError) as caught:
        parse_form(name)
    assert words in str(caught.value)


@given(
    st.builds(
        Form,
        **{key: st.integers(1, 64) for key in ("tp", "usp", "ring", "ag", "cfg", "pp", "mask_chunks")},
        offload=st.sampled_from(("", *OFFLOADS)),
    )
)
def test_every_form_is_read_back_from_its_name(form):
    assert parse_form(form.name) == form
