"""Decide many random virtual hosts and compare each decision with the truth, beside rules that anybody could use.

Draws N hosts, serves the same server starts to the product and to every other rule, and prints for each how many
hosts it decided, how many of those wrongly, and at which card time (starts ÷ (2 × forms)); then the same by true margin
and by hardness. Every hardness has an option, so that each can be judged alone:

    python scripts/campaign.py --hosts 500 --seed 7 --jobs 2
    python scripts/campaign.py --hosts 500 --plain --restart-sd 0 1
    python scripts/campaign.py --hosts 500 --plain --level-shifts 1
"""

from __future__ import annotations

import argparse
import shlex
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from campaigns import tables
from campaigns.faults.document import write_section
from campaigns.figure import draw_figure
from campaigns.hardness import HARD, PLAIN, RANGES, SHARES, Hardness
from campaigns.hosts import draw
from campaigns.rulings import RIGHT, WRONG, HostResult
from campaigns.scoring import CURVES, FAMILIES, PRODUCT, RULES, run_host

from anchormatrix.cli.command import run
from anchormatrix.store.files import write_json

_NOT_TO_BE_HAD = (float("inf"), float("inf"))


def one_host(seed: int, hard: Hardness, rules: tuple[str, ...], number: int) -> HostResult:
    """Draw and decide one host."""
    return run_host(draw(seed, number, hard), rules)


def main() -> int:
    """Run the campaign; exit 0 whatever the figures are: they are for the reader to judge."""
    arguments = _arguments()
    hard = _hardness(arguments)
    shown = tuple(arguments.rules or RULES)
    rules = tuple(dict.fromkeys((*shown, *CURVES))) if arguments.figure else shown
    work = partial(one_host, arguments.seed, hard, rules)
    numbers = range(arguments.first, arguments.first + arguments.hosts)
    if arguments.jobs > 1:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(work, numbers, chunksize=4))
    else:
        results = [work(number) for number in numbers]
    if arguments.list:
        _list(results)
    own = tuple(rule for rule in shown if rule in PRODUCT)
    text = tables.report(results, rules, shown, own)
    print(text)
    print(f"\n{sum(result.seconds for result in results):.0f} s of processor time")
    if arguments.write:
        file, section = arguments.write
        write_section(Path(file), section, f"```\n$ {_command()}\n{text}\n```")
    if arguments.figure:
        draw_figure(arguments.figure, results, FAMILIES, own)
    if arguments.json:
        hosts = [asdict(result) for result in results]
        write_json(arguments.json, {"seed": arguments.seed, "hardness": asdict(hard), "hosts": hosts})
    return 0


def _command() -> str:
    """The command as it was given, without what does not change the result."""
    words, kept = iter(sys.argv[1:]), list[str]()
    for word in words:
        if word == "--write":
            next(words), next(words)
        elif word in ("--jobs", "--json"):
            next(words)
        else:
            kept.append(word)
    return f"python scripts/campaign.py {shlex.join(kept)}"


def _list(results: list[HostResult]) -> None:
    """Print every host that the product did not decide rightly."""
    for result in results:
        for rule in (rule for rule in PRODUCT if rule in result.judgements):
            kind = result.judgements[rule]
            if result.choice and (kind != RIGHT or result.false_extrapolates[rule]):
                false = ", false extrapolates" if result.false_extrapolates[rule] else ""
                lost = result.losses.get(rule, _NOT_TO_BE_HAD)
                loss = " by {:.2f} %, at the anchor by {:.2f} %".format(*lost) if kind == WRONG else ""
                print(
                    f"host {result.number}: {rule}: {kind}{loss}{false}; "
                    f"best {result.best} by {result.margin_pct:.2f} %, "
                    f"starts {result.restart_sd_pct:.2f} %, requests {result.request_sd_pct:.2f} %, "
                    f"{', '.join(result.hardnesses)}; {result.rulings[rule].text}"
                )
            if theory := result.theory.get(rule):
                for text in (*theory.false_failures, *theory.contradicted):
                    print(f"host {result.number}: {rule}: {text}")


def _hardness(arguments: argparse.Namespace) -> Hardness:
    given: dict[str, Any] = {name: getattr(arguments, name) for name in (*RANGES, *SHARES)}
    known = {name: value for name, value in given.items() if value is not None}
    return replace(PLAIN if arguments.plain else HARD, **known)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100, metavar="N", help="hosts to draw (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="campaign seed; other seeds are other hosts (default 1)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default 1)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first host (default 0)")
    known = tuple(dict.fromkeys((*RULES, *CURVES)))
    parser.add_argument(
        "--rules",
        nargs="+",
        choices=known,
        metavar="RULE",
        help=f"only these of: {'; '.join(known)}".replace("%", "%%"),
    )
    parser.add_argument("--list", action="store_true", help="also print every host that was not decided rightly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every host's result to FILE")
    parser.add_argument("--write", nargs=2, metavar=("FILE", "SECTION"), help="put the tables into this document")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw wrong against decided and card time to FILE")
    hard = parser.add_argument_group("hardness")
    hard.add_argument("--plain", action="store_true", help="only forms, margins and deviations; others as given")
    for name in RANGES:
        flag = f"--{name.replace('_', '-')}"
        hard.add_argument(flag, nargs=2, type=float, metavar=("LOW", "HIGH"), help="percent, drawn evenly")
    for name in SHARES:
        hard.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="SHARE", help="part of the hosts, 0 to 1")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
