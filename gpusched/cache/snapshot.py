"""One moment of the cluster, immutable and numbered: all that a session may know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, nextafter
from typing import Final

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
from gpusched.base.classes import frozen
from gpusched.base.limits import ESTIMATES_AFTER_CHANGE_S, ESTIMATES_EVERY_S
from gpusched.cache.gangs.counting.waiting_elsewhere import WaitingElsewhere
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.nodes.pods_by_node import NodePods
from gpusched.cache.queues.tree import QueueTree
from gpusched.config.model import DEFAULT_LIMITS, LimitsConfig


def _as_set(keys: Iterable[GangKey]) -> frozenset[GangKey]:
    return frozenset(keys)


@frozen(slots=True)
class TenantRound:
    """How far the sessions have come through the gangs of one tenant that are too many for one.

    Attributes:
        queue, namespace: of the tenant; the namespace is empty where the order of arrival in the
            whole queue counts.
        head: gangs that were first in line when something last changed, in the order of their turns.
        left: gangs that the round is still to look at, in the order of their turns.
        looked_at: gangs that the round has looked at.
        known: gangs that this round or an earlier one has looked at when they had pods to place.
        cut: whether the last session used up the tenant's share before it came to all it had
            chosen.
        rests: whether all its gangs were looked at, and nothing has changed since the first of them was: until
            something does only its head is looked at.
        presses: whether some of those that are left were never looked at, or nodes have room for them now.
        in_vain: of those that are left, gangs that were to have a turn for room since something last changed, which was gone.
        changed: whether something has changed since the last session, so that nodes may have room for gangs that the round
            has looked at.
        paused: whether those that do not press wait, as some of them just had their turn.
    """

    queue: str
    namespace: str
    head: tuple[GangKey, ...] = ()
    left: tuple[GangKey, ...] = ()
    looked_at: frozenset[GangKey] = attrs.field(default=frozenset(), converter=_as_set)
    known: frozenset[GangKey] = attrs.field(default=frozenset(), converter=_as_set)
    cut: bool = False
    rests: bool = False
    presses: bool = False
    in_vain: frozenset[GangKey] = attrs.field(default=frozenset(), converter=_as_set)
    changed: bool = False
    paused: bool = False


@frozen(slots=True, kw_only=True)
class StartEstimate:
    """When a gang that waits is expected to start, and what that rests on.

    Times are seconds since the epoch.

    Attributes:
        start: expected.
        known_by: a word for what it rests on, of ``StartKnownBy``.
        earliest, latest: between them start four of five, by what became of earlier estimates; 0.0
            while too few starts were compared.
        ends: gangs whose ends free its room, with the expected end of each, the last first.
        ahead: gangs before it in the order for which room was planned, too.
    """

    start: float
    known_by: str
    earliest: float = 0.0
    latest: float = 0.0
    ends: tuple[tuple[GangKey, int], ...] = ()
    ahead: tuple[GangKey, ...] = ()


@frozen(slots=True)
class ExpectedStarts:
    """When gangs that wait were last expected to start; equal where the same is told.

    Attributes:
        at: when that was worked out, seconds since the epoch; a session that answers for a later one has its own.
        estimates: of those that are told.
    """

    at: float = attrs.field(default=-inf, eq=False)
    estimates: Mapping[GangKey, StartEstimate] = attrs.field(factory=dict)

    def are_younger(self, than_s: float, *, now: float) -> bool:
        """Whether they were worked out less than so many seconds before."""
        return self.at <= now < self.at + than_s


NO_EXPECTED_STARTS: Final = ExpectedStarts()
NO_SPARE_ROOM: Final[Mapping[str, Resources]] = {}


@frozen(slots=True, kw_only=True, eq=False)
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
        expected_starts: what gangs were told of their starts by the last session.
        spare_room: by nodes on which the last session reserved room, what others could take there beside it; a
            resource that is not told is not reserved there.
        gpu_resources: extended resources that are GPUs, in whose units all amounts are counted.
        reservations: Reservations, sorted by name.
        users_doubt: why names of users cannot be believed, as words of a sentence; empty where they can.
        gpu_holds: what gangs hold of GPUs and held of late, while some queue has a budget; in any order.
        gpu_holds_since: from when on these are known; what ended before is not among them. Seconds since the epoch.
        limits: bounds of the configuration that was in force; ``session_work`` times ``work_times``.
        work_times: how many times its work an action may spend, as sessions before it started all that they looked at;
            all actions together may spend no more than otherwise.
        may_end_early: whether the session may end when it has started somebody, as one follows that looks at everybody else.
        foreseen: whether nothing has changed since a whole session but that pods have come which it counted on.
        status_may_wait: whether a session that starts Jobs may also end early when it knows that nobody else starts, as one follows
            that tells of everybody when their pods have come.
        waiting_elsewhere: gangs that wait in shards of other daemons, while some queue limits lines of users; sorted.
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
    expected_starts: ExpectedStarts = NO_EXPECTED_STARTS
    spare_room: Mapping[str, Resources] = attrs.field(factory=dict)
    idle_gangs: Mapping[str, int] = attrs.field(factory=dict)
    gpu_resources: GpuResources = DEFAULT_GPU_RESOURCES
    limits: LimitsConfig = DEFAULT_LIMITS
    work_times: int = 1
    may_end_early: bool = False
    foreseen: bool = False
    status_may_wait: bool = False
    devices: DeviceCatalog = NO_DEVICES
    reservations: tuple[AdvanceReservation, ...] = ()
    device_totals: Mapping[str, Resources] = attrs.field(factory=dict)
    gpu_holds: tuple[GpuHold, ...] = ()
    gpu_holds_since: int = 0
    users_doubt: str = ""
    start_errors: Mapping[str, StartErrors] = attrs.field(factory=dict)
    waiting_elsewhere: tuple[WaitingElsewhere, ...] = ()

    def is_past(self, moment: float) -> bool:
        """Whether a moment has come, seconds since the epoch."""
        return self.now >= moment

    def is_after(self, moment: float) -> bool:
        """Whether a moment is over, seconds since the epoch."""
        return self.now > moment

    def changes_at(self, moment: float) -> None:
        """Say when something that was made of ``unobserved_now`` would be made otherwise."""

    @property
    def unobserved_now(self) -> float:
        """``now``, for those who say by ``changes_at`` until when what they make of it stays the same."""
        return self.now

    @property
    def leaves_expected_starts(self) -> bool:
        """Whether a session leaves what was told of starts: that is young, or another session follows this one at once."""
        another_follows = any(each.changed for each in self.tenant_rounds)
        than_s = ESTIMATES_AFTER_CHANGE_S if another_follows else ESTIMATES_EVERY_S
        return self.expected_starts.are_younger(than_s, now=self.unobserved_now)

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


class ObservedSnapshot(Snapshot):
    """A snapshot that notes what was asked about its time, for one session.

    As long as nothing else is another, the same is decided until the first moment that was asked about and had
    not come yet. Who reads ``now`` itself may make anything of it: what is decided then holds for this moment alone.

    Attributes:
        stays_until: that moment, infinite for none.
        next_limit: the same of moments that a policy or a limit asked about, and not the search for starts.
    """

    __slots__ = ("_now", "next_limit", "stays_until")
    _now: float
    stays_until: float
    next_limit: float

    @classmethod
    def observing(cls, snapshot: Snapshot) -> ObservedSnapshot:
        """The same snapshot, of whose time nothing has been asked."""
        observed = cls.__new__(cls)
        for field in _TIMELESS_FIELDS:
            object.__setattr__(observed, field, getattr(snapshot, field))
        object.__setattr__(observed, "_now", snapshot.now)
        object.__setattr__(observed, "stays_until", inf)
        object.__setattr__(observed, "next_limit", inf)
        return observed

    @property
    def now(self) -> float:
        """Seconds since the epoch; whatever is made of it holds for this moment alone."""
        self.changes_at(self._now)
        return self._now

    @property
    def unobserved_now(self) -> float:
        """See ``Snapshot.unobserved_now``."""
        return self._now

    def is_past(self, moment: float) -> bool:
        """Whether a moment has come, seconds since the epoch; it is noted where it has not."""
        if self._now >= moment:
            return True
        self.changes_at(moment)
        self._note_limit(moment)
        return False

    def is_after(self, moment: float) -> bool:
        """Whether a moment is over, seconds since the epoch; it is noted where it is not."""
        if self._now > moment:
            return True
        self.changes_at(moment)
        self._note_limit(nextafter(moment, inf))
        return False

    def _note_limit(self, moment: float) -> None:
        object.__setattr__(self, "next_limit", min(self.next_limit, moment))

    def changes_at(self, moment: float) -> None:
        """See ``Snapshot.changes_at``; moments that have passed count for nothing."""
        if self._now <= moment < self.stays_until:
            object.__setattr__(self, "stays_until", moment)


_OF_THE_MOMENT: Final = (
    "now",
    "revision",
    "tenant_rounds",
    "expected_starts",
    "spare_room",
    "may_end_early",
    "foreseen",
    "status_may_wait",
)
_TIMELESS_FIELDS: Final = tuple(each.name for each in attrs.fields(Snapshot) if each.name != "now")


def same_cluster(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots of one cache show the same, whenever and after whichever sessions they were taken."""
    return all(
        (here := getattr(one, name)) is (there := getattr(other, name)) or here == there
        for name in _TIMELESS_FIELDS
        if name not in _OF_THE_MOMENT
    )
