"""The making of a first configuration: the model's files are read where the engine sees them, the text is checked."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from anchormatrix.config.merge import load_settings
from anchormatrix.errors import ConfigError
from anchormatrix.hosts.open import open_host
from anchormatrix.model_files.figures import read_figures
from anchormatrix.model_files.folder import read_model
from anchormatrix.new_config.text import Draft, draft_text
from anchormatrix.planning.outlook.reckoning import reckon, session_s, smoke_s
from anchormatrix.records.settings.things import WorkloadSettings
from anchormatrix.records.settings.whole import Settings

BUDGET_S = 30 * 60
_MOST, _LEAST = 3, 2


def make_config(draft: Draft) -> str:
    """The text of a configuration that was read back and checked.

    As many forms of a size are asked for as half an hour allows by reckoning, from two to three. Raises
    :class:`ConfigError` when the model is not there or its files do not tell enough, :class:`HostError`.
    """
    host = open_host(draft.host)
    try:
        folder = read_model(host, draft.python, draft.model, {}, draft.host.command_timeout_s)
    finally:
        host.close()
    if not folder.path:
        raise ConfigError(
            f"is in none of {', '.join(folder.looked)}",
            where=draft.model,
            expected="a folder in the layout of diffusers, or a name in the Hub's cache of the host",
            todo=f"bring it there first (`hf download {draft.model}`), or copy the nearest of config/examples",
        )
    width, height, frames = draft.output
    asked = {"endpoint": draft.endpoint, "prompt": "-", "width": width, "height": height, "frames": frames}
    try:
        workload = msgspec.convert({**asked, "guidance_scale": draft.guidance}, WorkloadSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), where="--output") from None
    figures = read_figures(folder, workload, 2)
    text = draft_text(draft, figures, _MOST)
    if _expected_s(checked(text), _MOST) > BUDGET_S:
        text = draft_text(draft, figures, _LEAST)
    checked(text)
    return text


def checked(text: str) -> Settings:
    """The settings of a configuration's text. Raises :class:`ConfigError`."""
    with tempfile.TemporaryDirectory(prefix="anchormatrix-") as folder:
        path = Path(folder) / "new.yaml"
        path.write_text(text, encoding="utf-8")
        return load_settings(path)


def _expected_s(settings: Settings, forms: int) -> float:
    reckoned = reckon(settings)
    steps = [reckoned.step_s(size) for size in settings.matrix.sizes]
    starts = forms * settings.matrix.windows
    return sum(starts * session_s(settings, one, reckoned) + smoke_s(settings, one, reckoned) for one in steps)
