"""Moves that are recorded on PodGroups and Jobs, and those that are being recorded."""

from __future__ import annotations

from collections.abc import Mapping

from gpusched.limits import MOVED_AGAIN_S
from gpusched.objects.group import PodGroup
from gpusched.objects.meta import UID, GangKey, ObjectKey
from gpusched.objects.move import Move
from gpusched.objects.others import Job


class Moves:
    """See the module.

    Args:
        groups, jobs: as last seen; they change under it.
    """

    def __init__(self, groups: Mapping[ObjectKey, PodGroup], jobs: Mapping[ObjectKey, Job]) -> None:
        self._groups = groups
        self._jobs = jobs
        self._marks: dict[GangKey, tuple[UID, Move]] = {}

    def mark(self, gang: GangKey, uid: UID, move: Move) -> None:
        """It is being written on the object of that UID: shown at once."""
        self._marks[gang] = (uid, move)

    def unmark(self, gang: GangKey, move: Move) -> None:
        """It could not be written, or the watch has had its time to show it."""
        if gang in self._marks and self._marks[gang][1] == move:
            del self._marks[gang]

    def known(self, now: float) -> tuple[tuple[GangKey, Move], ...]:
        """The last move of each gang that was moved of late, sorted."""
        found: dict[GangKey, Move] = {}
        for key, group in self._groups.items():
            if group.move is not None:
                found[GangKey("PodGroup", *key)] = group.move
        for key, job in self._jobs.items():
            if job.move is not None:
                found[GangKey("Job", *key)] = job.move
        for gang, (uid, move) in self._marks.items():
            key = ObjectKey(gang.namespace, gang.name)
            known = self._groups.get(key) if gang.kind == "PodGroup" else self._jobs.get(key)
            if known is not None and known.uid == uid:
                found[gang] = move
        return tuple(
            (gang, move) for gang, move in sorted(found.items()) if now - move.at < MOVED_AGAIN_S
        )
