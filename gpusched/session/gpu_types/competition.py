"""Gangs that wait for types of GPUs as well, and what a gang's choice costs them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.arrays.columns import Bools
from gpusched.cache.gangs.gang import Gang
from gpusched.session.gpu_types.options import (
    GpuTypeOption,
    GpuTypeRefusal,
    admitted_types,
    gpu_type_options,
    takes_gpus,
)
from gpusched.session.gpu_types.throughput import COMPETITORS_MAX, TypeDemand, lost_throughput
from gpusched.session.state.session import Session


@attrs.frozen(slots=True, eq=False)
class _Competitor:
    """A gang that waits and does not work equally well on all GPUs.

    Attributes:
        speeds: pairs of type and relative speed; a type that is several products is its first.
    """

    gang: Gang
    gpus: int
    speeds: tuple[tuple[int, int], ...]


class TypeCompetition:
    """Waiting gangs of a session that work better on some types of GPUs than on others.

    Args:
        session: whose gangs wait.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        waiting = session.gangs if session.hooks.topology.fast_gpus_shared else ()
        found = (self._competitor(gang) for gang in waiting if gang.pending)
        self._competitors = sorted(
            (each for each in found if each is not None),
            key=lambda each: (-each.gang.priority, each.gang.created, each.gang.key),
        )

    def lost_by_option(self, gang: Gang, options: Sequence[GpuTypeOption]) -> tuple[int, ...]:
        """What each type costs the gang and those that wait, in thousandths of a GPU, see ``throughput``."""
        if len(options) < 2:
            return (0,) * len(options)
        own = TypeDemand(start_gpus(gang), tuple((each.types[0], each.speed) for each in options))
        merged = {number: each.types[0] for each in options for number in each.types}
        others = [
            TypeDemand(each.gpus, _merged_speeds(each.speeds, merged))
            for each in self._competitors
            if each.gang.key != gang.key and self._waits(each.gang)
        ]
        if not others and len({speed for _, speed in own.speeds}) == 1:
            return (0,) * len(options)
        free = self._free_gpus(merged)
        fits = [free[number] >= own.gpus for number, _ in own.speeds]
        lost = lost_throughput(own, others[:COMPETITORS_MAX], free)
        least = min((each for each, fit in zip(lost, fits, strict=True) if fit), default=0)
        return tuple(max(0, each - least) for each in lost)

    def _waits(self, gang: Gang) -> bool:
        session = self._session
        if session.outcomes.refusal(gang) is not None or session.placements.assigned(gang):
            return False
        if session.nominations.has(gang):
            return False
        return not session.outcomes.has_admission(gang) or session.outcomes.is_admitted(gang)

    def _competitor(self, gang: Gang) -> _Competitor | None:
        """The gang as one that competes; None where all types are the same to it, or none will do."""
        session = self._session
        with_gpus = [
            pod_set.pod_class for pod_set in gang.pod_sets if takes_gpus(pod_set.pod_class)
        ]
        if not gang.members_at_start or gang.error[0] or not with_gpus:
            return None
        every = len(session.gpu_types.names)
        if not gang.terms.gpu_types.speeds and all(
            len(admitted_types(session, each)) == every for each in with_gpus
        ):
            return None
        options = gpu_type_options(session, gang)
        if isinstance(options, GpuTypeRefusal):
            return None
        speeds = tuple((each.types[0], each.speed) for each in options)
        everywhere = sum(len(each.types) for each in options) == every
        if everywhere and len({speed for _, speed in speeds}) == 1:
            return None
        return _Competitor(gang, start_gpus(gang), speeds)

    def _free_gpus(self, merged: dict[int, int]) -> list[int]:
        """Free GPUs of each type in thousandths; those of one name are counted at its first."""
        session = self._session
        columns = session.snapshot.nodes.columns
        names = [name for name in gpu_resources().names if name in columns]
        free = [0] * len(session.gpu_types.names)
        if not names:
            return free
        numbers = np.array([columns[name] for name in names], dtype=np.int64)
        by_row = np.maximum(session.node_usage.free(slice(None), numbers), 0).sum(axis=1)
        for number in range(len(free)):
            rows = session.gpu_types.rows((number,)) & self._usable
            free[merged.get(number, number)] += int(by_row[rows].sum())
        return free

    @cached_property
    def _usable(self) -> Bools:
        """Nodes that take pods at all, bool, shape (nodes,)."""
        nodes = self._session.snapshot.nodes.nodes
        return np.array(
            [not node.not_ready and not node.unschedulable for node in nodes], dtype=np.bool_
        )


def start_gpus(gang: Gang) -> int:
    """GPUs that a gang starts with, in thousandths: of as many members as it needs, largest first."""
    left = gang.members_at_start
    total = 0
    for pod_set in gang.pod_sets:
        count = min(left, len(pod_set.pods))
        total += count * pod_set.pod_class.gpu_thousandths
        left -= count
    return total


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
