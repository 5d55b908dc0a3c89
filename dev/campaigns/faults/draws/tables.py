"""The record of draws, a line of JSON each, and the table of kinds and outcomes that is made from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from campaigns.faults.draws.judges import MARKED, OTHER, SAME
from campaigns.faults.draws.kinds import KINDS
from campaigns.faults.draws.trial import Outcome

_ENDS = (SAME, OTHER, MARKED)


def as_line(outcome: Outcome, seed: int) -> dict[str, Any]:
    """What the record keeps of a draw."""
    return {
        "seed": seed,
        "draw": outcome.draw.number,
        "words": str(outcome.draw),
        "kinds": [strike.kind.name for strike in outcome.draw.strikes],
        "end": outcome.end,
        "struck": outcome.struck,
        "seconds": round(outcome.seconds, 1),
        "wrong": {name: found.text for name, found in outcome.judgements.items() if not found.right},
    }


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to the record."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def recorded(path: Path, seed: int) -> list[dict[str, Any]]:
    """The newest line of every draw of a seed, in their order."""
    newest: dict[int, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        line = json.loads(text)
        if line["seed"] == seed:
            newest[line["draw"]] = line
    return [newest[number] for number in sorted(newest)]


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Kinds by outcome as a Markdown table, what did not hold, and a sentence for the whole."""
    lines = list(lines)
    counts = Counter((name, _outcome(line)) for line in lines for name in line["kinds"])
    headings = ("kind", "what is done", "draws", *_ENDS, "did not hold", "not tried")
    rows: list[tuple[str, ...]] = [headings]
    for kind in KINDS:
        of_kind = [counts[kind.name, end] for end in headings[3:]]
        rows.append((kind.name, kind.what, *map(str, (sum(of_kind), *of_kind))))
    text = ["| " + " | ".join(row) + " |" for row in rows]
    text.insert(1, "|---|---|" + "---:|" * (len(headings) - 2))
    wrong = [line for line in lines if line["wrong"]]
    text += ["", *(f"- **{line['words']}**: {_said(line)}" for line in wrong)] if wrong else []
    seeds = ", ".join(str(seed) for seed in sorted({line["seed"] for line in lines}))
    spent = sum(line["seconds"] for line in lines) / 60
    tried = [line for line in lines if line["end"] in _ENDS or line["wrong"]]
    text += ["", f"{len(tried) - len(wrong)} of {len(tried)} draws of seed {seeds} held; {spent:.0f} minutes of draws."]
    return "\n".join(text)


def _outcome(line: Mapping[str, Any]) -> str:
    if line["wrong"]:
        return "did not hold"
    return line["end"] if line["end"] in _ENDS else "not tried"


def _said(line: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in line["wrong"].items()).replace("|", "/")[:300]
