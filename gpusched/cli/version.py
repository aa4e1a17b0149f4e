"""``gpusched version``: what this program is made of."""

from __future__ import annotations

import argparse
from importlib import metadata

from gpusched import API_VERSION, __version__
from gpusched.cli.command import Subparsers, add_output, print_json, table

_SOLVER = "ortools"


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser("version", description="Print what this program is made of.")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the versions; the solver itself, which takes a second to import, is not loaded."""
    solver = metadata.version(_SOLVER)
    if arguments.output == "json":
        print_json(
            {
                "version": __version__,
                "apiVersion": API_VERSION,
                "solver": {"name": _SOLVER, "version": solver},
            }
        )
    else:
        print(
            table([("gpusched", __version__), ("API", API_VERSION), ("solver", f"CP-SAT {solver}")])
        )
    return 0
