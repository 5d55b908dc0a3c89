"""A wrong configuration stops at the door, and the message says what to do."""

import copy

import pytest
import yaml

from anchormatrix.config.merge import DEFAULT_FILE, build_settings, load_settings, merged, read_config
from anchormatrix.errors import ConfigError


def changed(path, value):
    values = copy.deepcopy(merged([]))
    *parents, last = path.split(".")
    here = values
    for key in parents:
        here = here[key]
    here[last] = value
    return values


def test_the_default_configuration_is_right():
    settings = load_settings(DEFAULT_FILE)
    assert settings.matrix.repeats == 3
    assert settings.matrix.forms == {
        2: ("tp1-usp2", "tp2-usp1"),
        4: ("tp1-usp4", "tp2-usp2"),
        8: ("tp1-usp8", "tp2-usp4"),
    }


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("matrix.repeat", 3, "matrix: unknown key 'repeat'; did you mean repeats?"),
        ("matrix.repeats", 2, "matrix.repeats: 2 is not allowed; expected at least 3"),
        ("matrix.repeats", "3", 'matrix.repeats: "3" is not allowed; expected a whole number'),
        ("matrix.repeats", True, "matrix.repeats: true is not allowed; expected a whole number"),
        ("matrix.sizes", [], "matrix.sizes: [] is not allowed; expected at least 1 of them"),
        ("matrix.sizes", [2, 2], "matrix.sizes: [2, 2] is not allowed; expected no entry twice"),
        ("host.command_timeout_s", "20s", 'host.command_timeout_s: "20s" is not allowed; expected a number (seconds)'),
        ("host.kind", "telnet", 'host.kind: "telnet" is not allowed; expected one of local, ssh'),
        ("host.command_timeout_s", 1e300, "host.command_timeout_s: 1e+300 is not allowed; expected at most 31536000"),
        ("host.alias", "a\nb", 'host.alias: "a\\nb" is not allowed; expected a name on one line'),
        ("host.env", {"A=B": "1"}, 'host.env: "A=B" is not allowed; expected the name of an environment variable'),
        ("engine.command", [""], 'engine.command.0: "" is not allowed; expected some text'),
        ("engine.model", "a\0b", "engine.model: 'a\\x00b' is not text; expected text without NUL, in UTF-8"),
        ("engine.model", "a\udcffb", "engine.model: 'a\\udcffb' is not text; expected text without NUL, in UTF-8"),
        ("nightly.deadline", "25:00", 'nightly.deadline: "25:00" is not allowed; expected HH:MM'),
        ("nightly.deadline", 360, "nightly.deadline: 360 is not allowed; expected text (HH:MM)"),
        ("device.toolkit", 3, "device.toolkit: 3 is not allowed; expected a text, or a command as a list of words"),
        ("engine.model", "", 'engine.model: "" is not allowed; expected some text'),
        ("verdict.dispersion_pct", 0, "verdict.dispersion_pct: 0 is not allowed; expected more than 0 (percent)"),
        ("colour", 1, "configuration: unknown key 'colour'"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_allowed(path, value, message):
    with pytest.raises(ConfigError) as caught:
        build_settings(changed(path, value))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("matrix.tiers", {"few": 10, "anchor": 4}, "matrix.tiers: few is 10 steps and anchor is 4"),
        ("matrix.forms", {"2": ["tp1-usp4"]}, "matrix.forms.2: form tp1-usp4 runs on 4 cards, not 2"),
        ("matrix.forms", {"2": ["tp1-usp2", "usp2"]}, "matrix.forms.2: a form is listed twice"),
        (
            "matrix.forms",
            {"2": ["tp1-usp2"]},
            "matrix.forms.4: no form is given for this size; the map of forms is taken whole: list forms",
        ),
        ("matrix.forms.2", ["tp1-usq2"], "matrix.forms.2: form 'tp1-usq2': 'usq2' is not a degree"),
        ("matrix.warmups", {"min": 5, "max": 3, "steady_pct": 3}, "matrix.warmups: min 5 is above max 3"),
        ("host.kind", "ssh", "host: host.kind is ssh but host.ssh is not given"),
        ("device.kind", "cpu", "device.cards: a cpu device needs the number of cards"),
        ("groups.pinned", {"4": [0, 1]}, "groups.pinned.4: [0, 1] is not 4 different cards"),
        ("selection.offload_order", ["swap"], "selection.offload_order: 'swap'"),
        ("smoke.residue_factor", float("inf"), "smoke.residue_factor: inf is not a number to count with"),
    ],
)
def test_rules_between_keys(path, value, message):
    with pytest.raises(ConfigError) as caught:
        build_settings(changed(path, value))
    assert str(caught.value).startswith(message)


def test_several_errors_are_told_at_once():
    values = changed("matrix.repeats", 1)
    values["host"]["kind"] = "telnet"
    with pytest.raises(ConfigError, match="and 1 more"):
        build_settings(values)


def test_a_thing_is_taken_whole_and_a_policy_key_by_key(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump({"host": {"alias": "lab"}, "matrix": {"repeats": 5, "forms": {2: ["tp1-usp2"]}}}))
    values = merged([mine], {"matrix": {"sizes": [2]}})
    settings = build_settings(values)
    assert settings.host.env == {}
    assert settings.host.path == ()
    assert settings.matrix.repeats == 5
    assert settings.matrix.windows == 2
    assert settings.matrix.forms == {2: ("tp1-usp2",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("matrix: {repeats: 3, repeats: 4}", "key 'repeats' is given twice"),
        ("a: [1", "not YAML"),
        ("- 1", "holds list; expected a map of sections"),
        ("? [1, 2]\n: 3", "a key must be text"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path, text, message):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert message in str(caught.value)
    assert "broken.yaml" in str(caught.value)


def test_a_missing_or_binary_file_is_one_line(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("none.yaml", "binary.yaml"):
        with pytest.raises(ConfigError, match=r"cannot be read|is no UTF-8"):
            read_config(tmp_path / name)


def test_the_history_file_is_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings(DEFAULT_FILE).history.file == str(DEFAULT_FILE.parent.parent / "results" / "history.sqlite")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").touch()
    assert load_settings(DEFAULT_FILE).history.file == str(tmp_path / "results" / "history.sqlite")
