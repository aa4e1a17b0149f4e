"""Queue, PodGroup and Topology: the project's own kinds."""

from __future__ import annotations

import attrs

from gpusched.api.affinity.selector import EVERYTHING, Selector
from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.meta.pool_resources import amounts_by_pool_resource
from gpusched.api.meta.resources import NOTHING, Resources

ROOT_QUEUE = "root"
DEFAULT_QUEUE = "default"


@attrs.frozen(slots=True)
class Condition:
    """One condition of a status; ``transition`` in seconds since the epoch."""

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int
    transition: float


@attrs.frozen(slots=True, kw_only=True)
class NodePool:
    """Limits of a queue on some nodes. A name means the same nodes in all queues.

    Attributes:
        node_selector: pairs of label and value that the pool's nodes have, sorted; where queues
            differ, the first queue by name counts, see ``cache.pool_names``.
    """

    name: str
    node_selector: tuple[tuple[str, str], ...]
    deserved: Resources
    capability: Resources


@attrs.frozen(slots=True)
class QueueUsage:
    """How much of the cluster a queue used of late, as a policy measures it.

    Amounts are parts of 10**9 of what there is, by resource, sorted.

    Attributes:
        as_of: seconds since the epoch; 0.0 when nothing was measured yet.
        average: decayed use up to then.
        share: use from then on.
    """

    as_of: float = 0.0
    average: tuple[tuple[str, int], ...] = ()
    share: tuple[tuple[str, int], ...] = ()


@attrs.frozen(slots=True, kw_only=True)
class Queue:
    """A team's share. A resource that ``capability`` does not name has no cap of its own.

    What ``deserved`` does not name is the surplus' to give; but a queue that names anything
    there deserves all there is of the CPU and memory that it does not name.

    Attributes:
        min_runtime_ns, max_runtime_ns, max_wait_ns: nanoseconds; 0 when not set.
        status: the status object as last seen, as canonical JSON, to write only what changed.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    generation: int
    created: float
    parent: str = ROOT_QUEUE
    weight: int = 1
    priority: int = 0
    guarantee: Resources = NOTHING
    deserved: Resources = NOTHING
    capability: Resources = NOTHING
    reclaimable: bool = True
    ordering: str = "Priority"
    stop_policy: str = "None"
    min_runtime_ns: int = 0
    max_runtime_ns: int = 0
    max_wait_ns: int = 0
    namespaces: Selector = EVERYTHING
    node_pools: tuple[NodePool, ...] = ()
    conditions: tuple[Condition, ...] = ()
    usage: QueueUsage = QueueUsage()
    status: bytes = b"{}"
    source: str = ""
    """Empty for our own kind, else whose kind it is: see ``adapters.kinds``."""

    @property
    def key(self) -> ObjectKey:
        """Cluster-scoped: an empty namespace."""
        return ObjectKey("", self.name)

    @property
    def pool_deserved(self) -> Resources:
        """What it deserves in its node pools, by dimension."""
        return amounts_by_pool_resource((pool.name, pool.deserved) for pool in self.node_pools)

    @property
    def pool_capability(self) -> Resources:
        """Its hard caps in its node pools, by dimension."""
        return amounts_by_pool_resource((pool.name, pool.capability) for pool in self.node_pools)


@attrs.frozen(slots=True)
class TopologyRequest:
    """Where the pods of a gang may sit. Empty names: no wish."""

    required: str = ""
    preferred: str = ""
    max_wait_ns: int = 0


NO_TOPOLOGY_REQUEST = TopologyRequest()


@attrs.frozen(slots=True)
class SubGroup:
    """A part of a gang that starts with its own minimum."""

    name: str
    min_member: int
    topology: TopologyRequest


@attrs.frozen(slots=True, kw_only=True)
class PodGroup:
    """A gang as its author describes it, and the status we wrote last.

    Attributes:
        min_task_member: pairs of role and minimum, sorted.
        disruption: ``Group`` (evicted as a whole) or ``Pod`` (may lose members above its minima).
        checkpoint_ns: nanoseconds between checkpoints; 0 when work is lost from the start.
        status: the status object as last seen, as canonical JSON.
        source: empty for our own kind, else whose kind it is: see ``adapters.kinds``.
        remark: what of a foreign one is not honoured; empty for nothing.
    """

    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion
    generation: int
    created: float
    queue: str
    min_member: int
    min_task_member: tuple[tuple[str, int], ...]
    min_resources: Resources
    priority_class: str
    preemptible: bool | None
    sub_groups: tuple[SubGroup, ...]
    min_sub_groups: int
    topology: TopologyRequest
    expected_duration_ns: int
    min_runtime_ns: int
    schedule_timeout_ns: int
    phase: str
    conditions: tuple[Condition, ...]
    status: bytes
    deleting: bool
    disruption: str = "Pod"
    checkpoint_ns: int = 0
    source: str = ""
    remark: str = ""
    move: MoveRecord | None = None
    """The last move of the gang, see ``objects.move``."""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, when there is one."""
        return next((each for each in self.conditions if each.type == kind), None)


@attrs.frozen(slots=True, kw_only=True)
class Topology:
    """Levels, widest first: pairs of level name and node label; and its status as last seen."""

    name: str
    uid: UID
    resource_version: ResourceVersion
    levels: tuple[tuple[str, str], ...]
    generation: int = 0
    status: bytes = b"{}"
