"""The parts of the view, as ``/v1`` and ``get ... -o json`` write them: names in camel case.

Times are texts as the API writes them, empty where they are not known; amounts of GPUs are
quantities.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpusched.base.limits import EVICTION_WINDOW_S


class ViewPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What all parts share: they are data, written in camel case."""


class ViewName(ViewPart, frozen=True, kw_only=True):
    """Identity of an object; ``namespace`` and ``uid`` are empty where it has none."""

    namespace: str = ""
    name: str
    uid: str = ""


class OwnerView(ViewPart, frozen=True, kw_only=True):
    """The object that made a gang's pods."""

    kind: str
    name: str


class PastEvictionView(ViewPart, frozen=True, kw_only=True):
    """One time that a gang was left without its minimum.

    Attributes:
        action: that decided: ``preempt``, ``reclaim``, ``consolidate`` or ``stop``.
        claimant: kind, namespace and name of the gang for which it left; empty where it was stopped
            for its own sake.
        gpu_seconds: work that was lost.
    """

    time: str
    action: str
    reason: str
    claimant: str = msgspec.field(default="", name="for")
    gpu_seconds: int = 0


WAITING: Final = "Waiting"
STARTING: Final = "Starting"
RUNNING: Final = "Running"
ENDING: Final = "Ending"


class GangView(ViewPart, frozen=True, kw_only=True):
    """One gang.

    Attributes:
        gang_kind: of what made it: ``PodGroup``, ``Job``, ``Pod`` or another owner's kind.
        state: ``Waiting``, ``Starting``, ``Running`` or ``Ending``.
        placed, waiting: members with a node, and without one.
        min_member: members that it needs at once.
        gpus: that all of these request, as a quantity.
        gpu_type: products of the GPUs on its nodes, with commas; empty while it has none.
        position: among those of its queue that wait, 0 for none.
        since: when it got its minimum where it runs, else when it was created.
        estimated_start_time: empty where it is not known.
        estimated_start_earliest, estimated_start_latest: between them it starts with a probability of
            four fifths; empty where too few earlier starts were compared.
        estimate_known_by: what the estimate rests on, such as ``Announced``.
        estimate_change: why it is another than the one told before; empty for no such change.
        expected_end_time: of one that runs and says how long, else empty.
        reason, message: why it waits.
        warning: to its author, which stops nothing; empty for none.
        nodes: of its members, sorted.
        user: who made it, empty where that is not known.
        evictions: the last of it, oldest first; see docs/thrash.md.
    """

    metadata: ViewName
    gang_kind: str
    owner: OwnerView | None = None
    queue: str
    priority: int
    preemptible: bool = True
    state: str
    placed: int
    waiting: int
    min_member: int
    gpus: str
    gpu_type: str = ""
    position: int = 0
    created: str = ""
    since: str = ""
    estimated_start_time: str = ""
    estimated_start_earliest: str = ""
    estimated_start_latest: str = ""
    estimate_known_by: str = ""
    estimate_change: str = ""
    expected_end_time: str = ""
    reason: str = ""
    message: str = ""
    warning: str = ""
    nodes: tuple[str, ...] = ()
    user: str = ""
    evictions: tuple[PastEvictionView, ...] = ()

    @property
    def gang_key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.gang_kind, self.metadata.namespace, self.metadata.name

    @property
    def key(self) -> str:
        """``NAMESPACE/KIND/NAME``: unique, and sorted as people read it."""
        return f"{self.metadata.namespace}/{self.gang_kind}/{self.metadata.name}"


class MemberView(ViewPart, frozen=True, kw_only=True):
    """One pod of a gang.

    Attributes:
        node: empty while it has none.
        slots: numbers of its GPUs on the node, with commas; empty where they are not known.
        phase: ``Waiting``, ``Bound``, ``Running`` or ``Ending``.
    """

    name: str
    node: str = ""
    slots: str = ""
    phase: str
    role: str = ""
    sub_group: str = ""


