"""A collective micro-benchmark on a group of cards, in the manner of the vendor's test: one row per message size.

``hccl-test --collective alltoall --cards 0,1,2,3 --min-bytes 1000000 --max-bytes 256000000`` prints

    data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:
    1000000 | 29.4 | 34.048 | success

Sizes double from the smallest to the largest. ``data_size`` is what one rank hands to the call, ``avg_time`` the mean
over the repeats, ``alg_bandwidth`` their quotient. ``--concurrency N`` runs N communicators over the same cards at
once. With ``--json`` every size is one line ``{"bytes": …, "times_us": […]}``. Exit status 1: no such cards.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence

from virtualhost.host.live import LiveHost
from virtualhost.host.model import Fabric
from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import scenario_from_environment
from virtualhost.host.state import HostState, StateError
from virtualhost.host.strict import ScenarioError
from virtualhost.step.timeline import collective_ns

_FAMILIES = {
    "alltoall": "alltoall",
    "all_to_all": "alltoall",
    "all_gather": "allgather",
    "allgather": "allgather",
    "all_reduce": "allreduce",
    "allreduce": "allreduce",
    "sendrecv": "sendrecv",
    "send_recv": "sendrecv",
}


def measure(
    scenario: Scenario,
    state: HostState,
    collective: str,
    cards: Sequence[int],
    sizes: Sequence[int],
    *,
    repeats: int = 5,
    concurrency: int = 1,
) -> Iterator[tuple[int, list[float]]]:
    """Yield (bytes, times in µs) per size, from the links as they are now, slowed as the cards are now."""
    host = LiveHost(scenario, state)
    fabric = scenario.host_model(host.links()).fabric
    slow = host.slowdown(tuple(cards))
    rng = random.Random(f"{scenario.seed}|{collective}|{list(cards)}|{concurrency}")
    spread = scenario.timing.dispersion_pct / 100 / 2
    for size in sizes:
        plain = _call_ns(fabric, _FAMILIES[collective], size, cards, concurrency) / 1000 * slow
        yield size, [plain * (1 + rng.uniform(-spread, spread)) for _ in range(repeats)]


def _call_ns(fabric: Fabric, family: str, size: int, cards: Sequence[int], concurrency: int) -> int:
    if family == "sendrecv":  # between the first two cards; half of an all-to-all of two goes over the wire
        return collective_ns(fabric, "alltoall", 2 * size, cards[:2], concurrency=concurrency)
    return collective_ns(fabric, family, size, cards, concurrency=concurrency)


def main(arguments: Sequence[str]) -> int:
    """Run the test; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        state = HostState.from_environment()
        scenario = scenario_from_environment(state.override_path)
    except (ScenarioError, StateError) as error:
        print(f"hccl-test: {error}", file=sys.stderr)
        return 2
    unknown = [card for card in options.cards if card not in scenario.cards.ids]
    if unknown or len(set(options.cards)) < 2:
        print(
            f"hccl-test: cards {options.cards}: at least two different cards of {list(scenario.cards.ids)} are needed"
        )
        return 1
    sizes = [options.min_bytes]
    while sizes[-1] * 2 <= options.max_bytes:
        sizes.append(sizes[-1] * 2)
    if sizes[-1] < options.max_bytes:
        sizes.append(options.max_bytes)
    if not options.json:
        iterations = f"iters is {options.repeats}, warmup_iters is 5"
        print(f"the minbytes is {options.min_bytes}, maxbytes is {options.max_bytes}, {iterations}")
        print("data_size(Bytes): | avg_time(us): | alg_bandwidth(GB/s): | check_result:")
    rows = measure(
        scenario,
        state,
        options.collective,
        options.cards,
        sizes,
        repeats=options.repeats,
        concurrency=options.concurrency,
    )
    for size, times_us in rows:
        mean = sum(times_us) / len(times_us)
        if options.json:
            print(json.dumps({"bytes": size, "times_us": [round(time, 3) for time in times_us]}))
        else:
            print(f"{size} | {mean:.3f} | {size / mean / 1000:.3f} | success")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hccl-test", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--collective", choices=sorted(_FAMILIES), required=True)
    add("--cards", type=lambda text: [int(part) for part in text.split(",")], required=True, help="card ids, a,b,c")
    add("--min-bytes", type=int, default=1_000_000, help="default: 1000000")
    add("--max-bytes", type=int, default=256_000_000, help="default: 256000000")
    add("--repeats", type=int, default=5, help="default: 5")
    add("--concurrency", type=int, default=1, help="communicators over the same cards at once; default: 1")
    add("--json", action="store_true", help="one JSON object per size")
    return parser
