"""Given, when, then: a cluster in a few words, one session on it, and what came of it.

::

    c = given.nodes(2, gpus=8, rack="r1").queue("a").gang("big", pods=3, gpus=8, queue="a")
    plan = c.when.one_session()
    assert plan.binds == ()
    assert "needs 3 pods with 8 nvidia.com/gpu" in c.then.why("big")

The real cache, session and policies run; only the API is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpusched.api.affinity.selector import EVERYTHING, Selector
from gpusched.api.devices.slots import slot_numbers
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.jobs.job import Job, JobTemplate
from gpusched.api.meta.identity import UID, ObjectKey, Owner, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import pieces_to_base_units
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, PodClass
from gpusched.api.policy.kinds import Namespace, PriorityClass
from gpusched.api.queue.queue import Queue
from gpusched.base.classes import frozen
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import DEFAULT, Config
from gpusched.placement.model.problem import SearchRunner, search_in_process
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.containment.set_aside import Containment
from gpusched.session.decide import Decision, decide
from gpusched.session.state.plan import GangBind, GangStatus, Plan, QueueStatus
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities
from gpusched.testing.api_objects import api_objects
from gpusched.testing.apply_plan import PlanApplication

DEFAULT_NS = "default"


class Given:
    """A cluster under construction; every method returns it.

    Args:
        config: names actions and plugins; the shipped default unless given.
        policy: in place of what the configuration names.
        now: seconds since the epoch at which sessions run.
    """

    def __init__(
        self,
        *,
        config: Config = DEFAULT,
        policy: Policy | None = None,
        now: float = entities.NOW,
    ) -> None:
        self.cache = Cache(config.scheduler_names)
        self.cache.use_priority_rules(config)
        self.policy = policy or load_policy(config)
        self.placement = config.placement
        self.search: SearchRunner = search_in_process
        self.now = now
        self.guard = PluginGuard(SystemClock())
        self.session_cache = SessionCache()
        self.containment = Containment()
        self.decision: Decision | None = None
        self.snapshot: Snapshot | None = None
        self._version = 1
        self._nodes = 0

    # -- given -----------------------------------------------------------------------------
    def nodes(self, count: int, *, prefix: str = "node", rack: str = "", **fields: Any) -> Given:
        """So many more equal nodes, ``node-0`` and on; ``fields`` as ``entities.node`` has."""
        labels = dict(fields.pop("labels", {}))
        if rack:
            labels["gpusched.io/rack"] = rack
        for _ in range(count):
            name = f"{prefix}-{self._nodes}"
            self._nodes += 1
            self.node(name, labels=labels, **fields)
        return self

    def node(self, name: str, **fields: Any) -> Given:
        """One node, made or changed; ``fields`` as ``entities.node`` has."""
        self.cache.put_node(entities.node(name, version=self._next(), **fields))
        return self

    def queue(
        self,
        name: str,
        *,
        parent: str = "root",
        stop_policy: str = "None",
        namespaces: Selector = EVERYTHING,
        limits: Mapping[str, Mapping[str, int]] | None = None,
        **fields: Any,
    ) -> Given:
        """A queue; ``limits`` has guarantee, deserved and capability in base units, but
        GPUs in whole ones.
        """
        amounts: dict[str, Any] = {
            kind: Resources.of(pieces_to_base_units(each)) for kind, each in (limits or {}).items()
        }
        made = Queue(
            name=name,
            uid=entities.uid("Queue", name),
            resource_version=ResourceVersion(self._next()),
            generation=1,
            created=entities.BORN,
            parent=parent,
            stop_policy=stop_policy,
            namespaces=namespaces,
            **amounts,
            **fields,
        )
        self.cache.put_queue(made.key, made)
        return self

    def namespace(self, name: str, *, queue: str = "", labels: Any = None) -> Given:
        """A namespace with labels."""
        made = Namespace(
            name=name,
            uid=entities.uid("Namespace", name),
            resource_version=ResourceVersion(self._next()),
            labels=MappingProxyType(dict(labels or {})),
            queue=queue,
        )
        self.cache.put_namespace(ObjectKey("", name), made)
        return self

    def priority_class(self, name: str, value: int, *, preemptible: bool | None = None) -> Given:
        """A PriorityClass, which PodGroups and pods may name."""
        made = PriorityClass(
            name=name,
            uid=entities.uid("PriorityClass", name),
            resource_version=ResourceVersion(self._next()),
            value=value,
            preemption_policy="",
            preemptible=preemptible,
        )
        self.cache.put_priority(ObjectKey("", name), made)
        return self

    def group(self, name: str, *, namespace: str = DEFAULT_NS, **fields: Any) -> Given:
        """A PodGroup without pods; ``fields`` as ``entities.pod_group`` has."""
        made = entities.pod_group(name, namespace=namespace, **fields)
        self.cache.put_group(made.key, made)
        return self

    def gang(
        self,
        name: str,
        *,
        pods: int,
        min_member: int | None = None,
        queue: str = "default",
        namespace: str = DEFAULT_NS,
        topology: TopologyRequest | None = None,
        created: float = entities.BORN,
        priority: int = 0,
        **spec: Any,
    ) -> Given:
        """A PodGroup with equal pods ``name-0`` and on; all are needed unless ``min_member``.

        ``spec`` as ``entities.pod_class`` has.
        """
        wish = {"topology": topology} if topology else {}
        self.group(
            name,
            namespace=namespace,
            queue=queue,
            min_member=pods if min_member is None else min_member,
            created=created,
            **wish,
        )
        return self.pods(
            name, pods, group=name, namespace=namespace, created=created, priority=priority, **spec
        )

    def pods(self, prefix: str, count: int, **fields: Any) -> Given:
        """Equal pods ``prefix-0`` and on, ranked; ``fields`` as for ``pod``."""
        for number in range(count):
            self.pod(f"{prefix}-{number}", **{"rank": number, **fields})
        return self

    def pod(self, name: str, *, spec: PodClass | None = None, **fields: Any) -> Given:
        """One pod, made or changed; fields as ``entities.pod`` and ``entities.pod_class`` have."""
        about = {key: fields.pop(key) for key in tuple(fields) if key in _POD_FIELDS}
        if about.get("claims"):
            fields["uses_claims"] = True
        made = entities.pod(
            name, spec or entities.pod_class(**fields), version=self._next(), **about
        )
        self.cache.put_pod(made)
        return self

    def job(
        self,
        name: str,
        *,
        parallelism: int,
        completions: int | None,
        indexed: bool = False,
        succeeded: int = 0,
        queue: str = "",
        hints: GangAnnotations = NO_GANG_ANNOTATIONS,
        pods: int | None = None,
        suspended: bool = False,
        group: str = "",
        started: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Given:
        """A Job with its pods (``parallelism`` of them unless told), without any PodGroup.

        A suspended one has none. ``started`` has fields of a Job that we start: ``admitted``,
        ``full_parallelism``, ``min_parallelism``.
        """
        template = None
        if suspended or started:
            about = {key: spec[key] for key in spec if key not in _POD_FIELDS}
            template = JobTemplate(
                pod_class=entities.pod_class(**about),
                scheduler="gpusched",
                labels={},
                priority_class=spec.get("priority_class", ""),
                may_preempt=True,
                role="",
            )
        made = Job(
            namespace=DEFAULT_NS,
            name=name,
            uid=entities.uid("Job", name, DEFAULT_NS),
            resource_version=ResourceVersion(self._next()),
            created=entities.BORN,
            parallelism=parallelism,
            completions=completions,
            indexed=indexed,
            suspended=suspended,
            succeeded=succeeded,
            queue=queue,
            group=group,
            hints=hints,
            template=template,
            **(started or {}),
        )
        self.cache.put_job(made.key, made)
        owner = Owner("Job", name, made.uid)
        count = (0 if suspended else parallelism) if pods is None else pods
        return self.pods(name, count, owner=owner, **spec)

    def gone(self, name: str, *, namespace: str = DEFAULT_NS) -> Given:
        """The pod is deleted."""
        self.cache.drop_pod(ObjectKey(namespace, name))
        return self

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    @property
    def when(self) -> When:
        """What happens to the cluster: sessions, time, changes."""
        return When(self)

    @property
    def then(self) -> Then:
        """What came of it."""
        return Then(self)

    def objects(self) -> dict[str, list[dict[str, Any]]]:
        """The cluster as API objects, for ``invariants.check``."""
        return api_objects(self.cache)


_POD_FIELDS = {*type(entities.pod("x", entities.pod_class())).__struct_fields__} - {
    "pod_class",
    "resource_version",
    "fence",
} | {"own_uid"}
_POD_FIELDS -= {"name", "uid"}


@frozen
class When:
    """Things that happen to a cluster."""

    given: Given

    def one_session(self) -> Plan:
        """Decide once; nothing is carried out."""
        c = self.given
        c.snapshot = c.cache.take_snapshot(c.now)
        c.guard.begin_session()
        c.decision = decide(
            c.snapshot,
            c.policy,
            guard=c.guard,
            session_cache=c.session_cache,
            placement=c.placement,
            search=c.search,
            containment=c.containment,
        )
        c.cache.rounds = c.decision.rounds
        return c.decision.plan

    def bound(self) -> Plan:
        """Decide once, and the API accepts every binding."""
        plan = self.one_session()
        for gang in plan.binds:
            self.accept(gang)
        return plan

    def carried_out(self, *, gone: bool = True) -> Plan:
        """Decide once, and all of it is done: binds, promises, evictions, Jobs switched.

        With ``gone=False`` leaving pods are still ending: their rooms are not free yet.
        """
        plan = self.one_session()
        self.carry_out(plan, gone=gone)
        return plan

    def carry_out(self, plan: Plan, *, gone: bool = True) -> None:
        """What was decided is done."""
        self._carrying().plan(plan, gone=gone)

    def accept(self, gang: GangBind, *, only: int | None = None) -> None:
        """The API accepts the bindings of a gang, or only its first so many."""
        self._carrying().bind(gang, only=only)

    def _carrying(self) -> PlanApplication:
        c = self.given
        return PlanApplication(cache=c.cache, now=c.now, version=c._next)  # noqa: SLF001 - its other half


@frozen
class Then:
    """What the last session left."""

    given: Given

    @property
    def plan(self) -> Plan:
        """Plan of the last session."""
        assert self.given.decision is not None, "no session was run"
        return self.given.decision.plan

    def status(self, gang: str) -> GangStatus:
        """Of the gang of that name.

        Raises:
            AssertionError: there is no such gang, or it is on its way to its nodes.
        """
        found = [each for each in self.plan.gangs if each.gang.name == gang]
        assert len(found) == 1, (
            f"{len(found)} gangs {gang!r} in {[g.gang for g in self.plan.gangs]}"
        )
        return found[0]

    def why(self, gang: str) -> str:
        """The sentence that its waiting pods are told."""
        status = self.status(gang)
        return (status.pending_reason or status.scheduled).message

    def reason(self, gang: str) -> str:
        """The reason that its waiting pods are told."""
        status = self.status(gang)
        return (status.pending_reason or status.scheduled).reason

    def evicted(self) -> list[str]:
        """Names of all pods that are to leave, sorted."""
        stops = [
            *self.plan.stops,
            *(stop for claim in self.plan.preemptions for stop in claim.stops),
        ]
        return sorted(each.key.name for stop in stops for each in stop.evictions)

    def queue(self, name: str) -> QueueStatus:
        """The status of a queue."""
        return next(each for each in self.plan.queues if each.name == name)

    def nodes(self) -> dict[str, str]:
        """Node of each pod that the plan binds, by name of the pod."""
        return {b.key.name: b.node for gang in self.plan.binds for b in gang.binds}

    def slots(self) -> dict[str, tuple[int, ...]]:
        """Slots of each pod that the plan binds."""
        return {b.key.name: slot_numbers(b.slots) for gang in self.plan.binds for b in gang.binds}

    def started(self) -> list[str]:
        """Names of the gangs that the plan binds."""
        return [gang.gang.name for gang in self.plan.binds]

    def faults(self) -> tuple[str, ...]:
        """What plugins did wrong in the last session, one sentence each."""
        assert self.given.decision is not None, "no session was run"
        return self.given.decision.faults

    def uid(self, pod: str, namespace: str = DEFAULT_NS) -> UID:
        """Of a pod that exists."""
        return self.given.cache.pods[ObjectKey(namespace, pod)].uid
