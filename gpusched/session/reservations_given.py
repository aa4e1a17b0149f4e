"""Who runs only until the holder of a reservation is due: it may be preempted for it then."""

from __future__ import annotations

from gpusched.cache.gangs import Gang
from gpusched.session.reservations_profile import Release
from gpusched.session.session import Session


class GivingWay:
    """Which gangs of a holder's own queue preemption can take away for it, and from when on.

    Only what preemption itself would grant counts: lower priority, preemptible, no disruption
    budget over its pods, and its protected time over. Room of other queues is reclaim's to give;
    nobody can tell in advance what will be above its share by then.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._possible = "preempt" in session.actions

    def ready_by(self, gang: Gang, holder: Gang, *, began: int) -> int | None:
        """From when on the holder may have the gang's room; None for never.

        Args:
            gang: that runs, or would start.
            holder: of the reservation.
            began: when the gang started or would start, whole seconds since the epoch.
        """
        if (
            not self._possible
            or gang.queue != holder.queue
            or gang.priority >= holder.priority
            or not gang.terms.preemptible
            or not all(pod.may_preempt for task in holder.tasks for pod in task.pods)
            or self._guarded(gang)
        ):
            return None
        return began + -(-self._protected_ns(gang) // 10**9)

    def releases(self, holder: Gang, known: dict[str, list[tuple[Release, Gang]]]) -> list[Release]:
        """The room of running gangs as the holder may have it, at the times from which on.

        Args:
            holder: of the reservation.
            known: running gangs by queue, each with its room and the time when it started.
        """
        found = []
        for room, gang in known.get(holder.queue, ()):
            ready = self.ready_by(gang, holder, began=room.time)
            if ready is not None:
                found.append(
                    Release(ready, room.rows, room.amounts, gang.key, room.path, room.requests)
                )
        return found

    def _protected_ns(self, gang: Gang) -> int:
        if gang.terms.min_runtime_ns:
            return gang.terms.min_runtime_ns
        for name in self._session.path(gang):
            node = self._session.snapshot.queues.get(name)
            if node is not None and node.queue.min_runtime_ns:
                return node.queue.min_runtime_ns
        return 0

    def _guarded(self, gang: Gang) -> bool:
        pods = [pod for task in gang.tasks for pod in task.pods]
        pods += [member.pod for member in gang.placed]
        return any(
            budget.selector is not None
            and budget.namespace == pod.namespace
            and budget.selector.matches(pod.labels)
            for budget in self._session.snapshot.budgets
            for pod in pods
        )
