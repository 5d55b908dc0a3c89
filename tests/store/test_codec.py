"""The codec: a record or one problem that names file, place and expectation."""

from __future__ import annotations

import pytest

from anchormatrix.errors import InputError
from anchormatrix.records.base import FileRecord, Record
from anchormatrix.store.codec import (
    line_text,
    parse_record,
    read_lines,
    read_record,
    read_table,
    record_text,
    write_record,
    write_table,
)


class Part(Record, frozen=True, kw_only=True):
    name: str
    sizes: tuple[int, ...] = ()


class Whole(FileRecord, frozen=True, kw_only=True):
    step_s: float
    parts: tuple[Part, ...] = ()
    reason: str | None = None


class Row(Record, frozen=True, kw_only=True):
    form: str
    usable: bool
    step_s: float | None = None
    values_s: tuple[float, ...] = ()


WHOLE = Whole(step_s=1.5, parts=(Part(name="a", sizes=(1, 2)),))
TEXT = """{
  "schema": 1,
  "step_s": 1.5,
  "parts": [
    {
      "name": "a",
      "sizes": [
        1,
        2
      ]
    }
  ],
  "reason": null
}
"""


def test_a_record_is_written_with_its_schema_first_and_read_back(tmp_path):
    write_record(tmp_path / "whole.json", WHOLE)
    assert (tmp_path / "whole.json").read_text() == TEXT
    assert read_record(tmp_path / "whole.json", Whole) == WHOLE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": 1}', "Object missing required field step_s"),
        ('{"step_s": 1}', "Object missing required field schema"),
        ('{"schema": 2, "step_s": 1}', 'is of another schema; expected "schema": 1'),
        ('{"schema": 1, "step_s": "1"}', "step_s is str; expected float"),
        ('{"schema": 1, "step_s": true}', "step_s is bool; expected float"),
        ('{"schema": 1, "step_s": 1, "parts": [{"name": "", "sizes": [1, "b"]}]}', "parts[0].sizes[1] is str"),
        ('{"schema": 1, "step_s": 1, "parts": [{}]}', "parts[0]: Object missing required field name"),
        ('{"schema": 1, "step_s": NaN}', "not readable as JSON"),
        ('{"schema": 1, "step_s": 1e400}', "step_s: Number out of range"),
        ('{"schema": 1, "parts": ' + "[" * 100_000, "not readable as JSON"),
        ("[]", "the content is array; expected object"),
        ("", "not readable as JSON"),
    ],
)  # fmt: skip
def test_anything_else_is_one_problem(text, said):
    with pytest.raises(InputError) as refused:
        parse_record(text, Whole, where="f.json")
    assert said in str(refused.value)
    assert str(refused.value).startswith("f.json: ")


def test_no_result_holds_a_number_that_is_not_finite():
    with pytest.raises(ValueError, match="not JSON compliant"):
        record_text(Whole(step_s=float("nan")))


def test_a_missing_file_says_what_makes_it(tmp_path):
    with pytest.raises(InputError, match="no such file; run the step that makes it first"):
        read_record(tmp_path / "none.json", Whole)


def test_a_torn_last_line_of_a_ledger_is_left_out(tmp_path):
    file = tmp_path / "ledger.jsonl"
    assert read_lines(file, Whole) == []
    file.write_text(line_text(WHOLE) * 2 + '{"schema": 1, "st')
    assert read_lines(file, Whole) == [WHOLE, WHOLE]
    file.write_text(line_text(WHOLE) + "{}\n")
    with pytest.raises(InputError, match=r"ledger\.jsonl:2: "):
        read_lines(file, Whole)


ROWS = (Row(form="tp1", usable=True, step_s=0.1, values_s=(0.1, 0.25)), Row(form="a,b", usable=False))


def test_rows_are_written_under_their_fields_and_read_back(tmp_path):
    file = tmp_path / "rows.csv"
    write_table(file, Row, ROWS)
    assert file.read_text() == 'form,usable,step_s,values_s\ntp1,true,0.1,0.1;0.25\n"a,b",false,,\n'
    assert read_table(file, Row) == ROWS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column form"),
        ("form,usable,step_s\n", "has no column values_s"),
        ("form,usable,step_s,values_s\na,true\n", "rows.csv:2: has 2 fields; expected 4"),
        ("form,usable,step_s,values_s\na,perhaps,,\n", "usable is str; expected bool"),
        ("form,usable,step_s,values_s\na,true,x,\n", "step_s is str; expected float | null"),
        ("form,usable,step_s,values_s\na,true,1,1;x\n", "values_s[1] is str; expected float"),
    ],
)
def test_a_row_that_is_none_names_its_line(tmp_path, text, said):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        read_table(tmp_path / "rows.csv", Row)
    assert said in str(refused.value)
