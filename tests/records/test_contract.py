"""A contract is its facts: the same facts have the same id, another fact another one."""

import pytest
from contracts import with_facts

from anchormatrix.errors import InputError
from anchormatrix.records.contract import ChangedFact, Contract, StoredContract, changed_facts
from anchormatrix.store.codec import parse_record, plain, record_text

PAIR = Contract(
    host="lab-1",
    cards=(0, 1),
    links=(("X", "UB"), ("UB", "X")),
    one_domain=True,
    device_model="Ascend950DT",
    driver="26.2.0",
    toolkit="9.0.0",
    framework="vllm-omni",
    framework_version="0.20.0",
    workload={"model": "wan", "seed": 42, "flow_shift": 5.0},
    tiers={"few": 4, "anchor": 10},
)


def test_the_id_names_the_card_count_and_is_the_digest_of_the_facts():
    assert PAIR.id == "c2-bfb56fc06f"


def test_order_of_keys_and_spelling_of_whole_floats_change_nothing():
    same = with_facts(PAIR, workload={"flow_shift": 5, "seed": 42, "model": "wan"})
    assert same.id == PAIR.id


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "26.2.1"},
        {"cards": (2, 3)},
        {"tiers": {"few": 4, "anchor": 12}},
        {"workload": {"model": "wan", "seed": 43, "flow_shift": 5.0}},
        {"links": (("X", "SYS"), ("SYS", "X"))},
    ],
)
def test_any_fact_that_changes_the_number_changes_the_id(change):
    assert with_facts(PAIR, **change).id != PAIR.id


def test_a_contract_is_read_back_from_its_file():
    stored = StoredContract(**PAIR.facts, version=1, reason="chosen")
    assert list(plain(stored))[:4] == ["schema", "id", "size", "link_class"]
    assert parse_record(record_text(stored), StoredContract, where="contract.json") == stored


def test_an_edited_file_is_refused():
    text = record_text(StoredContract(**PAIR.facts, version=1, reason="chosen"))
    with pytest.raises(InputError, match=r"contract\.json: says id 'c2-bfb56fc06f' but its facts give"):
        parse_record(text.replace("26.2.0", "27"), StoredContract, where="contract.json")
    with pytest.raises(InputError, match="missing required field"):
        parse_record('{"schema": 1, "id": "c2-0000000000"}', StoredContract, where="contract.json")


def test_a_contract_has_a_whole_link_matrix():
    with pytest.raises(ValueError, match="not 2 × 2"):
        with_facts(PAIR, links=(("X", "UB"),))


def test_what_changed_is_named_field_by_field():
    after = with_facts(PAIR, cards=(2, 3), workload={**PAIR.workload, "seed": 7})
    assert changed_facts(PAIR, after) == (
        ChangedFact("cards", [0, 1], [2, 3]),
        ChangedFact("workload.seed", 42, 7),
    )


def test_the_link_class_is_what_two_groups_must_share():
    assert PAIR.link_class == "UB"
