"""Play a case on the whole daemon: an embedded cluster, virtual time, nothing but the API.

What runs is there before the daemon starts, so that its first session sees all of the case at
once. Who is evicted is made anew as a waiting pod of another name, as an owner would do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from gpusched.app import App, AppOptions
from gpusched.config.model import DEFAULT, Config
from gpusched.simulate import SimulationOptions, World, simulate
from gpusched.testing.cases import objects
from gpusched.testing.cases.model import Case, CaseGang, CasePods, Seen
from gpusched.testing.cases.objects import GROUP_LABEL, NAMESPACE

Obj = dict[str, Any]
_BEGIN_S: Final = 5.0
_APART_S: Final = 1.0
_OVER: Final = ("Succeeded", "Failed")


def play(case: Case, *, config: Config = DEFAULT, seed: int = 1) -> dict[str, Seen]:
    """What came of each gang of the case.

    Raises:
        GpuschedError: the daemon broke.
        TimeoutError: what should run from the start does not.
    """

    async def scenario(world: World) -> dict[str, Seen]:
        return await _Play(case, world, config=config, seed=seed).run()

    return simulate(scenario, options=SimulationOptions(seed=seed, daemons=0)).value


@attrs.define
class _Play:
    """One run of one case.

    Attributes:
        alive: gang and kind of each pod that is there, by name.
        taken: names of the pods that held a node and were told to go, but by the case itself.
    """

    case: Case
    world: World
    config: Config = attrs.field(kw_only=True)
    seed: int = attrs.field(kw_only=True)
    alive: dict[str, tuple[CaseGang, CasePods]] = attrs.Factory(dict)
    taken: set[str] = attrs.Factory(set)
    made: int = 0

    async def run(self) -> dict[str, Seen]:
        await self._begin()
        async with self._daemon() as daemon:
            half = self.case.seconds // 2
            for second in range(self.case.seconds):
                if second == half:
                    self._let_go()
                await self.world.clock.sleep(1.0)
                if daemon.done():
                    daemon.result()
                self._look()
            return {gang.name: self._seen(gang) for gang in self.case.gangs}

    async def _begin(self) -> None:
        client, clock = self.world.client, self.world.clock
        for node in self.case.nodes:
            client.create("nodes", objects.node(node))
        for made in objects.priorities(self.case):
            client.create("priorityclasses.scheduling.k8s.io", made)
        if self.case.levels:
            client.create(f"topologies.{objects.GROUP}", objects.topology(self.case))
        for queue in self.case.queues:
            client.create(f"queues.{objects.GROUP}", objects.queue(queue))
            await clock.sleep(_APART_S)
        for gang in self.case.gangs:
            client.create(f"podgroups.{objects.GROUP}", objects.group(gang))
            if gang.keep is not None:
                client.create("poddisruptionbudgets.policy", objects.budget(gang))
            for kind, body in objects.pods(gang):
                client.create("pods", body)
                self.alive[body["metadata"]["name"]] = gang, kind
            await clock.sleep(_APART_S)
        bound = [name for name, (_, kind) in self.alive.items() if kind.node]
        await self.world.until(lambda: self._run(bound), within_s=60)
        await clock.sleep(_BEGIN_S)
        for name, (_, kind) in self.alive.items():
            if kind.leaving:
                client.delete("pods", NAMESPACE, name)

    def _run(self, names: list[str]) -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in self.world.client.list("pods")}
        return all(pods[name]["status"].get("phase") == "Running" for name in names)

    @contextlib.asynccontextmanager
    async def _daemon(self) -> AsyncIterator[asyncio.Task[None]]:
        with tempfile.TemporaryDirectory(prefix="gpusched-case-") as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(self.world.cluster.kubeconfig_text)
            kubeconfig.chmod(0o600)
            app = App(
                AppOptions(
                    config=self.config,
                    clock=self.world.clock,
                    rng=random.Random(self.seed),  # noqa: S311  # repeatable
                    kubeconfig=str(kubeconfig),
                    identity="daemon",
                    inline=True,
                )
            )
            daemon = asyncio.create_task(app.run(), name="daemon")
            try:
                yield daemon
            finally:
                daemon.cancel()
                await asyncio.gather(daemon, return_exceptions=True)

    def _let_go(self) -> None:
        """Pods that the case lets leave are gone from now on, and stay gone."""
        for name, (_, kind) in list(self.alive.items()):
            if kind.leaving:
                patch: Obj = {"metadata": {"finalizers": []}}
                self.world.client.patch("pods", NAMESPACE, name, patch)
                del self.alive[name]

    def _look(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self.world.client.list("pods")}
        for name, (gang, kind) in list(self.alive.items()):
            pod = pods.get(name)
            going = pod is None or _is_going(pod)
            if not going or kind.leaving:
                continue
            self.taken.add(name)
            if pod is not None and pod["metadata"].get("deletionTimestamp"):
                continue
            del self.alive[name]
            if self.case.again:
                self._make_again(gang, kind)

    def _make_again(self, gang: CaseGang, kind: CasePods) -> None:
        self.made += 1
        name = f"{gang.name}-again-{self.made}"
        waiting = attrs.evolve(kind, node="", count=1)
        self.world.client.create("pods", objects.pod(gang, waiting, name=name))
        self.alive[name] = gang, waiting

    def _seen(self, gang: CaseGang) -> Seen:
        label = f"{GROUP_LABEL}={gang.name}"
        pods = self.world.client.list("pods", NAMESPACE, label)
        stem = f"{gang.name}-"
        gone = [name for name in self.taken if _of(name, stem)]
        return Seen(nodes=sorted(_nodes(pods)), evicted=len(gone))


def _of(name: str, stem: str) -> bool:
    rest = name.removeprefix(stem)
    return rest != name and rest.removeprefix("again-").isdigit()


def _nodes(pods: list[Obj]) -> Iterator[str]:
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if node and not _is_going(pod) and pod["status"].get("phase") not in _OVER:
            yield node


def _is_going(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["status"].get("phase") in _OVER
