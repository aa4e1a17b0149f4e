"""What a session decided: data only, in canonical order, named by the hash of its content."""

from __future__ import annotations

import hashlib

import attrs
import msgspec

from gpusched.api.devices.dynamic.claims import ClaimAllocation, ClaimConsumer, ExtendedRequest
from gpusched.api.devices.slots import format_slots
from gpusched.api.gang.charge_record import ChargeRecord
from gpusched.api.gang.eviction_record import GangEvictions, PastEviction
from gpusched.api.gang.move_record import MoveRecord, format_move
from gpusched.api.gang.plan_suffix import plan_suffix
from gpusched.api.gang.turn_record import TurnRecord
from gpusched.api.jobs.job_failures import EvictionWarning
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.queue.budget import BudgetRecord
from gpusched.api.queue.queue import QueueUsage
from gpusched.api.queue.start_errors import NO_START_ERRORS, StartErrors
from gpusched.base.classes import frozen
from gpusched.cache.snapshot import StartEstimate


@frozen(slots=True)
class ClaimBind:
    """A claim for devices that one pod of a gang needs before it is bound.

    Attributes:
        consumer: the pod's group, for which the claim is reserved; None for the pod.
        allocation: to be written; None where the claim has one, which is reserved for the pod as well.
        extended: what containers of the pod request of extended resources: the claim is made for these first, and has no
            ``uid`` before.
    """

    key: ObjectKey
    uid: UID
    allocation: ClaimAllocation | None = None
    consumer: ClaimConsumer | None = None
    extended: tuple[ExtendedRequest, ...] = ()

    def content(self) -> tuple[object, ...]:
        """What identifies the decision."""
        own = (tuple(self.key), self.uid, self.allocation and attrs.astuple(self.allocation))
        return own if self.consumer is None else (*own, self.consumer.uid)


@frozen(slots=True)
class PodBind:
    """One pod to one node.

    Attributes:
        node_uid: the node as it was decided on; a node made again under its name is another.
        slots: bitmask of GPU slots, 0 when the pod takes none.
        rank: index inside the gang, -1 for none.
        requests: what the ledger charges.
        claims: that are allocated and reserved for it first, in the order of its spec.
        device_slots: bitmask of the GPU slots of whole devices from its claims, for its annotation.
        numa: NUMA nodes of the devices from its claims, as far as their drivers say, sorted.
        charge: who pays for it, where only its owner says so; None for what it says itself.
    """

    key: ObjectKey
    uid: UID
    node: str
    node_uid: UID
    slots: int
    rank: int
    requests: Resources
    claims: tuple[ClaimBind, ...] = ()
    device_slots: int = 0
    numa: tuple[int, ...] = ()
    charge: ChargeRecord | None = None

    def content(self) -> tuple[object, ...]:
        """What identifies the decision."""
        own = (*self.key, self.uid, self.node, format_slots(self.slots), self.rank)
        if not self.claims:
            return own
        return (*own, [each.content() for each in self.claims])


@frozen(slots=True, kw_only=True)
class GangBind:
    """The part of a gang that starts together now.

    Attributes:
        uid: of the PodGroup or Job, or of the lone pod.
        generation: of the PodGroup as decided on; 0 when there is none.
        min_member: members the gang needs in all.
        placed: members that were bound or assumed already when this was decided.
        binds: sorted by pod; ``placed + len(binds) >= min_member``.
        proof: how good their places are proven to be; empty when nothing is known.
        left_waiting: members that wait on when these are bound.
        grows: whether the gang had its minimum before.
    """

    gang: GangKey
    uid: UID
    generation: int
    queue: str
    min_member: int
    placed: int
    binds: tuple[PodBind, ...]
    proof: str = ""
    left_waiting: int = 0
    grows: bool = False

    @property
    def plan_id(self) -> str:
        """Twelve hex digits: the same decision has the same name in every process.

        Where it is not the whole of a gang, the end tells what of it there is beside.
        """
        content = (*self.gang, self.uid, self.generation, [bind.content() for bind in self.binds])
        digits = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:12]
        return digits + plan_suffix(left=self.left_waiting, grows=self.grows)


