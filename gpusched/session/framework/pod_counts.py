"""Counts of pods by node, as a session stands: what rules between pods are made of.

A question is a value that says of each pod whether it counts. Its answer is a column, kept from
session to session and counted again only for nodes on which pods came or went; inside a session
it follows the statements through a log, rollback included.

As with room, there is a view of now and one of later: now, who leaves is still there and who is
promised room is not; later, the other way round. A *cautious* question counts the promised now
too, because nothing may be done that breaks the promise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Protocol

import attrs
import numpy as np

from gpusched.api.pod.pod import Pod
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.arrays.node_usage import NodeUsage
from gpusched.cache.nodes.pods_by_node import NodePods

COLUMNS_KEPT = 2048
"""Questions whose answers are kept: eighty kilobytes each at five thousand nodes."""


class PodQuery(Hashable, Protocol):
    """A question: equal questions have equal answers. It must not depend on anything else."""

    @property
    def cautious(self) -> bool:
        """Whether pods that are promised room count although they are not there yet."""

    @property
    def needs(self) -> tuple[str, frozenset[str]] | None:
        """A label and values of which every pod that counts has one; None for no such label.

        It only saves time: most of a hundred thousand pods are then passed over unasked.
        """

    def counts(self, pod: Pod) -> bool:
        """Whether this pod counts."""


class AssignmentListener(Protocol):
    """Told of every move as it happens, and of those that are taken back."""

    def seat(self, pod: Pod, row: int, *, now: int, later: int, leaves: bool = False) -> None:
        """So many times more or less sits a pod on a row now, and once those who leave are gone.

        ``leaves`` when it was there before the session and is to go.
        """


@attrs.define
class _SnapshotCounts:
    """Counts of one question in the snapshot: all, and those that are not being deleted."""

    epoch: int
    generation: Ints
    now: Ints
    later: Ints


@attrs.define
class _DomainNumbers:
    epoch: int
    generation: Ints
    of_row: Ints


class PodCountCache:
    """What is kept between sessions: answers to questions, and domains of topology keys."""

    def __init__(self) -> None:
        self._bases: OrderedDict[PodQuery, _SnapshotCounts] = OrderedDict()
        self._domains: dict[str, _DomainNumbers] = {}

    def base(self, query: PodQuery, nodes: NodeColumns, residents: NodePods) -> _SnapshotCounts:
        """The answer in the snapshot."""
        kept = self._bases.get(query)
        if kept is None or kept.epoch != nodes.epoch:
            size = len(nodes)
            kept = _SnapshotCounts(
                nodes.epoch,
                residents.generation,
                np.zeros(size, dtype=np.int64),
                np.zeros(size, dtype=np.int64),
            )
            _count_pods(query, residents, range(size), kept)
        elif kept.generation is not residents.generation:
            rows = np.flatnonzero(kept.generation != residents.generation).tolist()
            _count_pods(query, residents, rows, kept)
            kept.generation = residents.generation
        self._bases[query] = kept
        self._bases.move_to_end(query)
        if len(self._bases) > COLUMNS_KEPT:
            self._bases.popitem(last=False)
        return kept

    def domains(self, key: str, nodes: NodeColumns) -> Ints:
        """Number of each row's domain of a label key, -1 where the node lacks the label."""
        kept = self._domains.get(key)
        if kept is None or kept.epoch != nodes.epoch or kept.generation is not nodes.generation:
            numbers: dict[str, int] = {}
            of_row = np.full(len(nodes), -1, dtype=np.int64)
            for row, node in enumerate(nodes.nodes):
                value = node.labels.get(key)
                if value is not None:
                    of_row[row] = numbers.setdefault(value, len(numbers))
            of_row.setflags(write=False)
            kept = self._domains[key] = _DomainNumbers(nodes.epoch, nodes.generation, of_row)
            if len(self._domains) > COLUMNS_KEPT:
                del self._domains[next(iter(self._domains))]
        return kept.of_row


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


@attrs.frozen(slots=True)
class _CountChange:
    """One step of a statement: what it adds now, later, and to what is promised."""

    pod: Pod
    row: int
    here: int
    later: int
    promised: int


@attrs.define
class _SessionCounts:
    now: Ints
    later: Ints
    seen: int = 0


class PodCounts:
    """Who sits where in this session. Statements tell it their moves.

    Args:
        bench: says whether one looks at now or at later.
        residents: of the snapshot.
        kept: answers from earlier sessions.
        watch: told of every move; None for nobody.
    """

    def __init__(
        self,
        bench: NodeUsage,
        residents: NodePods,
        kept: PodCountCache,
        watch: AssignmentListener | None = None,
    ) -> None:
        self._watch = watch
        self.bench = bench
        self._residents = residents
        self._kept = kept
        self._log: list[_CountChange] = []
        self._columns: dict[PodQuery, _SessionCounts] = {}

    @property
    def version(self) -> tuple[int, bool]:
        """Changes whenever an answer may have changed."""
        return len(self._log), self.bench.later

    @property
    def residents(self) -> NodePods:
        """Of the snapshot, before any move of this session."""
        return self._residents

    def place(self, pod: Pod, row: int, *, times: int = 1) -> None:
        """A pod takes its place; ``times=-1`` takes that back."""
        self._log.append(_CountChange(pod, row, times, times, 0))
        if self._watch is not None:
            self._watch.seat(pod, row, now=times, later=times)

    def promise(self, pod: Pod, row: int, *, times: int = 1) -> None:
        """A pod will take a place; ``times=-1`` takes that back."""
        self._log.append(_CountChange(pod, row, 0, times, times))
        if self._watch is not None:
            self._watch.seat(pod, row, now=0, later=times)

    def leave(self, pod: Pod, row: int, *, times: int = 1) -> None:
        """A pod will leave its place; ``times=-1`` takes that back."""
        if not pod.deleting:
            self._log.append(_CountChange(pod, row, 0, -times, 0))
            if self._watch is not None:
                self._watch.seat(pod, row, now=0, later=-times, leaves=True)

    def count(self, query: PodQuery) -> Ints:
        """Pods that count, by row, int64, shape (nodes,). Not to be changed or kept."""
        column = self._columns.get(query)
        if column is None:
            base = self._kept.base(query, self.bench.nodes, self._residents)
            column = self._columns[query] = _SessionCounts(base.now.copy(), base.later.copy())
        for move in self._log[column.seen :]:
            if query.counts(move.pod):
                column.now[move.row] += move.here + (move.promised if query.cautious else 0)
                column.later[move.row] += move.later
        column.seen = len(self._log)
        return column.later if self.bench.later else column.now

    def domains(self, key: str) -> Ints:
        """See ``ColumnCache.domains``."""
        return self._kept.domains(key, self.bench.nodes)
