"""The frame of the attribution commands: a capture's options, and a result as tables on stdout and JSON in a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchormatrix.captures.cutting.cut import cut
from anchormatrix.captures.cutting.request import Request
from anchormatrix.captures.open import LIMIT_PCT, load_capture
from anchormatrix.captures.table import Capture
from anchormatrix.cli.command import FINDING
from anchormatrix.cli.tables import text_table
from anchormatrix.records.finding import Finding
from anchormatrix.store.codec import plain
from anchormatrix.store.files import write_json


def positive(text: str) -> int:
    """Parse a positive whole number."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def capture_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--profile-dir``, what refuses a capture, what is known of its request, and ``--json``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--profile-dir",
        type=Path,
        required=True,
        metavar="D",
        help="directory the profiler wrote to: ASCEND_PROFILER_OUTPUT of each rank, or one torch trace per rank; all "
        "ranks below it are read",
    )
    add_refusals(parser)
    add_request(parser)
    add_json(parser)
    return parser


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add what is known of a captured request, whose steps are then cut out of it."""
    parser.add_argument(
        "--iterations",
        type=positive,
        metavar="N",
        help="the capture is of a whole request with so many denoise steps: cut them out",
    )
    parser.add_argument(
        "--branches", type=positive, default=1, metavar="B", help="guidance branches that a rank computes in turn"
    )
    parser.add_argument("--diffuse-s", type=float, metavar="S", help="seconds of these steps as the server logged them")


def request_of(args: argparse.Namespace) -> Request | None:
    """Return the captured request; None when nothing is said of it."""
    if args.iterations is None:
        return None
    layers = getattr(args, "layers", None)
    return Request(args.iterations, branches=args.branches, layers=layers, diffuse_s=args.diffuse_s)


def cut_as_asked(capture: Capture, args: argparse.Namespace) -> Capture:
    """Return the capture with the steps of its request, where something is said of it."""
    request = request_of(args)
    return capture if request is None else cut(capture, request)


def add_refusals(parser: argparse.ArgumentParser) -> None:
    """Add what refuses a capture: an empty rank, on demand, and too many unusable rows."""
    parser.add_argument(
        "--every-rank",
        action="store_true",
        help="refuse a capture of which a rank is empty, instead of reading the others",
    )
    parser.add_argument(
        "--unusable-pct",
        type=float,
        default=LIMIT_PCT,
        metavar="P",
        help="refuse a capture of which more rows cannot be used (default: %(default)s %%)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")


def load(args: argparse.Namespace) -> Capture:
    """Read the capture and say what was read."""
    capture = load_capture(args.profile_dir, limit_pct=args.unusable_pct, every_rank=args.every_rank)
    capture = cut_as_asked(capture, args)
    show_read(capture.rows_read, capture.ranks, capture.family, capture.rows_unusable, capture.notes)
    return capture


def show_read(rows: int, ranks: Iterable[int], family: str, unusable: Mapping[str, int], notes: Iterable[str]) -> None:
    """Print what was read of a capture, and what could not be used."""
    causes = ", ".join(f"{count} {cause}" for cause, count in unusable.items())
    listed = ", ".join(map(str, ranks)) or "none"
    print(f"{rows} rows of ranks {listed} ({family}), unusable: {causes or 'none'}")
    for note in notes:
        print(f"note: {note}")


def show(title: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Print a titled table."""
    print(f"\n{title}\n{text_table(rows, columns)}")


def finish(values: Mapping[str, Any], findings: Iterable[Finding], json_file: Path | None) -> int:
    """Print findings, write the JSON, and return the exit code: 1 when something was found."""
    listed = tuple(findings)
    for finding in listed:
        print(f"\nfinding ({finding.kind}): {finding.text}" + _ranks(finding.ranks))
    if json_file:
        write_json(json_file, {**values, "findings": [plain(finding) for finding in listed]})
    return FINDING if listed else 0


def _ranks(ranks: Sequence[int]) -> str:
    return f" [rank {', '.join(map(str, ranks))}]" if ranks else ""
