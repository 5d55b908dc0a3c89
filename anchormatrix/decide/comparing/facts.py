"""What two runs of one card count differ in: which facts are compared, and which make the step another thing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from anchormatrix.decide.comparing.stored_run import StoredContractRun
from anchormatrix.records.conclusions.comparison import Bearing, FactDifference
from anchormatrix.records.contract import ChangedFact, Contract, changed_facts
from anchormatrix.records.requests import Basis
from anchormatrix.records.settings.values import Tier

_ANOTHER_STEP = {
    "model": "another model",
    "endpoint": "another kind of request",
    "width": "another resolution",
    "height": "another resolution",
    "frames": "another number of frames",
    "flow_shift": "another schedule of noise",
    "negative_prompt": "some models compute its branch only where there is one",
    "extra_params": "what the engine makes of it may change the step",
}
_ASIDE = ("fps", "prompt", "seed")  # a step's shapes do not follow from them
_SETTINGS = ("engine_args", "engine_env", "engine_options")
_COMPUTES_OTHERWISE = re.compile(
    r"quant|dtype|precision|fp8|int8|int4|w8a8|cache|spars|lora|distill|schedul|shift|boundary|guidance|cfg_scale|steps|sage|rainfusion",
    re.I,
)
_COMPUTES, _OWN_WORDS = "computes something else", "in each engine's own words"
_OUTSIDE = re.compile(r"vae|text.?enc", re.I)  # other stages have times of their own
_PLACE = re.compile(r"[/~]")
_IN_CONTRACT = ("driver", "toolkit", "framework", "framework_version")


def differences(a: StoredContractRun, b: StoredContractRun) -> tuple[FactDifference, ...]:
    """Every fact that two runs do not share, those that forbid a comparison first."""
    found = [*_of_contracts(a, b)]
    names = sorted((a.versions.keys() | b.versions.keys()) - set(_IN_CONTRACT))
    for name in names:
        if a.versions.get(name) != b.versions.get(name):
            pair = a.versions.get(name), b.versions.get(name)
            found.append(FactDifference(f"versions.{name}", *pair, Bearing.COMPARED))
    for tier in Tier:
        found += _timed_otherwise(a, b, tier)
    return tuple(sorted(found, key=lambda one: list(Bearing).index(one.bearing)))


def unknown(a: StoredContractRun, b: StoredContractRun) -> tuple[str, ...]:
    """What has to be equal for a comparison and is told by no file of a run."""
    found = []
    engines = [run.contract.framework for run in (a, b)]
    if engines[0] != engines[1]:
        between = f"{engines[0]} and {engines[1]} choose it by themselves"
        found += [f"precision of weights and attention: {between}", f"scheduler and its shift: {between}"]
        found.append(f"guidance branches in one step: {between}")
        own_words = [one for one in _of_contracts(a, b) if one.why == _OWN_WORDS]
        found += [f"{one.name}: {_given(one.a)} against {_given(one.b)}, {_OWN_WORDS}" for one in own_words]
    models = [str(run.contract.workload.get("model", "")) for run in (a, b)]
    if a.contract.host != b.contract.host and models[0] == models[1] and _PLACE.match(models[0]):
        found.append(f"weights: {models[0]} is a folder of each host")
    for tier in Tier:
        silent = [
            name for name, run in (("A", a), ("B", b)) if any(run.starts(tier).values()) and not _bases(run, tier)
        ]
        if silent:
            found.append(f"what was timed at {tier}: the files of {' and '.join(silent)} do not tell")
    return tuple(found)


def _of_contracts(a: StoredContractRun, b: StoredContractRun) -> list[FactDifference]:
    """What the contracts differ in. Two engines say the same with other settings, so one that only one of them has is
    no difference by itself, unless the other has none that changes what is computed."""
    found = [_judged(one) for one in changed_facts(_spread(a.contract), _spread(b.contract))]
    lone = [one for one in found if one.why == _COMPUTES and None in (one.a, one.b)]
    both = any(one.a is not None for one in lone) and any(one.b is not None for one in lone)
    if a.contract.framework == b.contract.framework or not both:
        return found
    return [replace(one, bearing=Bearing.COMPARED, why=_OWN_WORDS) if one in lone else one for one in found]


def _judged(fact: ChangedFact) -> FactDifference:
    bearing, why, tier = _bearing(fact)
    return FactDifference(fact.field, fact.before, fact.after, bearing, why, tier)


def _bearing(fact: ChangedFact) -> tuple[Bearing, str, str]:
    """What a changed fact of a contract means, why, and at which tier alone."""
    part, _, name = fact.field.partition(".")
    if part == "tiers":
        return Bearing.FORBIDS, "another number of steps", name
    if part != "workload":
        return Bearing.COMPARED, "", ""
    name, _, setting = name.partition(".")
    if name == "guidance_scale":
        branches = [_guided(value) for value in (fact.before, fact.after)]
        return (Bearing.FORBIDS, "one branch against two", "") if len(set(branches)) > 1 else (Bearing.ASIDE, "", "")
    if name == "negative_prompt":
        gone = bool(fact.before) != bool(fact.after)
        return (Bearing.FORBIDS, _ANOTHER_STEP[name], "") if gone else (Bearing.ASIDE, "", "")
    if name in _ANOTHER_STEP:
        return Bearing.FORBIDS, _ANOTHER_STEP[name], ""
    if name in _SETTINGS:
        return _bearing_of_setting(setting, fact)
    if name in _ASIDE:
        return Bearing.ASIDE, "", ""
    return Bearing.FORBIDS, "a part of the workload", ""


def _bearing_of_setting(setting: str, fact: ChangedFact) -> tuple[Bearing, str, str]:
    """A setting of the engine that is known to change what is computed forbids; any other one is compared."""
    values = [value for value in (fact.before, fact.after) if value is not None]
    place = fact.field.startswith("workload.engine_env.") and all(_PLACE.match(str(value)) for value in values)
    if place or _OUTSIDE.search(setting):
        return Bearing.ASIDE, "", ""
    if _COMPUTES_OTHERWISE.search(" ".join([setting, *map(str, values)])):
        return Bearing.FORBIDS, _COMPUTES, ""
    return Bearing.COMPARED, "", ""


def _guided(value: Any) -> bool:
    """Whether a guidance scale asks for a second branch."""
    return isinstance(value, int | float) and value > 1


def _spread(contract: Contract) -> Contract:
    """The contract with the engine's arguments by flag, so that each is a fact of its own."""
    args = contract.workload.get("engine_args", ())
    workload = {**contract.workload, "engine_args": _by_flag(args if isinstance(args, list | tuple) else ())}
    return replace(contract, id="", workload=workload)


