"""Node pools of a session: their nodes, the pods confined to them, what queues hold there.

A node belongs to the first pool, by name, whose labels it has. What a queue limits in a pool is
a dimension of its own beside the resource as a whole (``pool_resources.dimension``): it is
charged by the node of each pod, and requested by pods that may run in that pool alone. Only
dimensions that some queue limits are counted; where no queue limits any, there are no
``NodePoolAccounts`` and nothing is done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import numpy as np

from gpusched.api.devices.gpu_types import gpu_type_of, named_value
from gpusched.api.meta.gpu_resources import GpuResources, gpu_resources
from gpusched.api.meta.identity import UID
from gpusched.api.meta.pool_resources import dimension
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools, Ints, NodeColumns, exact_sums
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.node_pool_names import Labels, node_pool_labels
from gpusched.cache.snapshot import Snapshot

EVEN_WEIGHT: Final = 1_000
"""The weight 1 of a GPU, in thousandths."""
_HEAVIEST: Final = 2**40
CANDIDATE_CLASSES_MAX = 2048
"""Classes of pods whose candidate rows are cached: a few kilobytes each at a thousand nodes."""
Defined = tuple[tuple[str, Labels], ...]
"""Names of pools, sorted, with the labels of their nodes."""


@frozen(slots=True, eq=False)
class PodOwner:
    """Gang of a pod, None for a pod without one, and its queues from the leaf up."""

    gang: Gang | None
    path: tuple[str, ...]


_NO_OWNER = PodOwner(None, ())


@define
class _Candidates:
    """Rows that a class of pods may run on, as nodes were at a generation."""

    epoch: int
    generation: Ints
    rows: Bools


class NodePoolCache:
    """Pools of nodes and amounts held by gangs, cached while they do not change."""

    def __init__(self) -> None:
        self._epoch = -1
        self._generation: Ints | None = None
        self._defined: Defined = ()
        self._of_row: list[int] = []
        self._classes: OrderedDict[str, _Candidates] = OrderedDict()
        self._gangs: dict[Gang, tuple[Resources, Resources]] = {}
        self._limited: Mapping[str, frozenset[str]] = {}
        self._weighed: tuple[int, Ints, GpuResources] | None = None
        self._weights: list[int] = []

    def gpu_weights(self, nodes: NodeColumns) -> list[int]:
        """How much a GPU of each row weighs, in thousandths. Read-only."""
        resources = gpu_resources()
        state = (nodes.epoch, nodes.generation, resources)
        known = self._weighed
        if (
            known is None
            or known[0] != state[0]
            or known[1] is not state[1]
            or known[2] != resources
        ):
            weights = [gpu_weight_of(node.labels, resources) for node in nodes.nodes]
            if weights != self._weights:
                self._gangs = {}
            self._weights, self._weighed = weights, state
        return self._weights

    def of_row(self, defined: Defined, nodes: NodeColumns) -> list[int]:
        """Number of each row's pool, -1 for none. Read-only."""
        same = self._epoch == nodes.epoch and self._defined == defined
        if same and self._generation is nodes.generation:
            return self._of_row
        before = self._of_row
        if same and self._generation is not None:
            after = list(before)
            changed = np.flatnonzero(self._generation != nodes.generation).tolist()
            for row in changed:
                after[row] = _pool_number(nodes.nodes[row], defined)
        else:
            self._classes.clear()
            after = [_pool_number(node, defined) for node in nodes.nodes]
        if not same or after != before:
            self._gangs = {}
            self._of_row = after
        self._epoch, self._generation, self._defined = nodes.epoch, nodes.generation, defined
        return self._of_row

    def candidate_rows(self, pod_class: PodClass, nodes: NodeColumns) -> Bools | None:
        """Rows that the class's node selector and affinity admit; None for all."""
        if not pod_class.node_selector and pod_class.affinity is None:
            return None
        known = self._classes.get(pod_class.digest)
        if known is None or known.epoch != nodes.epoch:
            rows = np.array([_admits_node(pod_class, node) for node in nodes.nodes], dtype=np.bool_)
            known = _Candidates(nodes.epoch, nodes.generation, rows)
            self._classes[pod_class.digest] = known
        elif known.generation is not nodes.generation:
            for row in np.flatnonzero(known.generation != nodes.generation).tolist():
                known.rows[row] = _admits_node(pod_class, nodes.nodes[row])
            known.generation = nodes.generation
        self._classes.move_to_end(pod_class.digest)
        if len(self._classes) > CANDIDATE_CLASSES_MAX:
            self._classes.popitem(last=False)
        return known.rows

    def gang_amounts(
        self, limited: Mapping[str, frozenset[str]]
    ) -> dict[Gang, tuple[Resources, Resources]]:
        """Amounts that gangs were found to hold and to leave, as long as the same is limited."""
        if limited != self._limited:
            self._gangs, self._limited = {}, dict(limited)
        return self._gangs

    def remember_gangs(self, gangs: dict[Gang, tuple[Resources, Resources]]) -> None:
        """Remember what gangs hold and leave now, for the next session."""
        self._gangs = gangs


