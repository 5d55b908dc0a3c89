"""The interface of a serving engine: how a form is served, asked, timed, proved and captured."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.timing import ServeLog
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import Tier

FILES_PLACE = "{files}"


@dataclass(frozen=True)
class ServeCommand:
    """How to start a server. ``env`` is added to the host's environment.

    ``files`` are the texts that it reads, by file name: they are written into the session's own directory on the host
    before it starts, and where there are any, ``{files}`` in ``argv`` and ``env`` stands for that directory.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The command as a shell takes it, and the text of each of its files."""
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items())
        texts = (f"{FILES_PLACE}/{name}: {text}" for name, text in self.files.items())
        return "\n".join([f"{variables} {shlex.join(self.argv)}", *texts])

    def placed(self, directory: str) -> ServeCommand:
        """The command with its files in ``directory``."""
        if not self.files:
            return self
        argv = tuple(word.replace(FILES_PLACE, directory) for word in self.argv)
        env = {name: value.replace(FILES_PLACE, directory) for name, value in self.env.items()}
        return ServeCommand(argv, env, self.files)


class EngineRule(enum.StrEnum):
    """Rules that are the engine's own, not arithmetic."""

    DEGREES = "degrees"
    PIPELINE = "pipeline"
    AG = "all-gather-KV"
    TENSOR = "tensor"
    HEADS = "heads"
    SEQUENCE = "sequence"
    RING = "ring"


@dataclass(frozen=True)
class EngineLimits:
    """What an engine declares that it can split for the model it serves.

    ``degrees`` are the kinds of parallelism it offers; ``pads_heads`` says whether Ulysses pads heads that do not
    divide evenly, ``pads_sequence`` whether tokens that do not are padded (under ring attention never: it takes no
    mask). ``ring_with_mask`` and ``ring_with_sparse`` say whether its ring attention honours the model's masks and the
    sparse backend. ``captured_ranks`` is how many ranks, from 0, its profiler writes files of (``None``: all).
    ``places`` names where the release says so.
    """

    release: str = "engine"
    degrees: tuple[str, ...] = ("tp", "usp", "ring", "ag", "cfg")
    ag_with_ulysses: bool = True
    pads_heads: bool = False
    pads_sequence: bool = False
    ring_with_mask: bool = False
    ring_with_sparse: bool = False
    captured_ranks: int | None = None
    places: Mapping[EngineRule, str] = field(default_factory=dict)

    def source(self, rule: EngineRule) -> str:
        """The engine and the place in it that a rule is from."""
        return f"{self.release} {self.places[rule]}" if rule in self.places else self.release


class Engine(Protocol):
    """One serving engine, made from a run's :class:`~anchormatrix.records.settings.whole.Settings` and the version that
    the live host told (empty where nothing did).

    It is found by its name among the entry points of the group ``anchormatrix.engines``. ``caution`` is what a person
    must know of that version; empty where it is a known release.
    """

    name: str
    caution: str

    def limits(self) -> EngineLimits:
        """What it can split for the configured model."""
        ...

    def packages(self) -> Mapping[str, str]:
        """Python packages that the configuration makes the engine need beside its own, each with what needs it."""
        ...

    def refusal(self, form: Form) -> str | None:
        """Why this engine cannot run the form, beyond its limits; or ``None``."""
        ...

    def serve_command(
        self,
        form: Form,
        *,
        port: int,
        visible_env: Mapping[str, str],
        capture_dir: str | None,
        late_steps: int = 0,
    ) -> ServeCommand:
        """The command that serves the form on a loopback port; with a profiler when ``capture_dir`` is given.

        ``visible_env`` is the device's environment for the cards of the group. With ``late_steps`` the last steps of a
        request of so many steps are captured. Raises :class:`EngineError` when the engine refuses the form.
        """
        ...

    def client(self, url: str, files: ServerFiles) -> Client:
        """A client of the server that listens at ``url``."""
        ...

    def read(self, text: str, responses: Sequence[Response] = ()) -> ServeLog:
        """What a server's log (stdout and stderr in one text) and the answers so far tell; never raises.

        ``responses`` are in the order in which they were sent; ``requests[i]`` of the log is then what is known of
        ``responses[i]``, whatever the log lost, and requests not answered yet follow. Without any, as for a log that is
        all that is left, the text alone is read.
        """
        ...

    def expected_groups(self, form: Form) -> dict[str, int]:
        """Group sizes of the form by the names the start-up log uses; ``world`` is the number of ranks."""
        ...

    def capture_refusal(self, tier: Tier) -> str:
        """Why this engine cannot capture steps of a tier (of the anchor, its last ones); empty when it can."""
        ...

    def capture_request_steps(self, few: int) -> int:
        """How many steps the request must have in which the configured number of steps is captured."""
        ...
