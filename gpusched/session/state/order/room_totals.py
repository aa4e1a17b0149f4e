"""How many pods of a kind all nodes together have room for, followed from session to session.

It is a bound: filters, slots, topology and what is reserved may leave less, nothing leaves more. What pods that
leave still hold counts as free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.arrays.columns import (
    Ints,
    NodeColumns,
    how_many_fit,
    request_vector,
    rows_with_any,
)
from gpusched.base.classes import define
from gpusched.base.limits import COLUMN_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses

_FOLLOWED_MAX: Final = 2**20
"""Nodes that changed times kinds of pods that are followed; past it all are counted anew when they are asked about."""
_KINDS_MAX: Final = 20_000
_Asks = tuple[int, tuple[tuple[int, int], ...]]
"""Pods that a gang needs, and of each part of them how many there are and the number of their kind."""


class AskTable(NamedTuple):
    """What some gangs ask for, to be held against totals together.

    Attributes:
        generation: of the totals, whose numbers these are.
        lacking: pods that each gang needs, shape (gangs,).
        pods: how many pods each part of them has, shape (parts,).
        numbers: of the kinds of these pods, shape (parts,).
        owners: the gang of each part by its place, shape (parts,).
    """

    generation: int
    lacking: Ints
    pods: Ints
    numbers: Ints
    owners: Ints


class RoomTotals:
    """Totals over all nodes, by what one pod requests."""

    generation = 0
    """Changes when kinds get other numbers."""

    def __init__(self) -> None:
        self._nodes: NodeColumns | None = None
        self._free: Ints = np.zeros((0, 0), dtype=np.int64)
        self._forget()

    def _forget(self) -> None:
        self.generation += 1
        self._number: dict[Resources, int] = {}
        self._amounts: list[Ints] = []
        """Of one pod of each kind, shape (resources,)."""
        self._counted: tuple[list[int], Ints] | None = None
        """``totals`` as an array, while they are the same object."""
        self.totals: list[int] = []
        """How many pods of each kind have room at most, by the numbers of ``number_of``."""
        self._stacked: Ints | None = None
        self._asks: dict[EquivalenceClass, _Asks] = {}

    def follow(self, nodes: NodeColumns) -> None:
        """Take in what is free now."""
        before, self._nodes = self._nodes, nodes
        if before is nodes:
            return
        free, last = np.maximum(nodes.allocatable - nodes.used + nodes.leaving, 0), self._free
        self._free = free
        if before is None or before.columns != nodes.columns or free.shape != last.shape:
            self._forget()
            return
        rows = rows_with_any(free != last)
        if len(rows) * len(self.totals) > _FOLLOWED_MAX or len(self.totals) > _KINDS_MAX:
            self._forget()
        elif len(rows) and self.totals:
            if self._stacked is None:
                self._stacked = np.stack(self._amounts)
            amounts = self._stacked
            more = _fits(free[rows], amounts) - _fits(last[rows], amounts)
            self.totals = (np.array(self.totals, dtype=np.int64) + more).tolist()

    def may_suffice(self, gang: Gang, kind: EquivalenceClass | None) -> bool:
        """Whether nodes have room for as many pods as the gang needs to start, as far as is told here.

        Args:
            gang: that waits.
            kind: its equivalence class, for whose gangs it is the same; None for none.
        """
        lacking, parts = self._known_asks(gang, kind)
        for pods, number in parts:
            lacking -= min(pods, self.totals[number])
        return lacking <= 0

    def each_may_suffice(self, table: AskTable) -> list[bool]:
        """The same of each gang of a table."""
        if self._counted is None or self._counted[0] is not self.totals:
            self._counted = (self.totals, np.array(self.totals, dtype=np.int64))
        return _each_suffices(table, self._counted[1])

    def counts_beside(self, spare: Mapping[str, Resources]) -> Ints:
        """How many pods of each kind have room where of some nodes no more than this is taken.

        Args:
            spare: by node; resources that are not told are free to be taken.

        Returns:
            int64, shape (kinds,).
        """
        nodes = self._nodes
        assert nodes is not None, "nodes are followed before anybody asks"
        counts: Ints = np.array(self.totals, dtype=np.int64)
        known = [(nodes.row[name], most) for name, most in spare.items() if name in nodes.row]
        if not known or not self.totals:
            return counts
        if self._stacked is None:
            self._stacked = np.stack(self._amounts)
        free = self._free[[row for row, _ in known]]
        left = free.copy()
        for number, (_, most) in enumerate(known):
            for resource, amount in most.items:
                column = nodes.columns.get(resource)
                if column is not None:
                    left[number, column] = min(left[number, column], amount)
        counts -= _fits(free, self._stacked) - _fits(left, self._stacked)
        return counts

    def table_of(self, gangs: Sequence[tuple[Gang, EquivalenceClass | None]]) -> AskTable:
        """What gangs ask for, each with its equivalence class."""
        asks = [self._known_asks(gang, kind) for gang, kind in gangs]
        parts = [(*part, owner) for owner, (_, each) in enumerate(asks) for part in each]
        pods, numbers, owners = np.array(parts, dtype=np.int64).reshape(-1, 3).T
        lacking = np.array([lacking for lacking, _ in asks], dtype=np.int64)
        return AskTable(self.generation, lacking, pods, numbers, owners)

    def _known_asks(self, gang: Gang, kind: EquivalenceClass | None) -> _Asks:
        asks = self._asks.get(kind) if kind is not None else None
        if asks is None:
            asks = self._asks_of(gang)
            if kind is not None and len(self._asks) < _KINDS_MAX:
                self._asks[kind] = asks
        return asks

    def _asks_of(self, gang: Gang) -> _Asks:
        lacking, parts = max(1, gang.members_at_start), list[tuple[int, int]]()
        for pod_set in gang.pod_sets:
            if pod_set.pod_class.share is not None:
                return 0, ()  # what is left of GPUs that are shared is not counted
            number = self.number_of(pod_set.pod_class.requests)
            if number is None:
                lacking -= len(pod_set.pods)
            elif number >= 0:
                parts.append((len(pod_set.pods), number))
        return lacking, tuple(parts)

    def number_of(self, requests: Resources) -> int | None:
        """The number of a kind of pods; None where they ask for nothing, -1 for what no node offers."""
        known = self._number.get(requests)
        if known is not None:
            return known
        assert self._nodes is not None, "nodes are followed before anybody asks"
        ask = request_vector(requests, self._nodes.columns)
        if ask.missing:
            return -1
        if not ask.amounts.size:
            return None
        amounts = np.zeros(self._free.shape[1], dtype=np.int64)
        amounts[ask.columns] = ask.amounts
        self._number[requests] = number = len(self.totals)
        self._amounts.append(amounts)
        self._stacked = None
        self._counted = None
        self.totals.append(int(how_many_fit(self._free[:, ask.columns], ask.amounts).sum()))
        return number


@define(eq=False)
class Asking:
    """Gangs that look for a place.

    Attributes:
        kinds: one of each equivalence class, and the keys of all.
        table: what they ask for, kept while it holds.
    """

    kinds: Sequence[tuple[Gang, Sequence[GangKey]]]
    table: AskTable | None = None


class GangRoom:
    """Whether nodes may have room for gangs, in one session.

    Args:
        totals: as they were left by earlier sessions.
        nodes: as they are now.
        kinds: equivalence classes of gangs.
        spare: what may be taken of nodes on which room is reserved, by node.
    """

    def __init__(
        self,
        totals: RoomTotals,
        nodes: NodeColumns,
        kinds: EquivalenceClasses,
        spare: Mapping[str, Resources],
    ) -> None:
        self._totals, self._nodes, self._kinds = totals, nodes, kinds
        self._spare = spare
        self._beside: Ints | None = None
        """How many pods of each kind have room beside what is reserved; None where that is not known for all."""
        self._known: dict[EquivalenceClass, bool] = {}

    def may_suffice(self, gang: Gang) -> bool:
        """Whether the room of all nodes together may be enough for all that the gang needs to start."""
        kind = self._kinds.class_of(gang)
        known = self._known.get(kind) if kind is not None else None
        if known is None:
            self._totals.follow(self._nodes)
            known = self._totals.may_suffice(gang, kind)
            if kind is not None:
                self._known[kind] = known
        return known

    def each_may_suffice(self, asking: Asking) -> list[bool]:
        """The same of each of some gangs."""
        totals = self._totals
        totals.follow(self._nodes)
        if asking.table is None or asking.table.generation != totals.generation:
            firsts = [gang for gang, _ in asking.kinds]
            asking.table = totals.table_of([(gang, self._kinds.class_of(gang)) for gang in firsts])
        return totals.each_may_suffice(asking.table)

    def each_may_suffice_beside(self, asking: Asking) -> list[bool]:
        """Whether the room beside what the last session reserved may be enough, of gangs of which ``each_may_suffice`` was asked."""
        totals, table = self._totals, asking.table
        assert table is not None, "room was compared before"
        if self._beside is None or len(self._beside) < len(totals.totals):
            self._beside = totals.counts_beside(self._spare)
        return _each_suffices(table, self._beside)


def _each_suffices(table: AskTable, counts: Ints) -> list[bool]:
    """Whether so many pods of each kind are enough for each gang of a table; shape (kinds,)."""
    found = np.minimum(table.pods, counts[table.numbers])
    there = np.bincount(table.owners, found, minlength=len(table.lacking))
    enough: list[bool] = (there >= table.lacking).tolist()
    return enough


def _fits(free: Ints, amounts: Ints) -> Ints:
    """How many pods of each kind have room on these nodes together.

    Args:
        free: shape (nodes, resources).
        amounts: of one pod of each kind, shape (kinds, resources); each asks for something.

    Returns:
        int64, shape (kinds,).
    """
    fits: Ints = np.full((len(amounts), len(free)), COLUMN_MAX, dtype=np.int64)
    for column in np.flatnonzero(amounts.any(axis=0)):
        asking = amounts[:, column] > 0
        fits[asking] = np.minimum(fits[asking], free[:, column] // amounts[asking, column, None])
    found: Ints = fits.sum(axis=1)
    return found
