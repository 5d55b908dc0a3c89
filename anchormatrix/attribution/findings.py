"""The findings of an analysis: what it has to say beyond its numbers."""

from __future__ import annotations

from collections.abc import Iterable

from anchormatrix.records.finding import Finding


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
