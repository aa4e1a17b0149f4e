"""Finds gangs that are bound in part, and remembers which of them never were whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

import attrs
import msgspec

from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.cache.gangs.gang import Gang
from gpusched.commit.recover import PartialGang, recovery_due_at
from gpusched.session.allocate.gang_repair import was_whole
from gpusched.session.framework.reasons import truncate_message
from gpusched.session.state.plan import GangStatus

_STARTED_PHASES: Final = ("Running", "Unknown", "Completed")


class _StatusCounts(msgspec.Struct, gc=False):
    """The count of a PodGroup's status that is read back."""

    scheduled: int | None = None


class PartialGangs:
    """Gangs bound in part, from session to session."""

    def __init__(self) -> None:
        self._in_part: set[UID] = set()
        """Gangs that were bound in part when they were looked at last, and not whole before."""

    def find_partial(
        self,
        gangs: Iterable[Gang],
        is_committed: Callable[[GangKey], bool],
        contain: Callable[[str, GangKey], AbstractContextManager[object]],
    ) -> list[PartialGang]:
        """Gangs with members bound, but fewer than they need, whose commit is not under way.

        Args:
            gangs: of the snapshot.
            is_committed: whether a gang's commit is under way.
            contain: contains what raises for one gang.
        """
        partial: list[PartialGang] = []
        in_part: set[UID] = set()
        for gang in gangs:
            if not gang.placed or not gang.missing_members:
                continue
            known = gang.uid in self._in_part
            if is_committed(gang.key):
                in_part.update({gang.uid} if known else ())
                continue
            with contain("recovery", gang.key):
                found = _partial_gang(gang, known_in_part=known)
                partial.append(found)
                in_part.update({gang.uid} if recovery_due_at(found) is not None else ())
        self._in_part = in_part
        return partial


def told_with_kept_pods(
    statuses: Sequence[GangStatus], gangs: Iterable[Gang], kept: Mapping[UID, str]
) -> tuple[GangStatus, ...]:
    """Statuses in which gangs bound in part are told which of their pods a budget protects.

    Args:
        statuses: of a session.
        gangs: of its snapshot.
        kept: why pods cannot be evicted, for disruption budgets, by UID.
    """
    protected: dict[GangKey, list[tuple[ObjectKey, str]]] = {}
    for gang in gangs if kept else ():
        for member in gang.placed if gang.missing_members else ():
            why = kept.get(member.pod.uid)
            if why:
                protected.setdefault(gang.key, []).append((member.pod.key, why))
    return tuple(
        _with_kept_pods(status, sorted(protected[status.gang]))
        if status.gang in protected and not status.is_scheduled
        else status
        for status in statuses
    )


def _with_kept_pods(status: GangStatus, kept: Sequence[tuple[ObjectKey, str]]) -> GangStatus:
    key, why = kept[0]
    message = (
        f"{status.scheduled.message}; {len(kept)} of its pods that are bound cannot be taken back "
        f"({key}: {why}): make the budget allow a disruption, or delete the pod"
    )
    said = attrs.evolve(status.scheduled, message=truncate_message(message))
    return attrs.evolve(status, scheduled=said)


def _partial_gang(gang: Gang, *, known_in_part: bool) -> PartialGang:
    group = gang.pod_group
    return PartialGang(
        key=gang.key,
        uid=gang.uid,
        min_member=gang.min_member,
        bound=tuple(
            (member.pod.key, member.pod.uid, member.pod.plan, member.pod.scheduled)
            for member in gang.placed
        ),
        ever_started=group is not None and group.phase in _STARTED_PHASES,
        known_in_part=known_in_part
        or (group is not None and _tells_in_part(group, len(gang.placed))),
        seems_lost=was_whole(gang),
        priority=gang.priority,
    )


def _tells_in_part(group: PodGroup, placed: int) -> bool:
    """Whether the status was written when no fewer members had places, and not all of them.

    A gang that was whole has a phase that says so for ever. A status that knows of fewer members than
    there are was written before, so that it tells nothing of what came after.
    """
    if group.phase in _STARTED_PHASES:
        return False
    try:
        told = msgspec.json.decode(group.status, type=_StatusCounts).scheduled or 0
    except msgspec.MsgspecError:
        return False
    return told >= placed