def _by_flag(args: Sequence[Any]) -> Mapping[str, str]:
    """``--a 1 --b=2 --c`` as ``{"--a": "1", "--b": "2", "--c": ""}``; what stands alone is under its own name."""
    found: dict[str, str] = {}
    flag = ""
    for word in map(str, args):
        if word.startswith("-") and not _number(word):
            flag, _, value = word.partition("=")
            found[flag] = value
        elif flag:
            found[flag] = f"{found[flag]} {word}".strip()
        else:
            found[word] = ""
    return found


def _number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdecimal()


def _timed_otherwise(a: StoredContractRun, b: StoredContractRun, tier: Tier) -> list[FactDifference]:
    """What was timed of a tier's repeats, who told it, and how many iterations they had."""
    found = []
    bases, counts = [_bases(run, tier) for run in (a, b)], [_iterations(run, tier) for run in (a, b)]
    timed = [_text(basis for basis, _ in one) for one in bases]
    if all(bases) and timed[0] != timed[1]:
        found.append(FactDifference("basis", timed[0], timed[1], Bearing.FORBIDS, "not the same is timed", tier))
    told = [_text(witness for _, witness in one) for one in bases]
    if all(bases) and told[0] != told[1]:
        found.append(FactDifference("witness", told[0], told[1], Bearing.ASIDE, "", tier))
    same_steps = a.contract.tiers.get(tier) == b.contract.tiers.get(tier)
    if all(counts) and counts[0] != counts[1] and same_steps:
        pair = _text(counts[0]), _text(counts[1])
        found.append(FactDifference("iterations", *pair, Bearing.FORBIDS, "another number of steps", tier))
    return found


def _bases(run: StoredContractRun, tier: Tier) -> set[tuple[Basis, str]]:
    return {pair for timed in run.sessions for pair in timed.bases.get(tier, ())}


def _iterations(run: StoredContractRun, tier: Tier) -> set[int]:
    return {count for timed in run.sessions for _, count in timed.denominators.get(tier, ())}


def _given(value: Any) -> str:
    return "not given" if value is None else str(value) or "given"


def _text(values: Any) -> str:
    return " and ".join(sorted({str(value) for value in values}))
