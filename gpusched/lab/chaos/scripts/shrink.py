"""A script that fails made shorter as long as it still breaks the same invariant.

Delta debugging: halves, quarters and so on down to single steps are left out; then what a step
says is made simpler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep

TRIES_MAX: Final = 400
"""Runs that one shrinking may take: some minutes."""
Fails = Callable[[ChaosScript], bool]


def shrink_script(script: ChaosScript, fails: Fails, *, tries: int = TRIES_MAX) -> ChaosScript:
    """The shortest script found that still fails.

    Args:
        script: it fails.
        fails: whether a script fails in the same way.
        tries: how many runs it may take.
    """
    left = [tries]

    def test(candidate: ChaosScript) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate)

    script = _fewer(script, test)
    for simpler in (_settings, _daemons):
        script = simpler(script, test)
    script = _simpler_steps(script, test)
    return _fewer(script, test)


def _fewer(script: ChaosScript, test: Fails) -> ChaosScript:
    """Leave out steps, many at a time and then fewer, until none can go."""
    steps: Sequence[ScriptStep] = script.steps
    size = max(1, len(steps) // 2)
    while True:
        before = len(steps)
        start = 0
        while start < len(steps):
            rest = (*steps[:start], *steps[start + size :])
            if test(attrs.evolve(script, steps=rest)):
                steps = rest
            else:
                start += size
        if size > 1:
            size = max(1, size // 2)
        elif len(steps) == before:
            return attrs.evolve(script, steps=tuple(steps))


def _settings(script: ChaosScript, test: Fails) -> ChaosScript:
    for change in ({"latency": (0.0, 0.0)}, {"thinks": (0.0, 0.0)}, {"actions": ()}):
        candidate = attrs.evolve(script, **change)
        if candidate != script and test(candidate):
            script = candidate
    return script


def _daemons(script: ChaosScript, test: Fails) -> ChaosScript:
    if script.daemons > 1:
        steps = tuple(each for each in script.steps if each.args.get("slot", 0) == 0)
        candidate = attrs.evolve(script, daemons=1, steps=steps)
        if test(candidate):
            return candidate
    return script


def _simpler_steps(script: ChaosScript, test: Fails) -> ChaosScript:
    for number in range(len(script.steps)):
        for step in _simpler(script.steps[number]):
            steps = (*script.steps[:number], step, *script.steps[number + 1 :])
            candidate = attrs.evolve(script, steps=steps)
            if test(candidate):
                script = candidate
    return script


def _simpler(step: ScriptStep) -> Iterator[ScriptStep]:
    """The same step with less in it: without options, with one role, at a round time."""
    for key in ("priority", "lasts", "walltime", "rack", "tasks", "weight", "ordering"):
        if key in step.args and step.do in {"gang", "queue"}:
            yield _without(step, key)
    roles: Any = step.args.get("roles", ())
    if len(roles) > 1:
        for kept in roles:
            least = min(int(step.args.get("min", 1)), int(kept["count"]))
            yield attrs.evolve(step, args={**step.args, "roles": [kept], "min": least})
    if step.at != round(step.at):
        yield attrs.evolve(step, at=float(round(step.at)))


def _without(step: ScriptStep, key: str) -> ScriptStep:
    return attrs.evolve(
        step, args={name: value for name, value in step.args.items() if name != key}
    )
