"""One story lived by the whole daemon, watched each second and at its end.

What is checked each second: the invariants that ``invariants.check`` knows (I1, I2, I3, I11, I15),
that a binding leaves every queue above it within its capability (I5), that nobody is evicted who
may not be, nor for another queue while its own is within what it deserves (I5, I6), that those
for whom others left get a place (I6), and that no gang is evicted again where nothing happened
since (P). At the end nothing moves any more, nobody waits who could run (I7, ``witness``), and
nothing is written at all (I10); another daemon that finds these objects writes nothing (I9).
"""

from __future__ import annotations

import re
from typing import Any, Final

import attrs

from gpusched.config.model import DEFAULT, Config
from gpusched.devcluster.storage.store import Change
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from gpusched.testing import invariants
from tests.behaviour.histories.starvation import StarvationCheck, queue_and_ancestors
from tests.behaviour.histories.stories import draw_story
from tests.behaviour.notation.cases import parse_cases
from tests.behaviour.notation.daemon import Restartable
from tests.behaviour.notation.daemon_player import DaemonPlayer
from tests.behaviour.notation.model import GPU, Case, CaseGang
from tests.behaviour.notation.objects import GROUP, GROUP_LABEL

Obj = dict[str, Any]
_GROUPS: Final = f"podgroups.{GROUP}"
_QUEUES: Final = f"queues.{GROUP}"
_CALM_S: Final = 210
"""Longer than any gang of a story lasts."""
_END_S: Final = 3000
_EDIT_S: Final = 10
_BURST_S: Final = 8
_LATE_S: Final = 6
_OWED_S: Final = 60
_FOR: Final = re.compile(r"^(reclaimed|preempted) for default/(g\d+)\b")
_WATCHED: Final = frozenset({"pods", _GROUPS, _QUEUES})


def run_history(seed: int, *, config: Config = DEFAULT) -> list[str]:
    """What was wrong in the life of this seed; nothing when all is well."""
    (case,) = parse_cases(draw_story(seed), family="story")
    return run_watched_case(case, seed=seed, config=config)


def run_watched_case(case: Case, *, seed: int, config: Config = DEFAULT) -> list[str]:
    """The same of a case, whatever it expects."""

    async def scenario(world: ClusterRun) -> list[str]:
        async with Restartable(world, config=config, seed=seed) as daemon:
            watch = LifeWatch(case, world, DaemonPlayer(case, world, daemon))
            await watch.run()
            return watch.wrong

    return simulate_cluster(scenario, options=SimulationOptions(seed=seed, daemons=0)).value


