"""Crowded clusters whose queues take from each other often: random, from a seed, in sessions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import attrs
import msgspec

from gpusched.api.affinity.pod_terms import HostPort
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import ObjectKey, ResourceVersion
from gpusched.api.pod.pod import PodPhase
from gpusched.api.policy.kinds import DisruptionBudget
from gpusched.session.state.plan import Plan
from gpusched.testing import entities, invariants
from gpusched.testing.given import Given

STEP_S = 2.0
SECOND_NS = 10**9
MIN_RUNTIME_S = 60

Pair = tuple[str, str]
"""Who was evicted for whom: the claimant first."""


@attrs.define
class Crowd:
    """A cluster with more work than room; every pod that is evicted is made anew by its owner.

    Attributes:
        rng: decides everything.
        leaves: queues that may hold gangs.
        about: GPUs, priority and ports of each gang's pods.
        keeps: how many members a disruption budget keeps, by gang.
        least: minimum of each gang.
        parted: gangs in two parts of which one suffices.
        evicted: how many pods left so far.
        lingering: sessions for which a pod that is told to go stays.
    """

    rng: random.Random
    c: Given = attrs.Factory(Given)
    leaves: list[str] = attrs.Factory(list)
    parents: dict[str, str] = attrs.Factory(dict)
    least: dict[str, int] = attrs.Factory(dict)
    parted: set[str] = attrs.Factory(set)
    about: dict[str, dict[str, Any]] = attrs.Factory(dict)
    keeps: dict[str, int] = attrs.Factory(dict)
    leaving: dict[str, tuple[str, int]] = attrs.Factory(dict)
    made: int = 0
    gpus: int = 0
    evicted: int = 0
    lingering: int = 0

    # -- the cluster -------------------------------------------------------------------------
    def start(self) -> None:
        """Nodes, queues in two or three levels, and lenders' work that fills the cluster."""
        rng = self.rng
        self.lingering = rng.choice((0, 0, 1, 2))
        for number in range(rng.randint(1, 3)):
            gpus = rng.choice((4, 8, 8))
            self.gpus += gpus
            self.c.node(f"n{number}", gpus=gpus)
        for department in range(rng.randint(1, 3)):
            top = f"d{department}"
            self._queue(top, "root", stated=rng.random() < 0.7)
            if rng.random() < 0.3:
                self._queue(f"{top}m", top, stated=rng.random() < 0.5)
                top = f"{top}m"
            for leaf in range(rng.randint(1, 3) + (department == 0)):
                name = f"{top}-{leaf}"
                self._queue(name, top, stated=rng.random() < 0.8)
                self.leaves.append(name)
        for _ in range(rng.randint(4, 9)):
            self.submit(rng.choice(self.leaves[:2]))  # few queues borrow from all the others

    def _queue(self, name: str, parent: str, *, stated: bool) -> None:
        rng = self.rng
        limits: dict[str, dict[str, int]] = {}
        if stated:
            limits["deserved"] = {entities.GPU: rng.randint(0, self.gpus // 2)}
        if rng.random() < 0.1:
            limits["guarantee"] = {entities.GPU: 1}
        if rng.random() < 0.1:
            limits["capability"] = {entities.GPU: rng.randint(2, self.gpus)}
        self.parents[name] = parent
        self.c.queue(
            name,
            parent=parent,
            weight=rng.randint(0, 3),
            priority=rng.choice((0, 0, 0, 5, 10)),
            limits=limits,
            reclaimable=rng.random() < 0.95,
            min_runtime_ns=rng.choice((0, 0, 0, MIN_RUNTIME_S * SECOND_NS)),
        )

    # -- what happens from outside -------------------------------------------------------------
    def change(self) -> None:
        """Something that nobody of the scheduler does; mostly lenders ask for their own."""
        luck = self.rng.random()
        if luck < 0.6:
            self.submit(self.rng.choice(self.leaves[2:] or self.leaves))
        elif luck < 0.75:
            self.submit()
        elif luck < 0.9:
            self.finish()
        else:
            self.reform()

    def submit(self, queue: str = "") -> None:
        """A gang more, in a queue or in any."""
        rng = self.rng
        name = f"g{self.made}"
        self.made += 1
        pods = rng.choice((1, 1, 2, 3, 4))
        least = rng.choice((1, pods, pods))
        self.about[name] = {
            "gpus": rng.choice((1, 1, 1, 2, 4)),
            "priority": rng.choice((0, 0, 10, 50, 100)),
        }
        if rng.random() < 0.1:
            self.keeps[name] = rng.randint(0, pods)
        self.least[name] = least
        parts: tuple[SubGroup, ...] = ()
        if pods == 4 and rng.random() < 0.5:
            self.parted.add(name)
            parts = tuple(SubGroup(part, 2, TopologyRequest()) for part in ("a", "b"))
        if rng.random() < 0.1:
            self.about[name]["ports"] = [HostPort("0.0.0.0", "TCP", 29500)]
        self.c.group(
            name,
            sub_groups=parts,
            min_sub_groups=min(1, len(parts)),
            queue=queue or rng.choice(self.leaves),
            min_member=least,
            created=self.c.now,
            preemptible=rng.random() < 0.9,
            disruption=rng.choice(("Pod", "Pod", "Pod", "Group")),
            min_runtime_ns=rng.choice((0, 0, 0, MIN_RUNTIME_S * SECOND_NS)),
        )
        for rank in range(pods):
            self._pod(name, rank)

    def finish(self) -> None:
        """A gang ends, whether it ran or not."""
        if not self.about:
            return
        name = self.rng.choice(sorted(self.about))
        del self.about[name]
        self.keeps.pop(name, None)
        for pod in self._of(name):
            self.c.gone(pod.name)
            self.leaving.pop(pod.name, None)
        self.c.cache.drop_group(ObjectKey("default", name))

    def reform(self) -> None:
        """A queue gets other limits, weight and priority."""
        name = self.rng.choice(sorted(self.parents))
        self._queue(name, self.parents[name], stated=self.rng.random() < 0.7)

    def _pod(self, gang: str, rank: int) -> None:
        self.made += 1
        name = f"{gang}-{self.made}"
        self.c.pod(
            name, group=gang, rank=rank, created=self.c.now, labels={"gang": gang},
            sub_group="ab"[rank % 2] if gang in self.parted else "",
            **self.about[gang],
        )  # fmt: skip

    def _of(self, gang: str) -> list[Any]:
        return sorted(
            (pod for pod in self.c.cache.pods.values() if pod.group == gang),
            key=lambda pod: pod.name,
        )

    # -- a session -----------------------------------------------------------------------------
    def step(self) -> tuple[Plan, list[Pair]]:
        """One session, carried out; and who was evicted for whom, by gang."""
        self.c.now += STEP_S
        self._budgets()
        self._let_go()
        plan = self.c.when.carried_out(gone=False)
        for bind in plan.binds:
            self._run(bind.gang.name)
        self._phases(plan)
        pairs: list[Pair] = []
        for claim in plan.preemptions:
            for stop in claim.stops:
                pairs += [(claim.gang.name, stop.gang.name) for _ in stop.evictions]
        stops = [*plan.stops, *(stop for claim in plan.preemptions for stop in claim.stops)]
        for stop in stops:
            for each in stop.evictions:
                self.leaving[each.key.name] = (stop.gang.name, self.lingering)
                self.evicted += 1
        if not self.lingering:
            self._let_go()
        wrong = invariants.check(self.c.objects(), now=self.c.now)
        assert wrong == [], wrong
        self._whole()
        return plan, pairs

    def _whole(self) -> None:
        """Who runs on has its minimum, and a complete part where it is in parts."""
        for gang in sorted(self.about):
            stays = [pod for pod in self._of(gang) if pod.node and not pod.deleting]
            if not stays:
                continue
            assert len(stays) >= self.least[gang], f"{gang} runs on with {len(stays)}"
            parts = Counter(pod.sub_group for pod in stays)
            assert gang not in self.parted or max(parts.values()) == 2, f"{gang}: {parts}"

    def quiet(self, plan: Plan) -> bool:
        """Whether nothing happens any more, and nobody is on the way out."""
        return not (plan.binds or plan.preemptions or plan.stops or plan.undos or self.leaving)

    def _let_go(self) -> None:
        for name, (gang, left) in sorted(self.leaving.items()):
            if left:
                self.leaving[name] = (gang, left - 1)
                continue
            del self.leaving[name]
            rank = self.c.cache.pods[ObjectKey("default", name)].rank
            self.c.gone(name)
            if gang in self.about:
                self._pod(gang, rank)

    def _run(self, gang: str) -> None:
        for pod in self._of(gang):
            if pod.node and pod.phase is PodPhase.PENDING:
                self.made += 1
                self.c.cache.put_pod(
                    msgspec.structs.replace(
                        pod,
                        phase=PodPhase.RUNNING,
                        resource_version=ResourceVersion(f"1{self.made:06}"),
                    )
                )

    def _phases(self, plan: Plan) -> None:
        for status in plan.gangs:
            key = ObjectKey(status.gang.namespace, status.gang.name)
            group = self.c.cache.groups.items.get(key)
            if group is not None and group.phase != status.phase:
                self.c.cache.put_group(key, attrs.evolve(group, phase=status.phase))

    def _budgets(self) -> None:
        """What the disruption controller would say."""
        running = Counter(
            pod.group for pod in self.c.cache.pods.values() if pod.node and not pod.deleting
        )
        for gang, keep in sorted(self.keeps.items()):
            made = DisruptionBudget(
                namespace="default",
                name=gang,
                uid=entities.uid("PodDisruptionBudget", gang, "default"),
                resource_version=ResourceVersion("1"),
                selector=Selector((Requirement("gang", "In", (gang,)),)),
                disruptions_allowed=max(0, running[gang] - keep),
            )
            self.c.cache.budgets.put(ObjectKey("default", gang), made)
