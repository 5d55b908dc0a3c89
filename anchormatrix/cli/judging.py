"""The frame of the commands that judge a contract: its sessions, as options and as what they name."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.decide.effects.features import effects, without_dead
from anchormatrix.decide.left_behind import planned_sessions, read_attributions, read_outputs
from anchormatrix.planning.adaptive import MatrixDesign
from anchormatrix.planning.configured import matrix_design
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.contract import Contract, StoredContract
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import TimedSession, read_session


@dataclass(frozen=True)
class ToJudge:
    """What a command was given: configuration and design, a contract, its forms, its sessions and their files."""

    settings: Settings
    design: MatrixDesign
    contract: Contract
    forms: tuple[str, ...]
    sessions: tuple[TimedSession, ...]
    paths: tuple[Path, ...]


def judging_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--config``, ``--plan``, ``--contract`` and ``--sessions``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contract", type=Path, required=True, help="results/<contract>/contract.json")
    parser.add_argument(
        "--sessions",
        type=Path,
        nargs="*",
        help="session.json files (default: those beside the contract of the planned forms and windows)",
    )
    return parser


def read_given(args: argparse.Namespace) -> ToJudge:
    """Read what the options name. Raises :class:`InputError` for a file that is missing or not what it should be."""
    contract = read_record(args.contract, StoredContract)
    plan, settings = required_run_plan(args.plan, args.contract.resolve().parent.parent), load_settings(args.config)
    planned = plan.of(contract.id)
    paths = tuple(args.sessions or planned_sessions(args.contract.parent, planned))
    sessions = tuple(read_session(path, contract.id) for path in paths)
    return ToJudge(settings, matrix_design(settings, planned.noise), contract, planned.forms, sessions, paths)


def read_to_judge(args: argparse.Namespace) -> ToJudge:
    """The same with the sessions as they count: void where the picture is another one, or a feature did nothing."""
    given, folder = read_given(args), args.contract.parent
    outputs = read_outputs(folder, given.contract.id)
    sessions = [timed.held_to(outputs) for timed in given.sessions]
    attributions = read_attributions(folder, given.forms)
    proved = effects((timed.session for timed in sessions), attributions, given.settings.model)
    return replace(given, sessions=without_dead(sessions, proved))
