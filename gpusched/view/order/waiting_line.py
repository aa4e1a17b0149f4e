"""The order of gangs that wait, put together from their turns, each of which names the one before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpusched.session.framework.reasons import Reason
from gpusched.view.access import ViewAccess
from gpusched.view.frames import QueueTermsPut, TurnPut
from gpusched.view.model import GangOfEvent, GangView, OrderTermView, OrderView


class WaitingLine:
    """Turns by gang; positions are counted when they are asked for after a change."""

    def __init__(self) -> None:
        self._turns: dict[str, TurnPut] = {}
        self._queue_terms: dict[int, tuple[OrderTermView, ...]] = {}
        self._places: dict[str, tuple[int, int]] | None = None
        self._in_queue: Counter[str] = Counter()

    def put(self, turn: TurnPut) -> None:
        """A turn is new or another."""
        self._turns[turn.gang] = turn
        self._places = None

    def put_queue_terms(self, put: QueueTermsPut) -> None:
        """Terms of a path of queues are new or others."""
        self._queue_terms[put.path] = put.terms

    def drop(self, gangs: Iterable[str], paths: Iterable[int] = ()) -> None:
        """These gangs have no turn any more, and nothing refers to these terms of queues."""
        for path in paths:
            self._queue_terms.pop(path, None)
        for gang in gangs:
            if self._turns.pop(gang, None) is not None:
                self._places = None

    def keys(self, gangs: Mapping[str, GangView]) -> list[str]:
        """Gangs in the order of their turns.

        Args:
            gangs: all that there are, by ``NAMESPACE/KIND/NAME``.
        """
        return list(self._counted(gangs))

    def order(self, gang: GangView, gangs: Mapping[str, GangView], access: ViewAccess) -> OrderView:
        """Where a gang is, and why; without numbers and names of gangs that a user may not see."""
        places = self._counted(gangs)
        place, turn = places.get(gang.key), self._turns.get(gang.key)
        if place is None or turn is None:
            if is_freeing_room(gang):
                return OrderView(message="had its turn: room is being freed for it")
            reason = gang.reason or "nothing is decided about it yet"
            return OrderView(message=f"is not in line: {reason}")
        everything = access.namespaces is None
        after = _gang_of(turn.before) if turn.before else None
        hidden = after is not None and not access.sees_namespace(after.namespace)
        return OrderView(
            position=place[0],
            total=len(places) if everything else 0,
            queue_position=place[1],
            queue_total=self._in_queue[gang.queue] if everything else 0,
            terms=(*self._queue_terms.get(turn.path, ()), *turn.terms),
            after=None if hidden else after,
            decided_by=turn.decided_by,
            message=_message(turn, None if hidden else after),
        )

    def _counted(self, gangs: Mapping[str, GangView]) -> dict[str, tuple[int, int]]:
        """Positions among all, and in their queues, in their order."""
        if self._places is None:
            self._places, self._in_queue = {}, Counter()
            following = {turn.before: key for key, turn in self._turns.items()}
            here = following.get("")
            while here is not None and here not in self._places:
                gang = gangs.get(here)
                queue = gang.queue if gang is not None else ""
                self._in_queue[queue] += 1
                self._places[here] = (len(self._places) + 1, self._in_queue[queue])
                here = following.get(here)
        return self._places


def is_freeing_room(gang: GangView) -> bool:
    """Whether a gang that waits had its turn, and room is being freed for it."""
    return gang.reason == Reason.PREEMPTION_IN_PROGRESS


def _message(turn: TurnPut, after: GangOfEvent | None) -> str:
    if not turn.before:
        return "is the first in line"
    if after is None:
        return f"is after a gang that this user may not see because {turn.here}"
    who = f"{after.kind} {after.namespace}/{after.name}"
    return f"is after {who} because {turn.here}; that one: {turn.there}"


def _gang_of(key: str) -> GangOfEvent:
    namespace, kind, name = key.split("/", 2)
    return GangOfEvent(namespace=namespace, kind=kind, name=name)
