"""What some seeds have beside what ``draw`` gives all of them: three protections at their moment.

Drawn from numbers of their own, so that the worlds of other seeds stay as they are.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep

_SHARE: Final = 0.3
"""Of all seeds so many have a scene."""


def with_scene(script: ChaosScript) -> ChaosScript:
    """The script with a scene, where its seed has one."""
    rng = random.Random(f"chaos scene {script.seed}")  # noqa: S311  # repeatable
    if rng.random() >= _SHARE:
        return script
    scene = rng.choice((_on_their_way, _slow_to_leave, _lost_for_good))
    return scene(script, rng)


def _on_their_way(script: ChaosScript, rng: random.Random) -> ChaosScript:
    """Bindings take seconds, and the next gang comes while those of one are on their way."""
    at, gpus = rng.uniform(15, 90), _gpus(script)
    first, second = _gangs(script, rng, count=1, gpus=max(1, gpus // 2), priority="high")
    delay = {"type": "delay", "seconds": [round(rng.uniform(1.0, 3.0), 3), 4.5]}
    return _with_steps(
        script,
        _node(script, at - 1.0),
        _step(at - 1.0, "fault", resource="pods/binding", fault=delay, **{"for": 20.0}),
        _step(at, "gang", **first),
        _step(at + rng.uniform(0.1, 1.0), "gang", **second),
    )


def _slow_to_leave(script: ChaosScript, rng: random.Random) -> ChaosScript:
    """Pods that make room take long to end, and every daemon is new meanwhile.

    They fit on one node only, which is larger than all others.
    """
    at, gpus = rng.uniform(10, 90), _gpus(script) + 1
    first, second = _gangs(script, rng, count=1, gpus=gpus, priority="low")
    first["stops"], second["priority"] = rng.randint(30, 45), "high"
    when: dict[str, Any] = {"on": "eviction", "nth": 1} if rng.random() < 0.3 else {}
    killed = at + 5.0 if when else at + 5.0 + rng.uniform(0.5, 4.0)
    return _with_steps(
        script,
        _node(script, at - 0.2, gpus=gpus),
        _step(at, "gang", **first),
        _step(at + 5.0, "gang", **second),
        *(
            _step(killed, "kill", slot=slot, writes=0, back=rng.uniform(0.1, 2.0), **when)
            for slot in range(script.daemons)
        ),
    )


def _lost_for_good(script: ChaosScript, rng: random.Random) -> ChaosScript:
    """A gang loses a member that no controller makes again, and is not stopped for it.

    Its room is the only one that is large enough for the next gang.
    """
    if any(_may_take_all_of_it(step) for step in script.steps):
        return script
    at, gpus = rng.uniform(10, 60), _gpus(script) + 1
    first, second = _gangs(script, rng, count=2, gpus=gpus, priority="high")
    first["preemptible"] = False
    second["min"], second["roles"] = 1, [{**second["roles"][0], "count": 1}]
    more = _with_steps(
        script,
        _node(script, at - 0.2, gpus=2 * gpus),
        _step(at, "gang", **first),
        _step(at + 15.0, "lose", gang=first["name"], count=1, again=False),
        _step(at + 20.0, "gang", **second),
    )
    return attrs.evolve(more, stale_after="never")


def _may_take_all_of_it(step: ScriptStep) -> bool:
    """Whether the script may undo a gang that no controller completes again, which is then never at rest."""
    return (
        step.do in {"restore", "reload"}
        or "on" in step.args
        or step.args.get("stopPolicy") == "HoldAndDrain"
    )


def _gangs(
    script: ChaosScript, rng: random.Random, *, count: int, gpus: int, priority: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two alike, in one queue."""
    queue = rng.choice(_leaves(script))

    def gang(name: str) -> dict[str, Any]:
        role = {"name": "w0", "count": count, "gpus": gpus}
        shape = {"name": name, "queue": queue, "priority": priority, "min": count}
        return {**shape, "roles": [role], "by": "pods"}

    return gang("s0"), gang("s1")


def _leaves(script: ChaosScript) -> list[str]:
    """Queues that take gangs; those without a capability where there are some."""
    made = {step.args["name"]: step.args for step in script.steps if step.do == "queue"}
    parents = {args.get("parent") for args in made.values()}
    leaves = [name for name in made if name not in parents]
    lines = {name: (made[name], made.get(made[name].get("parent", ""), {})) for name in leaves}
    free = [name for name in leaves if not any("capability" in each for each in lines[name])]
    return free or leaves


def _gpus(script: ChaosScript) -> int:
    return next(int(step.args["gpus"]) for step in script.steps if step.do == "node")


def _node(script: ChaosScript, at: float, *, gpus: int = 0) -> ScriptStep:
    """Room that no gang holds yet."""
    return _step(at, "node", name="s0", gpus=gpus or _gpus(script), rack="r0")


def _step(at: float, do: str, **args: Any) -> ScriptStep:
    rounded = {
        key: round(each, 3) if isinstance(each, float) else each for key, each in args.items()
    }
    return ScriptStep(at=round(at, 3), do=do, args=rounded)


def _with_steps(script: ChaosScript, *steps: ScriptStep) -> ChaosScript:
    ordered = sorted((*script.steps, *steps), key=lambda step: step.at)
    return attrs.evolve(script, steps=tuple(ordered))
