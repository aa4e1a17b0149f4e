"""The best place for members that are all alike: exact, by tables that are merged up the tree.

For each node a table says what k of them cost there, for each domain what k of them cost in it:
the least sum over its children, and what entering the domain costs. The table of the whole is
walked back to the nodes. Every term of ``verify.names`` that has space in the packed ints is in
the costs, so the answer is the best in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import define, frozen
from gpusched.placement.model.bounds import members_that_fit_by_domain
from gpusched.placement.model.problem import Problem
from gpusched.placement.tree.identical_members import IdenticalMembers
from gpusched.placement.tree.lexicographic_weights import (
    MACHINE_WORDS_MAX,
    LexicographicWeights,
    lexicographic_weights,
)
from gpusched.placement.tree.min_plus import merge_work
from gpusched.placement.tree.node_costs import NodeCostTables
from gpusched.placement.tree.table_cache import CachedTables, TableCache, useful_nodes_by_domain

WORK_MAX: Final = 800_000_000
"""Additions of one int above which tables would take more than about a second."""
_TWO_LIMBS: Final = 9
"""How much longer one takes where a cost is two ints."""
_DEEP: Final = 10
"""Sums of rooms times members below a part of ``WORK_MAX`` need no closer look."""


@frozen(eq=False)
class TreeResult:
    """An answer and what the tables say that it is worth.

    Attributes:
        row: members by node, int64, shape (nodes,).
        packing: of the terms after ``hope``.
        base: what is in the terms whatever is chosen: domains of members placed before.
        claim: ``hope`` where the problem has it, then the packed terms without ``base``.
    """

    row: Ints
    packing: LexicographicWeights
    base: tuple[int, ...]
    claim: tuple[int, ...]

    def agrees_with(self, values: Sequence[int]) -> bool:
        """Whether an objective that was counted again is what the tables say."""
        hope = len(self.claim) - self.packing.words
        base = (*self.base, *(0 for _ in values[hope + len(self.base) :]))
        terms = [np.array(a - b) for a, b in zip(values[hope:], base, strict=True)]
        return (*values[:hope], *self.packing.pack_terms(terms).tolist()) == self.claim

    @property
    def proven(self) -> int:
        """How many terms of the objective are least, from the first on."""
        return len(self.claim) - self.packing.words + len(self.packing.places)


def machine_words_of(one: IdenticalMembers) -> int:
    """How many ints a cost may have so that the tables take no longer than they may; 0: none."""
    members = one.problem.members
    if members * int(one.fits.sum()) <= WORK_MAX // _DEEP:
        return MACHINE_WORDS_MAX
    rows = np.flatnonzero(one.fits)
    most, total = np.minimum(one.fits[rows], members), 0
    for level in (*reversed(one.problem.levels), None):
        domain = np.zeros(one.problem.nodes, np.int64) if level is None else level.domain
        parent = domain[rows]
        order = np.argsort(parent, kind="stable")
        parent = parent[order]
        added, whole = merge_work(parent, most[order], members)
        total += added
        # A domain's table goes on from the first of its nodes.
        rows = rows[order][np.flatnonzero(np.diff(parent, prepend=-1))]
        most = whole[domain[rows]]
    if total * _TWO_LIMBS <= WORK_MAX:
        return MACHINE_WORDS_MAX
    return int(total <= WORK_MAX)


def place_identical_members(
    one: IdenticalMembers, memory: TableCache | None = None, *, words: int = MACHINE_WORDS_MAX
) -> TreeResult | None:
    """The best answer, None when there is none: this is a proof.

    Args:
        one: the problem.
        memory: of earlier problems; the answer is the same without it.
        words: ints that a cost may have; terms that find no space are not looked at.
    """
    problem = one.problem
    memory = memory or TableCache()
    leaves = memory.find_sorting(problem.members, one.role.request).sort_nodes(one)
    packed = _lexicographic_weights(one, leaves, words)
    kept = memory.tables_for((problem.members, packed.places), packed.words)
    return _TreeSearch(one, leaves, packed, kept, _domains_by_level(problem)).solve()


def _lexicographic_weights(
    one: IdenticalMembers, leaves: NodeCostTables, words: int
) -> LexicographicWeights:
    """Where the bits of each term after ``hope`` are."""
    problem = one.problem
    entered = [min(problem.members, count) for count in _domains_by_level(problem)]
    spread = [max(entered, default=0)] if _has_parts(one) else []
    ranges = leaves.term_ranges(problem.members)
    return lexicographic_weights((*entered, *spread, *ranges), words)


def _domains_by_level(problem: Problem) -> list[int]:
    """Domains of each level."""
    return [level.count for level in problem.levels]


def _has_parts(one: IdenticalMembers) -> bool:
    return any(part.preferred >= 0 for part in one.problem.parts)


@frozen(eq=False)
class _LevelTables:
    """Domains of one level (or nodes) below domains of the next: their tables and parents."""

    level: int
    numbers: Ints
    parent: Ints
    count: int


@define(eq=False)
class _TreeSearch:
    """One search.

    Attributes:
        sizes: domains of each level.
    """

    one: IdenticalMembers
    leaves: NodeCostTables
    packing: LexicographicWeights
    kept: CachedTables
    sizes: list[int]
    strata: list[_LevelTables] = attrs.field(factory=list)

    def solve(self) -> TreeResult | None:
        """Build the tables from leaves to root, choose at the root, and read the choice back down."""
        one, tables = self.one, self.kept.tables
        top = self._build_tables()
        units = one.unit if one.unit_level >= 0 else 1
        taken = one.problem.members // units
        if one.pin < 0:
            if int(tables.largest_counts(top[:1])[0]) < taken:
                return None
            return self._build_result(0, taken, (), tables.cost_at(top[:1], taken)[:, 0])
        able = one.candidate_domains() & (tables.largest_counts(top) >= taken)
        around = one.caps_around()
        if around is not None:
            able &= around >= one.problem.members
        domains = np.flatnonzero(able)
        if not len(domains):
            return None
        costs = tables.cost_at(top[domains], taken) + self._outer_charges(domains)
        hope = self._hope_terms(domains)
        chosen = int(np.lexsort((*costs[::-1], *hope))[0])
        lost = tuple(int(each[chosen]) for each in hope)
        return self._build_result(int(domains[chosen]), taken, lost, costs[:, chosen])

    def _build_result(
        self, domain: int, taken: int, hope: tuple[int, ...], costs: Ints
    ) -> TreeResult:
        problem, part = self.one.problem, self.one.part
        base = [len(problem.opened_domains(level)) for level in problem.levels]
        if _has_parts(self.one):
            base.append(len(set(part.near)) if part is not None else 0)
        claim = (*hope, *costs.tolist())
        return TreeResult(self._read_choice(domain, taken), self.packing, tuple(base), claim)

    # -- up ----------------------------------------------------------------------------------
    def _build_tables(self) -> Ints:
        """Tables of the domains of the pinned level, or of the whole."""
        one, tables, levels = self.one, self.kept.tables, self.one.problem.levels
        leaves = self._leaf_tables()
        below = len(levels) - 1
        domain, count = self._level_domains(below)
        self.strata.append(_LevelTables(len(levels), leaves, domain, count))
        numbers = self.kept.domain_tables(leaves, domain, count)
        for level in range(below, -1, -1):
            cap = one.cap_of_level(level)
            if cap is not None:
                numbers = tables.cut_tables(numbers, cap[: len(numbers)])
            numbers = self._charge_entering(level, numbers)
            if level == one.unit_level:
                real = np.arange(len(numbers)) < levels[level].real
                numbers = tables.stride_tables(numbers, np.where(real, one.unit, 0))
            if level == one.pin:
                break
            wider, count = self._level_domains(level - 1)
            parent = np.zeros(len(numbers), dtype=np.int64)
            parent[levels[level].domain] = wider
            self.strata.append(_LevelTables(level, numbers, parent, count))
            used = np.flatnonzero(numbers != tables.none)
            used = used[np.argsort(parent[used], kind="stable")]
            numbers = tables.merge_tables(parent[used], numbers[used], count).numbers
        return numbers

    def _level_domains(self, level: int) -> tuple[Ints, int]:
        """Of each node the domain of a level, -1 for the whole, and how many there are."""
        problem = self.one.problem
        if level < 0:
            return np.zeros(problem.nodes, dtype=np.int64), 1
        return problem.levels[level].domain, self.sizes[level]

    def _leaf_tables(self) -> Ints:
        """Of each node the number of its table."""
        leaves, kept = self.leaves, self.kept
        entered = len(self.sizes) + _has_parts(self.one)
        known = kept.kinds
        # What kinds cost stays the same object while only nodes move from one kind to another.
        if known is None or known[0] is not leaves.price or known[1] != entered:
            known = kept.kinds = (leaves.price, entered, self._kind_tables(entered))
        return known[2][leaves.kind]

    def _kind_tables(self, entered: int) -> Ints:
        """The table of each kind of nodes, and that of those that take nothing."""
        leaves, tables = self.leaves, self.kept.tables
        if not len(leaves.most):
            return np.array([tables.none], dtype=np.int64)
        nodes = np.broadcast_to(np.arange(leaves.span.shape[1]) > 0, leaves.span.shape)
        before = [np.zeros_like(leaves.span)] * entered
        terms = [leaves.span, nodes.astype(np.int64), leaves.fragmentation, leaves.price]
        costs = self.packing.pack_terms([*before, *terms])
        made = [
            tables.add_leaf(costs[:, kind, : most + 1])
            for kind, most in enumerate(leaves.most.tolist())
        ]
        return np.array([*made, tables.none], dtype=np.int64)

    def _charge_entering(self, level: int, numbers: Ints) -> Ints:
        """Tables of a level's domains with what it costs to enter them."""
        closed, apart = self._unopened_domains(level)
        charges = [self._entry_toll(level, domain, part) for part in (0, 1) for domain in (0, 1)]
        return self.kept.tables.charge_tables(numbers, closed + 2 * apart, charges)

    def _unopened_domains(self, level: int) -> tuple[Ints, Ints]:
        """Of each domain whether it counts when entered: for the gang, for the sub-group."""
        problem, part = self.one.problem, self.one.part
        closed = np.ones(self.sizes[level], dtype=np.int64)
        closed[problem.opened_domains(problem.levels[level])] = 0
        apart = np.zeros_like(closed)
        if part is not None and part.preferred == level:
            apart[:] = 1
            apart[[home for home in part.near if home < len(apart)]] = 0
        return closed, apart

    def _entry_charges(self, level: int, domains: Ints | int, parts: Ints | int) -> Ints:
        """Packed: so many domains of a level, so many of the sub-group; shape (words, ...)."""
        domains, parts = np.asarray(domains, dtype=np.int64), np.asarray(parts, dtype=np.int64)
        terms = [np.zeros_like(domains)] * level + [domains]
        terms += [np.zeros_like(domains)] * (len(self.sizes) - level - 1)
        return self.packing.pack_terms([*terms, parts] if _has_parts(self.one) else terms)

    def _entry_toll(self, level: int, domains: int, parts: int) -> tuple[int, ...]:
        """The same for one domain, or for none: one int a word."""
        places = self.packing.places
        packed = [0] * self.packing.words
        terms = [(level, domains), (len(self.sizes), parts if _has_parts(self.one) else 0)]
        for term, count in terms:
            if count and term < len(places):
                word, shift = places[term]
                packed[word] += count << shift
        return tuple(packed)

    def _outer_charges(self, domains: Ints) -> Ints:
        """What entering the wider domains of these costs, shape (words, domains)."""
        problem = self.one.problem
        pinned = problem.levels[self.one.pin].domain
        total = np.zeros((self.packing.words, len(domains)), dtype=np.int64)
        if self.one.pin == 0:
            return total
        some = np.zeros(self.sizes[self.one.pin], dtype=np.int64)
        some[pinned] = np.arange(problem.nodes)
        for level in range(self.one.pin):
            closed, apart = self._unopened_domains(level)
            wider = problem.levels[level].domain[some[domains]]
            total += self._entry_charges(level, closed[wider], apart[wider])
        return total

    def _hope_terms(self, domains: Ints) -> tuple[Ints, ...]:
        """Of each pinned domain the term ``hope``, where the problem has it."""
        problem = self.one.problem
        if problem.required < 0:
            return ()
        level = problem.levels[problem.required]
        required = np.arange(self.sizes[self.one.pin])
        if self.one.pin != problem.required:
            required[problem.levels[self.one.pin].domain] = level.domain
        there = members_that_fit_by_domain(problem, range(len(problem.roles)), level)
        wanted = max(problem.hope, problem.members)
        return (np.maximum(0, wanted - there[required[domains]]),)

    # -- down --------------------------------------------------------------------------------
    def _read_choice(self, domain: int, taken: int) -> Ints:
        """Members by node, when a domain of the top takes so many."""
        tables, one = self.kept.tables, self.one
        takes = {domain: taken}
        for stratum in reversed(self.strata):
            inside = np.zeros(stratum.count, dtype=np.bool_)
            inside[list(takes)] = True
            among = np.flatnonzero(inside[stratum.parent] & (stratum.numbers != tables.none))
            order = self._merge_order(stratum, among)
            merge = tables.merge_tables(
                stratum.parent[order], stratum.numbers[order], stratum.count
            )
            found: dict[int, int] = {}
            unit = one.unit if stratum.level == one.unit_level else 1
            for parent, count in takes.items():
                for place, part in tables.trace_back(merge, parent, count):
                    found[int(order[place])] = part * unit
            takes = found
        row = np.zeros(one.problem.nodes, dtype=np.int64)
        row[list(takes)] = list(takes.values())
        return row

    def _merge_order(self, stratum: _LevelTables, among: Ints) -> Ints:
        """These tables by parent; nodes that are alike side by side, else by number."""
        parent = stratum.parent[among]
        if stratum.level < len(self.sizes):
            return among[np.argsort(parent, kind="stable")]
        kinds = self.leaves.kind[among]
        return useful_nodes_by_domain(among, stratum.parent, kinds, self.one.problem.members)
