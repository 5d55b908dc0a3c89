"""The bench of one virtual host: its vendor text, its servers, its card time, and the group of cards that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anchormatrix.devices.ascend_info import parse_info
from anchormatrix.devices.ascend_topology import parse_topology
from anchormatrix.measure.serverlog.parse import Request, parse_serve_log
from anchormatrix.measure.smoke import Expectation, judge_smoke, smoke_step
from anchormatrix.planning.groups import resolve_groups
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.host import HostState
from anchormatrix.records.settings.policies import GroupsSettings, HealthSettings, SmokeSettings
from anchormatrix.records.settings.values import OnBusy
from anchormatrix.records.smoke import SmokeStatus
from campaigns.hosts import ANCHOR, FEW, Experiment
from virtualhost.host.state import HostState as VirtualState
from virtualhost.server.serving import ServingSession, parse_split
from virtualhost.tools.npu_smi import answer

HEALTH = HealthSettings(static_memory_mb=8192, on_busy=OnBusy.SKIP, busy_wait_s=0, contaminated_tries=2)
GROUPS = GroupsSettings(allow_cross_domain=False, pinned={})
TIERS = {"few": FEW, "anchor": ANCHOR}
SMOKE = SmokeSettings(steps=4, residue_factor=5, straggler_pct=10, first_step_pct=30, slope_pct=10, expected_step_s={})


@dataclass
class Bench:
    """A host under one design: its state, its clock and what was measured on it."""

    experiment: Experiment
    state: VirtualState = field(default_factory=lambda: VirtualState(None))
    card_s: float = 0.0
    sessions: int = 0

    def read(self) -> HostState:
        """The vendor tool's text, parsed as the workflow parses it."""
        scenario = self.experiment.scenario
        topology = parse_topology(answer(["info", "-t", "topo"], scenario, self.state)[1])
        return HostState(topology, parse_info(answer(["info"], scenario, self.state)[1]))

    def serve(self, form: Form, cards: Sequence[int]) -> ServingSession:
        """A server of a form; its time is counted from here on."""
        self.sessions += 1
        return ServingSession(self.experiment.scenario, parse_split(form.name), cards, self.state)

    def spend(self, seconds: float, cards: Sequence[int]) -> None:
        """Count card time."""
        self.card_s += seconds * len(cards)


def choose_group(bench: Bench) -> tuple[Contract | None, str]:
    """The first legal, fit group that passes its smoke, as a contract; or why there is none."""
    state = bench.read()
    size = bench.experiment.size
    resolution = resolve_groups(state, (size,), health=HEALTH, groups=GROUPS, current={})
    candidates = resolution.candidates[size]
    if not candidates:
        return None, resolution.why_none(size)
    seen = {candidate.cards: smoke(bench, candidate.cards) for candidate in candidates[:2]}
    for candidate in candidates[:2]:
        contract = _contract(state, candidate.cards, one_domain=candidate.one_domain)
        others = [step for cards, request in seen.items() if cards != candidate.cards and (step := smoke_step(request))]
        expected = Expectation(min(others), "another group of the same size and links") if others else None
        request = seen[candidate.cards]
        if request is None:
            continue  # no form runs here
        judged = judge_smoke(request, expected, SMOKE, cards=candidate.cards)
        if judged.status is not SmokeStatus.REJECTED:
            return contract, ""
    return None, "no group passes its smoke"


def smoke(bench: Bench, cards: Sequence[int]) -> Request | None:
    """The request of a four-step smoke with the first form that runs; None when none does."""
    for form in bench.experiment.forms:
        session = bench.serve(form, cards)
        start = session.startup()
        bench.spend(start.virtual_s, cards)
        if start.end:
            continue
        answered = session.request(SMOKE.steps)
        bench.spend(answered.virtual_s, cards)
        log = parse_serve_log(start.text + answered.text)
        session.shutdown()
        if log.requests and log.requests[-1].step_s:
            return log.requests[-1]
    return None


def _contract(state: HostState, cards: tuple[int, ...], *, one_domain: bool) -> Contract:
    links = tuple(tuple(state.topology.link(a, b) for b in cards) for a in cards)
    return Contract(
        host="campaign", cards=cards, links=links, one_domain=one_domain, device_model="virtual", driver="1",
        toolkit="1", framework="vllm-omni", framework_version="1", workload={}, tiers=dict(TIERS),
    )  # fmt: skip