class HolderView(ViewPart, frozen=True, kw_only=True):
    """A gang on a GPU, and the share of it that it holds; only ``hidden`` where it may not be seen."""

    namespace: str = ""
    kind: str = ""
    name: str = ""
    share: str = "1"
    hidden: bool = False


class SlotView(ViewPart, frozen=True, kw_only=True):
    """One GPU of a node.

    Attributes:
        index: number of the slot.
        island: number of the group of GPUs that its best links join.
        free: what of it nobody holds, as a quantity.
    """

    index: int
    island: int
    free: str
    holders: tuple[HolderView, ...] = ()


class DomainView(ViewPart, frozen=True, kw_only=True):
    """Where a node is on one level of the topology."""

    level: str
    name: str


class FreeView(ViewPart, frozen=True, kw_only=True):
    """CPU and memory that nobody requests, as quantities."""

    cpu: str
    memory: str


class NodeView(ViewPart, frozen=True, kw_only=True):
    """One node.

    Attributes:
        state: as kubectl says it.
        gpu_type: product of its GPUs as a label tells it, empty where none does.
        gpus, free_gpus: of all GPU resources, shares counted as their parts; as quantities.
        free_slots: numbers of the GPUs that nobody has any of, with commas.
        domains: widest level first.
        pods: that take anything of it.
        gangs: of ours with members there, as ``NAMESPACE/KIND/NAME``, sorted.
    """

    metadata: ViewName
    state: str
    gpu_type: str = ""
    gpus: str
    free_gpus: str
    free_slots: str = ""
    slots: tuple[SlotView, ...] = ()
    domains: tuple[DomainView, ...] = ()
    free: FreeView
    pods: int
    gangs: tuple[str, ...] = ()
    created: str = ""


class QueueGpus(ViewPart, frozen=True, kw_only=True):
    """GPUs of a queue, as quantities; empty for no such bound."""

    allocated: str = "0"
    requested: str = "0"
    borrowed: str = "0"
    fair_share: str = ""
    deserved: str = ""
    limit: str = ""


class BudgetUserView(ViewPart, frozen=True, kw_only=True):
    """GPU-hours that one user has used of a queue's budget; the name is empty for all who are not known."""

    name: str = ""
    used: str


class BudgetView(ViewPart, frozen=True, kw_only=True):
    """How a queue stands with its budget.

    Attributes:
        used, available: GPU-hours times price, as decimal numbers.
        percent: that is used, rounded down.
        next_period: when the next period begins.
        reason: ``WithinBudget``, ``BudgetWarning`` or ``BudgetExhausted``.
        message: the sentence of the condition.
        users: those who used most, the most first.
    """

    used: str
    available: str
    percent: int
    next_period: str
    reason: str
    message: str
    users: tuple[BudgetUserView, ...] = ()


class StartAccuracyView(ViewPart, frozen=True, kw_only=True):
    """How gangs that waited started beside what they were told when half of the wait was over.

    Attributes:
        known_by: what the estimates rested on, such as ``Announced``.
        starts: that were compared, of late.
        as_told: of these waited within a tenth of what they were told.
        median_percent: the wait from then on in percent of what was told, the upper end of the median's class.
        ranged, held: starts that had been told a range, and those of them that came within it.
    """

    known_by: str
    starts: int
    as_told: int
    median_percent: int
    ranged: int
    held: int


class QueueView(ViewPart, frozen=True, kw_only=True):
    """One queue.

    Attributes:
        state: ``Open``, ``Closed`` or ``Draining``; empty where no daemon has looked at it yet, and then none
            of its figures is known.
        ordering: of the gangs that wait in it.
        pending, inqueue, running: gangs that wait and are not admitted, that are, and that run.
        message: what is wrong where it is not ready.
        warning: what its owner should know where it is; empty for nothing.
        budget: None where it has none, or no daemon has looked at it yet.
        start_estimates: starts beside what was told of them, by what the estimates rested on.
        created: empty for the queue ``default`` where that is no object.
    """

    metadata: ViewName
    parent: str = ""
    state: str = ""
    weight: int = 1
    gpus: QueueGpus
    pending: int = 0
    inqueue: int = 0
    running: int = 0
    ready: bool = True
    message: str = ""
    ordering: str = ""
    created: str = ""
    warning: str = ""
    budget: BudgetView | None = None
    start_estimates: tuple[StartAccuracyView, ...] = ()


