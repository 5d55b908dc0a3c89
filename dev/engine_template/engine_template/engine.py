"""The engine: launches of the server, what it can split, and what its log must then show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.engines.base import EngineLimits, ServeCommand
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.launching import require
from anchormatrix.engines.timing import ServeLog
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import Tier
from anchormatrix.records.settings.whole import Settings
from engine_template.client import TemplateClient
from engine_template.log import read_log


class TemplateEngine:
    """Launches of ``engine_template.server``."""

    name = "template"
    caution = ""

    def __init__(self, settings: Settings, version: str = "") -> None:
        self._engine, self._workload = settings.engine, settings.workload

    def limits(self) -> EngineLimits:
        """Only the degrees named here are tried."""
        return EngineLimits(release="template 0.1", degrees=("tp", "usp"))

    def packages(self) -> Mapping[str, str]:
        """None beside its own."""
        return {}

    def refusal(self, form: Form) -> str | None:
        """A feature of a form that the server lacks is refused here, before anything is loaded."""
        missing = form.offload or (f"mask{form.mask_chunks}" if form.mask_chunks > 1 else "")
        return f"the template's server has no {missing}" if missing else None

    def serve_command(
        self,
        form: Form,
        *,
        port: int,
        visible_env: Mapping[str, str],
        capture_dir: str | None,
        late_steps: int = 0,
    ) -> ServeCommand:
        """The server's command line; everything that decides about speed is said, nothing is left to a default."""
        require(self, form)
        argv = (*self._engine.command, "--port", str(port), "--tp", str(form.tp), "--usp", str(form.usp))
        env = {"PYTHONUNBUFFERED": "1", **visible_env, **self._engine.env}
        return ServeCommand((*argv, *self._engine.extra_args), env)

    def client(self, url: str, files: ServerFiles) -> Client:
        """One client of one server."""
        return TemplateClient(url, self._workload, request_timeout_s=self._engine.request_timeout_s)

    def read(self, text: str, responses: Sequence[Response] = ()) -> ServeLog:
        """The log is the measurement."""
        return read_log(text, responses)

    def expected_groups(self, form: Form) -> dict[str, int]:
        """The sizes that the log must show; ``world`` is the number of ranks."""
        return {"world": form.cards, "tp_size": form.tp, "sp_size": form.usp}

    def capture_refusal(self, tier: Tier) -> str:
        """A server without a profiler says so for every tier."""
        return "the template's server has no profiler"

    def capture_request_steps(self, few: int) -> int:
        """How many steps the captured request has."""
        return few
