"""The ledger of decisions: what each rested on, so that a later run can tell whether it must be verified again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchormatrix.decide.evidence import FormEvidence, StepParts
from anchormatrix.decide.reverify import Stored as Basis
from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.form import Form, parse_form
from anchormatrix.store.files import parse_json
from anchormatrix.store.shapes import MapOf, Maybe, check_shape


def basis_as_dict(size: int, contract: str, winner: str | None, basis: Basis) -> dict[str, Any]:
    """A decision's basis as one line of the ledger: plain values, nothing that changes between equal runs."""
    return {
        "size": size,
        "contract": contract,
        "winner": winner,
        "status": basis.verdict.get("status"),
        "r": dict(basis.verdict.get("r", {})),
        "forms": [
            {
                "form": item.form.name,
                "few_s": item.step_few_s,
                "anchor_s": item.step_anchor_s,
                "exposed_ms": item.parts.exposed_ms if item.parts else None,
                "exposed_share": item.exposed_share,
            }
            for item in basis.evidence
        ],
        "facts": dict(basis.facts),
        "fixed_s": dict(basis.fixed_s),
        "possible": [form.name for form in basis.possible],
    }


_LINE = {
    "size": int,
    "status": Maybe(str),
    "r": MapOf(float),
    "forms": [
        {
            "form": str,
            "few_s": Maybe(float),
            "anchor_s": Maybe(float),
            "exposed_ms": Maybe(float),
            "exposed_share": Maybe(float),
        }
    ],
    "facts": MapOf(Any),
    "fixed_s": MapOf(float),
    "possible": [str],
}


def basis_from_dict(values: Mapping[str, Any]) -> Basis:
    """Read a line back. Raises :class:`InputError` or :class:`ConfigError` when it is not one."""
    check_shape(values, _LINE, "decision")
    evidence = tuple(_evidence(row) for row in values["forms"])
    return Basis(
        verdict={"status": values["status"], "r": values["r"]},
        evidence=evidence,
        facts=values["facts"],
        fixed_s=values["fixed_s"],
        possible=tuple(parse_form(name) for name in values["possible"]),
    )


def _evidence(row: Mapping[str, Any]) -> FormEvidence:
    exposed = row["exposed_ms"]
    parts = None if exposed is None else StepParts(None, float(exposed), 0.0, None, row.get("exposed_share"))
    form: Form = parse_form(row["form"])
    return FormEvidence(form, "measured", step_few_s=row["few_s"], step_anchor_s=row["anchor_s"], parts=parts)


def read_bases(path: Path) -> dict[int, list[dict[str, Any]]]:
    """The ledger's lines by size, oldest first; a line torn by a killed run, or of another form, is left out."""
    found: dict[int, list[dict[str, Any]]] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # text may hold other line ends
        try:
            values = parse_json(line)
            basis_from_dict(values)
            found.setdefault(int(values["size"]), []).append(values)
        except (ValueError, InputError, ConfigError):
            continue
    return found


def append_bases(
    path: Path, lines: Sequence[Mapping[str, Any]], known: Mapping[int, Sequence[Mapping[str, Any]]]
) -> None:
    """Append the lines that differ from the newest known one of their size; nothing is ever rewritten."""
    fresh = [line for line in lines if not known.get(line["size"]) or dict(known[line["size"]][-1]) != _plain(line)]
    if not fresh:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        stream.seek(0, os.SEEK_END)
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")  # after a torn line
        for line in fresh:
            stream.write(json.dumps(_plain(line), ensure_ascii=False).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dict(line)))
    return plain
