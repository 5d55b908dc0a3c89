"""Break the workflow on a virtual host in every known way, one fault at a time, and check what must hold afterwards.

For each fault the whole workflow runs in a folder of its own: the first run must end with a report or one clear error;
no finished cell may be lost, no usable number be wrong, nothing be left running, no foreign process be touched; and the
next run must complete and report what an undisturbed run reports, or say what is missing. Prints a table; exit code 1
when anything did not hold.

With --draws faults, moments, start states and numbers of cores are drawn at random from a seed, and every figure of
every output is compared. A draw depends on the seed and its number alone; what became of each is kept in
FOLDER/draws.jsonl, so that parts with one folder add up to one table.

    python scripts/fault_campaign.py --draws 200 --seed 1 --jobs 2 --folder /tmp/draws --write docs/faults.md
    python scripts/fault_campaign.py --draws 50 --from 151 --seed 1 --folder /tmp/draws
    python scripts/fault_campaign.py --draw 17 --seed 1 --folder /tmp/draws
    python scripts/fault_campaign.py --list
    python scripts/fault_campaign.py --only kill_snakemake --only disk_full_session
    python scripts/fault_campaign.py --jobs 2 --write docs/faults.md
    python scripts/fault_campaign.py --night 60 --kills 50
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import SubprocessError

from campaigns.faults.catalogue import FAULTS, Fault
from campaigns.faults.document import write_section
from campaigns.faults.draws import tables
from campaigns.faults.draws.drawing import Draw, draw
from campaigns.faults.draws.ground import Ground as DrawGround
from campaigns.faults.draws.ground import prepare_ground as prepare_draws
from campaigns.faults.draws.kinds import KINDS
from campaigns.faults.draws.trial import Outcome as DrawOutcome
from campaigns.faults.draws.trial import run_draw
from campaigns.faults.judging import Judgement
from campaigns.faults.nights import kill_and_resume
from campaigns.faults.running import Ground, Outcome, prepare_ground, run_fault, table

from anchormatrix.cli.command import FINDING, run
from anchormatrix.errors import ConfigError


def main() -> int:
    """Choose faults, try them, print."""
    arguments = _arguments()
    if arguments.list and not (arguments.draws or arguments.draw):
        print("\n".join(f"{fault.name:24} {fault.what}" for fault in FAULTS))
        return 0
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    if arguments.draws or arguments.draw:
        return _draws(arguments, folder)
    if arguments.night:
        return _night(arguments, folder)
    chosen = _chosen(arguments.only)
    ground = prepare_ground(folder / "undisturbed")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(lambda fault: _tried(fault, folder, ground), chosen))
    text = table(outcomes)
    held = sum(outcome.right for outcome in outcomes)
    skipped = sum(bool(outcome.skipped) for outcome in outcomes)
    text += f"\n\n{held - skipped} of {len(outcomes) - skipped} faults held; {skipped} could not be tried here."
    print(text)
    if arguments.write:
        write_section(arguments.write, "faults", text)
    return 0 if held == len(outcomes) else FINDING


def _tried(fault: Fault, folder: Path, ground: Ground) -> Outcome:
    begin = time.monotonic()
    outcome = run_fault(fault, folder / fault.name, ground)
    word = "not tried" if outcome.skipped else "held" if outcome.right else "DID NOT HOLD"
    print(f"{fault.name}: {word} after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    for column, judgement in outcome.judgements.items():
        if not judgement.right:
            print(f"  {column}: {judgement.text}", file=sys.stderr, flush=True)
    return outcome


def _draws(arguments: argparse.Namespace, folder: Path) -> int:
    numbers = [arguments.draw] if arguments.draw else range(arguments.begin, arguments.begin + arguments.draws)
    kinds = [kind for kind in KINDS if kind.name in arguments.only] if arguments.only else KINDS
    if len(kinds) < len(set(arguments.only)):
        raise ConfigError("is no kind of fault", where="--only", expected=", ".join(kind.name for kind in KINDS))
    drawn = [draw(arguments.seed, number, kinds) for number in numbers]
    if arguments.list:
        print("\n".join(map(str, drawn)))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    ground, record = prepare_draws(folder / "ground"), folder / "draws.jsonl"
    with ThreadPoolExecutor(arguments.jobs) as pool:
        right = list(pool.map(lambda one: _drawn(one, folder, ground, record, arguments.seed), drawn))
    text = tables.table(tables.recorded(record, arguments.seed))
    print(text)
    if arguments.write:
        write_section(arguments.write, "draws", text)
    return 0 if all(right) else FINDING


def _drawn(one: Draw, folder: Path, ground: DrawGround, record: Path, seed: int) -> bool:
    try:
        outcome = run_draw(one, folder / f"draw-{one.number}", ground)
    except (OSError, RuntimeError, SubprocessError) as error:  # the campaign's own: the other draws go on
        outcome = DrawOutcome(one, "not judged", 0, {"campaign": Judgement(False, str(error))}, 0.0)
    print(outcome, file=sys.stderr, flush=True)
    tables.append(record, tables.as_line(outcome, seed))
    return outcome.right


def _night(arguments: argparse.Namespace, folder: Path) -> int:
    result = kill_and_resume(
        folder, sessions=arguments.night, kills=arguments.kills, seed=arguments.seed,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(result.text)
    if arguments.write:
        write_section(arguments.write, "nights", result.text)
    return 0 if result.right else FINDING


def _chosen(names: list[str]) -> list[Fault]:
    known = {fault.name: fault for fault in FAULTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no fault", where="--only", expected="a name that --list shows")
    return [known[name] for name in names] or list(FAULTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the faults (with --draws: those) and end")
    parser.add_argument("--draws", type=int, default=0, metavar="N", help="instead: N random draws")
    parser.add_argument(
        "--from", type=int, default=1, metavar="K", dest="begin", help="number of the first (default 1)"
    )
    parser.add_argument("--draw", type=int, default=0, metavar="I", help="instead: this draw alone")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="try this fault (with --draws: draw this kind); may be repeated",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="faults at once (default 1)")
    parser.add_argument("--folder", type=Path, help="where the runs are made and left (default: a temporary folder)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the result into this document")
    parser.add_argument("--night", type=int, default=0, metavar="N", help="instead: a night of N sessions, killed")
    parser.add_argument("--kills", type=int, default=50, metavar="K", help="how often a night is killed (default 50)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of draws, and of the moments at which nights are killed (default 1)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
