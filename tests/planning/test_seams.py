"""The seam of sequence parallelism, sparse attention and masking."""

from __future__ import annotations

import pytest
from commands import command
from msgspec.structs import replace

from anchormatrix.planning.seams import SeamFacts, check_seams, window_offset
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.things import ModelSettings

DENSE = ModelSettings(
    layers=10,
    heads=8,
    kv_heads=8,
    head_dim=64,
    sequence_tokens=4096,
    weights_gb=1,
)
SPARSE = replace(DENSE, sparse_block=128)
GOOD = SeamFacts(order="gather-then-sparsify", window_offset=0, mask_scope="per-head", same_as_dense=False)


def broken(form, model=SPARSE, facts=GOOD):
    return [finding.rule for finding in check_seams(parse_form(form), model, facts) if finding.status == "broken"]


def test_dense_unmasked_forms_have_no_seam():
    assert check_seams(parse_form("tp1-usp4"), DENSE) == ()


def test_everything_in_order():
    findings = check_seams(parse_form("tp1-usp4"), SPARSE, GOOD)
    assert [finding.status for finding in findings] == ["ok"] * 6


def test_what_is_not_stated_is_unknown_never_ok():
    findings = check_seams(parse_form("tp1-usp4"), SPARSE)
    assert [finding.status for finding in findings] == ["unknown", "unknown", "ok", "ok", "unknown", "unknown"]


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        (
            SeamFacts(order="sparsify-then-gather", window_offset=0, mask_scope="per-head", same_as_dense=False),
            "gather first",
        ),
        (SeamFacts(order=GOOD.order, window_offset=5, mask_scope="per-head", same_as_dense=False), "window offset"),
        (
            SeamFacts(order=GOOD.order, window_offset=0, mask_scope="shared-across-shards", same_as_dense=False),
            "sparse masks",
        ),
        (
            SeamFacts(order=GOOD.order, window_offset=0, mask_scope="per-head", same_as_dense=True),
            "sparse output differs",
        ),
    ],
)
def test_each_broken_rule_is_named(facts, rule):
    (found,) = broken("tp1-usp4", facts=facts)
    assert found.startswith(rule)


def test_window_offset_counts_from_the_full_kv_length_with_joint_tensors_only():
    assert window_offset(4608, 512, joint=True) == 4096
    assert window_offset(4096, 1024, joint=False) == 0
    joint = SeamFacts(GOOD.order, 4096, 4608, 512, joint=True, mask_scope="per-head", same_as_dense=False)
    assert broken("tp1-usp4", facts=joint) == []


def test_shards_must_be_whole_blocks_and_ring_goes_round_the_backend():
    odd = replace(SPARSE, sequence_tokens=4000)
    assert broken("tp1-usp4", odd) == ["S % (sequence degree × block) = 0"]
    assert broken("tp1-usp1-ring4") == ["the sequence-parallel path uses the sparse attention backend"]


def test_interleaved_communicators_are_broken_only_when_one_is_taken_up_again():
    form = "tp1-usp2-ag2+mask2"
    assert broken(form, DENSE, SeamFacts(issued=("usp", "usp", "ag", "ag"))) == []
    assert len(broken(form, DENSE, SeamFacts(issued=("usp", "ag", "usp", "ag")))) == 1
    (unknown,) = check_seams(parse_form(form), DENSE)
    assert unknown.status == "unknown"


def test_the_command_exits_with_a_finding():
    words = ("--config", "config/config.yaml", "--form", "tp1-usp4", "--sparse-block", "128")
    done = command("scripts/check_seams.py", *words)
    assert done.returncode == 1
    assert "broken   S % (sequence degree × block) = 0: 32760 % (4 × 128) = 504" in done.stdout
