"""The questions that a first configuration takes: at most eight, each with a default from what was detected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anchormatrix.engines.find import GROUP
from anchormatrix.errors import ConfigError
from anchormatrix.new_config.detect import COMMANDS, LOCAL, Detected
from anchormatrix.records.settings.values import DeviceKind

Known = Mapping[str, Any]
"""Answers so far by the name of their question, and under ``detected`` what the host shows."""


@dataclass(frozen=True)
class Question:
    """A question and its option ``--name``. ``parse`` raises ``ValueError`` with what is expected."""

    name: str
    text: str
    default: Callable[[Known], str]
    parse: Callable[[str], Any]


def answered(question: Question, text: str) -> Any:
    """The value of an answer. Raises :class:`ConfigError` naming the option."""
    try:
        return question.parse(text.strip())
    except ValueError as error:
        raise ConfigError(f"{text.strip()[:80]!r}", where=f"--{question.name}", expected=str(error)) from None


def _seen(known: Known) -> Detected:
    found: Detected = known["detected"]
    return found


def _text(expected: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not text or not text.isprintable():
            raise ValueError(expected)
        return text

    return parse


def _one_of(choices: Callable[[], list[str]]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices():
            raise ValueError(f"one of {', '.join(choices())}")
        return text

    return parse


def _engines() -> list[str]:
    from importlib.metadata import entry_points  # noqa: PLC0415  only where an engine is named

    return sorted({point.name for point in entry_points(group=GROUP)})


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        words = ()
    if not words:
        raise ValueError("a command, such as vllm or docker exec box vllm")
    return words


def _output(text: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"(\d{2,5})x(\d{2,5})(?:x(\d{1,5}))?", text)
    if not found:
        raise ValueError("WIDTHxHEIGHT of a picture or WIDTHxHEIGHTxFRAMES of a video, such as 832x480x81")
    return int(found[1]), int(found[2]), int(found[3] or 1)


def _scale(text: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,6})?", text):
        raise ValueError("a number such as 5.0; 1 or less is no second guidance branch for most models")
    return float(text)


def _sizes(text: str) -> tuple[int, ...]:
    found = re.split(r"[,\s]+", text)
    if not all(re.fullmatch(r"[1-9]\d{0,3}", one) for one in found) or len(set(found)) != len(found):
        raise ValueError("card counts such as 8 or 4,8")
    return tuple(map(int, found))


def _command(known: Known) -> str:
    engine: str = known["engine"]
    program = COMMANDS.get(engine, engine)
    return _seen(known).tools.get(program, program)


HOST = Question(
    "host", "Where do the cards sit? local, or [user@]host[:port] over SSH", lambda _: LOCAL, _text("a host")
)
QUESTIONS = (
    Question(
        "device",
        "Whose cards? ascend, nvidia or cpu",
        lambda known: _seen(known).device.value,
        _one_of(lambda: [kind.value for kind in DeviceKind]),
    ),
    Question("engine", "Which engine serves?", lambda known: _seen(known).engine, _one_of(_engines)),
    Question(
        "command",
        "Which command comes before `serve`? It may be a wrapper: docker exec box vllm",
        _command,
        _words,
    ),
    Question(
        "model",
        "Which model? A folder on the host, or a name in its Hub cache",
        lambda known: next(iter(_seen(known).models), ""),
        _text("a folder, or a name such as Wan-AI/Wan2.2-T2V-A14B-Diffusers"),
    ),
    Question(
        "output", "Which output? WIDTHxHEIGHT, or WIDTHxHEIGHTxFRAMES of a video", lambda _: "832x480x81", _output
    ),
    Question("guidance", "Which guidance scale?", lambda _: "5.0", _scale),
    Question("sizes", "On how many cards? Several counts such as 4,8 take longer", lambda known: known["size"], _sizes),
)
