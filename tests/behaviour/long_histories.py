"""Thousands of random lives: ``python tests/behaviour/long_histories.py --seeds 1000 [--first 0]``.

Prints each life that is not right with its story, which ``tests/behaviour/cases`` understands.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys

from tests.behaviour.histories.histories import draw_story, run_history


def one(seed):
    """The seed, and what was wrong in it."""
    try:
        return seed, run_history(seed)
    except Exception as error:  # noqa: BLE001  # what broke is a finding like others
        return seed, [f"{type(error).__name__}: {error}"]


def main():
    """Live them all; the exit status says whether all were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stories", action="store_true", help="print the stories that failed")
    said = parser.parse_args()
    bad = 0
    with multiprocessing.Pool(said.jobs) as pool:
        for seed, wrong in pool.imap(one, range(said.first, said.first + said.seeds)):
            if wrong:
                bad += 1
                sys.stdout.write("\n    ".join([f"seed {seed}", *wrong]) + "\n")
                if said.stories:
                    sys.stdout.write(draw_story(seed) + "\n")
                sys.stdout.flush()
    sys.stdout.write(f"{said.seeds - bad} of {said.seeds} lives are right\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
