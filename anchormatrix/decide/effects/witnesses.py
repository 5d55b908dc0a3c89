"""The witnesses of a contract's forms: what sessions and captures say, before anybody asks whether a feature worked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchormatrix.captures.names import COMPUTE, COPY
from anchormatrix.planning.candidates import forwards_per_step
from anchormatrix.planning.collective_calls import collectives
from anchormatrix.records.attribution import Attribution, RankCollectives
from anchormatrix.records.conclusions.gates import EffectStatus
from anchormatrix.records.form import Form
from anchormatrix.records.session import Proof
from anchormatrix.records.settings.things import ModelSettings

PROVEN, UNPROVEN = EffectStatus.PROVEN, EffectStatus.UNPROVEN
DOUBTFUL, VOID = EffectStatus.DOUBTFUL, EffectStatus.VOID
Said = tuple[EffectStatus, str]
"""What is concluded of a feature, and the counts that say so."""

GATHERS = ("allGather",)


@dataclass(frozen=True)
class Witnesses:
    """What the measured sessions of a contract left behind: their proofs and the analysed captures, by form."""

    proofs: Mapping[str, Sequence[Proof]]
    attributions: Mapping[str, Attribution]
    model: ModelSettings | None

    def calls(self, form: str, families: Sequence[str]) -> float | None:
        """Calls of some families per step on the rank with the fewest; ``None`` without an analysed capture."""
        found = self.attributions.get(form)
        if found is None or found.collectives is None or found.steps is None:
            return None
        steps = len({row.step for row in found.steps.all}) or 1
        return min(
            (sum(f.calls for f in rank.families if f.family in families) / steps for rank in found.collectives.ranks),
            default=None,
        )

    def figured(self, form: Form, kind: str) -> float | None:
        """The same by the model's figures, for a kind of collective: of a pipeline's shortest stage."""
        if self.model is None:
            return None
        per_layer = sum(call.calls_per_layer for call in collectives(form, self.model) if call.kind == kind)
        return per_layer * (self.model.layers // form.pp) * forwards_per_step(form, self.model)

    def copies(self, form: str) -> tuple[float, float] | None:
        """Copies per step on the rank with the fewest: those beside the compute stream, and all."""
        found = self.attributions.get(form)
        if found is None or found.collectives is None or found.steps is None:
            return None
        counted = [_copies(rank) for rank in found.collectives.ranks]
        steps = len({row.step for row in found.steps.all}) or 1
        aside, listed = (min((pair[part] / steps for pair in counted), default=0.0) for part in (0, 1))
        return aside, listed

    def why_no_capture(self, form: str) -> str:
        """Why the captures tell nothing of a form."""
        found = self.attributions.get(form)
        return f"no capture tells: {(found.reason if found else '') or 'none was made'}"


def _copies(rank: RankCollectives) -> tuple[int, int]:
    computing = {stream.stream for stream in rank.streams if stream.core == COMPUTE}
    copying = [stream for stream in rank.streams if stream.core == COPY]
    aside = sum(stream.kernels for stream in copying if stream.stream not in computing)
    return aside, sum(stream.kernels for stream in copying)