@attrs.define
class LifeWatch:
    """Eyes on one life.

    Attributes:
        wrong: what was found, each once.
        outside: when something last happened that was none of the daemon's doing.
        edited: when a queue was last changed.
        evicted: of each gang, when members were last told to go.
        late: for how many seconds a status has told what is no longer so.
        usage: GPUs held by each queue, subtrees included, in the last seconds.
        owed: gangs for which others were told to go and that were given nothing since, and when.
        between: the same after each binding since the last look.
    """

    case: Case
    world: ClusterRun
    play: DaemonPlayer
    wrong: list[str] = attrs.Factory(list)
    outside: float = 0.0
    edited: float = 0.0
    evicted: dict[str, float] = attrs.Factory(dict)
    usage: list[dict[str, int]] = attrs.Factory(list)
    between: list[dict[str, int]] = attrs.Factory(list)
    owed: dict[str, float] = attrs.Factory(dict)
    bound: set[str] = attrs.Factory(set)
    known: frozenset[str] = frozenset()
    taken: set[str] = attrs.Factory(set)
    late: dict[str, int] = attrs.Factory(dict)

    async def run(self) -> None:
        """From the beginning to the end of it."""
        busy = {gang.at_s for gang in self.case.gangs} | {each.at_s for each in self.case.events}
        edits = {each.at_s for each in self.case.events if each.verb == "queue"}
        self.world.cluster.core.store.observers.append(self._see)
        await self.play.begin()
        for second in range(self.case.seconds + 1):
            if second in busy:
                self.outside = self._now
            if second in edits:
                self.edited = self._now
            await self.play.second(second)
            self._look()
        await self._settle()
        self._starving()
        await self._stay_quiet("I10: nothing happens")
        await self.play.daemon.restart()
        await self._stay_quiet("I9: a new daemon finds the same")

    @property
    def _now(self) -> float:
        return self.world.clock.monotonic()

    def _say(self, message: str) -> None:
        if message not in self.wrong:
            self.wrong.append(message)

    # -- the end ------------------------------------------------------------------------------
    async def _settle(self) -> None:
        """Until nothing moved for a while: no pod came, was bound, was told to go or ended."""
        calm, before = 0, self._state()
        for _ in range(_END_S):
            await self.play.second(-1)
            self._look()
            now = self._state()
            calm, before = (calm + 1, now) if now == before else (0, now)
            if calm >= _CALM_S:
                return
        self._say(f"I10: pods still move after {_END_S} s in which nothing happened")

    def _starving(self) -> None:
        """I7: who could run runs."""
        client = self.world.client
        queues = {each["metadata"]["name"]: each["spec"] for each in client.list(_QUEUES)}
        witness = StarvationCheck(
            self.case, client.list("pods"), client.list("nodes"), client.list(_GROUPS), queues
        )
        for each in witness.starving():
            self._say(each)

    async def _stay_quiet(self, what: str) -> None:
        before, counted = self._state(), []

        def see(kind: str, change: Change) -> None:
            if kind in _WATCHED:
                counted.append(f"{kind} {change.key}")

        observers = self.world.cluster.core.store.observers
        observers.append(see)
        for _ in range(40):
            await self.play.second(-1)
            self._look()
        observers.remove(see)
        if self._state() != before:
            self._say(f"{what}, and pods moved: {sorted(before ^ self._state())[:4]}")
        elif counted:
            self._say(f"{what}, and there were writes: {sorted(set(counted))[:4]}")

    def _state(self) -> frozenset[str]:
        return frozenset(
            f"{pod['metadata']['name']} {pod['spec'].get('nodeName')} {pod['status'].get('phase')}"
            for pod in self.world.client.list("pods")
        )

    # -- each write --------------------------------------------------------------------------
    def _see(self, kind: str, change: Change) -> None:
        """Remember what queues held after each binding: between two looks much may pass."""
        if kind != "pods" or not change.after.obj["spec"].get("nodeName"):
            return
        for each in change.after.obj["status"].get("conditions") or ():
            found = _FOR.search(each.get("message") or "")
            if each["type"] == "DisruptionTarget" and found:
                self.owed.setdefault(found[2], self._now)
                self._judge(change.after.obj["metadata"]["name"], found[1], self._gang(found[2]))
        if change.before is None or not change.before.obj["spec"].get("nodeName"):
            client = self.world.client
            queues = {each["metadata"]["name"]: each["spec"] for each in client.list(_QUEUES)}
            self.between.append(self._held(client.list("pods"), queues))
            self.owed.pop(self._of(change.after.obj["metadata"]["name"]).name, None)

    def _judge(self, pod: str, how: str, claimant: CaseGang) -> None:
        """I6: preempted is who is lower in the same queue, reclaimed who is of another one."""
        victim = self._of(pod)
        own = victim.queue == claimant.queue
        if how == "preempted" and not (own and victim.priority < claimant.priority):
            self._say(f"I6: {victim.name} is preempted for {claimant.name}, which is not above it")
        if how == "reclaimed" and own:
            self._say(f"I6: {victim.name} is reclaimed for {claimant.name} of its own queue")

    # -- each second --------------------------------------------------------------------------
    def _look(self) -> None:
        client = self.world.client
        pods = client.list("pods")
        found = {
            "pods": pods,
            "nodes": client.list("nodes"),
            "podgroups": client.list(_GROUPS),
        }
        said = invariants.check(found, now=self.world.clock.now())
        self.late = {each: self.late.get(each, 0) + 1 for each in said if each.startswith("I15")}
        for each in said:
            if self.late.get(each, _LATE_S) >= _LATE_S:
                self._say(each)
        names = frozenset(
            p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Succeeded"
        )
        gone = self.known - names
        if any(name not in self.play.taken for name in gone):
            self.outside = self._now
        self.known = names
        for name, since in self.owed.items():
            if self._now - since > _OWED_S and self.outside < since:
                self._say(f"I6: others left for {name}, and it got nothing")
        queues = {each["metadata"]["name"]: each["spec"] for each in client.list(_QUEUES)}
        held = self._held(pods, queues)
        self._capability(pods, queues, held)
        self._evictions(queues)
        self.usage = [*self.usage[-_BURST_S:], held]
        self.between.clear()

    def _held(self, pods: list[Obj], queues: dict[str, Obj]) -> dict[str, int]:
        total = dict.fromkeys(queues, 0)
        for pod in pods:
            if not pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            if pod["status"].get("phase") in {"Succeeded", "Failed"}:
                continue
            gang = self._gang(pod["metadata"]["labels"][GROUP_LABEL])
            gpus = invariants.pod_requests(pod).get(GPU, 0)
            for name in queue_and_ancestors(gang.queue, queues):
                total[name] += gpus
        return total

    def _capability(self, pods: list[Obj], queues: dict[str, Obj], held: dict[str, int]) -> None:
        """I5: what is newly bound leaves every queue above it within its capability."""
        bound = {p["metadata"]["name"] for p in pods if p["spec"].get("nodeName")}
        fresh, self.bound = bound - self.bound, bound
        if self._now - self.edited < _EDIT_S:
            return
        for name in sorted(fresh):
            for queue in queue_and_ancestors(self._of(name).queue, queues):
                cap = (queues[queue].get("capability") or {}).get(GPU)
                if cap is not None and held[queue] > int(cap):
                    self._say(f"I5: {queue} holds {held[queue]} GPUs of its capability {cap}")

    def _evictions(self, queues: dict[str, Obj]) -> None:
        fresh, self.taken = self.play.taken - self.taken, set(self.play.taken)
        for gang in {self._of(name).name: self._of(name) for name in fresh}.values():
            last = self.evicted.get(gang.name)
            if last is not None and self._now - last > _BURST_S and self.outside < last:
                self._say(f"P: {gang.name} is evicted again, and nothing happened since")
            self.evicted[gang.name] = self._now
            broken = self._is_broken(gang)
            if not gang.may_be_evicted and not broken:
                self._say(f"I6: {gang.name} may not be evicted, and was")
            if broken or self._has_claimant(gang) or self._now - self.edited < _EDIT_S:
                continue
            levels = list(queue_and_ancestors(gang.queue, queues))
            if not any(self._was_over(queue, queues[queue]) for queue in levels):
                self._say(f"I5: {gang.name} is reclaimed from {gang.queue}, within its share")

    def _was_over(self, queue: str, spec: Obj) -> bool:
        deserved = int((spec.get("deserved") or {}).get(GPU, 0))
        known = (*self.usage, *self.between)
        return any(held.get(queue, 0) > deserved for held in known)

    def _has_claimant(self, victim: CaseGang) -> bool:
        """Whether a higher gang of its queue waits or started only now."""
        return any(
            gang.queue == victim.queue and gang.priority > victim.priority
            for gang in self.case.gangs
        )

    def _is_broken(self, gang: CaseGang) -> bool:
        """Whether it lost members by a failure, of which more may have to go."""
        return any(self._of(name).name == gang.name for name in self.play.struck)

    def _gang(self, name: str) -> CaseGang:
        return next(gang for gang in self.case.gangs if gang.name == name)

    def _of(self, pod: str) -> CaseGang:
        return self._gang(pod.partition("-")[0])
