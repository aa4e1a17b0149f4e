"""Counts of pods by node, as a session stands: what rules between pods are made of.

A query is a value that says of each pod whether it counts. Its answer is a column, cached from
session to session and counted again only for nodes on which pods came or went; inside a session
it follows the statements through a log, rollback included.

As with room, there is a view of now and one of later: now, pods that leave are still there and
nominated pods are not; later, the other way round. A *cautious* query counts nominated pods now
too, because nothing may be done that takes their room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Protocol

import numpy as np

from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.classes import define, frozen
from gpusched.cache.nodes.pods_by_node import NodePods

QUERIES_CACHED_MAX = 2048
"""Queries whose answers are cached: eighty kilobytes each at five thousand nodes."""
PODS_NAMED_FROM_MAX = 100
"""Pods among which those are sought that a sentence names."""


class PodQuery(Hashable, Protocol):
    """Which pods count: equal queries have equal answers, which depend on nothing but the pods."""

    @property
    def cautious(self) -> bool:
        """Whether nominated pods count although they are not on their nodes yet."""

    @property
    def needs(self) -> tuple[str, frozenset[str]] | None:
        """A label and values of which every pod that counts has one; None for no such label.

        It only saves time: most of a hundred thousand pods are then passed over unasked.
        """

    def counts(self, pod: Pod) -> bool:
        """Whether this pod counts."""


class AssignmentListener(Protocol):
    """Follows every move of pods as it happens, and every move that is undone."""

    def change_count(
        self, pod: Pod, row: int, *, now: int, later: int, leaves: bool = False
    ) -> None:
        """Count a pod on a row so many times more, or less when negative.

        Args:
            pod: that is placed, nominated or evicted.
            row: of its node.
            now: change at once.
            later: change once the pods that leave are gone.
            leaves: whether it was there before the session and is evicted.
        """


@define
class _SnapshotCounts:
    """Pods of the snapshot that a query counts, by row: all, and all but those being deleted."""

    epoch: int
    generation: Ints
    now: Ints
    later: Ints


@define
class _DomainNumbers:
    """Number of each row's domain of one node label, -1 without the label."""

    epoch: int
    generation: Ints
    of_row: Ints


class PodCountCache:
    """Answers to queries and domains of topology keys, cached between sessions."""

    def __init__(self) -> None:
        self._bases: OrderedDict[PodQuery, _SnapshotCounts] = OrderedDict()
        self._domains: dict[str, _DomainNumbers] = {}

    def count_snapshot(
        self, query: PodQuery, nodes: NodeColumns, residents: NodePods
    ) -> _SnapshotCounts:
        """Pods of the snapshot that the query counts, by row."""
        known = self._bases.get(query)
        if known is None or known.epoch != nodes.epoch:
            size = len(nodes)
            known = _SnapshotCounts(
                nodes.epoch,
                residents.generation,
                np.zeros(size, dtype=np.int64),
                np.zeros(size, dtype=np.int64),
            )
            _count_pods(query, residents, range(size), known)
        elif known.generation is not residents.generation:
            rows = np.flatnonzero(known.generation != residents.generation).tolist()
            _count_pods(query, residents, rows, known)
            known.generation = residents.generation
        self._bases[query] = known
        self._bases.move_to_end(query)
        if len(self._bases) > QUERIES_CACHED_MAX:
            self._bases.popitem(last=False)
        return known

    def domain_numbers(self, key: str, nodes: NodeColumns) -> Ints:
        """Number of each row's domain of a label key, -1 where the node lacks the label."""
        known = self._domains.get(key)
        if known is None or known.epoch != nodes.epoch or known.generation is not nodes.generation:
            numbers: dict[str, int] = {}
            of_row = np.full(len(nodes), -1, dtype=np.int64)
            for row, node in enumerate(nodes.nodes):
                value = node.labels.get(key)
                if value is not None:
                    of_row[row] = numbers.setdefault(value, len(numbers))
            of_row.setflags(write=False)
            known = self._domains[key] = _DomainNumbers(nodes.epoch, nodes.generation, of_row)
            if len(self._domains) > QUERIES_CACHED_MAX:
                del self._domains[next(iter(self._domains))]
        return known.of_row


