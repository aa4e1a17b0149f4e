"""Gangs that run on types of GPUs or wait for them as well, and what a gang's choice costs them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

import numpy as np

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import GangKey
from gpusched.arrays.columns import Bools
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.gpu_types.options import (
    GpuTypeOption,
    admitted_types,
    relative_options,
    start_gpus,
    takes_gpus,
)
from gpusched.session.gpu_types.throughput import DEMANDS_MAX, TypeDemand, lost_throughput
from gpusched.session.state.equivalence import GangCache
from gpusched.session.state.session import Session


@frozen(slots=True)
class _Competitor:
    """A gang that does not work equally well on all GPUs.

    Attributes:
        gpus: that it has or starts with, in thousandths of one.
        speeds: pairs of type and relative speed; a type that is several products is its first.
    """

    gpus: int
    speeds: tuple[tuple[int, int], ...]


class _KnownCompetitors:
    """What gangs are as competitors, from session to session while nodes stay as they are."""

    def __init__(self) -> None:
        self._basis: tuple[object, ...] = ()
        self._known: GangCache[tuple[_Competitor | None]] = GangCache()

    def competitor(
        self, session: Session, gang: Gang, build: Callable[[Gang], _Competitor | None]
    ) -> _Competitor | None:
        """The gang as one that competes; None where it is none."""
        basis = (session.gpu_types, session.snapshot.nodes.generation)
        if len(self._basis) != len(basis) or any(
            one is not other for one, other in zip(self._basis, basis, strict=True)
        ):
            self._basis = basis
            self._known.clear()
        known = self._known.get(gang)
        if known is None:
            known = (build(gang),)
            self._known.set(gang, known)
        return known[0]

    def forget_others(self, session: Session) -> None:
        """Forget gangs that neither run nor wait."""
        placed = session.snapshot.placed_gangs
        self._known.keep_only((*placed.values(), *session.gangs), len(placed) + len(session.gangs))


class TypeCompetition:
    """Gangs of a session, running or waiting, that work better on some types of GPUs than on others.

    Those that run count as well: they tell what comes, and the type that they hold is not free.

    Args:
        session: whose gangs they are.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._competitors: dict[GangKey, _Competitor] = {}
        self._lost: dict[Hashable, tuple[int, ...]] = {}
        if not session.hooks.topology.fast_gpus_shared:
            return
        known = session.cache.kept.get_or_make(_KnownCompetitors, _KnownCompetitors)
        for gang in (*session.snapshot.placed_gangs.values(), *session.gangs):
            found = known.competitor(session, gang, self._build_competitor)
            if found is not None:
                self._competitors[gang.key] = found
        known.forget_others(session)

    def lost_by_option(self, gang: Gang, options: Sequence[GpuTypeOption]) -> tuple[int, ...]:
        """What each type costs the gang and the others, in thousandths of a GPU, see ``throughput``."""
        if len(options) < 2:
            return (0,) * len(options)
        own = TypeDemand(start_gpus(gang), tuple((each.types[0], each.speed) for each in options))
        if not self._competitors and len({speed for _, speed in own.speeds}) == 1:
            return (0,) * len(options)
        merged = {number: each.types[0] for each in options for number in each.types}
        key = (own, self._competitors.get(gang.key), tuple(sorted(merged.items())))
        lost = self._lost.get(key)
        if lost is None:
            others = self._other_demands(gang, merged)
            lost = self._lost[key] = lost_throughput(
                own, others, self._gpu_thousandths(merged, free=False)
            )
        free = self._gpu_thousandths(merged, free=True)
        fits = [free[number] >= own.gpus for number, _ in own.speeds]
        least = min((each for each, fit in zip(lost, fits, strict=True) if fit), default=0)
        return tuple(max(0, each - least) for each in lost)

    def _other_demands(self, gang: Gang, merged: dict[int, int]) -> list[TypeDemand]:
        """The competitors but one gang, those of equal speeds together, those with most GPUs first."""
        sums: dict[tuple[tuple[int, int], ...], int] = {}
        for key, each in self._competitors.items():
            if key != gang.key:
                speeds = _merged_speeds(each.speeds, merged)
                sums[speeds] = sums.get(speeds, 0) + each.gpus
        ranked = sorted(sums.items(), key=lambda each: (-each[1], each[0]))
        return [TypeDemand(gpus, speeds) for speeds, gpus in ranked[:DEMANDS_MAX]]

    def _build_competitor(self, gang: Gang) -> _Competitor | None:
        """The gang as one that competes; None where all types are the same to it, or none will do."""
        session = self._session
        members = [each.pod.pod_class for each in gang.placed if takes_gpus(each.pod.pod_class)]
        waiting = [each.pod_class for each in gang.pod_sets if takes_gpus(each.pod_class)]
        classes = (*members[:1], *waiting)
        if not classes or gang.error[0]:
            return None
        types = session.gpu_types
        admitted = set(range(len(types.names)))
        for pod_class in classes:
            admitted &= set(admitted_types(session, pod_class))
        every = len(types.names)
        if not gang.terms.gpu_types.speeds and len(admitted) == every:
            return None
        options = relative_options(types, gang.terms.gpu_types, admitted)
        speeds = tuple((each.types[0], each.speed) for each in options)
        everywhere = sum(len(each.types) for each in options) == every
        if not speeds or (everywhere and len({speed for _, speed in speeds}) == 1):
            return None
        held = sum(pod_class.gpu_thousandths for pod_class in members)
        return _Competitor(held + start_gpus(gang), speeds)

    def _gpu_thousandths(self, merged: dict[int, int], *, free: bool) -> list[int]:
        """GPUs of each type in thousandths, all or free ones; those of one name at its first."""
        session = self._session
        columns = session.snapshot.nodes.columns
        names = [name for name in gpu_resources().names if name in columns]
        found = [0] * len(session.gpu_types.names)
        if not names:
            return found
        numbers = np.array([columns[name] for name in names], dtype=np.int64)
        if free:
            amounts = np.maximum(session.node_usage.free_amounts(slice(None), numbers), 0)
        else:
            amounts = session.snapshot.nodes.allocatable[:, numbers]
        by_row = amounts.sum(axis=1)
        for number in range(len(found)):
            rows = session.gpu_types.rows_of_types((number,)) & self._usable
            found[merged.get(number, number)] += int(by_row[rows].sum())
        return found

    @cached_property
    def _usable(self) -> Bools:
        """Nodes that take pods at all, bool, shape (nodes,)."""
        nodes = self._session.snapshot.nodes.nodes
        return np.array(
            [not node.not_ready and not node.unschedulable for node in nodes], dtype=np.bool_
        )


def _merged_speeds(
    speeds: tuple[tuple[int, int], ...], merged: dict[int, int]
) -> tuple[tuple[int, int], ...]:
    """Speeds by type where some types count as one: the best of them."""
    found: dict[int, int] = {}
    for number, speed in speeds:
        into = merged.get(number, number)
        found[into] = max(found.get(into, 0), speed)
    return tuple(sorted(found.items()))


def type_competition(session: Session) -> TypeCompetition:
    """The competition of a session, worked out when it is first asked for."""
    return session.cycle_state.get_or_make(TypeCompetition, lambda: TypeCompetition(session))
