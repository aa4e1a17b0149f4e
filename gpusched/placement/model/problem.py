"""One gang on one moment's nodes, as ints: what the methods of placement see, and what they answer.

Members of a role are interchangeable: names and ranks are attached after solving. What makes one
answer better than another is a list of ints that are compared from left to right, see
``objective``. Nothing here knows pods, queues or sessions; everything pickles.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen
from gpusched.placement.model.role_mixes import RoleMixes


class SearchOutcome(StrEnum):
    """How a search ended. UNKNOWN is no proof of anything."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    INVALID = "invalid"


@frozen(eq=False, kw_only=True)
class Role:
    """Members that are equal in all that placement reads, of one sub-group.

    Attributes:
        request: of one member, base units, int64, shape (resources,) as the columns of
            ``Problem.free``; zero where nothing is asked.
        most: members that wait for a place.
        fits: how many of this role alone each node takes, filters and caps counted,
            int64, shape (nodes,), at most ``most``.
        gpus: slots that one member takes.
        part: index of its sub-group in ``Problem.parts``, -1 for none.
        price: what one member on a node costs by plugins' scores, int64 >= 0, shape (nodes,);
            None when they do not care.
    """

    request: Ints
    most: int
    fits: Ints
    gpus: int = 0
    part: int = -1
    price: Ints | None = None


@frozen(kw_only=True)
class SubGroupMinimum:
    """A sub-group: it gets ``least`` more members at least, or none at all.

    Attributes:
        least: members that it lacks; 0 when it is complete, and may have more.
        level: index of the level of which one domain must hold all its members, -1 for none.
        preferred: index of the level of which it should use few domains, -1 for none.
        homes: domains of ``level`` that its placed members are in.
        near: domains of ``preferred`` that they are in.
        parent: index in ``Problem.holders`` of the sub-group that it is in, -1 at the top.
    """

    least: int
    level: int = -1
    preferred: int = -1
    homes: tuple[int, ...] = ()
    near: tuple[int, ...] = ()
    parent: int = -1


@frozen(kw_only=True)
class SubGroupHolder:
    """A sub-group of sub-groups: none of its members gets a place, or it is complete then.

    Attributes:
        least: of the sub-groups in it that lack members, how many must be completed; 0 when it is
            complete, and may have more.
        level, preferred, homes, near: as of ``SubGroupMinimum``, for all members inside.
        parent: index in ``Problem.holders`` of the one that it is in, -1 at the top.
    """

    least: int
    level: int = -1
    preferred: int = -1
    homes: tuple[int, ...] = ()
    near: tuple[int, ...] = ()
    parent: int = -1


NODES: Final = -1
"""Stands for single nodes where a cap names a level."""


@frozen(eq=False, kw_only=True)
class MemberCap:
    """How many more members of some roles one domain takes at most, whatever room it has.

    Attributes:
        roles: whose members count together, ascending.
        most: members by domain, int64, shape (domains,), or by node, shape (nodes,).
        level: index of the level whose domains are capped; ``NODES`` for single nodes.
    """

    roles: tuple[int, ...]
    most: Ints
    level: int = NODES


class SlotCosts(Protocol):
    """What it costs to take slots of a node, by the state its free slots are in."""

    def slot_cost(self, state: int, sizes: tuple[int, ...]) -> tuple[int, int]:
        """The least (span, fragmentation) with which pods of these sizes take slots together.

        Args:
            state: of ``Problem.states``.
            sizes: slots of each pod, largest first; together no more than are free.

        Returns:
            Span: how many islands beyond the first each pod's slots lie in, summed over pods and
            levels of links. Fragmentation: what it adds, in thousandths of a slot, may be
            negative. Span is made least first.
        """

    def least_fragmentation(self, state: int) -> int:
        """A fragmentation that no way of taking slots of a node in this state adds less than."""


@frozen(eq=False, kw_only=True)
class DomainLevel:
    """One level of the topology, without hosts.

    Attributes:
        name: of the level, for sentences.
        domain: number of each node's domain, int64, shape (nodes,), none negative: a node that
            lacks the label is in a domain of its own.
        real: domains below this number have a label; only they satisfy a required level.
    """

    name: str
    domain: Ints
    real: int

    @cached_property
    def count(self) -> int:
        """Numbers that domains have, those of nodes without a label too."""
        return int(self.domain.max(initial=-1)) + 1

    def sum_by_domain(self, values: Ints) -> Ints:
        """Of values by node the sum in each domain, int64, shape (count,)."""
        total = np.zeros(self.count, dtype=np.int64)
        np.add.at(total, self.domain, values)
        return total


