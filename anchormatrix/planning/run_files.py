"""The result files that a job of a run rests on: what its rule declares as input, by the job's wildcards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anchormatrix.errors import ConfigError
from anchormatrix.planning.contracts import stored_contract
from anchormatrix.planning.run import Run, Smoked
from anchormatrix.records.contract import StoredContract
from anchormatrix.records.night import Place
from anchormatrix.records.settings.values import ANCHOR

_OF_SCALING = ("cells.csv", "verdict.json")


@dataclass(frozen=True)
class RunFiles:
    """The files of one run's results folder. ``smoked`` waits for the smoke of a contract's group."""

    run: Run
    smoked: Smoked

    def of_contracts(self, pattern: str) -> list[str]:
        """A pattern with ``{contract}``, for every contract that is measured."""
        return [pattern.format(contract=contract) for contract in self._contracts()]

    def of_smaller(self, contract: str) -> list[str]:
        """Cells, verdict and captures of the contracts of fewer cards: what a contract's scaling is read from."""
        smaller = self._smaller(contract)
        files = [f"{self.run.results}/{one}/{name}" for one in smaller for name in _OF_SCALING]
        return [*files, *(name for one in smaller for name in self.attributions(one))]

    def smaller_contracts(self, contract: str) -> list[str]:
        """The files of the contracts of fewer cards."""
        return [f"{self.run.results}/{one}/contract.json" for one in self._smaller(contract)]

    def sessions(self, contract: str = "", name: str = "session.json") -> list[str]:
        """All sessions of one contract, or of every contract when none is named, in the order they run.

        In another order Snakemake would follow the chain from its end, and a long one is deeper than it can go.
        """
        named = [contract] if contract else self._contracts()
        return self._of_places((place for one in named for place in self.run.sessions_of(one)), name)

    def requests(self, contract: str = "") -> list[str]:
        """The requests of the same sessions."""
        return self.sessions(contract, "requests.csv")

    def outputs(self, contract: str) -> list[str]:
        """What the same sessions computed."""
        return self.sessions(contract, "output.bin")

    def sessions_of_the_night(self) -> list[str]:
        """All sessions; they are made anew because the run was given a night. Raises :class:`ConfigError` without."""
        if not self.run.settings.night:
            raise ConfigError(
                "nightly needs the night",
                where="night",
                expected="night=auto (--config on the command line replaces the profile's)",
                todo="run scripts/nightly.py, or snakemake --profile profiles/nightly nightly, with --config night=auto"
                " beside whatever else --config is given",
            )
        return self.sessions()

    def cell_sessions(self) -> list[str]:
        """The sessions of the form named by ``cell=FORM/TIER`` and of the reference form of its pair.

        Raises :class:`ConfigError` when no cell was named.
        """
        if not self.run.settings.cell:
            raise ConfigError(
                "rerun_cell: which cell?",
                where="cell",
                expected="--config cell=FORM/TIER, such as cell=tp1-usp4/anchor",
            )
        places = (
            Place(contract, form, window)
            for contract in self._contracts()
            for form in self.run.again(contract)
            for window in range(1, self.run.plan.of(contract).windows + 1)
        )
        return self._of_places(places)

    @cached_property
    def lost_contracts(self) -> dict[Path, StoredContract]:
        """The contracts' own files that are missing beside what was measured under them.

        They follow from the contract alone. A job that makes one again would stand before everything measured there.
        """
        found = {}
        for contract in self.run.chosen.contracts:
            folder = self.run.results / contract.id
            measured = (
                folder / "smoke.json",
                *folder.glob("*/w*/session.json"),
                self.run.results / "bandwidth" / f"{contract.id}.json",
            )
            if not self.run.stored.exists(folder / "contract.json") and any(map(self.run.stored.exists, measured)):
                found[folder / "contract.json"] = stored_contract(contract, self.run.ledger)
        return found

    def before_contract(self, contract: str) -> list[str]:
        """The list of contracts, for a contract that has no file of its own yet and gets none back."""
        path = self.run.results / contract / "contract.json"
        there = self.run.stored.exists(path) or path in self.lost_contracts
        return [] if there else [f"{self.run.results}/contracts.json"]

    def before_smoke(self, contract: str) -> list[str]:
        """What makes a smoke run that is needed although an older one lies there, and the groups to compare with."""
        return [f"{self.run.results}/contracts.json", self.run.asked] if self.run.smoke_must_run(contract) else []

    def before_session(self, contract: str, form: str, window: str) -> list[str]:
        """What must come before a session that has to run: the smoke of its group, and the session just before it.

        A session that has its result depends on neither, so measuring one form again, or a new smoke, measures no other
        form again. One that must run depends on both in earnest: Snakemake looks for no other reason to run a job that
        lies behind another one, so ancient() would hide that it is asked for again.
        """
        if not self.run.must_run(contract, form, int(window)):
            return []
        before = self.run.sessions_before(contract, form, int(window))
        return [
            f"{self.run.results}/{contract}/smoke.json",
            *self._of_places(before),
            *self._of_places(before, "requests.csv"),
            self.run.asked,
        ]

    def before_bandwidth(self, contract: str) -> list[str]:
        """The smoke comes first, once; a sweep made already does not depend on it."""
        return [] if self._exists(f"bandwidth/{contract}.json") else [f"{self.run.results}/{contract}/smoke.json"]

    def smokes(self) -> list[str]:
        """The smoke of every group that a size was tried on."""
        self._contracts()
        return [
            f"{self.run.results}/{planned.id}/smoke.json"
            for planned in self.run.plan.contracts
            if planned.rank == 0 or self._exists(f"{planned.id}/smoke.json")
        ]

    def attributions(self, contract: str = "") -> list[str]:
        """The attribution of every form, of one contract or of all, where captures are made."""
        if not self.run.settings.capture.enabled:
            return []
        named = [contract] if contract else self._contracts()
        names = ["attribution.json"]
        names += ["attribution-anchor.json"] if ANCHOR in self.run.settings.capture.tiers else []
        return [
            f"{self.run.results}/{one}/{form}/{name}"
            for one in named
            for form in self.run.forms_of(one)
            for name in names
        ]

    def bandwidths(self, contract: str = "") -> list[str]:
        """The size sweep of a contract's group, or of every one, where it is made."""
        if not self.run.settings.selection.bandwidth.enabled:
            return []
        return [f"{self.run.results}/bandwidth/{one}.json" for one in ([contract] if contract else self._contracts())]

    def _smaller(self, contract: str) -> list[str]:
        size = self.run.plan.of(contract).size
        return [one for one in self._contracts() if self.run.plan.of(one).size < size]

    def _contracts(self) -> tuple[str, ...]:
        return self.run.contracts(self.smoked)

    def _of_places(self, places: Iterable[Place], name: str = "session.json") -> list[str]:
        return [f"{self.run.results}/{p.contract}/{p.form}/w{p.window}/{name}" for p in places]

    def _exists(self, name: str) -> bool:
        return self.run.stored.exists(self.run.results / name)
