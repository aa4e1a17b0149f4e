"""The line as the daemon's sessions look at it, part by part, played forward once for all changes of one gang's demands.

A change by which only one gang asks for something else leaves the others as they are: what they take before its
turn comes is what they take without the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpusched.advice.start_answer import starting_gangs
from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Simulation, SimulationCase
from gpusched.session.decide import Decision
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.order.work_budget import STRICT_FIFO
from gpusched.session.state.plan import GangStatus
from gpusched.session.state.policy import Policy

PLAYED_S: Final = 180.0
SESSIONS_MAX: Final = 12
_ROUNDS_MAX: Final = 8
"""Sessions that are played for all changes; within them every gang has had a turn, but in strict lines."""
_STRICT_MAX: Final = 2
"""The same in a strict line, where those that come after the first have no turn until these have started."""
_IN_LINE: Final = ("Fifo", STRICT_FIFO)


@frozen
class PlayedSession:
    """A session that looks at a part of the line.

    Attributes:
        snapshot: what it was decided on.
        looked_at: gangs that it refused.
        served: gangs that got something in it.
    """

    snapshot: Snapshot
    looked_at: frozenset[GangKey] = frozenset()
    served: frozenset[GangKey] = frozenset()

    @property
    def visited(self) -> frozenset[GangKey]:
        """Gangs that it was about."""
        return self.looked_at | self.served

    def has_turn(self, gang: Gang, ordering: str) -> bool:
        """Whether the gang would be looked at; with another place in line, where one is that would come after it.

        Args:
            gang: as it would wait.
            ordering: how its queue would be ordered.
        """
        before = next((each for each in self.snapshot.gangs if each.key == gang.key), None)
        place_before = before and (before.queue, before.priority, self.ordering_of(before))
        if place_before == (gang.queue, gang.priority, ordering):
            return gang.key in self.looked_at
        place, visited = _place(gang, ordering), self.visited
        return any(
            each.key in visited
            and each.queue == gang.queue
            and (each.key.namespace == gang.key.namespace or ordering == STRICT_FIFO)
            and _place(each, ordering) > place
            for each in self.snapshot.gangs
            if each.key != gang.key
        )

    def ordering_of(self, gang: Gang) -> str:
        """How its queue is ordered; empty where there is no such queue."""
        leaf = self.snapshot.queues.get(gang.queue)
        return leaf.queue.ordering if leaf is not None else ""


def _place(gang: Gang, ordering: str) -> tuple[int, float]:
    return (0 if ordering in _IN_LINE else -gang.priority, gang.waits_since)


@frozen
class TurnAnswer:
    """What a gang finds when its turn comes.

    Attributes:
        starts: whether it starts then; None where its turn does not come soon.
        decision: of the session of its turn; None where it was refused before, or that session is not known.
        takers: gangs that got something before, sorted.
        message: why it waits.
    """

    starts: bool | None
    takers: tuple[GangKey, ...] = ()
    message: str = ""
    decision: Decision | None = None


class PlayedRounds:
    """The line as it is, played as far as somebody asks.

    Args:
        objects: the cluster.
        config: of the daemon, with its bounds for a session.
        policy: that decides.
        now: when it begins, seconds since the Unix epoch.
    """

    def __init__(
        self, objects: Iterable[Obj], config: Config, policy: Policy, *, now: float
    ) -> None:
        case = SimulationCase(
            name="rounds",
            config=config,
            policy=policy,
            objects=list(objects),
            until=PLAYED_S,
            epoch=now,
            decided=self._note,
            enough=lambda _sessions: True,
        )
        self._simulation = Simulation(case)
        self._simulation.begin()
        self._sessions: list[PlayedSession] = []

    def sessions(self, ordering: str) -> Iterator[PlayedSession]:
        """From the first on, until nothing is decided any more or it is far enough ahead for a queue so ordered."""
        for number in range(_ROUNDS_MAX):
            if number == len(self._sessions):
                self._simulation.go_on()
            if number == len(self._sessions):
                return
            yield self._sessions[number]
            if number + 1 == _STRICT_MAX and ordering == STRICT_FIFO:
                return

    def _note(self, decision: Decision) -> None:
        played = PlayedSession(
            self._simulation.snapshot,
            looked_at=frozenset(each.gang for each in decision.plan.gangs if is_refused(each)),
            served=frozenset(starting_gangs(decision)),
        )
        self._sessions.append(played)


def is_refused(status: GangStatus) -> bool:
    """Whether a session has looked at a gang that waits, and no room is being freed for it."""
    waits = not (status.is_scheduled or status.provisional or status.nominated)
    return waits and status.scheduled.reason != Reason.PREEMPTION_IN_PROGRESS
