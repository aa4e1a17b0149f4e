"""``gpusched replay``: repeat one recorded decision, and say what differs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from gpusched.base.clock import SystemClock
from gpusched.cli.command import Subparsers, add_output, print_json
from gpusched.config.load import load_file
from gpusched.io.decisions.decision_file import DecisionFile, read_decision
from gpusched.lab.recordings.replay import PlanDifference, Replay, replay_decision, version_notes

_DIGITS: Final = 12


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "replay",
        description="Decide again on what gpusched run --record-decisions wrote, and compare "
        "the plans. Exit status 0 when they are the same bytes, 1 when they are not.",
    )
    parser.add_argument("file", metavar="FILE", help="of one decision")
    parser.add_argument(
        "--config",
        metavar="F",
        help="decide under this configuration instead of the recorded one, to see what it would "
        "have changed; exit status 0",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Repeat and compare.

    Raises:
        ConfigError: the file or the configuration cannot be used.
    """
    file = read_decision(arguments.file)
    for note in version_notes(file):
        print(f"gpusched: warning: {note}", file=sys.stderr)
    config = load_file(arguments.config) if arguments.config else None
    found = replay_decision(file, clock=SystemClock(), config=config)
    if arguments.output == "json":
        print_json(_as_json(file, found, under=arguments.config))
    else:
        _print(file, found, under=arguments.config)
    return 0 if found.identical or config is not None else 1


def _as_json(file: DecisionFile, found: Replay, *, under: str | None) -> dict[str, object]:
    return {
        "file": file.path,
        "at": file.header.at,
        "config": under or file.inputs.config.source,
        "skipped": file.header.skipped,
        "identical": found.identical,
        "recorded": found.recorded,
        "plan": found.digest,
        "differences": [
            {"about": each.about, "what": each.what, "then": each.then, "now": each.now}
            for each in found.differences
        ],
        "notes": list(found.notes),
    }


def _print(file: DecisionFile, found: Replay, *, under: str | None) -> None:
    header = file.header
    print(
        f"decision {header.revision} of {header.at}: {header.gangs} gangs, {header.nodes} nodes, "
        f"under {under or file.inputs.config.source}"
    )
    if header.skipped:
        print(f"note: {header.skipped} decisions just before it were not recorded")
    if found.identical:
        print(f"identical: plan {found.digest[:_DIGITS]}")
    else:
        print(
            f"different: plan {found.digest[:_DIGITS]}, recorded {found.recorded[:_DIGITS]}; "
            f"{len(found.differences)} differences"
        )
        _print_differences(found.differences)
    for note in found.notes:
        print(f"note: {note}")


def _print_differences(found: Sequence[PlanDifference]) -> None:
    for about, group in groupby(found, key=lambda each: each.about):
        print(f"\n{about}")
        for each in group:
            print(f"  {each.what}")
            print(f"    then  {each.then or '-'}")
            print(f"    now   {each.now or '-'}")
