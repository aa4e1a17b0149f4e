"""Joint search against first fit on random clusters: ``python -m benchmarks.joint_devices [CLUSTERS]``.

Exit status 1 where a gang was refused that could run, or started that cannot.
"""

from __future__ import annotations

import sys

from gpusched.lab.experiments.random_partitions import play_random

CLUSTERS = 200


def main(count: int) -> int:
    """Print how many gangs each starts; 1 where the search was wrong."""
    found = [play_random(seed) for seed in range(count)]
    wrong = [seed for seed, each in enumerate(found) if each.joint != each.feasible or each.fault]
    rows = (
        ("clusters", count),
        ("gangs that can run (everything was tried)", sum(each.feasible for each in found)),
        ("started by gpusched", sum(each.joint for each in found)),
        ("started whole by first fit", sum(each.first_fit == len(each.pods) for each in found)),
        ("refused by gpusched, no way exists", sum(not (e.joint or e.feasible) for e in found)),
        ("set aside by a fault of the session", sum(bool(each.fault) for each in found)),
        ("refused by gpusched although there is a way", sum(e.feasible > e.joint for e in found)),
    )
    for name, value in rows:
        print(f"{name:<46}{value:>5}")
    if wrong:
        print(f"wrong: seeds {wrong[:10]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CLUSTERS))
