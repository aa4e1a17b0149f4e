"""What taking members costs on single nodes, for members that are all alike."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define, frozen
from gpusched.placement.model.problem import SlotCosts
from gpusched.placement.tree.identical_members import IdenticalMembers

_DENSE: Final = 4
"""Numbers up to so many times as many as there are of them are counted in a table of their own,
which is much quicker than sorting them."""
_FEW: Final = 64
"""Changed nodes, and kinds, that are looked at sooner one by one than all nodes at once."""

_Key = tuple[int, int, int]
"""Members that a node takes, the state of its slots, its price."""


@frozen(eq=False, kw_only=True)
class NodeCostTables:
    """The nodes that take members, by what they cost.

    Attributes:
        kind: of each node, index into the rest, -1 where it takes nothing; shape (nodes,).
        most: members that a node of each kind takes, shape (kinds,).
        span, fragmentation, price: of 0, 1, 2.. members on a node of each kind, shape
            (kinds, largest of ``most`` + 1); what is beyond ``most`` means nothing.
    """

    kind: Ints
    most: Ints
    span: Ints
    fragmentation: Ints
    price: Ints

    def term_ranges(self, members: int) -> tuple[int, int, int, int]:
        """By how much span, nodes, fragmentation and price of answers differ at most."""
        used = min(members, len(self.kind))
        if not len(self.most):
            return 0, 0, 0, 0
        fragmentation = int(self.fragmentation.max()) - int(self.fragmentation.min())
        dearest = int(self.price[:, 1].max()) if self.price.shape[1] > 1 else 0
        return int(self.span.max()) * used, used, fragmentation * used, dearest * members


@define(eq=False)
class SortedNodes:
    """Nodes sorted for one problem, so that the next one's are sorted from there.

    The leaves are those of the problem alone: what is known here only saves time.

    Attributes:
        facts: what nodes were sorted by: fits, states and prices by node, None where they do not
            count.
        slots: what the states mean.
        gpus: of a member.
        number: of each kind of nodes that was ever met.
        counts: nodes of each kind, by number.
        of_node: number of each node's kind, -1 where it takes nothing.
        leaves: that came of it.
        rank: index in the leaves by number, with one more for -1.
    """

    facts: tuple[Ints | None, ...] = ()
    slots: SlotCosts | None = None
    gpus: int = 0
    number: dict[_Key, int] = attrs.field(factory=dict)
    counts: list[int] = attrs.field(factory=list)
    of_node: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    leaves: NodeCostTables | None = None
    rank: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))

    def sort_nodes(self, one: IdenticalMembers) -> NodeCostTables:
        """The leaves of a problem."""
        problem, role = one.problem, one.role
        slotted = problem.slots is not None and role.gpus > 0
        facts = (one.fits, problem.states if slotted else None, role.price)
        slots = problem.slots if slotted else None
        rows = None
        if self.leaves is not None and slots is self.slots and role.gpus == self.gpus:
            rows = self._changed_nodes(facts)
        self.facts, self.slots, self.gpus = facts, slots, role.gpus
        if rows is None or not self._move_nodes(rows):
            self._sort_anew(one)
        assert self.leaves is not None, "they were made just now"
        return self.leaves

    def _changed_nodes(self, facts: tuple[Ints | None, ...]) -> list[int] | None:
        """Nodes of which something is new; None where these are too many, or nothing compares."""
        changed = np.zeros(len(self.of_node), dtype=np.bool_)
        for now, before in zip(facts, self.facts, strict=True):
            if now is None and before is None:
                continue
            if now is None or before is None or len(now) != len(before):
                return None
            if now is not before:
                changed |= now != before
        rows = np.flatnonzero(changed)
        return rows.tolist() if len(rows) <= _FEW else None

    def _move_nodes(self, rows: list[int]) -> bool:
        """Enter nodes whose kind may be another one; False where all had better be sorted anew."""
        if not rows:
            return True
        kinds = self.of_node.copy()
        other = False
        for row in rows:
            fit, state, price = (0 if each is None else int(each[row]) for each in self.facts)
            before = int(kinds[row])
            now = self._kind_number((fit, state, price)) if fit else -1
            if before == now:
                continue
            if before >= 0:
                self.counts[before] -= 1
                other = other or not self.counts[before]
            if now >= 0:
                other = other or not self.counts[now]
                self.counts[now] += 1
            kinds[row] = now
        self.of_node = kinds
        if other and not self._kinds_again():
            return False
        assert self.leaves is not None, "nodes move from what is known"
        self.leaves = attrs.evolve(self.leaves, kind=self.rank[kinds])
        return True

    def _kind_number(self, key: _Key) -> int:
        found = self.number.setdefault(key, len(self.counts))
        if found == len(self.counts):
            self.counts.append(0)
        return found

    def _kinds_again(self) -> bool:
        """There are other kinds of nodes than before; False where they are too many."""
        present = sorted((key, n) for key, n in self.number.items() if self.counts[n])
        if len(present) > _FEW or len(self.counts) > _FEW * _FEW:
            return False
        keys = np.array([key for key, _ in present], dtype=np.int64).reshape(-1, 3)
        self.rank = np.full(len(self.counts) + 1, -1, dtype=np.int64)
        self.rank[[n for _, n in present]] = np.arange(len(present))
        self.leaves = self._build_tables(keys, self.rank[self.of_node])
        return True

    def _sort_anew(self, one: IdenticalMembers) -> None:
        """Sort all nodes again by their costs."""
        fits, states, prices = self.facts
        assert fits is not None, "what fits always counts"
        rows = np.flatnonzero(fits)
        known, state = _number_values(np.zeros_like(rows) if states is None else states[rows])
        priced, price = _number_values(np.zeros_like(rows) if prices is None else prices[rows])
        keys, kind = _number_values((fits[rows] * len(known) + state) * len(priced) + price)
        rest, price_of = np.divmod(keys, max(1, len(priced)))
        most, state_of = np.divmod(rest, max(1, len(known)))
        of_node = np.full(one.problem.nodes, -1, dtype=np.int64)
        of_node[rows] = kind
        kinds = np.stack([most, known[state_of], priced[price_of]], axis=1)
        self.leaves = self._build_tables(kinds, of_node)
        self.of_node = of_node
        self.number = {(a, b, c): n for n, (a, b, c) in enumerate(kinds.tolist())}
        self.counts = np.bincount(kind, minlength=len(keys)).tolist()
        self.rank = np.append(np.arange(len(keys)), -1)

    def _build_tables(self, keys: Ints, kind: Ints) -> NodeCostTables:
        """Of kinds, shape (kinds, 3), and of each node its kind."""
        most = keys[:, 0]
        width = int(most.max(initial=0)) + 1
        states, state_of = np.unique(keys[:, 1], return_inverse=True)
        span = np.zeros((len(states), width), dtype=np.int64)
        fragmentation = np.zeros_like(span)
        for index, number in enumerate(states.tolist() if self.slots is not None else ()):
            assert self.slots is not None, "states count"
            for taken in range(1, int(most[state_of == index].max(initial=0)) + 1):
                cost = self.slots.slot_cost(number, (self.gpus,) * taken)
                span[index, taken], fragmentation[index, taken] = cost
        return NodeCostTables(
            kind=kind,
            most=most,
            span=span[state_of],
            fragmentation=fragmentation[state_of],
            price=keys[:, 2][:, None] * np.arange(width)[None, :],
        )


def _number_values(values: Ints) -> tuple[Ints, Ints]:
    """The values that occur, ascending, and of each the index of its value."""
    high = int(values.max(initial=0))
    if not len(values) or int(values.min()) < 0 or high > _DENSE * len(values) + 1024:
        found, which = np.unique(values, return_inverse=True)
        return found, which
    seen = np.zeros(high + 1, dtype=np.bool_)
    seen[values] = True
    number = np.cumsum(seen) - 1
    return np.flatnonzero(seen), number[values]
