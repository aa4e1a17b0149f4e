"""A sample of two hundred seeds, and seeds that found something: every invariant holds.

The sample meets whatever any of the two hundred meets; ``make chaos`` and ``make soak`` play all.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import pytest

from gpusched.lab.chaos.campaign import play_seed
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.scripts.script import ChaosScript
from tests.populations import WHOLE

SEEDS = range(200)
SAMPLE = 20
_WAYS = ("on", "how", "kind", "memory", "good", "answered", "whole", "by", "again")
"""Arguments of a step by which it is another kind of step."""


def kinds_of_steps(script: ChaosScript) -> set[Hashable]:
    """What a script does, in which way and on which occasion, and what befalls requests in it."""
    kinds: set[Hashable] = {("daemons", script.daemons)}
    for step in script.steps:
        kinds |= {step.do, *((step.do, argument) for argument in step.args)}
        kinds |= {(step.do, way, str(step.args[way])) for way in _WAYS if way in step.args}
        kinds |= {("role", key) for role in step.args.get("roles", ()) for key in role}
        if step.do == "fault":
            fault = step.args["fault"]
            kinds.add((fault["type"], fault.get("code"), fault.get("applied")))
    return kinds


def choose_sample(met: Mapping[int, set[Hashable]], size: int) -> Sequence[int]:
    """Seeds that together meet all that any seed meets, and more of them, evenly spread.

    Each that is taken meets most of what was not met yet.
    """
    left, chosen = set().union(*met.values()), set()
    while left:
        best = max(met, key=lambda seed: (len(met[seed] & left), -seed))
        chosen.add(best)
        left -= met[best]
    others = [seed for seed in met if seed not in chosen]
    wanted = max(0, size - len(chosen))
    return sorted(chosen | {others[len(others) * n // wanted] for n in range(wanted)})


MET = {seed: kinds_of_steps(draw_script(seed)) for seed in SEEDS}
PLAYED = SEEDS if WHOLE else choose_sample(MET, SAMPLE)


@pytest.fixture
def silent():
    """Daemons that are killed and starved log thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_what_is_played_meets_every_kind_of_step_and_fault():
    assert set().union(*(MET[seed] for seed in PLAYED)) == set().union(*MET.values())
    faults = {kind[:2] for kind in set().union(*MET.values()) if isinstance(kind, tuple)}
    assert {("status", code) for code in (401, 403, 404, 409, 422, 429, 500, 503, 504)} <= faults
    assert len(PLAYED) in {SAMPLE, len(SEEDS)}


def test_all_of_them_are_played_by_make_chaos_and_that_by_ci():
    root = Path(__file__).parents[3]
    recipe = (root / "Makefile").read_text().partition("\nchaos: setup ##")[2].splitlines()[1]
    assert f"gpusched chaos --seeds {SEEDS[0]}-{SEEDS[-1]} " in recipe
    assert (root / ".ci" / "run").read_text().splitlines()[-2:] == ["make test", "make chaos"]


@pytest.mark.parametrize("seed", PLAYED)
def test_a_seed(silent, seed):
    run = play_seed(seed)
    found = [str(each) for each in run.seen]
    assert run.ok, f"gpusched chaos --seeds {seed} --shrink shows why: {found}"


@pytest.mark.parametrize("seed", [8032, 8394])
def test_two_gangs_do_not_take_turns_with_each_others_room(silent, seed):
    """A promise that was taken back stood in the API for a second, and counted in each session."""
    run = play_seed(seed)
    assert run.ok, [str(each) for each in run.seen]
