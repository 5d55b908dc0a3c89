"""From a reading of the host to contracts with versions, and the ledger that remembers them."""

import dataclasses
import json

import msgspec
import pytest
from host_states import blocks, live, state

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.errors import InputError
from anchormatrix.planning.contracts import append_ledger, list_contracts, read_ledger
from anchormatrix.records.contract import ChangedFact, SizeWithoutGroup

SETTINGS = load_settings(DEFAULT_FILE)
HEALTHY = live(state(blocks([4, 4])))
SICK = live(state(blocks([4, 4]), health={2: "Alarm"}))


def first(plan, size):
    return plan.of_size(size)[0]


def test_every_size_gets_its_candidates_in_order():
    plan = list_contracts(HEALTHY, SETTINGS, [])
    assert [(p.cards, p.rank, p.version) for p in plan.of_size(4)] == [
        ((0, 1, 2, 3), 0, 1),
        ((4, 5, 6, 7), 1, 2),
    ]
    assert first(plan, 8).one_domain is False
    assert plan.unavailable == ()


def test_a_sick_card_changes_the_contracts_that_it_was_in_and_no_other():
    before, after = list_contracts(HEALTHY, SETTINGS, []), list_contracts(SICK, SETTINGS, [])
    assert first(before, 2).id == first(after, 2).id
    assert first(before, 4).id != first(after, 4).id
    assert after.of_size(8) == ()
    assert after.unavailable == (SizeWithoutGroup(8, "0–7: card 2 says Alarm"),)


def test_a_new_driver_is_a_new_contract():
    newer = dataclasses.replace(HEALTHY, stack=msgspec.structs.replace(HEALTHY.stack, driver="27"))
    assert first(list_contracts(newer, SETTINGS, []), 2).id != first(list_contracts(HEALTHY, SETTINGS, []), 2).id


def test_the_ledger_counts_versions_and_says_what_changed(tmp_path):
    path = tmp_path / "contracts.jsonl"
    healthy = list_contracts(HEALTHY, SETTINGS, [])
    added = append_ledger(path, [first(healthy, 4)], when="2026-01-01T00:00:00Z", why="chosen")
    assert [(entry.version, entry.changed) for entry in added] == [(1, ())]
    assert append_ledger(path, [first(healthy, 4)], when="later", why="chosen") == []

    sick = list_contracts(SICK, SETTINGS, read_ledger(path))
    assert first(sick, 4).version == 2
    added = append_ledger(path, [first(sick, 4)], when="2026-01-02T00:00:00Z", why="chosen")
    assert added[0].changed == (ChangedFact("cards", [0, 1, 2, 3], [4, 5, 6, 7]),)

    again = list_contracts(HEALTHY, SETTINGS, read_ledger(path))
    assert first(again, 4).cards == (4, 5, 6, 7), "the current group is kept when the other is healthy again"


def test_a_contract_that_comes_back_has_its_old_version(tmp_path):
    path = tmp_path / "contracts.jsonl"
    healthy, sick = list_contracts(HEALTHY, SETTINGS, []), list_contracts(SICK, SETTINGS, [])
    for plan in (healthy, sick, healthy):
        append_ledger(path, [first(plan, 4)], when="t", why="w")
    assert [entry.version for entry in read_ledger(path)] == [1, 2, 1]


def test_a_torn_last_line_is_left_out_and_written_over(tmp_path):
    path = tmp_path / "contracts.jsonl"
    plan = list_contracts(HEALTHY, SETTINGS, [])
    append_ledger(path, [first(plan, 4)], when="t", why="w")
    with path.open("a") as stream:
        stream.write('{"schema": 1, "id": "c4-')
    assert len(read_ledger(path)) == 1
    append_ledger(path, [first(plan, 2)], when="t", why="w")
    assert [json.loads(line)["size"] for line in path.read_text().splitlines()] == [4, 2]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("size", "4", r"jsonl:1: size is str; expected int"),
        ("size", 8, r"jsonl:1: says size 8 but its contract 4"),
        ("cards", [0, 1], r"says cards \(0, 1\) but its contract \(0, 1, 2, 3\)"),
        ("id", "c4-0", "says id 'c4-0' but its contract 'c4-"),
        ("contract", {"workload": "x"}, "contract.workload is str"),
        ("contract", 7, "contract is int; expected object"),
    ],
)
def test_a_ledger_row_must_be_what_its_contract_is(tmp_path, key, value, message):
    path = tmp_path / "contracts.jsonl"
    append_ledger(path, [first(list_contracts(HEALTHY, SETTINGS, []), 4)], when="now", why="test")
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {key: value}) + "\n")
    with pytest.raises(InputError, match=message):
        read_ledger(path)


def test_a_spoiled_ledger_names_the_line(tmp_path):
    path = tmp_path / "contracts.jsonl"
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match=r"contracts\.jsonl:1: not readable as JSON"):
        read_ledger(path)
