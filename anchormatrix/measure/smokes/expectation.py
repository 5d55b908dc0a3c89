"""The expected speed of a group: its own history, another group like it on the same host, a configured bound."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

from anchormatrix.errors import ConfigError, InputError
from anchormatrix.measure.smokes.judging import Expectation
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract, StoredContract
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.values import FEW
from anchormatrix.records.settings.whole import Settings
from anchormatrix.records.smoke import Smoke, SmokeStatus
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import read_session

History = Callable[[str, str], float | None]


def expected_step(
    contract: Contract, form: str, results: Path, settings: Settings, history: History | None = None
) -> Expectation | None:
    """The expectation for a smoke of ``form``, from the first source that has one; ``None`` when none has.

    ``history`` is asked for (contract id, form) first. Result files that cannot be read are no source.
    """
    stored = history(contract.id, form) if history else None
    if stored:
        return Expectation(stored, "its own history")
    own = measured_step(results / contract.id, form) or _smoke_step(results / contract.id, form)
    if own:
        return Expectation(own, "its own earlier runs")
    for other in like(contract, results):
        step = measured_step(results / other.id, form) or _smoke_step(results / other.id, form)
        if step:
            return Expectation(step, f"cards {show(other.cards)}, a group of the same size and links")
    bound = settings.smoke.expected_step_s.get(contract.size)
    return Expectation(bound, "the bound in the configuration") if bound else None


def measured_step(folder: Path, form: str) -> float | None:
    """Median few-tier step time in seconds of the measured sessions of a form, or ``None``."""
    values: list[float] = []
    for path in sorted((folder / form).glob("w*/session.json")):
        try:
            session = read_session(path)
        except InputError:
            continue
        values += session.values_s.get(FEW, ())
    return median(values) if values else None


def smoked_step(contract_id: str, form: Form, results: Path) -> float | None:
    """Step time in seconds that the last smoke of a contract's cards took, unless with another kind of offload."""
    try:
        smoke = read_record(results / contract_id / "smoke.json", Smoke)
        smoked = parse_form(smoke.form)
    except (InputError, ConfigError):
        return None
    return smoke.step_s if smoked.offload == form.offload else None


def like(contract: Contract, results: Path) -> Iterable[Contract]:
    """Other contracts with results that differ from this one only in the cards, never in what the links are."""
    for path in sorted(results.glob(f"c{contract.size}-*/contract.json")):
        try:
            other = read_record(path, StoredContract)
        except InputError:
            continue
        if other.id != contract.id and comparable(contract, other):
            yield other


def comparable(a: Contract, b: Contract) -> bool:
    """Whether two groups should be equally fast: same host, size, links and everything else but the cards."""
    return _but_cards(a) == _but_cards(b)


def _but_cards(contract: Contract) -> str:
    facts = {name: fact for name, fact in contract.facts.items() if name not in ("cards", "links")}
    return json.dumps([facts, contract.size, contract.link_class])


def _smoke_step(folder: Path, form: str) -> float | None:
    try:
        smoke = read_record(folder / "smoke.json", Smoke)
    except InputError:
        return None
    return smoke.step_s if smoke.status is SmokeStatus.PASSED and smoke.form == form else None
