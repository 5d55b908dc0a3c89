"""One side of a comparison: the sessions of every current contract, from a results folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anchormatrix.decide.cells import build_cells
from anchormatrix.decide.effects.features import without_dead
from anchormatrix.decide.left_behind import read_outputs
from anchormatrix.errors import ConfigError, InputError
from anchormatrix.planning.adaptive import starts_of
from anchormatrix.planning.ranking import Rule, Starts
from anchormatrix.records.conclusions.cells import ALL, Cell
from anchormatrix.records.conclusions.gates import Gates
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.contract import Contract, ContractList
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.values import Tier
from anchormatrix.records.smoke import Smoke, SmokeStatus
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import TimedSession, read_session

_MOST_REPEATS_ASKED = 3  # with so many a start is whole, whatever was configured


@dataclass(frozen=True)
class StoredContractRun:
    """What one run measured under one contract. Sessions are as they count: void where the picture is another one."""

    contract: Contract
    sessions: tuple[TimedSession, ...]
    verdict: Verdict | None

    @property
    def zone_pct(self) -> float:
        """The difference below which there is none, by the run's own limits."""
        return self.verdict.limits.noise_floor_pct if self.verdict else Rule.zone_pct

    def starts(self, tier: Tier) -> Starts:
        """The server starts that may be compared: settled, undisturbed, with as many repeats as the fullest one."""
        return starts_of(self.sessions, self._repeats(tier), tier)

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Cell]:
        """The cells over all windows by form and tier."""
        limit = self.verdict.limits.dispersion_pct if self.verdict else math.inf
        found: dict[tuple[str, str], Cell] = {}
        for tier in Tier:
            built = build_cells(self.sessions, repeats=self._repeats(tier), dispersion_pct=limit)
            found |= {(cell.form, cell.tier): cell for cell in built if (cell.tier, cell.window) == (tier, ALL)}
        return found

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Versions that the sessions met, by name; several are joined."""
        met: dict[str, set[str]] = {}
        for timed in self.sessions:
            seen = timed.session.circumstances
            for name, version in seen.versions.items() if seen else ():
                met.setdefault(name, set()).add(version)
        return {name: " and ".join(sorted(values)) for name, values in sorted(met.items())}

    def why_missing(self, form: str) -> str:
        """Why there is no cell of a form."""
        own = [timed.session for timed in self.sessions if timed.session.form == form]
        told = next((f"{session.status}: {session.reason}" for session in own if session.reason), "")
        return told or ("no repeat of this tier" if own else "not measured")

    def _repeats(self, tier: str) -> int:
        fullest = max((len(timed.values_s.get(tier, ())) for timed in self.sessions), default=0)
        return max(1, min(_MOST_REPEATS_ASKED, fullest))


def read_run(results: Path) -> Mapping[int, StoredContractRun]:
    """The current contract of every card count with its sessions.

    Raises :class:`InputError` for a folder that holds no run, and for a file in it that cannot be used.
    """
    if not results.is_dir():
        raise InputError("no such folder", where=str(results), expected="the results folder of a run")
    listed = read_record(results / "contracts.json", ContractList, todo="give the results folder of a run")
    found: dict[int, StoredContractRun] = {}
    for contract in sorted(listed.contracts, key=lambda contract: (contract.size, contract.rank)):
        folder = results / contract.id
        if contract.size not in found and not _rejected(folder):
            sessions = _sessions(folder, contract.id)
            if sessions:
                found[contract.size] = StoredContractRun(contract, sessions, _verdict(folder))
    if not found:
        raise InputError("holds no session", where=str(results), todo="run matrix_report first")
    return found


def _sessions(folder: Path, contract: str) -> tuple[TimedSession, ...]:
    outputs, gates = read_outputs(folder, contract), folder / "gates.json"
    proved = read_record(gates, Gates).effects if gates.exists() else {}
    paths = [path for path in sorted(folder.glob("*/w*/session.json")) if _is_form(path.parent.parent.name)]
    return without_dead([read_session(path, contract).held_to(outputs) for path in paths], proved)


def _is_form(name: str) -> bool:
    try:
        return parse_form(name).name == name
    except ConfigError:
        return False


def _rejected(folder: Path) -> bool:
    smoke = folder / "smoke.json"
    return smoke.exists() and read_record(smoke, Smoke).status is SmokeStatus.REJECTED


def _verdict(folder: Path) -> Verdict | None:
    path = folder / "verdict.json"
    return read_record(path, Verdict) if path.exists() else None
