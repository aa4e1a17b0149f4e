"""A script from a seed: a cluster, work with all its shapes, and faults of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from gpusched.lab.chaos.scripts.claims import with_claims
from gpusched.lab.chaos.scripts.protections import with_scene
from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep

Obj = dict[str, Any]
BUSY_S: Final = 110.0
"""Virtual seconds in which something may happen."""
_KINDS: Final = ("pods", "nodes", "podgroups", "queues", "jobs", "")
_LATENCIES: Final = ((0.0, 0.0), (0.0, 0.0), (0.001, 0.01), (0.01, 0.2), (0.05, 1.5))
_THINKS: Final = ((0.0, 0.0), (0.002, 0.03), (0.05, 0.4), (0.2, 3.0))
_ACTIONS: Final = (
    (),
    (),
    ("enqueue", "allocate", "preempt", "reclaim", "consolidate", "backfill"),
)


def draw_script(seed: int) -> ChaosScript:
    """The script of a seed."""
    return with_claims(with_scene(_ScriptDraw(seed).script()))


class _ScriptDraw:
    """One script being drawn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"chaos {seed}")  # noqa: S311  # repeatable
        self._steps: list[ScriptStep] = []
        self._gangs: list[Obj] = []
        self._came: list[float] = []
        self._leaves: list[str] = []
        self._nodes: list[str] = []
        self._made = 0
        self._gpus = self._rng.choice((2, 4, 8))
        self._daemons = self._rng.choice((1, 1, 2, 2))
        self._calls = self._rng.choice((0.0, 0.3, 1.0, 1.0))

    def script(self) -> ChaosScript:
        """Draw a whole script from the seed."""
        rng = self._rng
        self._cluster()
        for _ in range(rng.randint(3, 8)):
            self._gang()
        for _ in range(rng.randint(0, 6)):
            self._change()
        for _ in range(rng.randint(0, 5)):
            self._meanwhile()
        for _ in range(round(rng.randint(1, 7) * self._calls)):
            self._fault()
        for slot in range(self._daemons):
            begins = 1.0 if slot == 0 else rng.choice((1.0, 1.0, rng.uniform(1, 40)))
            self._add(begins, "start", slot=slot)
        steps = sorted(self._steps, key=lambda step: step.at)
        return ChaosScript(
            seed=self._seed,
            daemons=self._daemons,
            steps=tuple(steps),
            latency=rng.choice(_LATENCIES),
            thinks=rng.choice(_THINKS),
            actions=rng.choice(_ACTIONS),
        )

    def _add(self, at: float, do: str, **args: Any) -> None:
        self._steps.append(ScriptStep(at=round(at, 3), do=do, args=args))

    def _some(self, low: float = 2.0, high: float = BUSY_S) -> float:
        return self._rng.uniform(low, high)

    def _soon(self) -> float:
        """Often just when a gang has come: then there is most to get wrong."""
        rng = self._rng
        if self._came and rng.random() < 0.6:
            return rng.choice(self._came) + rng.uniform(0.0, 3.0)
        return self._some()

    # -- what there is -----------------------------------------------------------------------
    def _cluster(self) -> None:
        rng = self._rng
        for number in range(rng.randint(2, 6)):
            self._node(0.0, number)
        self._add(0.0, "topology")
        for name, value in (("low", 10), ("high", 100)):
            self._add(0.0, "priority", name=name, value=value)
        total = len(self._nodes) * self._gpus
        for number in range(rng.randint(1, 3)):
            name = f"q{number}"
            deserved = rng.randint(0, max(1, total // 2))
            self._queue(name, deserved)
            if rng.random() < 0.25:
                for child in ("a", "b"):
                    self._queue(name + child, deserved // 2, parent=name)
                    self._leaves.append(name + child)
            else:
                self._leaves.append(name)

    def _node(self, at: float, number: int) -> None:
        name = f"n{number}"
        self._nodes.append(name)
        self._add(at, "node", name=name, gpus=self._gpus, rack=f"r{number % 2}")

    def _queue(self, name: str, deserved: int, **more: Any) -> None:
        rng = self._rng
        spec: Obj = dict(more)
        if rng.random() < 0.8:
            spec["deserved"] = deserved
        if rng.random() < 0.3:
            spec["capability"] = deserved + rng.randint(1, 6)
        if rng.random() < 0.3:
            spec["weight"] = rng.randint(1, 3)
        if rng.random() < 0.15:
            spec["ordering"] = rng.choice(("Fifo", "StrictFifo", "FairShare"))
        self._add(0.0, "queue", name=name, **spec)

    # -- work --------------------------------------------------------------------------------
    def _gang(self) -> None:
        rng = self._rng
        name = f"g{len(self._gangs)}"
        at = rng.choice((0.5, self._some(1, 80), self._some(1, 80)))
        self._came.append(max(at, 2.0))
        roles = [self._role(n) for n in range(rng.choice((1, 1, 1, 2, 3)))]
        gang: Obj = {"name": name, "queue": rng.choice(self._leaves)}
        if rng.random() < 0.6:
            gang["priority"] = rng.choice(("low", "high"))
        if rng.random() < 0.15:
            gang["preemptible"] = False
        if rng.random() < 0.25:
            gang["rack"] = rng.choice(("required", "required", "preferred"))
        if rng.random() < 0.4:
            gang["lasts"] = rng.randint(15, 120)
        if rng.random() < 0.1:
            gang["gated"] = True
            self._add(at + rng.uniform(5, 30), "ungate", gang=name)
        if rng.random() < 0.2:
            gang["walltime"] = gang.get("lasts", 300)
        shape = rng.random()
        if shape < 0.12:
            for role in roles:
                role["sub"] = rng.choice((True, "rack"))
        elif shape < 0.2:
            gang["tasks"] = True
        elif shape < 0.35:
            self._alone(gang, roles[0], at)
            return
        total = sum(role["count"] for role in roles)
        full = any(role.get("sub") for role in roles) or gang.get("tasks")
        gang["min"] = total if full or rng.random() < 0.6 else rng.randint(1, total)
        gang["roles"] = roles
        self._gangs.append(gang)
        by = "pods" if gang.get("gated") else rng.choice(("jobs", "jobs", "pods"))
        self._add(at, "gang", **gang, by=by)
        if rng.random() < 0.1:
            self._add(at, "budget", gang=name, keep=rng.randint(1, total))

    def _alone(self, gang: Obj, role: Obj, at: float) -> None:
        """A Job without a PodGroup: suspended until the daemon starts it, or not."""
        gang |= {"grouped": False, "min": role["count"], "roles": [role]}
        gang["suspended"] = self._rng.random() < 0.7
        for key in ("rack", "preemptible", "gated"):
            gang.pop(key, None)
        self._gangs.append(gang)
        self._add(at, "gang", **gang, by="jobs")

    def _role(self, number: int) -> Obj:
        rng = self._rng
        role: Obj = {"name": f"w{number}", "count": rng.choice((1, 1, 2, 2, 3, 4))}
        kind = rng.random()
        if kind < 0.1:
            role["share"] = rng.choice((0.25, 0.5, 0.3))
        elif kind < 0.2:
            role["cpu"] = rng.choice(("4", "24"))
        else:
            role["gpus"] = rng.choice((1, 1, 2, self._gpus, self._gpus // 2 or 1))
        return role

    # -- what changes ------------------------------------------------------------------------
    def _change(self) -> None:
        rng = self._rng
        node, at = rng.choice(self._nodes), self._soon()
        changes: list[Callable[[], None]] = [
            lambda: self._vanish(node, at),
            lambda: self._add(at, "cordon", name=node, back=round(self._some(5, 60), 3)),
            lambda: self._add(at, "offer", name=node, gpus=rng.choice((0, 1, self._gpus)),
                              back=round(self._some(5, 60), 3)),
            lambda: self._node(at, len(self._nodes)),
            lambda: self._add(at, "foreign", name=f"other-{self._count()}", node=node,
                              gpus=rng.choice((0, 1, self._gpus)), lasts=rng.randint(5, 60)),
            lambda: self._requeue(at),
            lambda: self._of_gang(at),
            lambda: self._of_gang(at),
            lambda: self._of_gang(at),
        ]  # fmt: skip
        rng.choice(changes)()

    def _meanwhile(self) -> None:
        """Something happens just when a daemon has decided, or sends what it has."""
        rng = self._rng
        at = rng.choice(self._came) if rng.random() < 0.5 else self._some(1, 60)
        on = rng.choice(("session", "session", "binding", "binding", "eviction", "status"))
        it = "it" if on == "binding" else rng.choice(self._nodes)
        gang = "it" if on in {"binding", "eviction"} else rng.choice(self._gangs)["name"]
        nth = rng.randint(1, 6)
        do, args = rng.choice(
            (
                ("unnode", {"name": it}),
                ("cordon", {"name": it, "back": round(self._some(5, 60), 3)}),
                ("foreign", {"name": f"other-{self._count()}", "node": it,
                             "gpus": self._gpus, "lasts": 30}),
                ("lose", {"gang": gang, "count": 1}),
                ("replace", {"gang": gang}),
                ("replace", {"gang": gang}),
                ("resize", {"gang": gang, "min": rng.randint(1, 6)}),
                ("ungang", {"gang": gang, "whole": rng.random() < 0.5}),
                ("pause", {"slot": rng.randrange(self._daemons), "for": 16.5}),
            )
        )  # fmt: skip
        self._add(at, do, **args, on=on, nth=nth)

    def _count(self) -> int:
        self._made += 1
        return self._made

    def _vanish(self, node: str, at: float) -> None:
        self._add(at, "unnode", name=node)
        if self._rng.random() < 0.7:
            back = at + self._rng.choice((0.0, 0.05, self._some(1, 40)))
            rack = f"r{int(node[1:]) % 2}"
            self._add(back, "node", name=node, gpus=self._gpus, rack=rack)

    def _requeue(self, at: float) -> None:
        rng = self._rng
        queue = rng.choice(self._leaves)
        spec: Obj = rng.choice(
            (
                {"capability": rng.randint(1, 8)},
                {"deserved": rng.randint(0, 8)},
                {"stopPolicy": rng.choice(("Hold", "HoldAndDrain"))},
                {"weight": 0},
            )
        )
        self._add(at, "requeue", name=queue, **spec)
        if "stopPolicy" in spec:
            self._add(at + self._some(5, 60), "requeue", name=queue, stopPolicy="None")

    def _of_gang(self, at: float) -> None:
        rng = self._rng
        gang = rng.choice(self._gangs)
        role = rng.choice(gang["roles"])
        kind = rng.random()
        if kind < 0.3:
            self._add(at, "lose", gang=gang["name"], count=rng.randint(1, 2))
        elif kind < 0.45:
            self._add(at, "fail", gang=gang["name"])
        elif kind < 0.6 and gang.get("grouped", True) and not role.get("sub"):
            least = rng.randint(1, sum(each["count"] for each in gang["roles"]))
            self._add(at, "resize", gang=gang["name"], min=least)
        elif kind < 0.75:
            self._add(at, "ungang", gang=gang["name"], whole=rng.random() < 0.7)
        elif kind < 0.85:
            self._add(at, "replace", gang=gang["name"])
        elif kind < 0.95:
            self._add(at, "unbudget", gang=gang["name"])
        else:
            self._add(at, "unqueue", name=gang["queue"])

    # -- faults ------------------------------------------------------------------------------
    def _fault(self) -> None:
        rng = self._rng
        at, lasts = self._soon(), round(rng.choice((2.0, 8.0, 20.0, 30.0)) * rng.random(), 3)
        slot = rng.randrange(self._daemons)
        kind = rng.random()
        if kind < 0.2:
            self._kill(at, slot)
        elif kind < 0.25:
            self._add(at, "stop", slot=slot, back=round(rng.uniform(0.1, 10), 3))
        elif kind < 0.35:
            pause = rng.choice((1.0, 4.0, 9.0, 14.0, 16.0, 25.0, 45.0)) * rng.uniform(0.9, 1.1)
            self._add(at, "pause", slot=slot, **{"for": round(pause, 3)})  # fmt: skip
        elif kind < 0.39:
            by = rng.choice((86_400, -86_400, 3600, -30))
            self._add(at, "clock", slot=slot, by=by)
        elif kind < 0.46:
            self._add(at, "server", down=rng.choice((0, 0.5, 3, 12, 35)),
                      memory=rng.choice(("kept", "cut")))  # fmt: skip
        elif kind < 0.51:
            name = f"s{self._count()}"
            self._add(max(1.5, at - rng.uniform(1, 40)), "remember", name=name)
            self._add(at, "restore", name=name, down=rng.choice((0, 1, 5)))
        elif kind < 0.55:
            self._add(at, "lease", how=rng.choice(("delete", "garbage", "steal")))
        elif kind < 0.58:
            self._add(at, "reload", good=rng.random() < 0.5)
        elif kind < 0.61:
            self._add(at, "solver", how=rng.choice(("fails", "lies")), **{"for": lasts})
        elif kind < 0.72:
            how, rate = rng.choice(
                (("duplicate", 1.0), ("replay", 0.5), ("lag", 0.5), ("lag", 4.0), ("drop", 0.3))
            )
            self._add(at, "events", how=how, kind=rng.choice(_KINDS), rate=rate, **{"for": lasts})
        else:
            self._add(at, "fault", **self._rule(), **{"for": lasts})

    def _kill(self, at: float, slot: int) -> None:
        rng = self._rng
        back = round(rng.choice((0.1, 3.0, 12.0, 25.0)) * rng.random(), 3)
        if rng.random() < 0.7:
            self._add(at, "kill", slot=slot, writes=rng.randint(1, 6),
                      answered=rng.random() < 0.5, back=back)  # fmt: skip
        else:
            self._add(at, "kill", slot=slot, writes=0, back=back)

    def _rule(self) -> Obj:
        """What the API server does to requests, as fault rules have it."""
        rng = self._rng
        rate = rng.choice((0.1, 0.3, 0.7, 1.0))
        what = rng.random()
        write = rng.choice(
            ("pods/binding", "pods/binding", "pods/binding", "pods/eviction", "pods/status",
             "podgroups.*", "jobs.batch", "events.*", "leases.*", "*")
        )  # fmt: skip
        if what < 0.3:
            code = rng.choice((409, 404, 403, 401, 429, 500, 503, 504))
            fault: Obj = {"type": "status", "code": code}
            if code == 429:
                fault["retryAfter"] = rng.choice((1, 3))
            return {"resource": write, "fault": fault, "rate": rate}
        if what < 0.55:
            fault = {"type": "lost", "applied": rng.random() < 0.6}
            return {"resource": write, "fault": fault, "rate": rate}
        if what < 0.65:
            fault = {"type": "delay", "seconds": [0.0, rng.choice((0.5, 3.0, 6.0, 12.0))]}
            return {"resource": write, "fault": fault, "rate": rate}
        kind = rng.choice(("pods", "nodes", "podgroups.*", "jobs.batch", "*"))
        fault = rng.choice(
            (
                {"type": "expired"},
                {"type": "drop", "afterEvents": rng.randint(0, 6), "clean": rng.random() < 0.5},
                {"type": "stall", "afterEvents": rng.randint(0, 6)},
                {"type": "lag", "seconds": rng.choice((0.5, 3.0, 10.0))},
                {"type": "truncate", "bytes": rng.randint(0, 200)},
            )
        )
        verbs = ["list", "watch"] if fault["type"] == "expired" else ["watch"]
        if fault["type"] == "truncate":
            verbs = ["list", "get"]
        return {"resource": kind, "verbs": verbs, "fault": fault, "rate": rate}
