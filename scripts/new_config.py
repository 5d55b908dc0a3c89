"""Write a first configuration for a host: at most eight questions, the rest is detected or read from the model's files.

python scripts/new_config.py my-host.yaml                                  asks
python scripts/new_config.py my-host.yaml --yes                            takes every default
python scripts/new_config.py my-host.yaml --model /data/Wan2.2 --sizes 4   does not ask what is given

Nothing is started on the host. A file that exists is not overwritten without --force.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anchormatrix.cli.command import run
from anchormatrix.errors import ConfigError
from anchormatrix.new_config.answers import HOST, QUESTIONS, Known, Question, answered
from anchormatrix.new_config.detect import count_cards, detect, host_settings, size_for
from anchormatrix.new_config.make import make_config
from anchormatrix.new_config.text import Draft
from anchormatrix.records.settings.things import DeviceSettings
from anchormatrix.records.settings.values import DeviceKind
from anchormatrix.store.files import write_text


def main() -> int:
    """Parse, detect, ask, write."""
    args = _arguments()
    if args.file.exists() and not args.force:
        raise ConfigError("is there already", where=str(args.file), todo="name another file, or add --force")
    where = _answer(HOST, {}, args)
    seen = detect(host_settings(where, args.alias or "new"))
    known: dict[str, Any] = {"detected": seen}
    host = host_settings(where, args.alias or seen.name)
    for question in QUESTIONS:
        if question.name == "sizes":
            cpu = known["device"] == DeviceKind.CPU
            known["size"] = "1,2" if cpu else f"{size_for(count_cards(host, DeviceSettings(kind=known['device'])))}"
        known[question.name] = _answer(question, known, args)
    *wrapper, program = known["command"]
    python = "python3" if wrapper else seen.pythons.get(Path(program).name, "python3")
    draft = Draft(
        host=host,
        detected=seen,
        device=DeviceKind(known["device"]),
        engine=known["engine"],
        command=known["command"],
        python=tuple(args.python or [*wrapper, python]),
        model=known["model"],
        output=known["output"],
        guidance=known["guidance"],
        sizes=known["sizes"],
    )
    write_text(args.file, make_config(draft))
    print(f"{args.file} is written. Next: python scripts/doctor.py --config {args.file}")
    return 0


def _answer(question: Question, known: Known, args: argparse.Namespace) -> Any:
    """The answer given as an option, else the default with --yes, else what a person types; nothing typed: default."""
    given = getattr(args, question.name)
    default = question.default(known)
    if given is None and not args.yes:
        try:
            given = input(f"{question.text}{f' [{default}]' if default else ''}: ")
        except EOFError:
            raise ConfigError(
                "no answer", where=f"--{question.name}", todo="give it as an option, or add --yes"
            ) from None
    return answered(question, given or default)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="the configuration to write")
    for question in (HOST, *QUESTIONS):
        parser.add_argument(f"--{question.name}", metavar="ANSWER", help=question.text)
    parser.add_argument("--alias", help="the host's name in contracts and reports (default: its own)")
    parser.add_argument("--python", nargs="+", metavar="WORD", help="starts Python in the engine's environment")
    parser.add_argument("--yes", action="store_true", help="take the defaults for what is not given")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