@frozen(eq=False, kw_only=True)
class Problem:
    """Give places to ``members`` members, or prove that there are none.

    Attributes:
        free: base units, int64, shape (nodes, resources), none negative.
        roles: at least one.
        members: exactly so many get a place.
        minima: pairs of role numbers and how many members of these together are needed.
        parts: sub-groups of members, see ``SubGroupMinimum``.
        parts_least: of the sub-groups at the top that lack members, how many must be completed.
        holders: sub-groups of sub-groups, each after the one that it is in.
        levels: widest first; a domain lies in one domain of each wider level.
        required: index of the level of which one domain holds all, placed members too; -1: none.
        placed: members of the gang that are on each node already, int64, shape (nodes,).
        hope: members that would like a place in all, at least ``members``: where one domain of
            the required level holds all, those with room for more of them are better.
        states: of each node's free slots, for ``slots``, int64, shape (nodes,).
        slots: what taking slots costs; None when nothing is known of islands.
        caps: what rules between the members allow beside amounts, see ``MemberCap``.
        mixes: which members of several roles a node takes together, where they compete for its
            devices; None where amounts and ``Role.fits`` say all.
    """

    free: Ints
    roles: tuple[Role, ...]
    members: int
    minima: tuple[tuple[tuple[int, ...], int], ...] = ()
    parts: tuple[SubGroupMinimum, ...] = ()
    parts_least: int = 0
    holders: tuple[SubGroupHolder, ...] = ()
    levels: tuple[DomainLevel, ...] = ()
    required: int = -1
    placed: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    hope: int = 0
    states: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    slots: SlotCosts | None = None
    caps: tuple[MemberCap, ...] = ()
    mixes: RoleMixes | None = None

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return int(self.free.shape[0])

    def opened_domains(self, level: DomainLevel) -> Ints:
        """Domains of a level with placed members, ascending."""
        if not self.placed.size:
            return np.zeros(0, dtype=np.int64)
        return np.unique(level.domain[self.placed > 0])

    @property
    def sub_groups(self) -> tuple[SubGroupMinimum | SubGroupHolder, ...]:
        """Sub-groups of members and those that hold others."""
        return (*self.parts, *self.holders)

    def groups_around(self, part: int) -> tuple[SubGroupMinimum | SubGroupHolder, ...]:
        """A sub-group of members and those that it is in, the narrowest first."""
        return (self.parts[part], *(self.holders[at] for at in self.holders_of_part(part)))

    def holders_of_part(self, part: int) -> tuple[int, ...]:
        """The sub-groups around a sub-group of members, the narrowest first."""
        found = []
        at = self.parts[part].parent
        while at >= 0:
            found.append(at)
            at = self.holders[at].parent
        return tuple(found)

    def parts_in_holder(self, holder: int) -> tuple[int, ...]:
        """The sub-groups of members inside of a sub-group of sub-groups, ascending."""
        return tuple(
            part for part in range(len(self.parts)) if holder in self.holders_of_part(part)
        )

    @property
    def open_rows(self) -> Bools:
        """Nodes with placed members, shape (nodes,)."""
        if not self.placed.size:
            return np.zeros(self.nodes, dtype=np.bool_)
        return self.placed > 0


@frozen
class Term:
    """One int of the objective, smaller is better.

    Attributes:
        name: ``hope``, ``domains:LEVEL``, ``parts``, ``span``, ``nodes``, ``fragmentation``
            or ``price``.
        value: of the answer.
        bound: no answer that is as good in the terms before is below it.
    """

    name: str
    value: int
    bound: int


@frozen
class Certificate:
    """Why there is no answer, so that it can be checked by counting again, and told in words.

    Attributes:
        kind: ``role`` (a role has too few places), ``domain`` (each domain of the required
            level breaks an inequality of its own), ``table`` (the tree says so) or ``search``.
        level: index of the level that is looked at, -1 for the whole cluster.
        domain: the best domain of it, -1 for the whole cluster.
        roles: whose members are counted.
        needed, room: how many of them are needed, and how many fit there.
        resource: column of ``Problem.free`` that runs out there; -1 for slots or filters, or
            when no single one does.
        breaches: for kind ``domain``: by domain, (roles, needed, room).
    """

    kind: str
    level: int
    domain: int
    roles: tuple[int, ...]
    needed: int
    room: int
    resource: int = -1
    breaches: tuple[tuple[int, tuple[int, ...], int, int], ...] = ()


NO_COUNTS: Ints = np.zeros((0, 0), dtype=np.int64)


@frozen(eq=False, kw_only=True)
class Solution:
    """An answer.

    Attributes:
        outcome: OPTIMAL: each term equals its bound, up to what ``proven`` names.
        counts: members by role and node, int64, shape (roles, nodes); empty without an answer.
        terms: of the objective, in order.
        certificate: for INFEASIBLE.
        method: ``greedy``, ``tree``, ``master``, ``patterns`` or what else found it.
        seconds: spent in a solver, as it says itself; for metrics only.
        work: deterministic seconds spent in a solver.
        faults: methods that gave answers which could not be used, and why.
    """

    outcome: SearchOutcome
    counts: Ints = attrs.field(factory=lambda: NO_COUNTS)
    terms: tuple[Term, ...] = ()
    certificate: Certificate | None = None
    method: str = ""
    seconds: float = 0.0
    work: float = 0.0
    faults: tuple[str, ...] = ()

    @property
    def proven(self) -> tuple[str, ...]:
        """Names of the terms, from the first on, whose value is proven to be the least."""
        names = []
        for term in self.terms:
            if term.value != term.bound:
                break
            names.append(term.name)
        return tuple(names)

    @property
    def gap(self) -> float:
        """Of the first term whose value is not proven: (value - bound) / max(1, bound)."""
        for term in self.terms:
            if term.value != term.bound:
                return (term.value - term.bound) / max(1, term.bound)
        return 0.0


@frozen(kw_only=True)
class Effort:
    """How hard to try.

    Attributes:
        solver: False where only quick methods are wanted (``placement.solver: greedy``).
        tables: False where the first place that best fit comes to is to do, which is not always the
            best and not always found (``placement.solver: heuristic``).
        budget_s: deterministic seconds for one problem.
        workers: threads; more than one does not repeat exactly.
    """

    solver: bool = True
    tables: bool = True
    budget_s: float = 0.5
    workers: int = 1
    seed: int = 1


class SearchJob(Protocol):
    """A search that may take long or crash, so that it runs in a process of its own. It pickles."""

    def run(self) -> object:
        """The answer, which pickles too."""


class SearchRunner(Protocol):
    """Runs jobs, in this process or in another."""

    def __call__(self, job: SearchJob) -> object:
        """The answer of ``job.run()``.

        Raises:
            SolverFault: it crashed, hung, or was refused.
        """


def search_in_process(job: SearchJob) -> object:
    """A ``Search`` in this process."""
    return job.run()
