"""Random histories with what else gangs, queues and nodes can be: for what sessions keep from one another."""

from __future__ import annotations

from typing import Any, Final

import attrs

from gpusched.api.affinity.pod_terms import PodTerm
from gpusched.api.affinity.selector import Requirement, Selector, Taint, Toleration
from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import UID, Creator, ObjectKey, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.api.policy.reservation import AdvanceReservation, ReservationWindow
from gpusched.api.queue.budget import Budget
from gpusched.api.queue.queue import NodePool
from gpusched.api.queue.user_limits import UserLimit, UserLimits
from gpusched.testing import entities
from tests.session.state.kept_histories import QUEUES, SECOND, KeptHistory

PARENTS: Final = {"a": "left", "b": "left", "c": "root"}
NAMESPACES: Final = ("default", "other")
HOST: Final = "kubernetes.io/hostname"
PRODUCT: Final = "nvidia.com/gpu.product"
TAINT: Final = Taint("dedicated", "some", "NoSchedule")
TOLERATED: Final = Toleration("dedicated", "Exists", "", "NoSchedule")


class WideHistory(KeptHistory):
    """As ``KeptHistory``, with a tree of queues, pools, users, budgets, several namespaces and kinds of gangs and nodes.

    Args:
        seed: from which everything follows.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        for name, gpus in self.nodes:
            self.node(name, gpus)
        if rng.random() < 0.3:
            self.reserves()

    def node(self, name: str, gpus: int, **fields: Any) -> None:
        """A node of one of two types, some with a taint."""
        rng, number = self.rng, int(name[1:])
        labels = {
            "topology.gpusched.io/rack": f"r{number % 2}", HOST: name, "pool": f"p{number % 2}",
            PRODUCT: "H100" if number % 3 else "A100",
        }  # fmt: skip
        taints = (TAINT,) if rng.random() < 0.15 else ()
        self.c.node(name, gpus=gpus, labels=labels, taints=taints, **fields)

    def reserves(self) -> None:
        """A Reservation keeps a node for a queue, now or later."""
        rng, name = self.rng, f"k{self.made}"
        self.made += 1
        begins = int(self.c.now) + rng.choice([-100, 200, 1500])
        made = AdvanceReservation(
            name=name, uid=UID(f"r-{name}"), resource_version=ResourceVersion("1"),
            first=ReservationWindow(begins, begins + rng.choice([400, 5000])),
            queues=(rng.choice(["a", "left"]),), node_names=(rng.choice(self.nodes)[0],),
            evicts=rng.random() < 0.5,
        )  # fmt: skip
        self.c.cache.reservations.put(ObjectKey("", name), made)

    def queue(self, name: str) -> None:
        """A queue in a tree, with limits of users, of a pool, or a budget."""
        rng, limits, fields = self.rng, {}, dict[str, Any]()
        if name == QUEUES[0]:
            above = (
                {"capability": {entities.GPU: rng.choice([6, 14])}} if rng.random() < 0.5 else {}
            )
            self.c.queue("left", limits=above)
            self.c.cache.families.use_users(rng.choice(["annotated", "ignored"]))
        for kind, amounts in (("capability", [3, 6, 12]), ("deserved", [2, 5]), ("guarantee", [1])):
            if rng.random() < 0.35:
                limits[kind] = {entities.GPU: rng.choice(amounts)}
        if rng.random() < 0.3:
            per_user = UserLimit(
                resources=entities.resources({entities.GPU: rng.choice([1, 3])})
                if rng.random() < 0.5
                else Resources(()),
                max_running=rng.choice([None, 2]), max_pending=rng.choice([None, 2]),
            )  # fmt: skip
            fields["user_limits"] = UserLimits(per_user=per_user)
        if rng.random() < 0.2:
            pool = entities.resources({entities.GPU: rng.choice([2, 5])})
            fields["node_pools"] = (
                NodePool(name="p", node_selector=(("pool", "p1"),), deserved=pool, capability=pool),
            )
        if rng.random() < 0.2:
            fields["budget"] = Budget(amount=rng.choice([2, 10**4, 10**9]) * 10**6, period=3600)
        self.c.queue(
            name, parent=PARENTS[name], limits=limits,
            ordering=rng.choice(["Priority", "Fifo", "StrictFifo"]),
            priority=rng.choice([0, 0, 2]), weight=rng.choice([1, 1, 3]),
            stop_policy=rng.choice(["None", "None", "None", "Hold"]),
            max_wait_ns=rng.choice([0, 0, 50]) * SECOND,
            max_runtime_ns=rng.choice([0, 0, 1000]) * SECOND,
            min_runtime_ns=rng.choice([0, 0, 100]) * SECOND, **fields,
        )  # fmt: skip

    def runs(self, node: str, slot: int) -> None:
        """A gang of one pod that runs, or one that may grow, or holds a part of a GPU."""
        rng, name = self.rng, f"r{self.made}"
        if rng.random() < 0.5:
            super().runs(node, slot)
            return
        self.made += 1
        about = {
            "node": node, "slots": 1 << slot, "cpu": 100, "plan": "p", "phase": PodPhase.RUNNING,
            "scheduled": self.c.now - rng.choice([5, 250]), "namespace": rng.choice(NAMESPACES),
            "priority": rng.choice([0, 5]), "labels": {"app": rng.choice("xy")},
        }  # fmt: skip
        if rng.random() < 0.3:
            about["share"] = GpuShare(rng.choice([250, 500]))
        else:
            about["gpus"] = 1
        self.c.group(
            name, namespace=about["namespace"], queue=rng.choice("abc"), phase="Running", min_member=1,
            expected_duration_ns=rng.choice([0, 300, 5000]) * SECOND,
            disruption=rng.choice(["Pod", "Group", "Extras"]),
            preemptible=rng.choice([None, True, False]),
        )  # fmt: skip
        self.c.pod(f"{name}-0", group=name, **about)
        if "gpus" in about and rng.random() < 0.5:
            more = {key: about[key] for key in ("gpus", "cpu", "namespace", "priority", "labels")}
            self.c.pods(
                f"{name}-more", rng.choice([1, 2]), group=name, created=self.c.now - 3, **more
            )

    def waits(self) -> None:
        """A gang that waits, of any kind."""
        rng, name = self.rng, f"w{self.made}"
        kind = rng.randrange(9)
        if kind < 2:
            super().waits()
            return
        self.made += 1
        created = self.c.now - rng.choice([0, 3, 20, 400]) - self.made / 1000
        pods = rng.choice([1, 2, 3, 4])
        group: dict[str, Any] = {
            "queue": rng.choice("abc"), "min_member": pods, "created": created,
            "namespace": rng.choice(NAMESPACES),
            "expected_duration_ns": rng.choice([0, 100, 600, 2000]) * SECOND,
            "creator": Creator(rng.choice(["", "ann", "bob"])),
        }  # fmt: skip
        spec: dict[str, Any] = {
            "gpus": rng.choice([1, 1, 2, 4]), "cpu": rng.choice([100, 200]), "created": created,
            "priority": rng.choice([0, 0, 3, 8]), "namespace": group["namespace"],
            "labels": {"app": rng.choice("xy")},
        }  # fmt: skip
        match kind:
            case 2:
                group["min_member"] = rng.randint(1, pods)
            case 3:
                group["topology"] = TopologyRequest(required="rack")
            case 4:
                spec |= {"gpus": 0, "share": GpuShare(rng.choice([250, 500, 600]))}
            case 5:
                spec["node_selector"] = rng.choice([{"pool": "p0"}, {PRODUCT: "A100"}])
                spec["tolerations"] = [TOLERATED]
            case 6:
                apart = PodTerm(HOST, Selector((Requirement("app", "In", ("x",)),)))
                spec[rng.choice(["pod_anti_affinity", "pod_affinity"])] = [apart]
            case 7:
                half = max(1, pods // 2)
                parts = [SubGroup("one", half, TopologyRequest(preferred="rack"))]
                if pods > half:
                    parts.append(SubGroup("two", pods - half, TopologyRequest()))
                group |= {"sub_groups": parts, "min_sub_groups": len(parts)}
            case _:
                self.c.job(
                    name, parallelism=pods, completions=pods, suspended=rng.random() < 0.7,
                    queue=group["queue"], gpus=spec["gpus"], cpu=spec["cpu"],
                    hints=GangAnnotations(expected_duration_ns=600 * SECOND),
                )  # fmt: skip
                return
        self.c.group(name, **group)
        for number in range(pods):
            part = {}
            if "sub_groups" in group:
                part["sub_group"] = "one" if number < group["sub_groups"][0].min_member else "two"
            self.c.pod(f"{name}-{number}", group=name, rank=number, **spec, **part)

    def change(self) -> None:
        """One thing in the cluster becomes another."""
        rng = self.rng
        match rng.randrange(9):
            case 0:
                name, gpus = rng.choice(self.nodes)
                self.node(name, gpus, unschedulable=rng.random() < 0.3)
            case 1:
                self.reserves()
            case 2:
                self.c.namespace("other", labels={"team": rng.choice("xy")})
            case 3:
                groups = sorted(self.c.cache.groups.items)
                if groups:
                    key = rng.choice(groups)
                    known = self.c.cache.groups.items[key]
                    again = attrs.evolve(
                        known, queue=rng.choice("abc"), generation=known.generation + 1,
                        hold=rng.choice(["", "somebody asked"]),
                    )  # fmt: skip
                    self.c.cache.put_group(key, again)
            case _:
                super().change()
