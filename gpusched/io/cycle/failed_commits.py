"""Gangs whose commit raised are left out of snapshots until they change."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.meta.identity import GangKey
from gpusched.cache.snapshot import Snapshot
from gpusched.io.cycle.fault_report import FaultReport, fault_of_gang_in_hand
from gpusched.session.containment.set_aside import Containment
from gpusched.session.containment.suspects import gang_suspect


class FailedCommits:
    """See the module. One per cycle; everything is called in the event loop.

    Args:
        faults: tells it; what raised is counted already.
        wake: asks for a session.
    """

    def __init__(self, faults: FaultReport, wake: Callable[[], None]) -> None:
        self._faults = faults
        self._wake = wake
        self._failed: dict[GangKey, Exception] = {}
        self._known: set[GangKey] = set()

    def note_failed(self, gang: GangKey, error: Exception) -> None:
        """A commit that was under way raised."""
        self._failed[gang] = error
        self._wake()

    def note_known(self, gang: GangKey) -> None:
        """It is known from the API what became of such a commit."""
        self._known.add(gang)
        self._wake()

    def leave_out(self, containment: Containment, snapshot: Snapshot) -> None:
        """The snapshot without gangs whose commit raised, unless all their members are placed."""
        if not self._failed and not self._known:
            return
        failed, self._failed = self._failed, {}
        found = {
            gang_suspect(key): fault_of_gang_in_hand("commit", error, key)
            for key, error in failed.items()
        }
        self._faults.set_aside(containment.set_aside(snapshot, found), snapshot)
        known, self._known = self._known, set()
        waiting = {gang.key for gang in snapshot.gangs if gang.pod_sets}
        containment.readmit_suspects(gang_suspect(key) for key in known - waiting)
