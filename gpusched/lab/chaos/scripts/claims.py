"""What every fourth seed has beside the rest: cards on nodes, gangs whose pods claim them, and faults of claims.

Drawn from numbers of their own, so that the worlds of other seeds stay as they are.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs

from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep

EVERY: Final = 4
"""One of so many seeds has claims."""
_REMAINDER: Final = 2
_OWN: Final = ("whole", "half", "half", "either", "pair", "share", "extended", "extended")
"""What pods of a role claim; ``extended``: by a resource that a class of whole cards stands for."""
_WRITES: Final = ("resourceclaims.*", "resourceclaims.*/status", "resourceclaims.*/status")


def with_claims(script: ChaosScript) -> ChaosScript:
    """The script with cards and claims, where its seed has them."""
    if script.seed % EVERY != _REMAINDER:
        return script
    return _ClaimDraw(script).script()


class _ClaimDraw:
    """Cards, claims and faults of one script."""

    def __init__(self, script: ChaosScript) -> None:
        self._script = script
        self._rng = random.Random(f"chaos claims {script.seed}")  # noqa: S311  # repeatable
        self._steps: list[ScriptStep] = []
        self._came: list[float] = []

    def script(self) -> ChaosScript:
        """Draw what is added."""
        rng = self._rng
        self._add(0.0, "claimables")
        for step in self._script.steps:
            if step.do == "node":  # also one that comes back: its slice went with it
                self._add(step.at + 0.01, "cards", name=step.args["name"], cards=rng.randint(1, 2))
        shared = [self._named(f"shared-{number}") for number in range(rng.choice((0, 1)))]
        for number in range(rng.randint(2, 5)):
            self._gang(f"d{number}", shared)
        for _ in range(rng.randint(0, 4)):
            self._fault()
        for _ in range(rng.randint(0, 2)):
            self._change()
        ordered = sorted((*self._script.steps, *self._steps), key=lambda step: step.at)
        return attrs.evolve(self._script, steps=tuple(ordered))

    def _add(self, at: float, do: str, **args: Any) -> None:
        self._steps.append(ScriptStep(at=round(at, 3), do=do, args=args))

    def _named(self, name: str) -> str:
        self._add(0.2, "claim", name=name, asks=self._rng.choice(("whole", "half")))
        return name

    def _gang(self, name: str, shared: list[str]) -> None:
        rng = self._rng
        at = rng.choice((0.5, rng.uniform(1, 80), rng.uniform(1, 80)))
        self._came.append(max(at, 2.0))
        roles = []
        for number in range(rng.choice((1, 1, 2))):
            role: dict[str, Any] = {"name": f"w{number}", "count": rng.choice((1, 2, 2, 3))}
            kind = rng.random()
            if kind < 0.65:
                own = rng.choice(_OWN)
                role |= {"cards": 1} if own == "extended" else {"claim": own}
            elif kind < 0.8 or not shared:
                role["named"] = self._named(f"{name}-w{number}")  # of all pods of the role
            else:
                role |= {"count": 1, "named": rng.choice(shared)}  # and of other gangs
            roles.append(role)
        gang: dict[str, Any] = {"name": name, "queue": rng.choice(_leaves(self._script))}
        if rng.random() < 0.5:
            gang["priority"] = rng.choice(("low", "high"))
        if rng.random() < 0.5:
            gang["lasts"] = rng.randint(15, 90)
        gang["min"] = sum(role["count"] for role in roles)
        if rng.random() < 0.2:
            gang["min"] = rng.randint(1, gang["min"])
        self._add(at, "gang", **gang, roles=roles, by=rng.choice(("jobs", "pods")))
        if rng.random() < 0.2:
            self._add(at + rng.uniform(1, 30), "lose", gang=name, count=1)
        if rng.random() < 0.15:
            self._add(at + rng.uniform(1, 40), "ungang", gang=name, whole=rng.random() < 0.7)

    def _soon(self) -> float:
        """Just when a gang with claims has come."""
        return self._rng.choice(self._came) + self._rng.uniform(0.0, 3.0)

    def _fault(self) -> None:
        rng = self._rng
        at, lasts = self._soon(), round(rng.choice((3.0, 10.0, 25.0)) * rng.random(), 3)
        kind = rng.random()
        if kind < 0.2:
            self._add(
                at, "kill", slot=rng.randrange(self._script.daemons), writes=rng.randint(1, 8),
                answered=rng.random() < 0.5, back=round(rng.uniform(0.1, 8), 3),
            )  # fmt: skip
            return
        if kind < 0.5:
            how, rate = rng.choice((("lag", 0.5), ("lag", 3.0), ("lag", 8.0), ("replay", 0.5)))
            self._add(at, "events", how=how, kind="resourceclaims", rate=rate, **{"for": lasts})
            return
        fault: dict[str, Any] = rng.choice(
            (
                {"type": "status", "code": 409},
                {"type": "status", "code": 422},
                {"type": "status", "code": 500},
                {"type": "lost", "applied": True},
                {"type": "lost", "applied": False},
                {"type": "delay", "seconds": [0.0, 4.0]},
            )
        )
        self._add(
            at, "fault", resource=rng.choice(_WRITES), verbs=["create", "patch", "update", "delete"],
            fault=fault,
            rate=rng.choice((0.3, 1.0)), **{"for": lasts},
        )  # fmt: skip

    def _change(self) -> None:
        """A node's driver publishes another number of cards."""
        rng = self._rng
        names = sorted({step.args["name"] for step in self._script.steps if step.do == "node"})
        self._add(rng.uniform(5, 80), "cards", name=rng.choice(names), cards=rng.randint(1, 3))


def _leaves(script: ChaosScript) -> list[str]:
    """Queues that take gangs."""
    made = {step.args["name"]: step.args for step in script.steps if step.do == "queue"}
    parents = {args.get("parent") for args in made.values()}
    return [name for name in made if name not in parents]
