"""Two hundred seeds, and those that found something: nothing crashes and every invariant holds."""

from __future__ import annotations

import logging
from functools import cache

import pytest

from gpusched.lab.chaos.campaign import play_seed
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.scripts.script import ScriptStep
from tests.populations import WHOLE

SEEDS = range(200)
EACH_KIND = (10, 28, 37, 59, 74, 85, 103, 112, 115, 127, 131, 135, 163, 166, 179, 189, 199)
"""Seeds that meet every kind of step, fault and gang that any of the two hundred meets."""
SAMPLE = sorted({*EACH_KIND, *SEEDS[::15]})
PLAYED = SEEDS if WHOLE else SAMPLE

_WHAT_ELSE = ("resource", "how", "kind", "memory", "down", "good", "by", "stopPolicy")
_OF_GANGS = ("grouped", "gated", "tasks", "rack", "suspended", "preemptible")


@pytest.fixture
def silent():
    """Daemons that are killed and starved log thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _kinds_of_step(step: ScriptStep) -> set[tuple[str, ...]]:
    args = step.args
    found: set[tuple[str, ...]] = {(step.do,)}
    if "on" in args:
        found |= {("on", args["on"]), ("on", step.do)}
    for key in _WHAT_ELSE if step.do != "gang" else (*_OF_GANGS, "by"):
        if key in args:
            found.add((step.do, key, str(args[key])))
    for key in ("capability", "deserved", "weight", "walltime"):
        if key in args:
            found.add((step.do, key))
    if step.do == "kill":
        found.add(("kill", str(args["writes"] > 0), str(args.get("answered"))))
    if step.do == "fault":
        fault = args["fault"]
        about = [fault.get(key) for key in ("code", "applied", "clean")]
        found.add(("fault", fault["type"], str(about)))
    for role in args.get("roles", ()):
        found |= {("role", key) for key in ("share", "cpu", "sub") if key in role}
    return found


@cache
def kinds_met(seed: int) -> frozenset[tuple[str, ...]]:
    """What the script of a seed draws: kinds of steps, of faults with their answers, of gangs."""
    script = draw_script(seed)
    ways = {
        ("latency", str(script.latency)), ("thinks", str(script.thinks)),
        ("actions", str(len(script.actions))), ("daemons", str(script.daemons)),
    }  # fmt: skip
    return frozenset(ways.union(*map(_kinds_of_step, script.steps)))


def test_the_sample_meets_every_kind_of_fault() -> None:
    """A kind that only other seeds draw would be met by ``make soak`` alone."""
    every = frozenset().union(*map(kinds_met, SEEDS))
    missed = every.difference(*map(kinds_met, SAMPLE))
    where = {kind: [seed for seed in SEEDS if kind in kinds_met(seed)] for kind in missed}
    assert where == {}, "add one seed of each"
    assert len(every) > 100


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