@frozen(slots=True, kw_only=True)
class PendingReason:
    """Why a gang waits, or how it stands, for conditions, events and ``explain``.

    Attributes:
        reason: one of the contract's reasons (``framework.reasons``).
        message: with numbers; the same in event, condition and ``explain``.
    """

    reason: str
    message: str


@frozen(slots=True, kw_only=True)
class Undo:
    """Members of a gang that never became whole: they are evicted, by UID."""

    gang: GangKey
    pods: tuple[tuple[ObjectKey, UID], ...]
    message: str


@frozen(slots=True, kw_only=True)
class Eviction:
    """One pod is to leave its node.

    Attributes:
        gang, queue: to which it belongs.
        node: on which it is.
        action: that decided: ``preempt``, ``reclaim`` or another name for metrics.
        reason: of the contract's list.
        message: which gang needs the room, with numbers.
        gpu_seconds: work that is lost, GPUs times seconds since start or checkpoint.
    """

    key: ObjectKey
    uid: UID
    gang: GangKey
    queue: str
    node: str
    action: str
    reason: str
    message: str
    gpu_seconds: int = 0


@frozen(slots=True, kw_only=True)
class JobSuspendChange:
    """A Job is paused or started by its ``suspend``.

    Attributes:
        suspend: what it becomes.
        parallelism: what that becomes too; None leaves it.
        node_selector: added to its pod template, pairs sorted by label.
        annotations: set on it, pairs sorted by name; an empty value removes one.
        reason, message: as for ``Eviction``.
    """

    key: ObjectKey
    uid: UID
    suspend: bool
    reason: str
    message: str
    action: str
    parallelism: int | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


@frozen(slots=True, kw_only=True)
class EvictionChain:
    """The evictions from which one follows, with it; see ``state.decided.eviction_chains``.

    Attributes:
        length: evictions of the longest line of them that ends with this one; 1 for this one alone.
        is_cycle: whether the gang that gains was evicted in a line that ends with this one.
        gpu_seconds: work that was lost in all of them.
    """

    length: int
    is_cycle: bool
    gpu_seconds: int


@frozen(slots=True, kw_only=True)
class EvictionCount:
    """How an eviction stands among those before.

    Attributes:
        record: evictions of the gang with this one, to be written on its object.
        times: evictions of the gang within the window, with this one.
        window_s: of the configuration.
        chain: that ends with this one.
    """

    record: GangEvictions
    times: int
    window_s: float
    chain: EvictionChain

    @property
    def newest(self) -> tuple[PastEviction, ...]:
        """The evictions within the window, oldest first."""
        return self.record.past[-self.times :]


@frozen(slots=True, kw_only=True)
class GangStop:
    """Members of one gang leave; where it is a Job that ends as a whole, it is paused.

    Attributes:
        evictions: sorted by pod.
        pause: the Job to suspend; ``evictions`` are then the pods which that ends, and none of
            them is evicted by itself.
    """

    gang: GangKey
    uid: UID
    generation: int
    evictions: tuple[Eviction, ...]
    pause: JobSuspendChange | None = None
    turn: TurnRecord | None = None
    """Turns that the gang has had, to be written before it leaves; with ``pause`` it is part of that."""
    keeps_minimum: bool = False
    """Whether members of a native group leave that it can do without: the group is not disrupted."""
    count: EvictionCount | None = None
    """How this stands among evictions before, where the gang is left without its minimum; None where that is not counted."""


@frozen(slots=True, kw_only=True)
class MoveOrder:
    """The record of a move, to be written on the gang's PodGroup or Job.

    Attributes:
        gang, uid: that is moved, with the UID of that object.
        move: where room is held for it.
    """

    gang: GangKey
    uid: UID
    move: MoveRecord


