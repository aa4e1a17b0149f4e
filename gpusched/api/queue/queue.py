"""Queue: the share of a team, as its author describes it, with the status written last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from gpusched.api.affinity.selector import EVERYTHING, Selector
from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.meta.pool_resources import amounts_by_pool_resource
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.status import Condition
from gpusched.api.queue.budget import NO_BUDGET_RECORD, Budget, BudgetRecord
from gpusched.api.queue.start_errors import NO_START_ERRORS, StartErrors
from gpusched.api.queue.user_limits import NO_USER_LIMITS, UserLimits
from gpusched.base.classes import frozen

ROOT_QUEUE = "root"


DEFAULT_QUEUE = "default"


@frozen(slots=True, kw_only=True)
class NodePool:
    """Limits of a queue on some nodes. A name means the same nodes in all queues.

    Attributes:
        node_selector: pairs of label and value that the pool's nodes have, sorted; where queues
            differ, the first queue by name counts, see ``cache.queues.node_pool_names``.
    """

    name: str
    node_selector: tuple[tuple[str, str], ...]
    deserved: Resources
    capability: Resources


@frozen(slots=True)
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


@frozen(slots=True, kw_only=True)
class QueueShardRow:
    """What a queue has in the shards of one daemon, as its status says.

    Attributes:
        name: of the shard, or of several with commas between them.
        allocated: amounts held there, with all below it.
        start_errors: how gangs that waited there started beside what they were told.
    """

    name: str
    allocated: Resources = NOTHING
    start_errors: StartErrors = NO_START_ERRORS


@frozen(slots=True, kw_only=True)
class Queue:
    """A team's share. A resource that ``capability`` does not name has no cap of its own.

    What ``deserved`` does not name is the surplus' to give; but a queue that names anything
    there deserves all there is of the CPU and memory that it does not name.

    Attributes:
        min_runtime_ns, max_runtime_ns, max_wait_ns: nanoseconds; 0 when not set.
        budget: what it may use in a period; None for no bound.
        budget_record: how much of that it had used.
        start_errors: how gangs that waited in it started beside what they were told; those of the shards of this
            daemon where several divide the cluster.
        start_errors_elsewhere: the same of all other shards.
        shard_rows: its parts by shard, as its status has them.
        own_row: name of the part that this daemon writes; empty where one daemon decides about all.
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
    user_limits: UserLimits = NO_USER_LIMITS
    budget: Budget | None = None
    budget_record: BudgetRecord = NO_BUDGET_RECORD
    conditions: tuple[Condition, ...] = ()
    usage: QueueUsage = QueueUsage()
    start_errors: StartErrors = NO_START_ERRORS
    start_errors_elsewhere: StartErrors = NO_START_ERRORS
    shard_rows: tuple[QueueShardRow, ...] = ()
    own_row: str = ""
    status: bytes = b"{}"
    source: str = ""
    """Empty for our own kind, else the project of its kind: see ``api.foreign.kinds``."""

    @property
    def key(self) -> ObjectKey:
        """Cluster-scoped: an empty namespace."""
        return ObjectKey("", self.name)

    @property
    def limits_users(self) -> bool:
        """Whether it counts what each user has: by limits, or by a budget of each user."""
        of_users = self.budget is not None and self.budget.per_user is not None
        return of_users or bool(self.user_limits)

    @property
    def pool_deserved(self) -> Resources:
        """What it deserves in its node pools, by dimension."""
        if not self.node_pools:
            return NOTHING
        return amounts_by_pool_resource((pool.name, pool.deserved) for pool in self.node_pools)

    @property
    def pool_capability(self) -> Resources:
        """Its hard caps in its node pools, by dimension."""
        if not self.node_pools:
            return NOTHING
        return amounts_by_pool_resource((pool.name, pool.capability) for pool in self.node_pools)


_NO_STATUS: Final[Mapping[str, Any]] = {
    "resource_version": ResourceVersion(""),
    "budget_record": NO_BUDGET_RECORD,
    "conditions": (),
    "usage": QueueUsage(),
    "start_errors": NO_START_ERRORS,
    "start_errors_elsewhere": NO_START_ERRORS,
    "shard_rows": (),
    "own_row": "",
    "status": b"{}",
}


def same_spec(one: Queue, other: Queue) -> bool:
    """Whether two states of a queue differ in nothing but what its status says."""
    return attrs.evolve(one, **_NO_STATUS) == attrs.evolve(other, **_NO_STATUS)
