"""Captures in the form of what people report, with the right answer by construction."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormatrix.attribution.collectives import collectives
from anchormatrix.attribution.steps import decompose
from anchormatrix.captures.names import LOOKALIKE, UNKNOWN_FAMILY, meaning
from anchormatrix.captures.open import load_capture
from anchormatrix.errors import InputError

TRACES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/cases is not here")


def parts(case: str) -> list[tuple[float, ...]]:
    """Computing, communication and exposed time in µs of each rank and step."""
    table = decompose(load_capture(TRACES / case))
    return [
        tuple(row) for row in (table[["computing_ns", "communication_ns", "exposed_ns"]] / 1000).to_numpy().tolist()
    ]


def families(case: str) -> list[tuple[str, str, int, float]]:
    found = collectives(load_capture(TRACES / case))
    return [(one.family, one.communicator, one.calls, one.sum_ms) for rank in found.ranks for one in rank.families]


def test_symmetric_memory():
    assert parts("symmetric-memory") == [(540, 180, 180)]
    assert families("symmetric-memory") == [("allReduce", "", 6, 0.18)]


def test_generic_kernels_of_a_named_operator():
    assert parts("generic-with-operator") == [(480, 240, 40)]
    assert families("generic-with-operator") == [("allReduce", "0", 4, 0.24)]


def test_a_collective_on_an_ai_vector_core():
    assert parts("aiv-collective") == [(1000, 100, 100)]


def test_calls_without_a_stream():
    kernels = load_capture(TRACES / "na-stream").kernels
    assert kernels["stream"].value_counts().to_dict() == {"2": 10, "N/A 445": 10, "N/A 527": 10}


def test_a_clusters_table_beside_the_ranks():
    capture = load_capture(TRACES / "cluster-output-beside")
    assert (capture.ranks, capture.findings) == ((0, 1), ())
    assert "agree on 2 steps" in capture.notes[0]


def test_a_trace_view_alone():
    capture = load_capture(TRACES / "ascend-trace-view")
    assert len(capture.kernels) == 8
    assert parts("ascend-trace-view") == [(644, 0, 0)]


def test_a_rank_with_metadata_only():
    capture = load_capture(TRACES / "metadata-only-beside")
    assert [(one.kind, one.ranks) for one in capture.findings] == [("empty_rank", (1,))]
    assert parts("metadata-only-beside") == [(100, 100, 50)]
    with pytest.raises(InputError, match=r"rank1\.json"):
        load_capture(TRACES / "metadata-only-beside", every_rank=True)


def test_the_names():
    lines = (TRACES / "collective-names" / "names.tsv").read_text().splitlines()[1:]
    wrong = []
    for name, family, source in (line.split("\t") for line in lines):
        found = meaning(name.partition(" on ")[0].partition(" (an ")[0])
        if source == "name":
            right = found.family.lower() == family.partition(",")[0].lower()
        elif source == "operator":
            right = found.doubt == UNKNOWN_FAMILY or found.family == "sendRecv"
        else:
            right = found == ("", LOOKALIKE)
        wrong += [] if right else [(name, family, found)]
    assert wrong == []
