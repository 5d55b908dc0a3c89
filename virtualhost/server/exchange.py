"""The exchange with a serving session: requests, log text in time, endings; and forms by their names."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from virtualhost.host.split import DEGREES, OFFLOADS, Split
from virtualhost.host.strict import ScenarioError
from virtualhost.server.picture import Picture


class Chunk(NamedTuple):
    """Text that appears in the log ``at_s`` virtual seconds after the beginning of what it belongs to."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Outcome:
    """What a start, a request or a stop brought.

    ``end`` is empty while the server lives on; else how it ends: ``exit`` (code 1), ``hang`` (nothing more happens),
    ``sigkill`` (the main process is killed) or ``rank_killed`` (``rank`` is). ``response`` is ``ok``, ``lost``,
    ``error`` or ``none``; ``content`` are the response's bytes, made when they are asked for, and ``fingerprint`` is
    their SHA-256.
    """

    chunks: tuple[Chunk, ...]
    virtual_s: float
    end: str = ""
    response: str = "none"
    picture: Picture | None = None
    rank: int = 0

    @property
    def text(self) -> str:
        """All of the log text."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def content(self) -> bytes:
        """The response's bytes; none of a request that computed nothing."""
        return self.picture.encoded() if self.picture else b""

    @property
    def fingerprint(self) -> str:
        """The response's fingerprint, empty when there is none."""
        return hashlib.sha256(self.content).hexdigest() if self.content else ""


@dataclass(frozen=True)
class Ask:
    """What a client asked for; ``endpoint`` is the request line of the access log."""

    steps: int
    endpoint: str = "POST /v1/videos/sync"
    seed: int = 42
    guidance: float = 5.0
    width: int = 832
    height: int = 480
    frames: int = 81
    fps: float = 16.0
    prompt: str = ""

    @property
    def kind(self) -> str:
        """``video`` or ``image``."""
        return "image" if "/images/" in self.endpoint else "video"


def parse_split(name: str) -> Split:
    """Return the split of a form's name such as ``tp1-usp4`` or ``tp1-usp2-ring2+layerwise-offload+mask4``."""
    parts, *features = name.split("+")
    values: dict[str, Any] = {}
    for part in parts.split("-"):
        match = re.fullmatch(rf"({'|'.join(DEGREES)})([1-9]\d*)", part)
        if match is None or match[1] in values:
            raise ScenarioError(f"{name!r} is not a form: {part!r} is no degree or given twice")
        values[match[1]] = int(match[2])
    offload, chunks = "", 1
    for feature in features:
        if feature in OFFLOADS:
            offload = feature
        elif feature.startswith("mask") and feature[4:].isdigit():
            chunks = int(feature[4:])
        else:
            raise ScenarioError(f"{name!r} is not a form: {feature!r} is no feature")
    return Split(**values, offload=offload, mask_chunks=chunks)


def access_line(endpoint: str, status: int) -> str:
    """A line of the HTTP server's access log."""
    reason = {200: "OK", 202: "Accepted", 404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}
    return f'INFO:     127.0.0.1:40922 - "{endpoint} HTTP/1.1" {status} {reason.get(status, "Bad Request")}\n'


def picture(ask: Ask, split: Split, *, wrong: bool = False, black: bool = False) -> Picture:
    """What a form computes of a request: of prompt, seed, geometry, steps and guidance, rounded as the form adds up.

    ``wrong``: a form that loses a part of the computation computes another picture, and each such form its own.
    """
    subject = f"{ask.prompt}|{ask.seed}|{ask.width}x{ask.height}x{ask.frames}|{ask.steps}|{ask.guidance}"
    return Picture(
        subject=f"{subject}|{split.name}" if wrong else subject,
        width=ask.width,
        height=ask.height,
        seconds=ask.frames / ask.fps if ask.kind == "video" else 0.0,
        rounding=f"tp{split.tp} ring{split.ring}" if split.tp * split.ring > 1 else "",
        black=black,
    )
