"""What could be done for a claimant, one step after another, in the order in which it would be.

A step is a spare member that leaves, a sub-group that others can stand in for, or all that is
left of a gang. Steps of one source follow each other; whose turn among sources is next is asked
of the policies after every step, as things would stand then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.session.keys import comparable
from gpusched.session.session import Session
from gpusched.session.verdict import first_refusal
from gpusched.session.victim_spares import Spares
from gpusched.session.victims import A_GANG_BROKEN, Running, Seat, Victims

_SAFE, _WHOLE = 0, 1


@attrs.frozen(slots=True, eq=False)
class Step:
    """Members of one gang that leave together.

    Attributes:
        rank: orders the steps of one source.
        last: whether nobody of the gang stays.
    """

    rank: tuple[Any, ...]
    gang: Gang
    seats: tuple[Seat, ...]
    last: bool


@attrs.define(eq=False)
class _Source:
    """Gangs that stand together in the order in which is taken.

    Attributes:
        key: where they stand now.
        first: speaks for all.
        done: how many steps had their turn.
    """

    number: int
    key: tuple[Any, ...]
    first: Gang
    steps: list[Step] = attrs.Factory(list)
    done: int = 0


class Steps:
    """See the module.

    Args:
        session: looked at as it will be.
        victims: of the session.
        claimant: for whom.
        action: ``preempt`` or ``reclaim``.
    """

    def __init__(self, session: Session, victims: Victims, claimant: Gang, action: str) -> None:
        self._session = session
        self._victims = victims
        self._claimant = claimant
        self._action = action
        self.work = 0
        """Keys that were asked for."""

    def of(self, gangs: Iterable[Gang]) -> list[Step]:
        """All steps with these gangs, in order."""
        sources: dict[Any, _Source] = {}
        for gang in gangs:
            running = self._victims.running(gang)
            key = self._key(gang)
            if running is None or key is None:
                continue
            place = (gang.queue if key else "", key)
            source = sources.setdefault(place, _Source(len(sources), key, gang))
            source.steps += self._steps(running)
        for source in sources.values():
            source.steps.sort(key=lambda step: step.rank)
        return self._in_turn([source for source in sources.values() if source.steps])

    def _key(self, gang: Gang) -> tuple[Any, ...] | None:
        self.work += 1
        orders = self._session.hooks.victim_orders
        key: tuple[Any, ...] | None = comparable(orders, self._claimant, gang, self._action)
        return key

    def _in_turn(self, sources: list[_Source]) -> list[Step]:
        if len(sources) < 2:
            return [step for source in sources for step in source.steps]
        statement = self._session.statement()
        ordered: list[Step] = []
        waiting = list(sources)
        most = self.work + limits.VICTIM_TRIALS_MAX
        while waiting:
            source = min(waiting, key=lambda each: (each.key, each.number))
            step = source.steps[source.done]
            ordered.append(step)
            source.done += 1
            if source.done == len(source.steps):
                waiting.remove(source)
            if self.work > most:
                break
            for seat in step.seats:
                self._session.evict(statement, step.gang, seat.member)
            self._look_again(waiting, step.gang)
        statement.discard()
        for source in sorted(waiting, key=lambda each: (each.key, each.number)):
            ordered += source.steps[source.done :]
        return ordered

    def _look_again(self, waiting: Iterable[_Source], gang: Gang) -> None:
        """The keys of all whose queues the step concerns; of everybody where it is the claimant's."""
        queues = self._session.snapshot.queues

        def path(queue: str) -> tuple[str, ...]:
            node = queues.get(queue)
            return node.path if node is not None else ()

        touched = frozenset(path(gang.queue))
        all_of_them = not touched.isdisjoint(path(self._claimant.queue))
        for source in waiting:
            if all_of_them or not touched.isdisjoint(path(source.first.queue)):
                key = self._key(source.first)
                source.key = source.key if key is None else key

    def _steps(self, running: Running) -> list[Step]:
        gang = running.gang
        tie = (-gang.created, tuple(-ord(letter) for letter in gang.key.name))
        spares = Spares(running)
        parts = spares.in_turn()
        leaving = {seat.member.pod.uid for part in parts for seat in part}
        staying = tuple(s for s in running.seats if s.member.pod.uid not in leaving)
        steps = [
            Step(
                (gang.priority, _SAFE, len(seats) > 1, sum(s.cost for s in seats), *tie, number),
                gang,
                seats,
                last=False,
            )
            for number, seats in enumerate(parts)
        ]
        if not staying or not running.may_end:
            return steps
        checks = self._session.hooks.stop_filters
        if not first_refusal(checks, self._claimant, gang, self._action).refuses:
            cost = sum(seat.cost for seat in staying)
            cost += A_GANG_BROKEN if gang.min_member > 1 else 0
            steps.append(Step((gang.priority, _WHOLE, False, cost, *tie, 0), gang, staying, True))
        return steps
