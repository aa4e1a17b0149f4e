"""A cluster with devices that sessions of the daemon decide about: no server, no daemon, no clock.

Claims are made with their pods, as the claim controller does, and get what a session chose for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from gpusched import API_VERSION
from gpusched.api.devices.dynamic.claims import AllocatedDevice, ClaimConsumer, ResourceClaim
from gpusched.api.devices.dynamic.decode import CODECS
from gpusched.api.meta.identity import ObjectKey
from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH
from gpusched.base.errors import InvariantBroken
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT, Config
from gpusched.engine.objects import Obj, SimulatedObjects, with_condition, with_status
from gpusched.engine.schedulers.scheduler import StoppedClock
from gpusched.lab.experiments.mixes import without_evictions
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.plan import PodBind
from gpusched.session.state.session_cache import SessionCache

NAMESPACE: Final = "default"
API: Final = "resource.k8s.io/v1"
CLAIM: Final = "devices"


@frozen
class PlacedPod:
    """One pod that was given a node and devices."""

    node: str
    devices: tuple[AllocatedDevice, ...]


def device_node(name: str, labels: Mapping[str, str] = {}) -> Obj:
    """A node that never lacks CPUs or memory."""
    offer = {"cpu": "512", "memory": "4Ti", "pods": "256"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def claim_template(name: str, requests: Sequence[Obj], constraints: Sequence[Obj] = ()) -> Obj:
    """A ResourceClaimTemplate of the one namespace."""
    devices = {"requests": list(requests), "constraints": list(constraints)}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": devices}},
    }


class DeviceCluster:
    """Nodes with devices, gangs whose pods claim them, and sessions.

    Args:
        objects: nodes, slices, classes and templates.
        config: of the daemon; its actions that evict are left out.
    """

    def __init__(self, objects: Iterable[Obj], config: Config = DEFAULT) -> None:
        self._config = without_evictions(config)
        self.cache = Cache(config.scheduler_names)
        self._objects = SimulatedObjects((self.cache,), epoch=EPOCH)
        self._policy = load_policy(self._config)
        self._guard, self._sessions = PluginGuard(StoppedClock()), SessionCache()
        self._serial = 0
        for each in objects:
            if each["apiVersion"].startswith("resource.k8s.io/"):
                self._put(each)
            else:
                self._objects.create(each, now=0.0)

    def _put(self, obj: Obj) -> None:
        """A device object as a watch shows it."""
        self._serial += 1
        own = {"uid": f"d{self._serial:07d}", "resourceVersion": str(self._serial)}
        body = {**obj, "metadata": {**own, **obj["metadata"]}}
        key = ObjectKey(body["metadata"].get("namespace", ""), body["metadata"]["name"])
        entity = CODECS[obj["kind"]].entity_of(msgspec.json.encode(body))
        self.cache.devices.shelves[obj["kind"]].put(key, entity)

    # -- gangs -------------------------------------------------------------------------------
    def add_gang(self, name: str, templates: Sequence[str], *, now: float) -> None:
        """A PodGroup whose pods must all run; each pod claims what one template says."""
        self._objects.create(
            {
                "apiVersion": API_VERSION,
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"minMember": len(templates)},
            },
            now=now,
        )
        for number, template in enumerate(templates):
            pod = f"{name}-{number}"
            held = self.cache.devices.templates.items[ObjectKey(NAMESPACE, template)]
            claim = {"metadata": {"name": f"{pod}-{CLAIM}", "namespace": NAMESPACE}}
            self._put({"kind": "ResourceClaim", **claim})
            made = self._claim(pod)
            self.cache.devices.claims.put(made.key, attrs.evolve(made, spec=held.spec))
            self._objects.create(_pod(pod, name, template), now=now)

    def _claim(self, pod: str) -> ResourceClaim:
        return self.cache.devices.claims.items[ObjectKey(NAMESPACE, f"{pod}-{CLAIM}")]

    def end_gang(self, name: str, members: int) -> None:
        """All pods of a gang have ended, and are gone with their claims."""
        for number in range(members):
            key = ObjectKey(NAMESPACE, f"{name}-{number}")
            self._objects.remove("pods", key)
            self.cache.devices.claims.drop(ObjectKey(NAMESPACE, f"{name}-{number}-{CLAIM}"))
        self._objects.remove("podgroups", ObjectKey(NAMESPACE, name))

    # -- sessions ----------------------------------------------------------------------------
    def session(self, now: float) -> dict[str, dict[str, PlacedPod]]:
        """Decide once and carry it out: places of pods by their gang and their name.

        Raises:
            InvariantBroken: the session had faults.
        """
        self._guard.begin_session()
        decision = decide(
            self.cache.take_snapshot(EPOCH + now),
            self._policy,
            guard=self._guard,
            session_cache=self._sessions,
            placement=self._config.placement,
        )
        if decision.faults:
            raise InvariantBroken(decision.faults[0])
        if decision.set_aside:
            raise InvariantBroken(decision.set_aside[0].message)
        self.cache.rounds = decision.rounds
        self.reasons = {
            status.gang.name: status.scheduled.message for status in decision.plan.gangs
        }
        return {gang.gang.name: dict(self._carry_out(gang.binds)) for gang in decision.plan.binds}

    def _carry_out(self, binds: Iterable[PodBind]) -> Iterator[tuple[str, PlacedPod]]:
        for bind in binds:
            devices: list[AllocatedDevice] = []
            for each in bind.claims:
                claim = self.cache.devices.claims.items[each.key]
                user = ClaimConsumer(group="", resource="pods", name=bind.key.name, uid=bind.uid)
                given = attrs.evolve(claim, allocation=each.allocation, reserved_for=(user,))
                self.cache.devices.claims.put(each.key, given)
                devices += each.allocation.devices if each.allocation is not None else ()
            pod = self._objects.get("pods", bind.key)
            if pod is None:
                raise InvariantBroken(f"{bind.key} was placed and does not exist")
            made = {**pod, "spec": {**pod["spec"], "nodeName": bind.node}}
            scheduled = {"type": "PodScheduled", "status": "True"}
            self._objects.write(with_condition(with_status(made, phase="Running"), scheduled))
            yield bind.key.name, PlacedPod(bind.node, tuple(devices))


def _pod(name: str, group: str, template: str) -> Obj:
    asks: dict[str, Any] = {"requests": {"cpu": "1"}, "claims": [{"name": CLAIM}]}
    named = {"name": CLAIM, "resourceClaimName": f"{name}-{CLAIM}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": {"gpusched.io/pod-group": group},
        },
        "spec": {
            "schedulerName": "gpusched",
            "restartPolicy": "Never",
            "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": template}],
            "containers": [{"name": "main", "image": "registry.example/train:1", "resources": asks}],
        },
        "status": {"resourceClaimStatuses": [named]},
    }  # fmt: skip
