"""Objects drawn from seeds through whole sessions: ``python -m benchmarks.fuzz --objects 100000``.

Exits 1 when anything raised, or was contained: what containment catches is a defect all the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.behaviour.fuzz.worlds import FuzzCounts, fuzz_sessions


def main(arguments: list[str] | None = None) -> int:
    """Fuzz, print what was found, and how to see it again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000, help="at least so many")
    parser.add_argument("--seed", type=int, default=1, help="of the first world")
    parser.add_argument("--worlds", type=int, default=10**9, help="at most so many; 1 repeats one")
    parser.add_argument("--oddness", type=int, default=25, help="of a hundred objects are mangled")
    told = parser.parse_args(arguments)
    began = time.monotonic()
    tally = fuzz_sessions(
        told.seed, objects=told.objects, most_worlds=told.worlds, oddness=told.oddness
    )
    _show(tally, time.monotonic() - began)
    return 1 if tally.findings else 0


def _show(tally: FuzzCounts, took_s: float) -> None:
    print(
        f"{tally.objects} objects ({tally.rejected} not believed), {tally.sessions} sessions, "
        f"{took_s:.0f} s: {tally.binds} gangs bound, {tally.claims} claims, {tally.stops} stops, "
        f"{tally.switches} Jobs switched"
    )
    crashes = sum(each.what == "crash" for each in tally.findings)
    print(f"{crashes} crashes, {len(tally.findings) - crashes} contained faults")
    counts = Counter((each.what, each.where) for each in tally.findings)
    first = {(each.what, each.where): each for each in reversed(tally.findings)}
    for (what, where), count in counts.most_common():
        seed = first[what, where].seed
        print(f"\n{count} x {what}: {where}; again with --seed {seed} --worlds 1")
        print(first[what, where].story)


if __name__ == "__main__":
    sys.exit(main())
