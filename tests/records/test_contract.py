"""A contract is its facts: the same facts have the same id, another fact another one."""

import dataclasses

import pytest

from anchormatrix.errors import InputError
from anchormatrix.records.contract import Contract, changed_fields, contract_from_dict

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
    same = dataclasses.replace(PAIR, workload={"flow_shift": 5, "seed": 42, "model": "wan"})
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
    assert dataclasses.replace(PAIR, **change).id != PAIR.id


def test_a_contract_is_read_back_from_its_file():
    assert contract_from_dict(PAIR.as_dict()) == dataclasses.replace(
        PAIR, workload={"model": "wan", "seed": 42, "flow_shift": 5}
    )


def test_an_edited_file_is_refused():
    with pytest.raises(InputError, match="its facts give"):
        contract_from_dict({**PAIR.as_dict(), "driver": "27"})
    with pytest.raises(InputError, match="not a contract"):
        contract_from_dict({"id": "c2-0000000000"})


def test_what_changed_is_named_field_by_field():
    after = dataclasses.replace(PAIR, cards=(2, 3), workload={**PAIR.workload, "seed": 7})
    assert changed_fields(PAIR, after) == [
        {"field": "cards", "before": [0, 1], "after": [2, 3]},
        {"field": "workload.seed", "before": 42, "after": 7},
    ]


def test_the_link_class_is_what_two_groups_must_share():
    assert PAIR.link_class == "UB"
