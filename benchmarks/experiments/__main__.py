"""``python -m benchmarks.experiments``: run M1 to M6, print what came of them, write the page.

Exit status 1 when something that is expected does not hold.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.experiments.page import missed, write
from benchmarks.experiments.pool import do_all
from benchmarks.experiments.scenes import ROOT, experiment_of, parts_of, scenarios, tasks_of


def main() -> int:
    """Run what was asked for; 1 when something does not hold."""
    every = scenarios()
    known = sorted({experiment_of(each.name) for each in every.values()})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments", description=__doc__)
    parser.add_argument(
        "--only", choices=known, action="append", help="run this one, write nothing"
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="(docs)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at a time (2)")
    arguments = parser.parse_args()
    chosen = arguments.only or known
    files = {file: each for file, each in every.items() if experiment_of(each.name) in chosen}
    done = {each.task.name: each for each in do_all(tasks_of(files), jobs=arguments.jobs)}
    parts, costs = parts_of(files, done)
    for line in missed(parts):
        print(f"missed: {line}", file=sys.stderr)
    if arguments.only is None:
        print(f"written: {write(arguments.docs, parts, costs)}")
    return 1 if missed(parts) else 0


if __name__ == "__main__":
    sys.exit(main())
