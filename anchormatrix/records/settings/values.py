"""What a value of the configuration may be: numbers and texts with their limits, lists, closed sets of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from anchormatrix.records.base import Record

LARGEST_SEED = 2**64 - 1
MANY = 1_000_000_000
YEAR_S = 31_536_000

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=MANY)]
Index = Annotated[int, Meta(ge=0)]
Alias = Annotated[
    str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,200}$", description="a name on one line, of at most 200 characters")
]
Clock = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$", description="HH:MM")]
Night = Annotated[
    str, Meta(pattern="^(auto|[0-9]{4}-[0-9]{2}-[0-9]{2})$", description="auto, or the date of a night's evening")
]
CellName = Annotated[str, Meta(pattern="^[^/]+/[^/]+$", description="FORM/TIER, for the target rerun_cell")]
Pixels = Annotated[int, Meta(ge=16, le=65536, description="pixels")]
Seconds = Annotated[float, Meta(ge=0.001, le=YEAR_S, description="seconds")]
Percent = Annotated[float, Meta(gt=0, le=1000, description="percent")]
Gigabytes = Annotated[float, Meta(ge=0, le=1_000_000, description="GB")]
Command = Annotated[
    tuple[str, ...], Meta(min_length=1, extra_json_schema={"prefixItems": [{"type": "string", "minLength": 1}]})
]
TextOrCommand = Annotated[Text | Command, Meta(description="a text, or a command as a list of words")]
Environment = Mapping[Annotated[str, Meta(pattern="^[^=]+$", description="the name of an environment variable")], str]

Size = Annotated[int, Meta(ge=1)]
BY_SIZE = Meta(extra_json_schema={"propertyNames": {"pattern": "^[1-9][0-9]*$"}})
NO_REPEATS = Meta(extra_json_schema={"uniqueItems": True})
FormsBySize = Annotated[
    Literal["auto"] | Annotated[Mapping[Size, Annotated[tuple[str, ...], Meta(min_length=1), NO_REPEATS]], BY_SIZE],
    Meta(description="auto, or for every size a list of forms"),
]


class Section(Record, frozen=True, forbid_unknown_fields=True):
    """A map of the configuration. A key that is no field is refused."""


class Tier(StrEnum):
    """The two tiers of the matrix: few steps rank the forms, anchor steps decide."""

    FEW = "few"
    ANCHOR = "anchor"


FEW, ANCHOR = Tier.FEW, Tier.ANCHOR


class HostKind(StrEnum):
    """How commands reach the host."""

    LOCAL = "local"
    SSH = "ssh"


class DeviceKind(StrEnum):
    """Whose cards."""

    ASCEND = "ascend"
    NVIDIA = "nvidia"
    CPU = "cpu"


class Endpoint(StrEnum):
    """Which of the server's endpoints is asked."""

    VIDEO = "video"
    VIDEO_ASYNC = "video-async"
    IMAGE = "image"


class OnBusy(StrEnum):
    """What to do about a card with a tenant: wait for it, skip to another group, or fail."""

    WAIT = "wait"
    SKIP = "skip"
    FAIL = "fail"


class Design(StrEnum):
    """Which cells are measured: all of them, or those that can still change the ranking."""

    FULL = "full"
    ADAPTIVE = "adaptive"


class KeepCaptures(StrEnum):
    """Which captures stay on disk after their analysis."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


def refuse_repeats(lists: Iterable[tuple[object, ...]]) -> None:
    """Raise ``ValueError`` for a list with an entry given twice, which msgspec has no limit for."""
    if any(len(set(entries)) != len(entries) for entries in lists):
        raise ValueError("an entry is given twice")


def refuse_nameless(*commands: str | tuple[str, ...]) -> None:
    """Raise ``ValueError`` for a command without a name, which msgspec has no limit for."""
    if any(not command[0] for command in commands):
        raise ValueError("a command has no name")
