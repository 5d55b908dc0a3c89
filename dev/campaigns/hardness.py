"""What a campaign draws its hosts from: each hardness with its own range or share, so that each can be judged alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

Range = tuple[float, float]


@dataclass(frozen=True)
class Hardness:
    """Ranges are drawn evenly, in percent; shares are parts of all hosts, from 0 to 1.

    ``margin``: best against second form at full step count. ``restart_sd`` and ``request_sd``: standard deviations
    between server starts and between requests; a ``noisy`` host is shared and its requests deviate by more.
    ``step_rules``: steps that cost more or less in long requests, so that tiers and full step counts differ.
    ``trouble``: tenants, residue, alarms, failing forms, lost responses and spoiled logs. ``any_model``: the model, its
    links and rates are drawn too. ``reference_gaps`` spreads the other forms evenly over 15 % above the second instead
    of as the host's links and rates have it.
    """

    margin: Range = (0.3, 6.0)
    restart_sd: Range = (0.0, 2.5)
    request_sd: Range = (0.2, 1.0)
    noisy: float = 1 / 3
    correlated: float = 0.5
    heavy_tails: float = 1 / 3
    level_shifts: float = 0.2
    thermal: float = 0.3
    long_ramps: float = 0.2
    step_rules: float = 0.6
    dead_features: float = 0.15
    padding: float = 0.2
    trouble: float = 1.0
    captures: float = 0.1
    any_model: float = 1.0
    reference_gaps: bool = False


HARD = Hardness()
# the model of a plain reference: k forms, their margin, starts and requests that deviate; nothing else
PLAIN = replace(
    HARD,
    noisy=0.0,
    correlated=0.0,
    heavy_tails=0.0,
    level_shifts=0.0,
    thermal=0.0,
    long_ramps=0.0,
    step_rules=0.0,
    dead_features=0.0,
    padding=0.0,
    trouble=0.0,
    captures=0.0,
    any_model=0.0,
    reference_gaps=True,
)
SHARES = tuple(name for name, value in vars(HARD).items() if isinstance(value, float))
RANGES = ("margin", "restart_sd", "request_sd")
