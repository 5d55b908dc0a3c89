"""The group of cards that is chosen on a virtual host, by the workflow's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchormatrix.devices.ascend_info import parse_info
from anchormatrix.devices.ascend_topology import parse_topology
from anchormatrix.engines.timing import Request
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.smokes.judging import Expectation, judge_smoke, smoke_step
from anchormatrix.planning.groups import resolve_groups
from anchormatrix.records.contract import Contract
from anchormatrix.records.host import HostState
from anchormatrix.records.settings.policies import GroupsSettings, HealthSettings, SmokeSettings
from anchormatrix.records.settings.values import OnBusy
from anchormatrix.records.smoke import SmokeStatus
from campaigns.hosts import Experiment
from campaigns.noise import ANCHOR, FEW
from virtualhost.host.scenario import Scenario
from virtualhost.host.state import HostState as VirtualState
from virtualhost.server.exchange import parse_split
from virtualhost.server.serving import ServingSession
from virtualhost.tools.npu_smi import answer

HEALTH = HealthSettings(static_memory_mb=8192, on_busy=OnBusy.SKIP, busy_wait_s=0, contaminated_tries=2)
GROUPS = GroupsSettings(allow_cross_domain=False, allow_mixed_models=False, pinned={})
TIERS = {"few": FEW, "anchor": ANCHOR}
SMOKE = SmokeSettings(steps=4, residue_factor=5, straggler_pct=10, first_step_pct=30, slope_pct=10, expected_step_s={})


@dataclass(frozen=True)
class Chosen:
    """The group that is measured on, or why there is none; ``card_s`` is what its smokes took, seconds × cards."""

    contract: Contract | None
    why: str
    card_s: float


def read_host(scenario: Scenario, state: VirtualState) -> HostState:
    """The vendor tool's text, parsed as the workflow parses it."""
    topology = parse_topology(answer(["info", "-t", "topo"], scenario, state)[1])
    return HostState(topology, parse_info(answer(["info"], scenario, state)[1]))


def choose_group(experiment: Experiment) -> Chosen:
    """The first legal, fit group that passes its smoke, as a contract; or why there is none."""
    virtual = VirtualState(None)
    state, size = read_host(experiment.scenario, virtual), experiment.size
    resolution = resolve_groups(state, (size,), health=HEALTH, groups=GROUPS, current={})
    candidates = resolution.candidates[size][:2]
    if not candidates:
        return Chosen(None, resolution.why_none(size), 0.0)
    smokes = {candidate.cards: _smoke(experiment, virtual, candidate.cards) for candidate in candidates}
    card_s = sum(seconds for _, seconds in smokes.values()) * size
    for candidate in candidates:
        others = [
            step
            for cards, (request, _) in smokes.items()
            if cards != candidate.cards and request is not None and (step := smoke_step(request))
        ]
        expected = Expectation(min(others), "another group of the same size and links") if others else None
        request = smokes[candidate.cards][0]
        if request is None:
            continue  # no form runs here
        judged = judge_smoke(request, expected, SMOKE, cards=candidate.cards)
        if judged.status is not SmokeStatus.REJECTED:
            return Chosen(_contract(state, candidate.cards, one_domain=candidate.one_domain), "", card_s)
    return Chosen(None, "no group passes its smoke", card_s)


def _smoke(experiment: Experiment, state: VirtualState, cards: Sequence[int]) -> tuple[Request | None, float]:
    """The request of a four-step smoke with the first form that runs, None when none does; and its virtual seconds."""
    seconds = 0.0
    for form in experiment.forms:
        session = ServingSession(experiment.scenario, parse_split(form.name), cards, state)
        start = session.startup()
        seconds += start.virtual_s
        if start.end:
            continue
        answered = session.request(SMOKE.steps)
        seconds += answered.virtual_s
        log = parse_serve_log(start.text + answered.text)
        if log.requests and log.requests[-1].step_s:
            return log.requests[-1], seconds
    return None, seconds


def _contract(state: HostState, cards: tuple[int, ...], *, one_domain: bool) -> Contract:
    links = tuple(tuple(state.topology.link(a, b) for b in cards) for a in cards)
    return Contract(
        host="campaign", cards=cards, links=links, one_domain=one_domain, device_model="virtual", driver="1",
        toolkit="1", framework="vllm-omni", framework_version="1", workload={}, tiers=dict(TIERS),
    )  # fmt: skip
