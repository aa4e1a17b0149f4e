"""Moves that are recorded on PodGroups and Jobs, and those that are being recorded."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.serializer.seal import Seal
from gpusched.base.limits import MOVED_AHEAD_MAX_S
from gpusched.cache.store import MovableStore


class MoveRecords:
    """See the module.

    Args:
        groups, jobs: as last seen; they change under it.
        seal: by which our records are told from those that a tenant wrote.
    """

    def __init__(
        self,
        groups: MovableStore[PodGroup],
        jobs: MovableStore[Job],
        seal: Callable[[], Seal],
    ) -> None:
        self._groups = groups
        self._jobs = jobs
        self._seal = seal
        self._marks: dict[GangKey, tuple[UID, MoveRecord]] = {}

    def mark_move(self, gang: GangKey, uid: UID, move: MoveRecord) -> None:
        """It is being written on the object of that UID: shown at once."""
        self._marks[gang] = (uid, move)

    def remove_pending(self, gang: GangKey, move: MoveRecord) -> None:
        """It could not be written, or the watch has had its time to show it."""
        if gang in self._marks and self._marks[gang][1] == move:
            del self._marks[gang]

    def recent_moves(self, now: float, pause_s: float) -> tuple[tuple[GangKey, MoveRecord], ...]:
        """The last move of each gang that was moved within ``pause_s``, sorted."""
        found: dict[GangKey, MoveRecord] = {}
        for kind, shown in (("PodGroup", self._groups.moved), ("Job", self._jobs.moved)):
            for key, each in shown.items():
                if each.move is not None and self._is_believed(each, each.move, now, pause_s):
                    found[GangKey(kind, *key)] = each.move
        for gang, (uid, move) in self._marks.items():
            key = ObjectKey(gang.namespace, gang.name)
            store = self._groups if gang.kind == "PodGroup" else self._jobs
            known = store.items.get(key)
            if known is not None and known.uid == uid:
                found[gang] = move
        return tuple(
            (gang, move) for gang, move in sorted(found.items()) if now - move.at < pause_s
        )

    def _is_believed(
        self, of: PodGroup | Job, move: MoveRecord, now: float, pause_s: float
    ) -> bool:
        """Whether we wrote it there, of late and after the object was made."""
        return (
            now - pause_s < move.at <= now + MOVED_AHEAD_MAX_S
            and move.at >= of.created - MOVED_AHEAD_MAX_S
            and self._seal().fits_move(of.uid, move)
        )
