"""The seam of sequence parallelism, sparse attention and masking: what must hold, or results are silently wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from anchormatrix.records.form import Form
from anchormatrix.records.settings.things import ModelSettings


@dataclass(frozen=True)
class SeamFacts:
    """How an engine combines the three; None means not stated, and is reported as unknown.

    ``order`` is ``gather-then-sparsify`` or ``sparsify-then-gather``; ``mask_scope`` is ``per-head`` or
    ``shared-across-shards``; lengths are in tokens; ``joint`` says whether joint (text) tensors are prepended;
    ``same_as_dense`` whether the output was identical to the dense output; ``issued`` is the communicator of each
    collective of one layer in launch order.
    """

    order: str | None = None
    window_offset: int | None = None
    kv_length: int | None = None
    q_length: int | None = None
    joint: bool = False
    mask_scope: str | None = None
    same_as_dense: bool | None = None
    issued: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeamFinding:
    """One rule: ``ok``, ``broken`` or ``unknown``, with what was found."""

    rule: str
    status: str
    text: str

    def as_dict(self) -> dict[str, str]:
        """JSON values."""
        return dict(self.__dict__)


def check_seams(form: Form, model: ModelSettings, facts: SeamFacts | None = None) -> tuple[SeamFinding, ...]:
    """Check every rule that applies to the form; rules that do not apply are left out."""
    facts = facts or SeamFacts()
    findings: list[SeamFinding] = []
    if model.sparse_block is not None:
        if form.sequence_degree > 1:
            findings += [_order(facts), _offset(facts), _alignment(form, model), _backend(form)]
        if form.tp * form.usp > 1:
            findings.append(_masks(facts))
        findings.append(_active(facts))
    if form.mask_chunks > 1 or len(set(facts.issued)) > 1:
        findings.append(_issue_order(facts.issued))
    return tuple(findings)


def _order(facts: SeamFacts) -> SeamFinding:
    rule = "gather first, then sparsify"
    if facts.order is None:
        return SeamFinding(rule, "unknown", "the order is not stated; selecting blocks needs the full sequence")
    if facts.order == "gather-then-sparsify":
        return SeamFinding(rule, "ok", "blocks are selected from the gathered sequence")
    return SeamFinding(rule, "broken", f"{facts.order}: each rank selects from its own shard only, another computation")


def window_offset(kv_length: int, q_length: int, *, joint: bool) -> int:
    """Offset of a rank's window: full KV length − this rank's logical Q length; 0 without joint tensors."""
    return kv_length - q_length if joint else 0


def _offset(facts: SeamFacts) -> SeamFinding:
    rule = "window offset = full KV length − logical Q length of the rank (0 without joint tensors)"
    if facts.window_offset is None or (facts.joint and None in (facts.kv_length, facts.q_length)):
        return SeamFinding(rule, "unknown", "offset, KV length or Q length is not stated")
    expected = window_offset(facts.kv_length or 0, facts.q_length or 0, joint=facts.joint)
    if facts.window_offset == expected:
        return SeamFinding(rule, "ok", f"offset {expected}")
    return SeamFinding(rule, "broken", f"offset is {facts.window_offset}, must be {expected}")


def _alignment(form: Form, model: ModelSettings) -> SeamFinding:
    rule = "S % (sequence degree × block) = 0"
    step = form.sequence_degree * (model.sparse_block or 1)
    rest = model.sequence_tokens % step
    text = f"{model.sequence_tokens} % ({form.sequence_degree} × {model.sparse_block}) = {rest}"
    return SeamFinding(rule, "broken" if rest else "ok", text)


def _backend(form: Form) -> SeamFinding:
    rule = "the sequence-parallel path uses the sparse attention backend"
    if form.ring > 1:
        return SeamFinding(
            rule, "broken", "ring attention goes round the backend: sparsity is accepted and not applied"
        )
    return SeamFinding(rule, "ok", "Ulysses and all-gather-KV call the backend on the gathered sequence")


def _masks(facts: SeamFacts) -> SeamFinding:
    rule = "sparse masks are per head, never shared across head shards"
    if facts.mask_scope is None:
        return SeamFinding(rule, "unknown", "the scope of the masks is not stated")
    if facts.mask_scope == "per-head":
        return SeamFinding(rule, "ok", "each head has its own mask")
    return SeamFinding(rule, "broken", f"masks are {facts.mask_scope}")


def _active(facts: SeamFacts) -> SeamFinding:
    rule = "sparse output differs from the dense output"
    if facts.same_as_dense is None:
        return SeamFinding(rule, "unknown", "no comparison with the dense output")
    if facts.same_as_dense:
        return SeamFinding(rule, "broken", "identical to the dense output: sparse attention is not active")
    return SeamFinding(rule, "ok", "the output differs from the dense one")


def _issue_order(issued: Sequence[str]) -> SeamFinding:
    rule = "with masking, all calls of one communicator are issued before the other's"
    if not issued:
        return SeamFinding(rule, "unknown", "the launch order of the collectives is not stated")
    runs = [name for name, _ in groupby(issued)]
    again = next((name for i, name in enumerate(runs) if name in runs[:i]), None)
    if again is None:
        return SeamFinding(rule, "ok", f"{' then '.join(runs)}")
    text = f"communicator {again} is taken up again after another ({' '.join(runs[:6])} …)"
    text += ": interleaving two communicators has hung the collective library"
    return SeamFinding(rule, "broken", text)
