"""What an analysis has to say beyond its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One thing a person should know: a ``kind`` to match on, a sentence to read, the ranks it was seen on."""

    kind: str
    text: str
    ranks: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"ranks": list(self.ranks)}


def by_text(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings that say the same of several ranks, in the order they first occurred."""
    joined: dict[tuple[str, str], tuple[int, ...]] = {}
    for finding in findings:
        key = (finding.kind, finding.text)
        joined[key] = tuple(sorted({*joined.get(key, ()), *finding.ranks}))
    return [Finding(kind, text, ranks) for (kind, text), ranks in joined.items()]


def rank_list(ranks: Iterable[int]) -> str:
    """Return ``rank 3`` or ``ranks 0, 2, 3``."""
    numbers = [str(rank) for rank in ranks]
    return f"rank{'s' if len(numbers) != 1 else ''} {', '.join(numbers)}"