class GangOfEvent(ViewPart, frozen=True, kw_only=True):
    """Which gang a decision is about."""

    namespace: str
    kind: str
    name: str


class DecisionView(ViewPart, frozen=True, kw_only=True):
    """One decision: as the log of decisions tells it.

    Attributes:
        event: ``starts``, ``grows``, ``waits``, ``claims`` or ``loses``.
        message: a sentence with its facts.
    """

    time: str
    event: str
    message: str
    gang: GangOfEvent


class OrderTermView(ViewPart, frozen=True, kw_only=True):
    """One of the things by which gangs that wait are put in order.

    Attributes:
        policy: that gave it; ``repair``, ``turns``, ``since`` or ``name`` for what counts beside policies.
        queue: whose it is; empty for the gang's own.
        value: as people read it.
        message: a sentence.
    """

    policy: str
    queue: str = ""
    value: str
    message: str


class OrderView(ViewPart, frozen=True, kw_only=True):
    """Where a gang that waits is in the order of turns, and where that comes from.

    Attributes:
        position, total: among all gangs that had a turn; 0 for one without, and for a total that
            this user may not see.
        queue_position, queue_total: the same among those of its queue.
        terms: in the order in which they count.
        after: the gang just before it; None for the first, and for one that may not be seen.
        decided_by: name of the policy, or of what counts beside policies, that put it there.
        message: why it is after that one, or why it has no turn.
    """

    position: int = 0
    total: int = 0
    queue_position: int = 0
    queue_total: int = 0
    terms: tuple[OrderTermView, ...] = ()
    after: GangOfEvent | None = None
    decided_by: str = ""
    message: str = ""


class PriorityView(ViewPart, frozen=True, kw_only=True):
    """One gang that waits, as ``/v1/priority`` lists it."""

    metadata: ViewName
    gang_kind: str
    queue: str
    order: OrderView


class GpuTotalsView(ViewPart, frozen=True, kw_only=True):
    """GPUs of all nodes, and slices that the hardware makes of them, in pieces.

    Attributes:
        idle: that no pod has; a part of ``total``.
        stranded: that no pod which runs or waits could use; a part of ``idle``.
        stranded_by_reason: ``NodeUnavailable``, ``Fragmented`` or ``NoCPUOrMemory``; those with any.
    """

    total: int
    idle: int
    stranded: int
    stranded_by_reason: dict[str, int] = {}


class AboutView(ViewPart, frozen=True, kw_only=True):
    """What ``/v1`` says: which server this is, of which moment it tells, and what the user may see.

    Attributes:
        daemon: its identity, empty where the view is read from the API.
        leading: whether it decides.
        ready: sentence of ``/readyz``.
        source: ``daemon`` or ``api``.
        revision: number of the moment; changes are asked for by it.
        now: of that moment.
        namespaces: whose gangs are shown: ``all``, or their names.
        nodes, queues: whether these are shown.
        gpu_totals: counted every ten seconds; None where they are not known or nodes are not shown.
        gangs_evicted_again: of those that are shown, gangs that were evicted more than once within the window before ``now``.
        eviction_window_seconds: that window, ``limits.evictionWindow`` of the daemon; an hour where no daemon says it.
    """

    version: str
    api_version: str = "v1"
    daemon: str = ""
    leading: bool = False
    ready: str = ""
    scheduler_names: tuple[str, ...] = ()
    source: str = "daemon"
    revision: int = 0
    now: str = ""
    namespaces: str | tuple[str, ...] = ()
    nodes: bool = False
    queues: bool = False
    gpu_totals: GpuTotalsView | None = None
    gangs_evicted_again: int = 0
    eviction_window_seconds: float = EVICTION_WINDOW_S
