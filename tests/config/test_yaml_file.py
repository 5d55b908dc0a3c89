"""What a configuration file's text means, and what it cannot mean."""

from __future__ import annotations

import json

import pytest

from anchormatrix.config.merge import build_settings, load_settings, merged
from anchormatrix.config.yaml_file import plain_values, read_config
from anchormatrix.errors import ConfigError


def read(tmp_path, text: str | bytes, name: str = "some.yaml"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-11-30", "2026-11-30"),
        ("2026-99-99", "2026-99-99"),
        ("22:30", "22:30"),
        ("on", "on"),
        ("yes", "yes"),
        ("010", 10),
        ("0x10", 16),
        ("-7", -7),
        ("1e-5", 0.00001),
        ("1.", 1.0),
        (".5", 0.5),
        ("True", True),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_are_what_they_look_like(tmp_path, text, value):
    found = read(tmp_path, f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


def test_line_ends_byte_order_marks_and_merge_keys(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbfa:\r\n  b: 1\r\n") == {"a": {"b": 1}}
    assert read(tmp_path, "a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}") == {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}
    assert read(tmp_path, "") == {}


BOMB = "\n".join(["k0: &k0 [x]", *(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]" for n in range(1, 9))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "holds too much, or itself"),
        ("a: &a {b: *a}", "a.b.b: holds too much, or itself"),
        ("a: &a [*a]", "a.0.0: holds too much, or itself"),
        ("a: " + "[" * 5000 + "]" * 5000, "not YAML"),
        ("a: " + "9" * 5000, "999'… of 5000 characters is not a number"),
        ("a:\n  b: !!int x", "some.yaml:2: not YAML: 'x' is not a number"),
        ("a: !!bool x", "'x' is not true or false"),
        ("a: !!timestamp x", "could not determine a constructor for the tag"),
        ("a: !!binary aGVsbG8=", "could not determine a constructor for the tag"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor for the tag"),
        ("a: {b: [1, .nan]}", "a.b.1: nan is not a number to count with"),
        ("a: 1e999", "a: inf is not a number to count with"),
        (b"\xff\xfea\x00", "save it as UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "some.json: not JSON"),
        ('{"a": {"b": 1, "b": 2}}', "key 'b' is given twice"),
        ('{"a": NaN}', "a: nan is not a number to count with"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "not JSON"),
        ('{"a": "\\ud800"}', "a: '\\ud800' is not text"),
    ],
)
def test_json_is_read_as_strictly(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, "some.json")
    assert message in str(caught.value)


def test_json_text_is_kept_to_the_character(tmp_path):
    values = {"a": "1e-05", "b": 1e-05, "c": "x\u0085y\u2028z\x7f", "d": "2026-11-30"}
    assert read(tmp_path, json.dumps(values, ensure_ascii=False), "some.json") == values


def test_settings_do_not_change_on_their_way_through_the_effective_configuration(tmp_path):
    values = merged([], {"matrix": {"warmups": {"steady_pct": 0.00001}}, "report": {"title": "a\u2028b\x7f"}})
    effective = tmp_path / "config.json"
    effective.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
    assert load_settings(effective) == build_settings(values)


def test_a_whole_number_may_be_written_with_a_point():
    values = merged([], {"matrix": {"sizes": [2.0, 4.0], "tiers": {"few": 4.0, "anchor": 10.0}}})
    matrix = build_settings(values).matrix
    assert repr((matrix.sizes, matrix.tiers)) == "((2, 4), TierSettings(few=4, anchor=10))"


def test_keys_become_text():
    assert plain_values({2: {True: [1]}}) == {"2": {"True": [1]}}


def test_values_in_a_map_on_the_command_line_are_what_they_look_like():
    told = {
        "matrix": {"repeats": "5", "sizes": ["4"], "tiers": {"few": "4", "anchor": "12"}},
        "verdict": {"drift_pct": "4.5"},
        "capture": {"enabled": "false"},
        "smoke": {"expected_step_s": {"4": "1e-1"}},
        "selection": {"host_memory_gb": "null"},
        "groups": {"pinned": {"4": ["3", "2", "1", "0"]}},
        "report": {"title": "5"},
        "nightly": {"deadline": "22:30"},
    }
    settings = build_settings(merged([], told))
    assert (settings.matrix.repeats, settings.matrix.sizes, settings.matrix.tiers.anchor) == (5, (4,), 12)
    assert (settings.verdict.drift_pct, settings.capture.enabled, settings.smoke.expected_step_s) == (
        4.5,
        False,
        {4: 0.1},
    )
    assert (settings.selection.host_memory_gb, settings.groups.pinned) == (None, {4: (3, 2, 1, 0)})
    assert (settings.report.title, settings.nightly.deadline) == ("5", "22:30")


@pytest.mark.parametrize("told", ["five", "[1", "", "1e999", "!!int x", "{a: 1}"])
def test_words_on_the_command_line_do_not_become_numbers(told):
    with pytest.raises(ConfigError, match=r"matrix\.repeats: "):
        build_settings(merged([], {"matrix": {"repeats": told}}))
