"""Gangs to move for a gang in one area, as ints for a solver: each fits elsewhere at once.

One boolean for each gang that could be moved, one count for each row and class of pods. Members
of moved gangs of one class are interchangeable; their own topology is not in the model, so that
an answer is a proposal: the caller places every gang.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import Ints, RequestVector
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.victims.greedy_choice import VictimSearchState
from gpusched.placement.victims.lower_bound import victim_lower_bound
from gpusched.placement.victims.model import EvictablePod, VictimBundle
from gpusched.placement.victims.search import COUNTS_MAX
from gpusched.placement.victims.solver_model import CandidateRow, VictimModel
from gpusched.session.allocate.node_sets import NodeSet
from gpusched.session.gpu_types.options import takes_gpus
from gpusched.session.preempt.victims import CandidateVictim
from gpusched.session.rebalance.room import Room
from gpusched.session.state.session import Session

PodKind = tuple[str, tuple[int, ...]]
"""Digest of a class of pods that move, and numbers of the types of GPUs to which they may; empty for any."""


@frozen(slots=True, eq=False)
class MovableGang:
    """A gang that could be moved as a whole.

    Attributes:
        cost: what it loses, see ``consolidation``.
        types: numbers of the types of GPUs that its pods may move to; empty for any.
    """

    gang: Gang
    seats: tuple[CandidateVictim, ...]
    cost: int
    types: tuple[int, ...] = ()

    def pod_kind(self, pod_class: PodClass) -> PodKind:
        """The class of a member, with the types of GPUs to which it may move."""
        return (pod_class.digest, self.types if takes_gpus(pod_class) else ())


def cost_lower_bound(
    session: Session, claimant: Gang, area: NodeSet, movables: Sequence[MovableGang]
) -> int | None:
    """What moves cost at least that let the claimant into an area; None where none do.

    A bound by counting, for claimants of one class; others are not bounded.

    Args:
        session: looked at as it will be.
        claimant: that waits.
        area: where it may sit.
        movables: that sit there.
    """
    if len({pod_set.pod_class.digest for pod_set in claimant.pod_sets}) > 1:
        return 0
    seat = session.class_info(claimant.pod_sets[0].pod_class)
    if seat.request.missing:
        return None
    allowed = seat.class_fit.allowed if area.rows is None else seat.class_fit.allowed & area.rows
    rows = np.flatnonzero(allowed).tolist()
    free = session.node_usage.free_amounts(rows, seat.request.columns)
    names = {column: name for name, column in session.snapshot.nodes.columns.items()}
    asked = [names[column] for column in seat.request.columns.tolist()]
    members: list[EvictablePod] = []
    bundles: list[VictimBundle] = []
    for number, each in enumerate(movables):
        first = len(members)
        for one in each.seats:
            requests = one.member.pod.pod_class.requests
            frees = tuple(requests.get(name) for name in asked)
            members.append(EvictablePod(one.row if allowed[one.row] else -1, frees, 0))
        every = tuple(range(first, len(members)))
        bundles.append(VictimBundle(every, number, number, extra=each.cost))
    field = VictimSearchState(
        seat.request.amounts.tolist(),
        dict(zip(rows, free.tolist(), strict=True)),
        members,
        bundles,
    )
    bound = victim_lower_bound(field, claimant.members_at_start)
    return None if bound is None else bound.cost


@frozen(eq=False)
class ConsolidationModel:
    """The ints for the solver, and the way back to nodes.

    Attributes:
        rows: of the nodes that the model knows, in its order.
        requests: of each role, amounts of all resources of nodes.
        own: how many roles are the claimant's.
        kinds: of the pods that move, whose roles follow.
    """

    ints: VictimModel
    rows: tuple[int, ...]
    requests: tuple[Ints, ...]
    own: int
    kinds: tuple[PodKind, ...]

    def split_rooms(self, counts: Sequence[Sequence[int]]) -> tuple[Room, dict[PodKind, Room]]:
        """Room of the claimant, and by their kinds of those that move.

        Args:
            counts: members by row and role, as the solver answers.
        """
        claimant: dict[int, Ints] = {}
        moved: dict[PodKind, dict[int, Ints]] = {kind: {} for kind in self.kinds}
        for row, by_role in zip(self.rows, counts, strict=True):
            for role, count in enumerate(by_role):
                if count:
                    own = role < self.own
                    room = claimant if own else moved[self.kinds[role - self.own]]
                    more = count * self.requests[role]
                    room[row] = room[row] + more if row in room else more
        return claimant, dict(moved)


def build_consolidation_model(
    session: Session,
    claimant: Gang,
    area: NodeSet,
    movables: Sequence[MovableGang],
    *,
    cost_max: int,
    forbidden: Collection[frozenset[int]],
) -> ConsolidationModel | None:
    """The model; None when the claimant would not fit if all of them left, or it is too large.

    Args:
        session: looked at as it will be.
        claimant: that waits.
        area: where it may sit.
        movables: whose numbers are the bundles.
        cost_max: no answer may cost more.
        forbidden: sets of numbers that were tried.
    """
    return _ModelBuilder(session, claimant, area, movables).build_model(cost_max, forbidden)


class _ModelBuilder:
    def __init__(
        self, session: Session, claimant: Gang, area: NodeSet, movables: Sequence[MovableGang]
    ) -> None:
        self._session = session
        self._claimant = claimant
        self._movables = movables
        classes: dict[PodKind, PodClass] = {}
        self._following: dict[PodKind, dict[int, int]] = {}
        for number, each in enumerate(movables):
            for seat in each.seats:
                pod_class = seat.member.pod.pod_class
                kind = each.pod_kind(pod_class)
                classes[kind] = pod_class
                of = self._following.setdefault(kind, {})
                of[number] = of.get(number, 0) + 1
        self._kinds = sorted(classes)
        own = [pod_set.pod_class for pod_set in claimant.pod_sets]
        seats = [
            session.class_info(each) for each in (*own, *map(classes.__getitem__, self._kinds))
        ]
        self._requests = [seat.request for seat in seats]
        everywhere = np.ones(len(session.snapshot.nodes), dtype=np.bool_)
        limits = [everywhere if area.rows is None else area.rows for _ in own] + [
            session.gpu_types.rows_of_types(types) if types else everywhere
            for _, types in self._kinds
        ]
        self._allowed = [
            seat.class_fit.allowed & (not seat.request.missing) & rows
            for seat, rows in zip(seats, limits, strict=True)
        ]
        self._columns = sorted({c for ask in self._requests for c in ask.columns.tolist()})

    def build_model(
        self, cost_max: int, forbidden: Collection[frozenset[int]]
    ) -> ConsolidationModel | None:
        """The model as ints, see ``build_consolidation_model``."""
        own = len(self._claimant.pod_sets)
        free = self._free_amounts()
        freed = self._freed_amounts()
        everything = free.copy()
        for row, _, amounts in freed:
            everything[row] += amounts
        asks = [self._amount_columns(ask) for ask in self._requests]
        fits = np.stack(
            [
                np.where(allowed, _pods_that_fit(everything, ask), 0)
                for allowed, ask in zip(self._allowed, asks, strict=True)
            ]
        )
        waiting = [len(pod_set.pods) for pod_set in self._claimant.pod_sets]
        reach = [
            min(most, int(np.minimum(row, most).sum()))
            for most, row in zip(waiting, fits[:own], strict=True)
        ]
        minima = tuple(
            (tuple(n for n, t in enumerate(self._claimant.pod_sets) if t.role == role), missing)
            for role, missing in self._claimant.missing_roles
        )
        if sum(reach) < self._claimant.members_at_start or any(
            sum(reach[n] for n in numbers) < missing for numbers, missing in minima
        ):
            return None
        rows = np.flatnonzero(fits.any(axis=0)).tolist()
        if len(rows) * len(asks) > COUNTS_MAX:
            return None
        parts: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for row, number, amounts in freed:
            parts.setdefault(row, []).append((number, tuple(amounts.tolist())))
        following = [sorted(self._following[kind].items()) for kind in self._kinds]
        effort = self._session.effort
        ints = VictimModel(
            requests=tuple(tuple(ask.tolist()) for ask in asks),
            most=(*waiting, *(sum(count for _, count in terms) for terms in following)),
            members=self._claimant.members_at_start,
            minima=minima,
            rows=tuple(
                CandidateRow(
                    tuple(free[row].tolist()),
                    tuple(parts.get(row, ())),
                    tuple(fits[:, row].tolist()),
                )
                for row in rows
            ),
            costs=tuple(each.cost for each in self._movables),
            limits=(),
            exclusive=(),
            cost_max=cost_max,
            budget_s=effort.budget_s,
            followers=tuple((own + n, tuple(terms)) for n, terms in enumerate(following)),
            forbidden=tuple(tuple(sorted(each)) for each in forbidden),
            workers=effort.workers,
            seed=effort.seed,
        )
        return ConsolidationModel(
            ints,
            tuple(rows),
            tuple(self._whole_requests()),
            own,
            tuple(self._kinds),
        )

    def _whole_requests(self) -> Iterator[Ints]:
        for ask in self._requests:
            amounts: Ints = np.zeros(len(self._session.node_usage.nodes.columns), dtype=np.int64)
            amounts[ask.columns] = ask.amounts
            yield amounts

    def _free_amounts(self) -> Ints:
        columns = np.array(self._columns, dtype=np.int64)
        return self._session.node_usage.free_amounts(slice(None), columns).astype(np.int64)

    def _freed_amounts(self) -> list[tuple[int, int, Ints]]:
        """Row, number of the gang, and what it frees there."""
        found: dict[tuple[int, int], Ints] = {}
        for number, each in enumerate(self._movables):
            for seat in each.seats:
                ask = self._amount_columns(
                    self._session.class_info(seat.member.pod.pod_class).request
                )
                key = (seat.row, number)
                found[key] = found[key] + ask if key in found else ask
        return [(row, number, amounts) for (row, number), amounts in sorted(found.items())]

    def _amount_columns(self, ask: RequestVector) -> Ints:
        amounts = np.zeros(len(self._columns), dtype=np.int64)
        for column, amount in zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True):
            amounts[self._columns.index(column)] = amount
        return amounts


def _pods_that_fit(free: Ints, ask: Ints) -> Ints:
    """How many of one class each row takes, int64, shape (rows,)."""
    asked = ask > 0
    if not asked.any():
        return np.zeros(free.shape[0], dtype=np.int64)
    counts: Ints = np.maximum(0, (free[:, asked] // ask[asked]).min(axis=1))
    return counts
