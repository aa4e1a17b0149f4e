"""Play a case on the whole daemon: an embedded cluster, virtual time, nothing but the API.

What runs is there before the daemon starts, so that its first session sees all of the case at
once. Who is evicted is made anew as a waiting pod of another name, as an owner would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from gpusched.config.model import DEFAULT, Config
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from tests.behaviour.notation import objects
from tests.behaviour.notation.daemon import Restartable
from tests.behaviour.notation.model import Case, CaseGang, Event, Seen
from tests.behaviour.notation.objects import GROUP_LABEL, NAMESPACE, Member

Obj = dict[str, Any]
_BEGIN_S: Final = 5.0
_APART_S: Final = 1.0
_SLOW_S: Final = 60.0
_GROUPS: Final = f"podgroups.{objects.GROUP}"
_QUEUES: Final = f"queues.{objects.GROUP}"


def play_on_daemon(case: Case, *, config: Config = DEFAULT, seed: int = 1) -> dict[str, Seen]:
    """What came of each gang of the case.

    Raises:
        GpuschedError: the daemon broke.
        TimeoutError: what should run from the start does not.
    """

    async def scenario(world: ClusterRun) -> dict[str, Seen]:
        async with Restartable(world, config=case.config(config), seed=seed) as daemon:
            return await DaemonPlayer(case, world, daemon).run()

    return simulate_cluster(scenario, options=SimulationOptions(seed=seed, daemons=0)).value


@attrs.define
class DaemonPlayer:
    """One run of one case: ``run`` is all of it; ``begin`` and ``second`` are its steps.

    Attributes:
        alive: the pods that are there, by name.
        taken: names of the pods that held a node and were told to go, but by the case itself.
        struck: names of the pods that the case itself took away.
        at: pods that held a node, by gang and second.
        going: when each pod was first seen to be told to go.
    """

    case: Case
    world: ClusterRun
    daemon: Restartable
    alive: dict[str, Member] = attrs.Factory(dict)
    taken: set[str] = attrs.Factory(set)
    struck: set[str] = attrs.Factory(set)
    at: dict[str, dict[int, int]] = attrs.Factory(dict)
    going: dict[str, float] = attrs.Factory(dict)
    made: int = 0

    async def run(self) -> dict[str, Seen]:
        """From the beginning to what came of it."""
        await self.begin()
        for second in range(self.case.seconds + 1):
            await self.second(second)
        return {gang.name: self._seen(gang) for gang in self.case.gangs}

    async def begin(self) -> None:
        """Everything is there that is there from the start, and the daemon starts."""
        await self._begin()
        self.daemon.start()

    async def second(self, second: int) -> None:
        """What the case has for this second, and the second itself."""
        if second == self.case.seconds // 2:
            self._let_go()
        for gang in self.case.gangs:
            if gang.at_s == second and second:
                self._come(gang)
        for event in self.case.events:
            if event.at_s == second:
                await self._happen(event)
        for check in self.case.checks:
            if check.at_s == second:
                self.at.setdefault(check.gang, {})[second] = len(self._nodes(check.gang))
        await self.world.clock.sleep(1.0)
        self.daemon.check()
        self._look()

    # -- what the case says ------------------------------------------------------------------
    async def _begin(self) -> None:
        client, clock = self.world.client, self.world.clock
        for node in self.case.nodes:
            client.create("nodes", objects.node(node))
        for made in objects.priorities(self.case):
            client.create("priorityclasses.scheduling.k8s.io", made)
        if self.case.levels:
            client.create(f"topologies.{objects.GROUP}", objects.topology(self.case))
        for queue in self.case.queues:
            client.create(_QUEUES, objects.queue(queue))
            await clock.sleep(_APART_S)
        for gang in self.case.gangs:
            if not gang.at_s:
                self._come(gang)
                await clock.sleep(_APART_S)
        bound = [name for name, member in self.alive.items() if member.kind.node]
        await self.world.until(lambda: self._run(bound), within_s=60)
        await clock.sleep(_BEGIN_S)
        for name, member in self.alive.items():
            if member.kind.leaving:
                client.delete("pods", NAMESPACE, name)

    def _come(self, gang: CaseGang) -> None:
        client = self.world.client
        client.create(_GROUPS, objects.group(gang))
        if gang.keep is not None:
            client.create("poddisruptionbudgets.policy", objects.budget(gang))
        for member in objects.members(gang):
            body = objects.pod(member, owned=self.case.moves)
            client.create("pods", body)
            self.alive[body["metadata"]["name"]] = member

    def _run(self, names: list[str]) -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in self.world.client.list("pods")}
        return all(pods[name]["status"].get("phase") == "Running" for name in names)

    async def _happen(self, event: Event) -> None:
        client = self.world.client
        if event.verb == "node":
            for node in event.nodes:
                client.create("nodes", objects.node(node))
        elif event.verb == "lose":
            client.delete("nodes", None, event.name)
            self._strike(lambda pod: pod["spec"].get("nodeName") == event.name)
        elif event.verb == "kill":
            prefix = f"{GROUP_LABEL}={event.name}"
            pods = client.list("pods", NAMESPACE, prefix)
            doomed = [p["metadata"]["name"] for p in pods if p["spec"].get("nodeName")]
            last = set(doomed[-event.count :])
            self._strike(lambda pod: pod["metadata"]["name"] in last)
        elif event.verb == "ungate":
            for pod in client.list("pods", NAMESPACE, f"{GROUP_LABEL}={event.name}"):
                patch: Obj = {"spec": {"schedulingGates": []}}
                client.patch("pods", NAMESPACE, pod["metadata"]["name"], patch)
        elif event.verb == "min":
            client.patch(_GROUPS, NAMESPACE, event.name, {"spec": {"minMember": event.count}})
        elif event.verb == "queue" and event.queue is not None:
            body = objects.queue(event.queue)
            client.patch(_QUEUES, None, event.queue.name, {"spec": body["spec"]})
        elif event.verb == "restart":
            await self.daemon.restart()

    def _strike(self, doomed: Any) -> None:
        """Pods go as by a failure: at once, and nobody evicted them."""
        for pod in self.world.client.list("pods"):
            if doomed(pod):
                name = pod["metadata"]["name"]
                self.struck.add(name)
                self.world.client.delete("pods", NAMESPACE, name, grace_s=0)

    def _let_go(self) -> None:
        """Pods that the case lets leave are gone from now on, and stay gone."""
        for name, member in list(self.alive.items()):
            if member.kind.leaving:
                self._unhold(name)
                del self.alive[name]

    def _unhold(self, name: str) -> None:
        patch: Obj = {"metadata": {"finalizers": []}}
        self.world.client.patch("pods", NAMESPACE, name, patch)

    # -- what comes of it --------------------------------------------------------------------
    def _look(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self.world.client.list("pods")}
        for name, member in list(self.alive.items()):
            pod = pods.get(name)
            if pod is not None and pod["status"].get("phase") == "Succeeded":
                del self.alive[name]
                continue
            going = pod is None or _is_going(pod)
            if not going or member.kind.leaving:
                continue
            if name not in self.struck:
                self.taken.add(name)
            if pod is not None and pod["metadata"].get("deletionTimestamp"):
                since = self.going.setdefault(name, self.world.clock.monotonic())
                if member.kind.slow and self.world.clock.monotonic() - since >= _SLOW_S:
                    self._unhold(name)
                continue
            del self.alive[name]
            if self.case.again:
                self._make_again(member)

    def _make_again(self, member: Member) -> None:
        self.made += 1
        name = f"{member.gang.name}-again-{self.made}"
        again = member.again()
        body = objects.pod(again, name=name, owned=self.case.moves)
        self.world.client.create("pods", body)
        self.alive[name] = again

    def _nodes(self, gang: str) -> dict[str, str]:
        pods = self.world.client.list("pods", NAMESPACE, f"{GROUP_LABEL}={gang}")
        return dict(_holding(pods))

    def _seen(self, gang: CaseGang) -> Seen:
        group = self.world.client.get(_GROUPS, NAMESPACE, gang.name) or {}
        conditions = (group.get("status") or {}).get("conditions") or ()
        pods = self.world.client.list("pods", NAMESPACE, f"{GROUP_LABEL}={gang.name}")
        return Seen(
            nodes=self._nodes(gang.name),
            evicted=sum(1 for name in self.taken if _of(name, f"{gang.name}-")),
            at=self.at.get(gang.name, {}),
            done=sum(1 for pod in pods if pod["status"].get("phase") == "Succeeded"),
            told=tuple((each["reason"], each["message"]) for each in conditions),
            slots={
                pod["metadata"]["name"]: (
                    pod["spec"]["nodeName"],
                    pod["metadata"]["annotations"].get("gpusched.io/slots", ""),
                )
                for pod in pods
                if pod["metadata"]["name"] in self._nodes(gang.name)
            },
        )


def _of(name: str, stem: str) -> bool:
    rest = name.removeprefix(stem)
    return rest != name and rest.removeprefix("again-").isdigit()


def _holding(pods: list[Obj]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if node and not _is_going(pod) and pod["status"].get("phase") != "Succeeded":
            yield pod["metadata"]["name"], node


def _is_going(pod: Obj) -> bool:
    failed = pod["status"].get("phase") == "Failed"
    return bool(pod["metadata"].get("deletionTimestamp")) or failed