@frozen(slots=True, kw_only=True)
class PreemptionPlan:
    """Room is made, or waited for, for one gang, or it moves; nominations are written before evictions.

    Attributes:
        gang, uid, generation: for which room is made.
        nominations: key, UID and node of each nominated pod, sorted by pod.
        stops: evictions for it; empty when room becomes free anyway.
        action: that decided.
        message: for the gang's condition and event.
        moves: where evicted gangs find room again, sorted by gang; written before anything.
    """

    gang: GangKey
    uid: UID
    generation: int
    nominations: tuple[tuple[ObjectKey, UID, str], ...]
    stops: tuple[GangStop, ...]
    action: str
    message: str
    moves: tuple[MoveOrder, ...] = ()

    @property
    def moves_itself(self) -> bool:
        """Whether the gang is moved for its own sake, so that no other one gets its room."""
        return not self.nominations and any(each.gang == self.gang for each in self.moves)


@frozen(slots=True, kw_only=True)
class GangStatus:
    """Where a gang stands after the session; becomes conditions, events and counts.

    Attributes:
        uid, generation: of the PodGroup; generation 0 when there is none to write to.
        phase: Pending, Inqueue, Running, Completed or Unknown.
        admitted, scheduled: reason and sentence; scheduled.reason is ``Scheduled`` when enough
            members are bound (never before their bindings were accepted).
        waiting_pods: unbound pods whose condition gets the reason, as (key, uid).
        counts: scheduled, running, succeeded, failed.
    """

    gang: GangKey
    uid: UID
    generation: int
    queue: str
    phase: str
    admitted: PendingReason
    is_admitted: bool
    scheduled: PendingReason
    is_scheduled: bool
    waiting_pods: tuple[tuple[ObjectKey, UID], ...]
    counts: tuple[int, int, int, int]
    pending_reason: PendingReason | None = None
    """Reason for waiting pods where it is not ``scheduled``: extras of a running gang."""
    queue_position: int = 0
    estimated_start: float = 0.0
    """Seconds since the epoch; 0.0 when the start is unknown."""
    start_estimate: StartEstimate | None = None
    """The same with its range and what it rests on, as it is told; a session leaves it apart."""
    estimate_change: str = ""
    """Why the estimate is another than the one told before; empty for no change that counts."""
    nominated: tuple[tuple[UID, str], ...] = ()
    """Nodes nominated for waiting pods, by UID; nominations of other pods are removed."""
    preempted: PendingReason | None = None
    """Content of the condition Preempted; None leaves it as it is."""
    is_preempted: bool = True
    """Whether the condition Preempted holds; False when the gang runs again."""
    placement: tuple[tuple[str, str], ...] = ()
    told_members: tuple[tuple[ObjectKey, UID], ...] = ()
    """Members whose condition GangWhole is written, of gangs whose PodGroup does not say it."""
    lost_members: str = ""
    """What that condition says while the gang lacks members; empty when it is whole again."""
    eviction_warning: EvictionWarning | None = None
    key_warning: str = ""
    """Which labels and annotations mean nothing; empty for none."""
    provisional: bool = False
    """Whether no session has looked at it yet; written only where nothing was written before."""


@frozen(slots=True)
class PoolStatus:
    """Amounts that a queue holds and is due in a node pool, of resources limited there."""

    name: str
    allocated: Resources
    fair_share: Resources


@frozen(slots=True, kw_only=True)
class BudgetStatus:
    """How a queue stands with its budget, as it shall be remembered and told.

    Attributes:
        record: what was used up to a moment, to go on from.
        available: all that there is in the period of the record, millionths of GPU-seconds.
        next_period: when the next one begins, seconds since the epoch.
        is_within: whether anything is left.
        told: reason and message of the condition ``WithinBudget``.
    """

    record: BudgetRecord
    available: int
    next_period: int
    is_within: bool
    told: PendingReason


