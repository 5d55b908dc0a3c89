"""The schema for editors is generated from the record, and allows what the record allows."""

import copy

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.config.merge import DEFAULT_FILE, build_settings, merged, read_config
from anchormatrix.config.schema import SCHEMA_FILE, configuration_schema, schema_text
from anchormatrix.errors import ConfigError

DEFAULT = read_config(DEFAULT_FILE)
PLACES = [
    (section, key) for section, values in DEFAULT.items() for key in values if (section, key) != ("engine", "command")
]
VALUES = st.sampled_from(
    [None, True, 0, 1, 2, 3, -1, 10**10, 2**64, 0.5, 1.0, 2.5, 1e300, "", "a", "auto", "a=b", "06:00", "wait", "cpu"]
)
NESTED = st.one_of(
    VALUES,
    st.lists(VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["2", "4", "02", "x", "a=b", "few", "min"]), VALUES, max_size=2),
    st.dictionaries(st.sampled_from(["2", "0"]), st.lists(VALUES, max_size=2), max_size=2),
)


def test_the_file_is_what_the_record_generates():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "run `make schema`"
    jsonschema.Draft202012Validator.check_schema(configuration_schema())


@given(st.sampled_from(PLACES), NESTED)
def test_schema_and_record_refuse_the_same_values(place, value):
    section, key = place
    values = copy.deepcopy(DEFAULT)
    values[section][key] = value
    allowed = jsonschema.Draft202012Validator(configuration_schema()).is_valid(values)
    try:
        build_settings(values)
    except ConfigError as error:
        assert not allowed or "is not allowed" not in str(error)
    else:
        assert allowed


@pytest.mark.parametrize(("key", "value"), [("port", 0), ("user", ""), ("jump", {"host": "a", "port": 0})])
def test_a_part_that_may_be_left_out_is_explained_to_its_innermost_key(key, value):
    values = merged([], {"host": {"alias": "lab", "kind": "ssh", "ssh": {"host": "b", key: value}}})
    where = f"host.ssh.{key}.port" if key == "jump" else f"host.ssh.{key}"
    with pytest.raises(ConfigError) as caught:
        build_settings(values)
    assert str(caught.value).startswith(f"{where}: ")