def make_node_pool_accounts(snapshot: Snapshot, cache: NodePoolCache) -> NodePoolAccounts | None:
    """Accounts of the node pools of a session; None when no queue limits anything in any."""
    queues = [node.queue for node in snapshot.queues.queues.values() if node.queue.node_pools]
    limited: dict[str, set[str]] = {}
    for queue in queues:
        for pool in queue.node_pools:
            for resource, _ in (*pool.deserved.items, *pool.capability.items):
                limited.setdefault(pool.name, set()).add(resource)
    if not limited and not gpu_resources().type_weights:
        return None
    defined = tuple(
        (name, labels) for name, (labels, _) in sorted(node_pool_labels(queues).items())
    )
    return NodePoolAccounts(
        snapshot,
        cache,
        defined=defined,
        limited={name: frozenset(resources) for name, resources in limited.items()},
    )


class NodePoolAccounts:
    """What queues hold and may hold in each node pool.

    Args:
        snapshot: of the session.
        cache: from earlier sessions.
        defined: all pools, also those in which nothing is limited.
        limited: resources that some queue limits in a pool, by its name.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        cache: NodePoolCache,
        *,
        defined: Defined,
        limited: Mapping[str, frozenset[str]],
    ) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._defined = defined
        self.names = tuple(name for name, _ in defined)
        self._limited = limited
        self._of_row = cache.of_row(defined, snapshot.nodes)
        self._numbers: Ints = np.array(self._of_row, dtype=np.int64)
        self._charges: dict[tuple[int, str], Resources] = {}
        self._weights = cache.gpu_weights(snapshot.nodes) if gpu_resources().type_weights else ()
        """How much a GPU of each row weighs, in thousandths; empty where all weigh the same."""
        self._surcharges: dict[tuple[int, str], Resources] = {}
        self._assumed_weight = 0
        self._least_weights: dict[str, int] = {}
        self._pins: dict[str, int] = {}
        self._waiting: dict[UID, PodOwner] | None = None
        self._running: dict[UID, PodOwner] | None = None
        self.held: dict[str, Resources] = {}
        """Amounts by queue with all below it, by dimension."""
        self.leaving: dict[str, Resources] = {}
        """The part of ``held`` that belongs to pods being deleted."""
        self._gangs = self._count_gangs()

    # -- nodes -----------------------------------------------------------------------------
    def total(self) -> Resources:
        """What there is of each dimension on usable nodes, less what others' pods hold there."""
        nodes = self._snapshot.nodes
        usable = np.array(
            [not node.not_ready and not node.unschedulable for node in nodes.nodes], dtype=np.bool_
        )
        amounts: dict[str, int] = {}
        for number, name in enumerate(self.names):
            rows = usable & (self._numbers == number)
            offered, others = exact_sums(nodes.allocatable[rows]), exact_sums(nodes.foreign[rows])
            devices = self._snapshot.devices_on(nodes.nodes[row] for row in np.flatnonzero(rows))
            for resource in self._limited.get(name, ()):
                column = nodes.columns.get(resource)
                amount = 0 if column is None else max(0, offered[column] - others[column])
                amounts[dimension(resource, name)] = amount + devices.get(resource)
        return Resources.of(amounts)

    def rows(self, pool: str) -> Bools:
        """Rows of a pool, shape (nodes,); none for a pool that does not exist."""
        if pool not in self.names:
            return np.zeros(len(self._numbers), dtype=np.bool_)
        rows: Bools = self._numbers == self.names.index(pool)
        return rows

    # -- pods ------------------------------------------------------------------------------
    def pin(self, pod_class: PodClass) -> str:
        """The pool in which alone pods of a class may run, by selector and affinity; or empty.

        Where no node admits them, a pool whose labels they all select is theirs: its nodes may
        be still to come.
        """
        number = self._pins.get(pod_class.digest)
        if number is None:
            number = self._pins[pod_class.digest] = self._pinned_number(pod_class)
        return self.names[number] if number >= 0 else ""

    def where(self, pod_class: PodClass) -> tuple[str, ...]:
        """Pools of the nodes that selector and affinity of a class admit; empty for no pool."""
        return tuple(
            self.names[number] if number >= 0 else "" for number in self._pool_numbers(pod_class)
        )

    def _pool_numbers(self, pod_class: PodClass) -> list[int]:
        rows = self._cache.candidate_rows(pod_class, self._snapshot.nodes)
        found: list[int] = np.unique(
            self._numbers if rows is None else self._numbers[rows]
        ).tolist()
        return found

    def _pinned_number(self, pod_class: PodClass) -> int:
        found = self._pool_numbers(pod_class)
        if found:
            return found[0] if len(found) == 1 else -1
        selected = set(pod_class.node_selector)
        return next(
            (
                number
                for number, (_, labels) in enumerate(self._defined)
                if labels and selected.issuperset(labels)
            ),
            -1,
        )

    def requested(self, pod_class: PodClass) -> Resources:
        """Amounts that one pod of a class requests by dimension, wherever it is placed."""
        self.pin(pod_class)
        amounts = self._pool_charge(self._pins[pod_class.digest], pod_class)
        if not self._weights or not pod_class.gpu_thousandths:
            return amounts
        weight = self._assumed_weight or self._least_weight(pod_class)
        return amounts.plus(self._gpu_surcharge(weight, pod_class))

    def charge(self, pod_class: PodClass, row: int) -> Resources:
        """Amounts that one pod of a class holds on a row, by dimension, beside its requests.

        What a GPU of a type weighs above 1 stands beside them as more of the same resource.
        """
        amounts = self._pool_charge(self._of_row[row], pod_class)
        if not self._weights:
            return amounts
        return amounts.plus(self._gpu_surcharge(self._weights[row], pod_class))

    def gpu_weight(self, row: int) -> int:
        """How much a GPU of a row weighs, in thousandths."""
        return self._weights[row] if self._weights else EVEN_WEIGHT

    @property
    def weighs_gpu_types(self) -> bool:
        """Whether GPUs of some type weigh more than others."""
        return bool(self._weights)

    @contextmanager
    def assuming_gpu_weight(self, weight: int) -> Iterator[None]:
        """Inside, members that wait request GPUs that weigh so much, in thousandths."""
        before, self._assumed_weight = self._assumed_weight, weight
        try:
            yield
        finally:
            self._assumed_weight = before

    def _least_weight(self, pod_class: PodClass) -> int:
        """Of the GPUs of nodes that its selector and affinity admit: what it requests at least."""
        known = self._least_weights.get(pod_class.digest)
        if known is None:
            rows = self._cache.candidate_rows(pod_class, self._snapshot.nodes)
            admitted = self._has_gpus if rows is None else self._has_gpus & rows
            weights = np.array(self._weights, dtype=np.int64)[admitted]
            known = int(weights.min(initial=_HEAVIEST)) if weights.size else EVEN_WEIGHT
            self._least_weights[pod_class.digest] = known
        return known

    @cached_property
    def _has_gpus(self) -> Bools:
        nodes = self._snapshot.nodes
        columns = [nodes.columns[name] for name in gpu_resources().names if name in nodes.columns]
        found = np.asarray((nodes.allocatable[:, columns] > 0).any(axis=1), dtype=np.bool_)
        for name, amounts in self._snapshot.device_totals.items():
            if name in nodes.row and any(amounts.get(each) for each in gpu_resources().names):
                found[nodes.row[name]] = True
        return found

    def _gpu_surcharge(self, weight: int, pod_class: PodClass) -> Resources:
        """What one pod's GPUs weigh above 1, in GPUs."""
        if weight == EVEN_WEIGHT:
            return NOTHING
        known = self._surcharges.get((weight, pod_class.digest))
        if known is None:
            whole = gpu_resources().whole
            known = self._surcharges[weight, pod_class.digest] = Resources.of(
                {
                    name: amount * (weight - EVEN_WEIGHT) // EVEN_WEIGHT
                    for name, amount in pod_class.charged.items
                    if amount and name in whole
                }
            )
        return known

    def weight_of_total(self, usable: Bools) -> Resources:
        """What the GPUs of some nodes, less what others' pods hold, weigh above 1, in GPUs."""
        if not self._weights:
            return NOTHING
        nodes = self._snapshot.nodes
        above = np.array(self._weights, dtype=np.int64)[usable] - EVEN_WEIGHT
        found = {}
        for name in gpu_resources().names:
            column = nodes.columns.get(name)
            if column is not None:
                free = nodes.allocatable[usable, column] - nodes.foreign[usable, column]
                found[name] = int((np.maximum(free, 0) * above // EVEN_WEIGHT).sum())
        for row in np.flatnonzero(usable).tolist() if self._snapshot.device_totals else ():
            more = self._weights[row] - EVEN_WEIGHT
            devices = self._snapshot.devices_on([nodes.nodes[row]]) if more else NOTHING
            for name, amount in devices.items:
                if name in gpu_resources().whole:
                    found[name] = found.get(name, 0) + amount * more // EVEN_WEIGHT
        return Resources.of(found)

    def _pool_charge(self, number: int, pod_class: PodClass) -> Resources:
        if number < 0:
            return NOTHING
        known = self._charges.get((number, pod_class.digest))
        if known is None:
            pool = self.names[number]
            limited = self._limited.get(pool, frozenset())
            known = self._charges[number, pod_class.digest] = Resources.of(
                {
                    dimension(resource, pool): amount
                    for resource, amount in pod_class.charged.items
                    if amount and resource in limited
                }
            )
        return known

    def owner_of(self, uid: UID) -> PodOwner:
        """Gang and queues of a member that waits or runs."""
        if self._waiting is None:
            self._waiting = {}
            for gang in self._snapshot.gangs:
                owner = self._make_owner(gang)
                self._waiting.update(
                    (pod.uid, owner) for pod_set in gang.pod_sets for pod in pod_set.pods
                )
        known = self._waiting.get(uid)
        if known is not None:
            return known
        if self._running is None:
            self._running = {}
            for gang in self._snapshot.placed_gangs.values():
                owner = self._make_owner(gang)
                self._running.update((member.pod.uid, owner) for member in gang.placed)
        return self._running.get(uid, _NO_OWNER)

    def _make_owner(self, gang: Gang) -> PodOwner:
        node = self._snapshot.queues.get(gang.queue)
        return PodOwner(gang, node.path if node else ())

    def confined(self, pod: Pod) -> bool:
        """Whether all waiting members of the pod's gang run in one pool each alone."""
        if not self.pin(pod.pod_class):
            return False
        gang = self.owner_of(pod.uid).gang
        if gang is None or gang.suspended:
            return True
        return all(self.pin(pod_set.pod_class) for pod_set in gang.pod_sets)

    # -- gangs -----------------------------------------------------------------------------
    def held_by(self, gang: Gang) -> Resources:
        """Amounts that a gang holds by dimension, without its members being deleted."""
        active = self._snapshot.placed_gangs.get(gang.key)
        return NOTHING if active is None else self._gangs[active][0]

    def requested_by(self, gang: Gang) -> Resources:
        """Amounts that the waiting members of a gang request, by dimension."""
        amounts = NOTHING
        for pod_set in gang.pod_sets:
            amounts = amounts.plus(self.requested(pod_set.pod_class), times=len(pod_set.pods))
        return amounts

    def _count_gangs(self) -> dict[Gang, tuple[Resources, Resources]]:
        """Amounts that gangs hold and leave, which are also summed by queue."""
        known, counted = self._cache.gang_amounts(self._limited), {}
        held: dict[str, list[Resources]] = {}
        leaving: dict[str, list[Resources]] = {}
        row = self._snapshot.nodes.row
        for gang in self._snapshot.placed_gangs.values():
            own = known.get(gang)
            if own is None:
                stays, goes = (
                    total(
                        self.charge(member.pod.pod_class, row[member.node])
                        for member in members
                        if member.node in row
                    )
                    for members in (gang.placed, gang.leaving_placed)
                )
                own = (stays, goes)
            counted[gang] = own
            if own == (NOTHING, NOTHING):
                continue
            for name in self._make_owner(gang).path:
                held.setdefault(name, []).extend(own)
                leaving.setdefault(name, []).append(own[1])
        self._cache.remember_gangs(counted)
        self.held = {name: total(parts) for name, parts in held.items()}
        self.leaving = {name: total(parts) for name, parts in leaving.items()}
        return counted


def gpu_weight_of(labels: Mapping[str, str], resources: GpuResources) -> int:
    """How much a GPU of a node with these labels weighs, in thousandths."""
    named = named_value(resources.type_weights, gpu_type_of(labels, resources))
    return EVEN_WEIGHT if named is None else named[1]


def _pool_number(node: Node, defined: Defined) -> int:
    for number, (_, labels) in enumerate(defined):
        if all(node.labels.get(key) == value for key, value in labels):
            return number
    return -1


def _admits_node(pod_class: PodClass, node: Node) -> bool:
    if not all(node.labels.get(key) == value for key, value in pod_class.node_selector):
        return False
    terms = pod_class.affinity
    return terms is None or any(term.matches(node.labels, name=node.name) for term in terms)