@frozen(slots=True, kw_only=True)
class QueueStatus:
    """Amounts that a queue holds and requests; ``ready`` says what is wrong with a bad queue.

    The UID is empty for the queue ``default`` where that is no object: nothing is written then.
    """

    name: str
    uid: UID
    generation: int
    state: str
    allocated: Resources
    requested: Resources
    borrowed: Resources
    pending: int
    inqueue: int
    running: int
    is_ready: bool
    ready: PendingReason
    fair_share: Resources = NOTHING
    usage: QueueUsage | None = None
    """Use of late as it shall be remembered; None where no policy measures it."""
    node_pools: tuple[PoolStatus, ...] = ()
    """In the order of its spec."""
    budget: BudgetStatus | None = None
    """None where it has none."""
    start_errors: StartErrors = NO_START_ERRORS
    """How gangs started beside what they were told, as it shall be remembered."""
    shards: tuple[str, ...] = ()
    """Those that these amounts and numbers are of; none where they are of the cluster."""
    other_shards: tuple[str, ...] = ()
    """Those whose daemons write their own."""
    told_elsewhere: bool = False
    """Whether its state, use, budget and conditions are told by the daemon of the first shard."""
    start_rows: tuple[str, ...] = ()
    """Names of rows of the status of which ``start_errors`` has the starts."""


@frozen(slots=True, kw_only=True)
class TopologyStatus:
    """Whether the levels of a Topology count.

    Attributes:
        crossed: nodes that it would put into another domain than the one that counts does.
        outside: nodes in no domain, because a level has more domains than count.
    """

    name: str
    uid: UID
    generation: int
    is_ready: bool
    ready: PendingReason
    crossed: int = 0
    outside: int = 0


@frozen(slots=True, kw_only=True)
class ReservationStatus:
    """Where a Reservation stands.

    Attributes:
        phase: Announced, Active or Ended.
        begins, ends: of its current or next window, seconds since the epoch; 0 when it has none.
        nodes: that it keeps then, sorted.
        in_the_way: gangs on these nodes that may not use them.
    """

    name: str
    uid: UID
    generation: int
    phase: str
    begins: int
    ends: int
    nodes: tuple[str, ...]
    in_the_way: int
    is_ready: bool
    ready: PendingReason


@frozen(slots=True, kw_only=True)
class Plan:
    """All that a session wants done. Empty parts cost nothing."""

    revision: int
    binds: tuple[GangBind, ...] = ()
    undos: tuple[Undo, ...] = ()
    preemptions: tuple[PreemptionPlan, ...] = ()
    stops: tuple[GangStop, ...] = ()
    """Gangs stopped for their own sake: stale, over their time, drained."""
    job_changes: tuple[JobSuspendChange, ...] = ()
    """Jobs that are started."""
    gangs: tuple[GangStatus, ...] = ()
    queues: tuple[QueueStatus, ...] = ()
    topologies: tuple[TopologyStatus, ...] = ()
    reservations: tuple[ReservationStatus, ...] = ()

    @property
    def has_effects(self) -> bool:
        """Whether it does something to pods or Jobs."""
        return bool(self.binds or self.undos or self.preemptions or self.stops or self.job_changes)

    @property
    def plan_id(self) -> str:
        """Hash of the decisions (not of the snapshot's number): see invariant I12."""
        content = [bind.plan_id for bind in self.binds]
        undone = [(*undo.gang, [uid for _, uid in undo.pods]) for undo in self.undos]
        claimed = [
            [*claim.gang, claim.nominations, [_stop_content(stop) for stop in claim.stops]]
            + [[*each.gang, format_move(each.move, seal="")] for each in claim.moves]
            for claim in self.preemptions
        ]
        stopped = [_stop_content(stop) for stop in self.stops]
        switched = [[each.uid, each.suspend] for each in self.job_changes]
        everything = (content, undone, claimed, stopped, switched)
        return hashlib.sha256(msgspec.json.encode(everything)).hexdigest()[:12]


def _stop_content(stop: GangStop) -> list[object]:
    return [*stop.gang, stop.pause is not None, [each.uid for each in stop.evictions]]
