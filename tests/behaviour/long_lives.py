"""A thousand lives in sessions: ``python -m tests.behaviour.long_lives --seeds 1000 [--moves]``.

Counts lives with starts that were undone at once, chains, gangs that were evicted twice and gangs
that wait though they could run; ``--say WORD`` prints what was found, and ``--stories`` the story.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from functools import partial

from tests.behaviour.histories import stability
from tests.behaviour.histories.life_stories import draw_life
from tests.behaviour.histories.session_life import SessionLife
from tests.behaviour.notation.cases import parse_cases


def live(seed, *, moves=False):
    """What was found in the life of a seed: by kind, sentences."""
    (case,) = parse_cases(draw_life(seed, moves=moves), family="life")
    try:
        life = SessionLife(case).run()
    except Exception as error:  # noqa: BLE001  # what broke is a finding like others
        return {"broken": [f"{type(error).__name__}: {error}"]}, 0, 0
    evictions = sum(isinstance(each, stability.Evicted) for each in life.journal)
    found = {
        "early": stability.early(life.journal),
        "chains": stability.chains(life.journal),
        "passed on": stability.passed_on(life.journal),
        "again": stability.again(life.journal),
        "starving": life.starving(),
        "wrong": life.wrong,
    }
    return found, evictions, life.sessions


def _one(seed, *, moves):
    return (seed, *live(seed, moves=moves))


def main():
    """Live them all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--moves", action="store_true", help="with the action consolidate")
    parser.add_argument("--say", action="append", default=[], help="kinds whose sentences to print")
    parser.add_argument("--stories", action="store_true")
    said = parser.parse_args()
    lives: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    evictions = sessions = 0
    with multiprocessing.Pool(said.jobs) as pool:
        seeds = range(said.first, said.first + said.seeds)
        for seed, found, evicted, decided in pool.imap(partial(_one, moves=said.moves), seeds):
            evictions += evicted
            sessions += decided
            for kind, sentences in found.items():
                lives[kind] += bool(sentences)
                cases[kind] += len(sentences)
                if sentences and (kind in said.say or kind in {"wrong", "broken"}):
                    sys.stdout.write("\n    ".join([f"seed {seed} {kind}", *sentences]) + "\n")
                    if said.stories:
                        sys.stdout.write(draw_life(seed, moves=said.moves) + "\n")
    sys.stdout.write(f"{said.seeds} lives, {sessions} sessions, {evictions} evictions of gangs\n")
    for kind in lives:
        sys.stdout.write(f"{kind:12} in {lives[kind]:5} lives, {cases[kind]:5} times\n")


if __name__ == "__main__":
    sys.exit(main())
