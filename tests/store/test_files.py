"""Files are whole or not there, and an unreadable one is named."""

import pytest

from anchormatrix.errors import InputError, quoted_line
from anchormatrix.store.files import write_csv, write_json, write_text


def test_json_carries_its_schema(tmp_path):
    path = tmp_path / "new" / "values.json"
    write_json(path, {"step_s": 1.5})
    assert path.read_text() == '{\n  "schema": 1,\n  "step_s": 1.5\n}\n'


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "values.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == '{\n  "schema": 1,\n  "a": 1\n}\n'
    assert [item.name for item in tmp_path.iterdir()] == ["values.json"]


def test_csv_has_a_header_and_empty_fields_for_none(tmp_path):
    write_csv(tmp_path / "t.csv", ["a", "b"], [{"a": 1, "b": None}, {"a": "x,y", "b": 2}])
    assert (tmp_path / "t.csv").read_text() == 'a,b\n1,\n"x,y",2\n'


def test_an_error_is_one_printable_line_whatever_it_quotes():
    error = InputError("bad\nthing", where="file:3", expected="good", todo="do it")
    assert str(error) == "file:3: bad thing; expected good; do it"
    assert quoted_line("\x1b[31mred\r\n" + "x" * 300).startswith("«[31mred")
    assert len(quoted_line("x" * 300)) == 162
