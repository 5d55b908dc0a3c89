"""The configured figures of a model beside those of its files: which differ, and which the files do not tell."""

from __future__ import annotations

from dataclasses import dataclass

from anchormatrix.model_files.figures import Figure, Figures, Value
from anchormatrix.records.settings.things import ModelSettings

_NEAR = 0.05  # of a size: one is written with two digits, the other counted


@dataclass(frozen=True)
class Compared:
    """One key of the section ``model``: what is configured beside what the files say."""

    figure: Figure
    configured: Value

    @property
    def differs(self) -> bool:
        """Whether the files say something else. Sizes may be rounded, counts may not."""
        found = self.figure.value
        if found is None:
            return False
        if self.figure.key.endswith("_gb"):
            return abs(self.configured - found) > max(_NEAR * max(self.configured, found), 0.05)
        return self.configured != found


def compare(model: ModelSettings, figures: Figures) -> tuple[Compared, ...]:
    """Every figure that files can tell, beside the configured one; a width that is not configured is not compared."""
    configured = {figure.key: _configured(model, figure.key) for figure in figures}
    return tuple(
        Compared(figure, value) for figure in figures for value in [configured[figure.key]] if value is not None
    )


def _configured(model: ModelSettings, key: str) -> Value | None:
    if key == "kv_heads":
        return model.kv_head_count
    value: Value | None = getattr(model, key)
    return value