def _count_pods(
    query: PodQuery, residents: NodePods, rows: range | list[int], into: _SnapshotCounts
) -> None:
    counts, needs = query.counts, query.needs
    key, values = needs or ("", frozenset())
    for row in rows:
        pods: Iterable[Pod] = residents.pods[row]
        if needs is not None:
            pods = [pod for pod in pods if pod.labels.get(key) in values]
        found = [pod.deleting for pod in pods if counts(pod)]
        into.now[row] = len(found)
        into.later[row] = len(found) - sum(found)


@frozen(slots=True)
class _CountChange:
    """One move of a pod: pods added to a row now, later, and as nominated only."""

    pod: Pod
    row: int
    here: int
    later: int
    nominated: int


@define
class _SessionCounts:
    """Counts of one query by row, and how much of the log they have taken in."""

    now: Ints
    later: Ints
    seen: int = 0


class PodCounts:
    """Pods on each node in this session; statements enter their moves.

    Args:
        node_usage: usage of nodes; says whether one looks at now or at later.
        pods_by_node: pods on nodes as the snapshot has them.
        cache: answers from earlier sessions.
        watch: follows every move; None for nothing.
    """

    def __init__(
        self,
        node_usage: NodeUsage,
        residents: NodePods,
        cache: PodCountCache,
        watch: AssignmentListener | None = None,
    ) -> None:
        self._watch = watch
        self.node_usage = node_usage
        self._residents = residents
        self._cache = cache
        self._log: list[_CountChange] = []
        self._columns: dict[PodQuery, _SessionCounts] = {}

    @property
    def version(self) -> tuple[int, bool]:
        """Changes whenever an answer may have changed."""
        return len(self._log), self.node_usage.later

    @property
    def pods_by_node(self) -> NodePods:
        """Pods on nodes as the snapshot has them, before any move of this session."""
        return self._residents

    def count_placed(self, pod: Pod, row: int, *, times: int = 1) -> None:
        """Count a pod that takes its place; ``times=-1`` undoes that."""
        self._log.append(_CountChange(pod, row, times, times, 0))
        if self._watch is not None:
            self._watch.change_count(pod, row, now=times, later=times)

    def count_nominated(self, pod: Pod, row: int, *, times: int = 1) -> None:
        """Count a pod that will take a place once it is free; ``times=-1`` undoes that."""
        self._log.append(_CountChange(pod, row, 0, times, times))
        if self._watch is not None:
            self._watch.change_count(pod, row, now=0, later=times)

    def count_leaving(self, pod: Pod, row: int, *, times: int = 1) -> None:
        """Count a pod out that will leave its place; ``times=-1`` undoes that."""
        if not pod.deleting:
            self._log.append(_CountChange(pod, row, 0, -times, 0))
            if self._watch is not None:
                self._watch.change_count(pod, row, now=0, later=-times, leaves=True)

    def count_by_row(self, query: PodQuery) -> Ints:
        """Pods that count, by row, int64, shape (nodes,). Read-only, and good until the next move."""
        column = self._columns.get(query)
        if column is None:
            base = self._cache.count_snapshot(query, self.node_usage.nodes, self._residents)
            column = self._columns[query] = _SessionCounts(base.now.copy(), base.later.copy())
        for move in self._log[column.seen :]:
            if query.counts(move.pod):
                column.now[move.row] += move.here + (move.nominated if query.cautious else 0)
                column.later[move.row] += move.later
        column.seen = len(self._log)
        return column.later if self.node_usage.later else column.now

    def counted_pods(self, query: PodQuery) -> list[Pod]:
        """Pods that count, a hundred or some more at most, by key; one that was evicted is left out.

        They are looked up, not counted: for sentences.
        """
        gone: dict[ObjectKey, int] = {}
        moved: dict[ObjectKey, Pod] = {}
        for move in self._log:
            if query.counts(move.pod):
                change = move.later if self.node_usage.later else move.here + move.nominated
                gone[move.pod.key] = gone.get(move.pod.key, 0) + change
                moved[move.pod.key] = move.pod
        found = {key: pod for key, pod in moved.items() if gone[key] > 0}
        for row in np.flatnonzero(self.count_by_row(query)).tolist():
            if len(found) >= PODS_NAMED_FROM_MAX:
                break
            for pod in self._residents.pods[row]:
                if query.counts(pod) and gone.get(pod.key, 0) >= 0:
                    found[pod.key] = pod
        return [found[key] for key in sorted(found)]

    def domain_numbers(self, key: str) -> Ints:
        """Number of each row's domain of a node label, -1 without it, shape (nodes,)."""
        return self._cache.domain_numbers(key, self.node_usage.nodes)
