"""What follows for queues and reservations when a gang is given or nominated places."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.api.pod.pod import PodClass
from gpusched.base.errors import InvariantBroken
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueTree
from gpusched.session.framework.accounts.queue_accounts import QueueAccounts
from gpusched.session.state.decided.reservation_tracker import ReservationTracker
from gpusched.session.state.statement import Assignment, Statement


class PlacementEffects:
    """Accounts of queues and reservations of one session, kept in step with its places.

    Args:
        queues: of the snapshot.
        accounts: what queues hold, charged from the leaf up.
    """

    def __init__(self, queues: QueueTree, accounts: QueueAccounts) -> None:
        self._queues = queues
        self._accounts = accounts
        self.reservations: ReservationTracker | None = None
        """Room reserved for blocked gangs; None until an action reserves room."""
        self.enforces_reservations = False
        """Whether it is a fault to commit room that breaks a reservation."""

    def queue_path(self, gang: Gang) -> tuple[str, ...]:
        """Names of the gang's queue and those above it, and of accounts of its user there.

        Empty when the queue does not exist.
        """
        queue = self._queues.get(gang.queue)
        return queue.path + gang.accounts if queue else ()

    def broken_reservation(self, gang: Gang, statement: Statement) -> Gang | None:
        """The gang whose reservation the statement breaks, where that is a fault; else None."""
        if not self.enforces_reservations or self.reservations is None or statement.unnominated:
            return None
        reserved = self.reservations.find_conflict(gang, statement)
        return None if reserved is None else reserved.gang

    def must_leave_reservations(self, gang: Gang, statement: Statement) -> None:
        """Raise where the statement breaks a reservation and that is a fault.

        Raises:
            InvariantBroken: it does.
        """
        other = self.broken_reservation(gang, statement)
        if other is not None:
            raise InvariantBroken(
                f"{gang.key} would take room that is reserved for {other.key}; "
                "place_minimum and grow find room that is not"
            )

    def charge_placed(self, gang: Gang, places: Sequence[Assignment], *, times: int = 1) -> None:
        """Charge the gang's queues with places that its pods are bound to; -1 takes them off."""
        path = self.queue_path(gang)
        if len(places) == 1:
            self._accounts.charge_placed(path, places[0].pod.pod_class.charged, times=times)
        else:
            counts: dict[str, tuple[PodClass, int]] = {}
            for place in places:
                digest = place.pod.pod_class.digest
                known = counts.get(digest)
                counts[digest] = (place.pod.pod_class, known[1] + 1 if known else 1)
            for pod_class, count in counts.values():
                self._accounts.charge_placed(path, pod_class.charged, times=count * times)
        self._charge_not_preemptible(gang, places, times=times)

    def charge_nominated(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Charge the gang's queues with places that its pods will have once they are free."""
        path = self.queue_path(gang)
        for place in places:
            self._accounts.charge_nominated(path, place.pod.pod_class.charged)
        self._charge_not_preemptible(gang, places)

    def announce_started(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Tell reservations that the gang was given or nominated places."""
        if self.reservations is not None and places:
            self.reservations.note_started(gang, places)

    def announce_unassigned(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Tell reservations that places which the gang was given are free again."""
        if self.reservations is not None and places:
            self.reservations.note_unassigned(gang, places)

    def _charge_not_preemptible(
        self, gang: Gang, places: Sequence[Assignment], *, times: int = 1
    ) -> None:
        """Note what cannot be taken back, as the gang that gets it is not preemptible."""
        if gang.is_lasting:
            path = self.queue_path(gang)
            for place in places:
                self._accounts.charge_not_preemptible(
                    path, place.pod.pod_class.charged, times=times
                )
