"""The proof of effect: every kind of launch feature is proven, void or unproven by the counts of its witnesses."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import selection_record, session_record, verdict_record

from anchormatrix.attribution.summary import AttributionOptions, attribute_directory
from anchormatrix.decide.conclusion import DecisionInputs, decide
from anchormatrix.decide.effects.features import effects, features_apart, without_dead
from anchormatrix.decide.evidence import FormEvidence, gather
from anchormatrix.records.attribution import (
    Attribution,
    AttributionStatus,
    Check,
    Collectives,
    Effect,
    Family,
    RankCollectives,
    StepRow,
    Steps,
    Stream,
)
from anchormatrix.records.conclusions.gates import EffectStatus, FeatureEffect
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import OffloadSeen, Proof, SessionStatus, SparseSeen
from anchormatrix.records.settings.things import ModelSettings
from anchormatrix.records.waits import MaskBound, Masking
from anchormatrix.store.sessions import TimedSession

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
# Unmasked, Ulysses makes 10 layers × 4 calls × 2 guidance branches = 80 all-to-alls per step.
# A card holds 20 GB of weights, 8 ÷ 4 of activations and 4 ÷ 4 of text encoder; layer by layer, 2 of 10 layers.
MODEL = ModelSettings(
    layers=10, heads=8, head_dim=64, sequence_tokens=4096, weights_gb=20, guidance_branches=2,
    activation_gb=8, text_encoder_gb=4,
)  # fmt: skip
GB = 1e9 / 2**20


def row(step: int, rank: int = 0) -> StepRow:
    return StepRow(
        step=step, rank=rank, stage_ms=10, computing_ms=8, exposed_ms=1, overlapped_ms=1, communication_ms=2,
        free_ms=1, bubble_ms=0, preparing_ms=0,
    )  # fmt: skip


def bound(hidden: float | None) -> MaskBound:
    return MaskBound(
        rank=0, family="alltoall", communicator="", chunks=4, c_total_ms=1, f_total_ms=2, c_ms=0.25, f_ms=0.5,
        c_over_f=0.5, ideal=0.75, bound=0.75, estimate=0.75, measured=0.5, measured_family=hidden, under_attention=0.5,
        achievement=0.5, exposed_ms=1, warnings=(),
    )  # fmt: skip


def captured(
    calls: dict[str, int] | None = None,
    hidden: float | None = None,
    *,
    steps: int = 1,
    streams: tuple[Stream, ...] = (),
    checks: tuple[Check, ...] = (),
) -> Attribution:
    """An analysed capture of one rank with so many calls by family, and the hidden share of the masked family."""
    rows = tuple(row(step) for step in range(steps))
    families = tuple(
        Family(name, "", count, None, sum_ms=1, mean_ms=1, median_ms=1, max_ms=1, union_ms=1, union_over_sum=1)
        for name, count in (calls or {}).items()
    )
    return Attribution(
        contract=None,
        form=None,
        status=AttributionStatus.ANALYSED,
        steps=Steps(0, "", rows[:1], 0, 0.0, None, None, None, rows, ()),
        collectives=Collectives((RankCollectives(0, families, (), streams),), 1, 0, {}, ()),
        masking=Masking(() if hidden is None else (bound(hidden),)),
        effect=Effect(ok=not checks, checks=checks),
    )


def proof(offload: OffloadSeen | None = None, peak_gb: float | None = None, sparse: SparseSeen | None = None) -> Proof:
    peak = None if peak_gb is None else peak_gb * GB
    return Proof(True, 4, 4, {}, {}, (), (), None, offload, sparse, peak)


def found(
    name: str, *proofs: Proof, model: ModelSettings = MODEL, **captures: Attribution
) -> tuple[FeatureEffect, ...]:
    """The effects of a form; ``own`` is its capture, ``plain`` that of the form without features."""
    plain = name.partition("+")[0]
    attributions = {name if key == "own" else plain: one for key, one in captures.items()}
    sessions = [session_record(name, window, proof=one) for window, one in enumerate(proofs or (None,), start=1)]
    return effects(sessions, attributions, model)[name]


MASKED = "tp1-usp4+mask2"  # 8 heads over 4 ranks: 2 chunks of one head


@pytest.mark.parametrize(
    ("calls", "hidden", "plain", "status"),
    [
        (160, 0.62, 80, "proven"),
        (160, 0.62, None, "proven"),  # 2 × 80 by the model's figures
        (162, 0.05, 80, "proven"),  # a few calls outside the layers
        (80, 0.0, 80, "void"),
        (80, 0.0, None, "void"),
        (80, 0.62, 80, "void"),  # as many calls as without masking: whatever overlaps, it is no chunk
        (80, 0.62, None, "unproven"),  # the figures may count what a plug-in sends at once
        (160, 0.0, 80, "void"),  # chunks that nothing hides
        (160, 0.01, 80, "void"),
        (120, 0.62, 80, "unproven"),  # more calls, but not twice as many
        (160, None, 80, "unproven"),
    ],
)
def test_masking_is_proved_by_its_calls_and_by_what_compute_hides(calls, hidden, plain, status):
    captures = {"own": captured({"alltoall": calls}, hidden)}
    captures |= {} if plain is None else {"plain": captured({"alltoall": plain})}
    (one,) = found(MASKED, **captures)
    assert (one.feature, one.status) == ("mask2", status)


def test_the_evidence_is_told_with_its_counts():
    (one,) = found(MASKED, own=captured({"alltoall": 320}, 0.62, steps=2), plain=captured({"alltoall": 160}, steps=2))
    assert one.words == (
        "mask2: 160 alltoall calls per step, 62% of their time under compute; 80 without masking (tp1-usp4)"
    )


def test_masked_gathers_are_counted_where_there_is_no_all_to_all():
    name = "tp1-usp1-ag4+mask2"  # K and V of 10 layers in 2 branches: 40 gathers, 80 in chunks
    assert found(name, own=captured({"allGather": 81}, 0.3))[0].status == "proven"
    assert found(name, own=captured({"allGather": 41}, 0.0))[0].status == "void"
    offloaded = "tp1-usp1-ag4+distributed-layerwise-offload+mask2"  # and 20 of weights, which nothing chunks
    assert found(offloaded, own=captured({"allGather": 100}, 0.3))[-1].status == "proven"
    assert found(offloaded, own=captured({"allGather": 60}, 0.3))[-1].status == "unproven"


def test_the_shortest_stage_of_a_pipeline_is_counted():
    name = "tp1-usp2-pp4+mask2"  # stages of 2 and 3 layers: 2 × 4 calls × 2 branches, in 2 chunks
    assert found(name, own=captured({"alltoall": 32}, 0.3))[0].status == "proven"


def test_without_a_capture_masking_is_unproven_and_says_why():
    refused = Attribution(contract=None, form=MASKED, status=AttributionStatus.REFUSED, reason="the profiler failed")
    assert found(MASKED)[0] == FeatureEffect("mask2", EffectStatus.UNPROVEN, "no capture tells: none was made")
    assert found(MASKED, own=refused)[0].text == "no capture tells: the profiler failed"
    assert found("tp4-usp1+mask2")[0].status == "unproven"


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="../shared/captures is not here")
def test_a_real_servers_masking_without_effect_is_void():
    """64 all-to-alls in four steps of 2 layers × 4 calls × 2 branches, as without the switch; none of them hidden."""
    options = AttributionOptions(form=parse_form("tp1-usp2+mask2"), layers=2, local_heads=2)
    attribution = attribute_directory(CAPTURES / "sglang" / "wan-ulysses2-masked-without-effect", options)
    model = ModelSettings(layers=2, heads=4, head_dim=32, sequence_tokens=192, weights_gb=0.1, guidance_branches=2)
    (one,) = found("tp1-usp2+mask2", own=attribution, model=model)
    assert (one.status, one.text) == ("void", "16 alltoall calls per step, 0% of their time under compute")


HOOKED = OffloadSeen("layerwise-offload", ranks=4, blocks=10, group=1, refusal="")
SHARED = OffloadSeen("distributed-layerwise-offload", ranks=4, blocks=10, group=4, refusal="")
SKIPPED = OffloadSeen("", ranks=0, blocks=0, group=1, refusal="Skipping offloading.")
LAYERWISE, DISTRIBUTED = "tp1-usp4+layerwise-offload", "tp1-usp4+distributed-layerwise-offload"


@pytest.mark.parametrize(
    ("name", "seen", "peak_gb", "status"),
    [
        (LAYERWISE, HOOKED, 8.0, "proven"),  # 4 GB of weights instead of 20
        (LAYERWISE, None, 8.0, "proven"),  # whatever the log does not say
        (LAYERWISE, HOOKED, 23.0, "void"),  # whatever the log says
        (LAYERWISE, None, 23.0, "void"),
        (LAYERWISE, HOOKED, None, "proven"),  # the log counts as many blocks as the model has layers
        (LAYERWISE, OffloadSeen("layerwise-offload", 4, 7, 1, ""), None, "unproven"),  # fewer blocks
        (LAYERWISE, OffloadSeen("layerwise-offload", 2, 10, 1, ""), None, "unproven"),  # fewer ranks
        (LAYERWISE, SKIPPED, None, "void"),
        (LAYERWISE, SHARED, 8.0, "void"),  # another kind
        (LAYERWISE, None, None, "unproven"),
        (DISTRIBUTED, SHARED, 8.0, "proven"),
        (DISTRIBUTED, OffloadSeen("distributed-layerwise-offload", 4, 10, 1, ""), 8.0, "void"),  # nobody shares
        ("tp1-usp4+cpu-offload", OffloadSeen("cpu-offload", 4, 0, 1, ""), None, "unproven"),  # "enabled" alone
    ],
)
def test_offload_is_proved_by_memory_before_what_the_log_says(name, seen, peak_gb, status):
    (one,) = found(name, proof(seen, peak_gb))
    assert (one.feature, one.status) == (name.split("+")[1], status)


def test_the_memory_of_the_form_without_offload_counts_before_the_models_figures():
    sessions = [
        session_record("tp1-usp4", proof=proof(peak_gb=40.0)),
        session_record(LAYERWISE, proof=proof(None, 25.0)),
    ]
    (one,) = effects(sessions, {}, MODEL)[LAYERWISE]
    assert one.words == (
        "layerwise-offload: 25.0 GB of the card at the peak; 40.0 GB without offload as tp1-usp4 took, it saves 16.0 GB"
    )
    assert one.status == "proven"
    masked = [session_record(MASKED, proof=proof(peak_gb=40.0)), sessions[1]]
    assert "40.0 GB without offload as tp1-usp4+mask2 took" in effects(masked, {}, MODEL)[LAYERWISE][0].text
    assert found(LAYERWISE, proof(None, 25.0))[0].status == "void"


def test_figures_tell_only_large_savings_and_say_what_to_measure():
    name = "tp4-usp1+layerwise-offload"  # 5 GB of weights, 8 of activations, 1 of text encoder: 4 of 14 GB are saved
    (one,) = found(name, proof(HOOKED, 14.0))
    assert one.words == (
        "layerwise-offload: 14.0 GB of the card at the peak; 14.0 GB without offload by the model's figures, it saves "
        "4.0 GB, too little to tell; measure tp4-usp1 beside it"
    )
    assert one.status == "doubtful"
    assert found(name, proof(HOOKED, 13.9))[0].status == "unproven"
    sessions = [session_record("tp4-usp1", proof=proof(peak_gb=14.0)), session_record(name, proof=proof(HOOKED, 14.0))]
    assert effects(sessions, {}, MODEL)[name][0].status == "void"
    small = "tp1-usp4+cpu-offload"  # a text encoder of 1 GB, of 23
    sessions = [session_record("tp1-usp4", proof=proof(peak_gb=23.0)), session_record(small, proof=proof(peak_gb=22.0))]
    assert effects(sessions, {}, MODEL)[small][0].status == "proven"
    assert found(name, proof(HOOKED, 4.9))[0].status == "proven"  # less than its weights


def test_figures_without_activations_prove_only_what_cannot_be_otherwise():
    bare = ModelSettings(layers=10, heads=8, head_dim=64, sequence_tokens=4096, weights_gb=20)
    assert found(LAYERWISE, proof(None, 19.0), model=bare)[0].status == "proven"
    assert found(LAYERWISE, proof(None, 21.0), model=bare)[0].status == "unproven"


def copies(aside: int, between: int = 0) -> tuple[Stream, ...]:
    return (
        Stream("7", "compute", 100, 1.0),
        *((Stream("7", "copy", between, 1.0),) if between else ()),
        *((Stream("9", "copy", aside, 1.0),) if aside else ()),
    )


@pytest.mark.parametrize(
    ("streams", "status"),
    [
        (copies(18), "proven"),  # 9 of 10 layers in each branch
        (copies(0, between=3), "void"),  # copies are listed, and fewer than layers
        (copies(0, between=40), "unproven"),  # enough of them, but they may be any
        (copies(0), "unproven"),  # this profiler lists none
    ],
)
def test_copies_of_weights_are_counted_where_the_profiler_lists_them(streams, status):
    assert found(LAYERWISE, own=captured(streams=streams))[0].status == status


def test_gathers_of_weights_are_counted_for_the_distributed_kind():
    assert found(DISTRIBUTED, own=captured({"allGather": 19}))[0].status == "proven"
    assert found(DISTRIBUTED, own=captured({"allGather": 1}))[0].status == "void"


def test_an_offload_that_is_dead_in_one_window_is_dead():
    (one,) = found(LAYERWISE, proof(HOOKED, 8.0), proof(HOOKED, 23.0))
    assert one.status == "void"


@pytest.mark.parametrize(
    ("seen", "status"),
    [(None, "unproven"), (SparseSeen(4, 0), "proven"), (SparseSeen(0, 4), "void"), (SparseSeen(2, 2), "unproven")],
)
def test_sparse_attention_is_proved_by_the_calls_that_ranks_log(seen, status):
    sparse = ModelSettings(layers=10, heads=8, head_dim=64, sequence_tokens=4096, weights_gb=20, sparse_block=128)
    (one,) = found("tp1-usp4", proof(sparse=seen), model=sparse)
    assert (one.feature, one.status) == ("sparse attention", status)


def test_a_split_that_the_capture_lacks_is_void_whatever_the_log_said():
    lost = captured(checks=(Check("usp4", False, "Ulysses is not active"), Check("ranks", False, "rank 3 is missing")))
    assert found("tp1-usp4", own=lost) == (FeatureEffect("tp1-usp4", EffectStatus.VOID, "Ulysses is not active"),)


def test_a_form_without_features_has_no_effect_to_prove():
    assert found("tp1-usp4", proof()) == ()


def test_the_sessions_of_a_dead_form_are_void_and_its_capture_explains_nothing():
    sessions = [session_record(MASKED), session_record("tp1-usp4")]
    dead = captured({"alltoall": 80}, 0.0)
    proved = effects(sessions, {MASKED: dead}, MODEL)
    counted = without_dead([TimedSession(session) for session in sessions], proved)
    assert [timed.session.status for timed in counted] == [SessionStatus.VOID, SessionStatus.MEASURED]
    assert counted[0].session.reason == (
        "the form did not take effect: mask2: 80 alltoall calls per step, 0% of their time under compute"
    )
    form = gather([parse_form(MASKED)], sessions, (), {MASKED: dead}, MODEL)[0]
    assert (form.status, form.parts, form.effects[0].status) == (SessionStatus.VOID, None, "void")


def test_the_sentence_names_features_that_the_pair_differs_in():
    plain, masked, offloaded = map(parse_form, ("tp2-usp2", MASKED, LAYERWISE))
    assert features_apart(plain, parse_form("tp1-usp4")) == ""
    assert features_apart(masked, plain) == " (they differ not only in the split: tp1-usp4+mask2 has mask2)"
    assert features_apart(masked, offloaded) == (
        " (they differ in no split: tp1-usp4+mask2 has mask2, tp1-usp4+layerwise-offload has layerwise-offload)"
    )


WON = (
    "On 4 cards tp1-usp4+mask2 wins by 10.0 % (9.5 … 10.5 %, 2 starts each) over tp2-usp2 at the anchor tier "
    "(they differ not only in the split: tp1-usp4+mask2 has mask2);"
)


@pytest.mark.parametrize(
    ("status", "confidence", "unknowns", "sentence"),
    [
        ("proven", "high", (), WON),
        ("unproven", "low", ("Whether tp1-usp4+mask2 has its mask2: no capture tells.",), WON),
        (
            "doubtful",
            "none",
            ("Whether tp1-usp4+mask2 has its mask2: no capture tells.",),
            "On 4 cards no form can be chosen, because tp1-usp4+mask2 leads and seems not to be what its name says "
            "(mask2: no capture tells). What to do: measure the same form without the feature beside it.",
        ),
    ],
)
def test_a_feature_that_is_not_proven_wins_little_and_a_doubtful_one_nothing(status, confidence, unknowns, sentence):
    forms = [
        FormEvidence(
            parse_form(name), SessionStatus.MEASURED, step_few_s=step_s, step_anchor_s=step_s, dispersion_pct=0.5,
            usable=True, windows={"1": step_s, "2": step_s}, effects=proved,
        )
        for name, step_s, proved in (
            (MASKED, 1.0, (FeatureEffect("mask2", EffectStatus(status), "no capture tells"),)),
            ("tp2-usp2", 1.1, ()),
        )
    ]  # fmt: skip
    said = decide(
        DecisionInputs(
            4,
            "c4-x",
            verdict_record(
                winner=MASKED, reason="both agree", selection=selection_record({MASKED: 1.0, "tp2-usp2": 1.1})
            ),
            forms,
        )
    )
    assert (said.confidence, said.unknowns) == (confidence, unknowns)
    assert said.sentence.startswith(sentence)
    assert status == "doubtful" or all(text in said.sentence for text in unknowns)
