"""The read-only face of a session that plugins see. It follows the session's statements."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from gpusched.api.devices.dynamic.catalog import claimed_devices
from gpusched.api.devices.gpu_types import FULL_SPEED
from gpusched.api.devices.slots import accelerator
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import UID
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import unit_of
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.policy.kinds import Namespace
from gpusched.api.queue.queue import QueueUsage
from gpusched.api.volumes.volume import VolumeCatalog
from gpusched.arrays.columns import Bools, Ints, exact_sums
from gpusched.arrays.node_facts import NodeFacts
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import former_names
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.accounts.gang_lines import GangLines
from gpusched.session.framework.accounts.node_pools import NodePoolAccounts
from gpusched.session.framework.accounts.queue_accounts import (
    BudgetAccounts,
    BudgetUse,
    QueueAccounts,
    QueueDemand,
)
from gpusched.session.framework.pod_counts import PodCounts, PodQuery
from gpusched.session.framework.reasons import shorten

DEVICE_CLASSES_TOLD_MAX: Final = 3
"""Classes of devices that one sentence names."""
_PODS_NAMED_MAX: Final = 2
_OWN_MEMBERS: Final = "other members of the gang"


class NodeRows:
    """Columns of some nodes, one row for each, as they stand in the session now."""

    def __init__(self, node_usage: NodeUsage, rows: Sequence[int] | Ints | None) -> None:
        self._node_usage = node_usage
        self._rows: Sequence[int] | Ints | slice = slice(None) if rows is None else rows
        self._length = len(node_usage.nodes) if rows is None else len(rows)

    def __len__(self) -> int:
        return self._length

    def allocatable(self, resource: str) -> Ints:
        """Base units, shape (rows,); zeros when no node offers the resource."""
        column = self._node_usage.nodes.columns.get(resource)
        if column is None:
            return np.zeros(self._length, dtype=np.int64)
        amounts: Ints = self._node_usage.nodes.allocatable[self._rows, column]
        amounts.setflags(write=False)
        return amounts

    def used(self, resource: str) -> Ints:
        """Base units, shape (rows,); zeros when no node offers the resource.

        A GPU with any share on it counts as a whole one.
        """
        column = self._node_usage.nodes.columns.get(resource)
        if column is None:
            return np.zeros(self._length, dtype=np.int64)
        # Read by rows and column: that lets other threads go on, by which bindings are sent (ADR 37).
        amounts: Ints = self._node_usage.used[self._rows, column]
        amounts.setflags(write=False)  # it may be the session's own array
        return amounts

    def unlike_pair(self, rated: Callable[[NodeRows], Ints | None]) -> tuple[Node, Node] | None:
        """Two nodes that offer and hold the same amounts and are not rated alike; None for none."""
        every = NodeRows(self._node_usage, None)
        points = rated(every)
        if points is None:
            return None
        firsts, group = self._node_usage.alike.groups()
        differing = np.flatnonzero(points != points[firsts][group]).tolist()
        nodes = every.nodes()
        return (nodes[firsts[group[differing[0]]]], nodes[differing[0]]) if differing else None

    def gpus(self) -> Ints:
        """Whole GPUs of any kind that the nodes offer, in pieces, shape (rows,)."""
        return self._pieces(lambda name: name in gpu_resources().whole)

    def slices(self) -> Ints:
        """Slices of GPUs that the nodes offer, in pieces, shape (rows,)."""
        return self._pieces(lambda name: name not in gpu_resources().whole and accelerator(name))

    def _pieces(self, counts: Callable[[str], bool]) -> Ints:
        total = np.zeros(self._length, dtype=np.int64)
        for name in self._node_usage.nodes.columns:
            if counts(name):
                total += self.allocatable(name) // unit_of(name)
        return total

    def gpu_room_left(self, pod: PodClass) -> Ints:
        """Thousandths left of the GPU that a share would join, int64, shape (rows,).

        -1 where it would be the first on its GPU, or fits none.
        """
        left: Ints = np.full(self._length, -1, dtype=np.int64)
        if pod.share is not None:
            self._node_usage.write_gpu_room_left(pod.share, self._rows, left)
        return left

    def left_for(self, pod: PodClass) -> Ints:
        """``gpu_room_left`` under its name of version 0.1.0."""
        warnings.warn(
            "NodeRows.left_for is called gpu_room_left now", DeprecationWarning, stacklevel=2
        )
        return self.gpu_room_left(pod)

    def shared(self) -> Sequence[Mapping[int, int]]:
        """Thousandths taken of each shared GPU by slot, one mapping for each row."""
        rows = range(self._length) if isinstance(self._rows, slice) else self._rows
        return [self._node_usage.shared_on(row) for row in rows]

    def parts(self, gpu: str) -> Ints:
        """Free thousandths of each GPU of one kind: shape (rows, GPUs), 0 where there is none."""
        parts: Ints = self._node_usage.gpu_parts(gpu)[self._rows]
        parts.setflags(write=False)  # it may be the session's own array
        return parts

    def numbers(self) -> Ints:
        """Numbers of these rows among all nodes, int64, shape (rows,)."""
        if isinstance(self._rows, slice):
            return np.arange(self._length, dtype=np.int64)
        return np.array(self._rows, dtype=np.int64)

    def nodes(self) -> Sequence[Node]:
        """The nodes themselves, in row order."""
        nodes = self._node_usage.nodes.nodes
        if isinstance(self._rows, slice):
            return nodes
        return [nodes[row] for row in self._rows]


class NodePools:
    """Node pools for plugins: what there is in each, and which pods run there.

    Args:
        pools: of the session; None when no queue limits anything in any: all is empty then.
        size: number of nodes.
    """

    def __init__(self, pools: NodePoolAccounts | None, size: int) -> None:
        self._pools = pools
        self._size = size

    @cached_property
    def total(self) -> Resources:
        """Amounts by dimension, as ``View.total``; only dimensions that some queue limits."""
        return self._pools.total() if self._pools else NOTHING

    def rows(self, pool: str) -> Bools:
        """The nodes of a pool, shape (nodes,)."""
        return self._pools.rows(pool) if self._pools else np.zeros(self._size, dtype=np.bool_)

    def pin(self, pod_class: PodClass) -> str:
        """The pool in which alone pods of a class may run; empty for none."""
        return self._pools.pin(pod_class) if self._pools else ""

    def where(self, pod_class: PodClass) -> tuple[str, ...]:
        """Pools of all nodes that its selector and affinity admit; empty for nodes of no pool."""
        return self._pools.where(pod_class) if self._pools else ()

    def confined(self, pod: Pod) -> bool:
        """Whether all members of its gang that wait may run in one pool each, and nowhere else.

        A Job that is to be started is given the labels of a pool, so its pods are, too.
        """
        return self._pools is not None and self._pools.confined(pod)

    def queues_of(self, pod: Pod) -> tuple[str, ...]:
        """Names of the queues that are charged with a member of a gang, from the leaf up."""
        return self._pools.owner_of(pod.uid).path if self._pools else ()


class View:
    """What a plugin may read of a session; it follows the session's statements.

    Args:
        accounts: what queues hold, as the session moves it.
        pod_counts: pods on each node, as the session moves them.
        lines: gangs of the session.
        facts: of its nodes, where they are known.
        fair_shares: providers of what queues are due; the first answers.
        usages: providers of what queues used of late; the first answers.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        accounts: QueueAccounts,
        pod_counts: PodCounts,
        *,
        lines: GangLines,
        facts: NodeFacts | None = None,
        fair_shares: Sequence[Callable[[str], Resources]] = (),
        usages: Sequence[Callable[[str], QueueUsage]] = (),
    ) -> None:
        self._accepting: Callable[[PodClass], Bools] | None = None
        self._gpu_speed: Callable[[Gang], int] | None = None
        self._minima: dict[int, tuple[Gang, Resources]] = {}
        self._charged: dict[tuple[int, int], tuple[PodClass, Resources]] = {}
        """By the ``id`` of a class, which is held with it, and a number of pods."""
        self._equal: dict[Resources, Resources] = {}
        self._snapshot = snapshot
        self._accounts = accounts
        self._pod_counts = pod_counts
        self._lines = lines
        self._fair_shares = fair_shares
        self._usages = usages
        self._namespace_labels: dict[str, Mapping[str, str]] | None = None
        self._started: Callable[[], Iterable[tuple[Gang, object]]] = tuple
        self._running_of_users: dict[str, tuple[int, tuple[Gang, ...]]] = {}
        self._told: frozenset[UID] = frozenset()
        """Members of the gang that a sentence is made about."""
        self._pools = accounts.pools
        self._budgets = BudgetAccounts(snapshot)
        self._facts = facts or NodeFacts(snapshot.nodes)
        self._demand = QueueDemand(
            snapshot, lines, accounts.pools, self._budgets, facts=self._facts
        )

    @property
    def now(self) -> float:
        """Seconds since the epoch; for ages, the same during the whole session.

        What is decided with it is decided anew in every session; ``is_past`` lets it stay.
        """
        return self._snapshot.now

    def is_past(self, moment: float) -> bool:
        """Whether a moment has come, seconds since the epoch: until it does, what is decided may stay."""
        return self._snapshot.is_past(moment)

    def queue(self, name: str) -> QueueNode | None:
        """The queue of that name."""
        return self._snapshot.queues.queues.get(name)  # asked too often for one call more

    def queues(self) -> Sequence[QueueNode]:
        """All queues, sorted by name."""
        return [node for _, node in sorted(self._snapshot.queues.queues.items())]

    def allocated(self, queue: str) -> Resources:
        """Amounts held by or nominated for the queue's subtree, this session included.

        Where queues limit node pools, the part held there stands beside the whole, by dimension;
        so it does in ``staying``, ``fixed``, ``requested`` and ``minimum``.

        While an action is pipelining, pods that leave do not count any more.
        """
        return self._accounts.allocated(queue)

    def staying(self, queue: str) -> Resources:
        """Amounts as ``allocated`` once pods that leave, victims of this session too, are gone."""
        return self._accounts.staying(queue)

    def not_preemptible(self, queue: str) -> Resources:
        """The part of ``staying`` whose gangs are not preemptible, so that it cannot be reclaimed."""
        return self._demand.fixed.get(queue, NOTHING).plus(self._accounts.fixed(queue))

    def requested(self, queue: str) -> Resources:
        """Amounts its subtree held, without pods that leave, and waited for as the session began."""
        return self._demand.requested.get(queue, NOTHING)

    def total(self) -> Resources:
        """Amounts that queues divide: allocatable of usable nodes less what foreign pods hold."""
        return self._demand.total

    def staying_in_cluster(self, queue: str) -> Resources:
        """Amounts as ``staying`` with what it holds in shards of other daemons, as far as they have told it."""
        node = self.queue(queue)
        others = node.held_elsewhere if node is not None else NOTHING
        return self.staying(queue).plus(others)

    def free_in_other_shards(self) -> Resources:
        """Amounts that no pod has on nodes of shards of other daemons; nothing while no queue has a guarantee."""
        return self._snapshot.queues.free_elsewhere

    def total_of_cluster(self) -> Resources:
        """Amounts as ``total`` with all nodes of shards of other daemons."""
        return self.total().plus(self._snapshot.queues.total_elsewhere)

    @cached_property
    def pools(self) -> NodePools:
        """Node pools in which queues limit something."""
        return NodePools(self._pools, len(self._snapshot.nodes))

    def held(self, gang: Gang) -> Resources:
        """Amounts that a running gang holds, in pools too, without its members being deleted."""
        return self._demand.held(gang)

    def ask_started(self, started: Callable[[], Iterable[tuple[Gang, object]]]) -> None:
        """Set how gangs with places given or nominated in this session are found; until then none are."""
        self._started = started

    def staying_of_user(self, account: str) -> Resources:
        """Amounts of an account once pods that leave are gone; ``allocated`` has them as they are now."""
        return self._accounts.staying(account)

    def running_of_user(self, account: str) -> Sequence[Gang]:
        """Gangs of an account that have places, those of this session included, sorted by key."""
        if self._accounts.users is None:
            return ()
        known = self._running_of_users.get(account)
        if known is None or known[0] != self._accounts.version:
            gangs = {gang.key: gang for gang in self._accounts.users.running.get(account, ())}
            gangs |= {gang.key: gang for gang, _ in self._started() if account in gang.accounts}
            running = tuple(gang for _, gang in sorted(gangs.items()))
            known = self._running_of_users[account] = (self._accounts.version, running)
        return known[1]

    def waiting_before(self, account: str, gang: Gang) -> int:
        """How many gangs of an account waited for longer than this one as the session began."""
        users = self._accounts.users
        return users.waiting.get(account, {}).get(gang.key, 0) if users is not None else 0

    @property
    def budgets(self) -> Mapping[str, BudgetUse]:
        """How queues that have a budget stand with it now, by name."""
        return self._budgets.uses

    def children(self, queue: str) -> Sequence[str]:
        """Names of the queues below a queue, or below ``root``, sorted."""
        return self._snapshot.queues.below.get(queue, ())

    def used_gpus(self, queue: str) -> int:
        """GPUs of any kind held by the queue's subtree, in thousandths of one."""
        held = self.allocated(queue)
        return sum(held.get(name) for name in gpu_resources().names)

    def fair_share(self, queue: str) -> Resources:
        """Amounts that the queue is due now, in base units; nothing where no policy divides."""
        return self._fair_shares[0](queue) if self._fair_shares else NOTHING

    # -- pods on nodes -----------------------------------------------------------------------
    def nodes(self) -> Sequence[Node]:
        """All nodes, in row order."""
        return self._snapshot.nodes.nodes

    def has_soft_taints(self) -> bool:
        """Whether any node has a taint that only asks pods to stay away."""
        return self._facts.some_soft_taints

    def rows(self, rows: Sequence[int] | None = None) -> NodeRows:
        """Some rows of the node columns as they stand now; None for all."""
        return NodeRows(self._pod_counts.node_usage, rows)

    def ask_filters(self, accepting: Callable[[PodClass], Bools]) -> None:
        """Set how ``accepting`` is answered; until then every node accepts."""
        self._accepting = accepting

    def nodes_passing_filters(self, pod_class: PodClass) -> Bools:
        """Nodes to which filters let pods of a class go, however full: shape (nodes,)."""
        if self._accepting is None:
            return np.ones(len(self._snapshot.nodes), dtype=np.bool_)
        return self._accepting(pod_class)

    def ask_gpu_speed(self, speed: Callable[[Gang], int]) -> None:
        """Set how ``gpu_speed`` is answered; until then every gang runs at speed 1."""
        self._gpu_speed = speed

    def gpu_speed(self, gang: Gang) -> int:
        """How fast a gang runs on its GPUs, in thousandths of speed 1.

        On those it has, or is given now; else on the slowest type that it takes and that is there. The
        speed that it names for the slowest of its types counts; 1,000 for gangs that name none.
        """
        return FULL_SPEED if self._gpu_speed is None else self._gpu_speed(gang)

    @cached_property
    def pod_classes_by_frequency(self) -> Sequence[tuple[PodClass, int]]:
        """Classes of our pods that run or wait with their numbers, most frequent first.

        As the session found them; equally frequent ones by digest.
        """
        counts: dict[str, int] = {}
        classes: dict[str, PodClass] = {}
        for gang in self._snapshot.gangs:
            for pod_set in gang.pod_sets:
                digest = pod_set.pod_class.digest
                classes[digest] = pod_set.pod_class
                counts[digest] = counts.get(digest, 0) + len(pod_set.pods)
        # The gangs of a snapshot are few of those that run.
        for gang in self._snapshot.placed_gangs.values():
            for member in gang.placed:
                pod_class = member.pod.pod_class
                classes[pod_class.digest] = pod_class
                counts[pod_class.digest] = counts.get(pod_class.digest, 0) + 1
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return [(classes[digest], count) for digest, count in ordered]

    def pods_by_node(self, query: PodQuery) -> Ints:
        """Pods that the query counts on each node, int64, shape (nodes,), read-only.

        It follows the session: pods that are placed count, and while an action is pipelining
        pods that leave do not.
        """
        return self._pod_counts.count_by_row(query)

    def names_of_pods(self, query: PodQuery) -> str:
        """Two of the pods that the query counts, and how many more there are, for sentences.

        Such as ``default/a, default/b and 3 more``; empty where none counts. Members of the gang
        that the sentence is about, which only tried places, are not called by name.
        """
        pods = self._pod_counts.counted_pods(query)
        others = [pod for pod in pods if pod.uid not in self._told]
        own = [_OWN_MEMBERS] if len(others) < len(pods) else []
        count = int(self._pod_counts.count_by_row(query).sum()) - (len(pods) - len(others))
        named = [shorten(str(pod.key)) for pod in others][: _PODS_NAMED_MAX - len(own)]
        more = count - len(named)
        told = own + named
        return f"{', '.join(told)} and {more} more" if told and more > 0 else ", ".join(told)

    @contextmanager
    def told_of(self, members: Iterable[Pod]) -> Iterator[None]:
        """While a sentence about a gang is made: these members are not called by name in it."""
        before = self._told
        self._told = before | {pod.uid for pod in members}
        try:
            yield
        finally:
            self._told = before

    def domain_numbers(self, key: str) -> Ints:
        """Number of each row's domain of a node label, -1 without the label, shape (nodes,)."""
        return self._pod_counts.domain_numbers(key)

    def pods_with_anti_affinity(self) -> Iterator[Pod]:
        """Pods with required anti-affinity: those on nodes, and those that wait for a place."""
        for row in filter(None, self._pod_counts.pods_by_node.apart):
            yield from row
        for gang in self._lines.gathered(lambda line: line.repelling):
            for pod_set in gang.pod_sets:
                if pod_set.pod_class.pod_anti_affinity:
                    yield from pod_set.pods

    def nominated_foreign_pods(self) -> Sequence[Pod]:
        """Unbound pods of other schedulers that are nominated to a node, sorted by key."""
        return self._snapshot.nominated_foreign_pods

    def volumes(self) -> VolumeCatalog:
        """Claims of volumes, volumes and their classes."""
        return self._snapshot.volumes

    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of every namespace, by its name."""
        if self._namespace_labels is None:
            self._namespace_labels = {
                name: each.labels for name, each in self._snapshot.namespaces.items()
            }
        return self._namespace_labels

    def usage(self, queue: str) -> QueueUsage:
        """What the queue used of late; nothing where no policy measures it."""
        return self._usages[0](queue) if self._usages else QueueUsage()

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of that name."""
        return self._snapshot.namespaces.get(name)

    def finished_runs(self, queue: str, pods: int) -> Sequence[int]:
        """Seconds that completed Jobs of a queue took, of so many pods at a time, ascending."""
        return self._snapshot.job_runtimes.get((queue, pods), ())

    def capacity(self) -> Resources:
        """Allocatable of all nodes, summed exactly."""
        nodes = self._snapshot.nodes
        sums = exact_sums(nodes.allocatable)
        return Resources.of({name: sums[column] for name, column in nodes.columns.items()})

    def minimum(self, gang: Gang) -> Resources:
        """Amounts the gang must be given at once to start: its missing minimum."""
        known = self._minima.get(id(gang))
        if known is None or known[0] is not gang:
            amounts = self._minimum(gang)
            # One object for equal amounts: sums count them by identity.
            amounts = self._equal.setdefault(amounts, amounts)
            known = self._minima[id(gang)] = (gang, amounts)
        return known[1]

    def _minimum(self, gang: Gang) -> Resources:
        if len(gang.pod_sets) == 1 and self._pools is None:
            pod_set = gang.pod_sets[0]
            if (count := gang.missing_members or gang.fewest_next) <= len(pod_set.pods):
                return self._times(pod_set.pod_class, count)
        amounts = NOTHING
        left = gang.missing_members or gang.fewest_next
        for pod_set in gang.pod_sets:
            count = min(left, len(pod_set.pods))
            if count:
                amounts = amounts.plus(pod_set.pod_class.charged, times=count)
                if self._pools is not None:
                    amounts = amounts.plus(self._pools.requested(pod_set.pod_class), times=count)
            left -= count
        if left > 0 and gang.pod_group is not None and not gang.placed:
            # Its pods are still to come: its author says what they will request.
            amounts = amounts.maximum(gang.pod_group.min_resources)
        return amounts

    def _times(self, pod_class: PodClass, count: int) -> Resources:
        """What so many pods of a class are charged with, worked out once for all gangs that have as many."""
        known = self._charged.get((id(pod_class), count))
        if known is None:
            amounts = NOTHING.plus(pod_class.charged, times=count) if count else NOTHING
            known = self._charged[id(pod_class), count] = (pod_class, amounts)
        return known[1]

    def devices_text(self, gang: Gang, resource: str) -> str:
        """How much of a resource the gang's missing minimum needs for devices, for sentences.

        Such as `` for 4 devices of class gpu.nvidia.com``; empty where it needs none of it for devices.
        """
        left = gang.missing_members or gang.fewest_next
        amount = others = 0
        devices: dict[str, int] = {}
        for pod_set in gang.pod_sets:
            count = min(left, len(pod_set.pods))
            left -= count
            pod_class = pod_set.pod_class
            own = pod_class.requests.get(resource) * count
            more = pod_class.charged.get(resource) * count - own
            amount, others = amount + more, others + own
            for pod in pod_set.pods[:count] if more else ():
                for name, number in claimed_devices(self._snapshot.devices, pod):
                    devices[name] = devices.get(name, 0) + number
        if not amount:
            return ""
        told = [
            (f"{number} devices" if number > 1 else "1 device" if number else "all devices")
            + f" of class {name}"
            for name, number in sorted(devices.items())[:DEVICE_CLASSES_TOLD_MAX]
        ]
        part = f", {format_quantity(amount, resource=resource)} of them" if others else ""
        return f"{part} for {' and '.join(told)}"

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names(
            "View",
            {
                "accepting": "nodes_passing_filters",
                "awaited": "nominated_foreign_pods",
                "count": "pods_by_node",
                "domains": "domain_numbers",
                "fixed": "not_preemptible",
                "popularity": "pod_classes_by_frequency",
                "repelling": "pods_with_anti_affinity",
                "storage": "volumes",
            },
        )
