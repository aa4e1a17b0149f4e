"""One moment of the cluster, immutable and numbered: all that a session may know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, GpuResources
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import DisruptionBudget, Namespace, Topology
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.budget import GpuHold
from gpusched.api.queue.start_errors import StartErrors
from gpusched.api.volumes.volume import VolumeCatalog
from gpusched.arrays.columns import NodeColumns
from gpusched.arrays.node_usage import DEFAULT_POPULATION
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.nodes.pods_by_node import NodePods
from gpusched.cache.queues.tree import QueueTree
from gpusched.config.model import DEFAULT_LIMITS, LimitsConfig


@attrs.frozen(slots=True)
class TenantRound:
    """How far the sessions have come through the gangs of one tenant that are too many for one.

    Attributes:
        queue, namespace: of the tenant; the namespace is empty where the order of arrival in the
            whole queue counts.
        head: gangs that were first in line when the round began, in the order of their turns.
        left: gangs that the round is still to look at, in the order of their turns.
        looked_at: gangs that the round has looked at, sorted.
        known: gangs that this round or an earlier one has looked at, sorted.
        cut: whether the last session used up the tenant's share before it came to all it had
            chosen.
    """

    queue: str
    namespace: str
    head: tuple[GangKey, ...] = ()
    left: tuple[GangKey, ...] = ()
    looked_at: tuple[GangKey, ...] = ()
    known: tuple[GangKey, ...] = ()
    cut: bool = False


@attrs.frozen(slots=True, kw_only=True, eq=False)
class Snapshot:
    """Input of a session.

    Attributes:
        gangs: with members that wait, or whose status may have changed; sorted by key.
        namespaces: by name.
        topologies: sorted by name; see ``topology.domain.levels_of`` for which one counts.
        running_gangs: by queue, gangs that have their minimum.
        placed_gangs: every gang of which a member has a place, by key; in any order.
        job_runtimes: seconds that Jobs took which completed, ascending, by queue and pods at a time.
        budgets: disruption budgets, sorted by key.
        pods_by_node: all pods on nodes, of every scheduler.
        nominated_foreign_pods: unbound pods of other schedulers that are nominated to a node, sorted by key.
        volumes: claims of volumes, volumes and their classes.
        devices: that drivers publish, classes of them, and claims.
        device_totals: what devices count as in queues, by the one node that reaches them ("" where
            several may), less what pods of others hold.
        now: seconds since the epoch, for ages and display.
        population: sizes of GPU requests and how many of a thousand pods have them.
        move_records: the last move of each gang that was moved of late, sorted.
        idle_gangs: by queue, gangs without a pod that could get a place that are not among ``gangs``.
        tenant_rounds: of tenants whose gangs the last session could not all look at, sorted.
        gpu_resources: extended resources that are GPUs, in whose units all amounts are counted.
        reservations: Reservations, sorted by name.
        users_doubt: why names of users cannot be believed, as words of a sentence; empty where they can.
        gpu_holds: what gangs hold of GPUs and held of late, while some queue has a budget; in any order.
        limits: bounds of the configuration that was in force.
        start_errors: by queue, how gangs that waited started beside what they were told; nothing is
            decided by it.
    """

    revision: int
    nodes: NodeColumns
    gangs: tuple[Gang, ...]
    queues: QueueTree
    namespaces: Mapping[str, Namespace]
    topologies: tuple[Topology, ...]
    running_gangs: Mapping[str, int]
    placed_gangs: Mapping[GangKey, Gang]
    budgets: tuple[DisruptionBudget, ...]
    job_runtimes: Mapping[tuple[str, int], tuple[int, ...]]
    pods_by_node: NodePods
    nominated_foreign_pods: tuple[Pod, ...]
    volumes: VolumeCatalog
    now: float
    population: tuple[tuple[int, int], ...] = DEFAULT_POPULATION
    move_records: tuple[tuple[GangKey, MoveRecord], ...] = ()
    tenant_rounds: tuple[TenantRound, ...] = ()
    idle_gangs: Mapping[str, int] = attrs.field(factory=dict)
    gpu_resources: GpuResources = DEFAULT_GPU_RESOURCES
    limits: LimitsConfig = DEFAULT_LIMITS
    devices: DeviceCatalog = NO_DEVICES
    reservations: tuple[AdvanceReservation, ...] = ()
    device_totals: Mapping[str, Resources] = attrs.field(factory=dict)
    gpu_holds: tuple[GpuHold, ...] = ()
    users_doubt: str = ""
    start_errors: Mapping[str, StartErrors] = attrs.field(factory=dict)

    def devices_on(self, nodes: Iterable[Node], *, several: bool = False) -> Resources:
        """What devices of some nodes count as in queues.

        Args:
            nodes: that reach them.
            several: whether devices that several nodes may reach count as well.
        """
        if not self.device_totals:
            return NOTHING
        found = total(self.device_totals.get(node.name, NOTHING) for node in nodes)
        return found.plus(self.device_totals.get("", NOTHING)) if several else found
