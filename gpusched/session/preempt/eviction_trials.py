"""Victims found by trying: for gangs of several classes, and where a queue itself is full.

Every trial evicts, asks quotas and places the whole minimum, then takes all of it back. The
shortest beginning of the list of victims that makes room is found by doubling and halving; then
every victim that is not needed is spared. So a few dozen trials do, whatever the number of victims.
Gangs of one pod that are alike stand in one line, of which only as many are looked at as may go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import takewhile
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.victims.loss_limits import add_loss, may_go_ever, may_go_next
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.framework.proposal import allowed_victims, victim_sort_keys
from gpusched.session.framework.sort_keys import joined_sort_key
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.claims.victim_kinds import KindLine, VictimsInLines
from gpusched.session.preempt.pools.loss_accounts import LossAccounts
from gpusched.session.preempt.victim_pool import VictimGroup
from gpusched.session.preempt.victims import (
    COST_OF_GANG,
    CandidateVictim,
    SpareMembers,
    Victims,
)
from gpusched.session.state.session import Session

_STEP_SPARE, _STEP_WHOLE_GANG = 0, 1
_LOOKED_AT_FIRST: Final = 8
"""Gangs of one line that are looked at first; then twice as many as before."""


@define(eq=False)
class _Line:
    """Gangs of one running pod of one kind and preference: what they lose grows with the time that they run.

    Attributes:
        gangs: each with its place among all victims; those of a known line are looked up.
        known: the same gangs as a session left them to the next, with the number of their queue; None for none.
        closed: whether nobody of it is needed any more.
    """

    key: tuple[Any, ...]
    preference: tuple[Any, ...]
    gangs: list[tuple[Any, Gang]] = attrs.Factory(list)
    known: tuple[int, KindLine] | None = None
    closed: bool = False

    def youngest(self, begin: int, end: int) -> list[tuple[Any, Gang]]:
        """Some gangs with their places, those that run for the shortest time first."""
        if self.known is not None:
            number, line = self.known
            return [((number, gang.key), gang) for gang in line.youngest(begin, end)]
        if not begin:
            self.gangs.sort(key=lambda each: -each[1].placed[0].pod.scheduled)
        return self.gangs[begin:end]

    def is_open(self, _step: object) -> bool:
        """Whether steps of it are needed still."""
        return not self.closed


@frozen(slots=True, eq=False)
class EvictionStep:
    """Members of one gang that leave together.

    Attributes:
        rank: orders the steps of one source.
        last: whether no member of the gang stays.
        line: of gangs that are alike, in which it stands; None for none.
    """

    rank: tuple[Any, ...]
    gang: Gang
    seats: tuple[CandidateVictim, ...]
    last: bool
    line: _Line | None = None


@define(eq=False)
class _StepSource:
    """Gangs that stand together in the order in which is taken.

    Attributes:
        key: where they stand now.
        first: speaks for all.
        done: how many steps had their turn.
    """

    number: int
    key: tuple[Any, ...]
    first: Gang
    steps: list[EvictionStep] = attrs.Factory(list)
    done: int = 0


_Candidate = tuple[Any, Gang | KindLine]
"""A gang with its place among all victims, or a line with the number of its queue."""
_OrderedStep = tuple[tuple[Any, ...], EvictionStep]
"""A step behind all that orders it."""


class EvictionSteps:
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

    def steps_for(self, gangs: VictimsInLines | Iterable[Gang]) -> Iterable[EvictionStep]:
        """All steps with these gangs, in order; worked out as they are asked for where the order is fixed."""
        if not isinstance(gangs, VictimsInLines):
            gangs = VictimsInLines.one_by_one(gangs)
        hooks = self._session.hooks
        asked = [*(gang for _, gang in gangs.others), *(line.speaker for _, line in gangs.lines)]
        about = (self._claimant, asked, self._action)
        keys = victim_sort_keys(hooks.victim_orders, *about)
        preferences = victim_sort_keys(hooks.victim_preferences, *about)
        self.work += len(gangs.others) + sum(len(line) for _, line in gangs.lines)
        candidates: list[_Candidate] = [*gangs.others, *gangs.lines]
        known = [
            (about, key, preference)
            for about, key, preference in zip(candidates, keys, preferences, strict=True)
            if key is not None and preference is not None
        ]
        if self._fixed:
            return self._in_fixed_order(known)
        sources: dict[Any, _StepSource] = {}
        for (_, gang), key, preference in known:
            assert isinstance(gang, Gang), "lines are told where orders are fixed"
            steps = self._build_steps(gang, preference)
            if steps:
                source = sources.setdefault((gang.queue, key), _StepSource(len(sources), key, gang))
                source.steps += steps
        ends = self._allowed_to_end(
            step.gang for source in sources.values() for step in source.steps if step.last
        )
        for source in sources.values():
            source.steps = [s for s in source.steps if not s.last or s.gang.key in ends]
            source.steps.sort(key=lambda step: step.rank)
        return self._in_policy_order([source for source in sources.values() if source.steps])

    def _in_fixed_order(
        self, known: Sequence[tuple[_Candidate, tuple[Any, ...], tuple[Any, ...]]]
    ) -> Iterator[EvictionStep]:
        """Steps of gangs and lines that have a place, a key and a preference, those of lines as they are needed."""
        lines: dict[Any, _Line] = {}
        others: list[_OrderedStep] = []
        for (place, gang), key, preference in known:
            some = [(place, gang)] if isinstance(gang, Gang) else []
            if isinstance(gang, KindLine):
                if self._stands_in_line(gang.speaker):
                    lines[place, gang] = _Line(key, preference, known=(place, gang))
                else:
                    some = [((place, each.key), each) for each in gang.youngest(0, len(gang))]
            for where, each in some:
                if self._stands_in_line(each):
                    about = (each.running_kind, key, preference)
                    line = lines.get(about)
                    if line is None:
                        line = lines[about] = _Line(key, preference)
                    line.gangs.append((where, each))
                else:
                    steps = self._build_steps(each, preference)
                    others += [((key, step.rank, where), step) for step in steps]
        ends = self._allowed_to_end(step.gang for _, step in others if step.last)
        others = [each for each in others if not each[1].last or each[1].gang.key in ends]
        others.sort(key=lambda each: each[0])
        ordered = merge(others, *map(self._steps_of_line, lines.values()), key=lambda each: each[0])
        return (step for _, step in ordered)

    def _stands_in_line(self, gang: Gang) -> bool:
        """Whether the gang loses more the longer it runs, and nothing else makes it differ from others of its kind."""
        kind = gang.running_kind
        weighed = self._session.queue_accounts.pools is not None  # by the node
        return kind is not None and not kind.terms.checkpoint_ns and not weighed

    def _steps_of_line(self, line: _Line) -> Iterator[_OrderedStep]:
        """Steps in order, each with all that orders it, until the line is closed."""
        begin, count = 0, _LOOKED_AT_FIRST
        held: list[_OrderedStep] = []
        while not line.closed and (some := line.youngest(begin, begin + count)):
            found: list[_OrderedStep] = []
            for place, gang in some:
                steps = self._build_steps(gang, line.preference, line)
                found += [((line.key, step.rank, place), step) for step in steps]
            begin, count = begin + count, count * 2
            ends = self._allowed_to_end(step.gang for _, step in found)
            held += [each for each in found if each[1].gang.key in ends]
            # Those that cost as much as the last one may come before it: others of these may follow.
            dearest = held[-1][1].seats[0].cost if held else 0
            ready = [each for each in held if each[1].seats[0].cost < dearest]
            held = held[len(ready) :]
            yield from takewhile(line.is_open, sorted(ready, key=lambda each: each[0]))
        yield from takewhile(line.is_open, sorted(held, key=lambda each: each[0]))

    def _allowed_to_end(self, gangs: Iterable[Gang]) -> set[GangKey]:
        """Of gangs that could be stopped as a whole, those that policies let be stopped."""
        filters = self._session.hooks.stop_filters
        allowed = allowed_victims(filters, self._claimant, list(gangs), self._action)
        return {gang.key for gang in allowed}

    def _running_key(self, gang: Gang) -> tuple[Any, ...] | None:
        self.work += 1
        orders = self._session.hooks.victim_orders
        key: tuple[Any, ...] | None = joined_sort_key(orders, self._claimant, gang, self._action)
        return key

    @property
    def _fixed(self) -> bool:
        return self._session.hooks.victim_orders_fixed

    def _in_policy_order(self, sources: list[_StepSource]) -> list[EvictionStep]:
        if len(sources) < 2:
            return [step for source in sources for step in source.steps]
        statement = self._session.statement()
        ordered: list[EvictionStep] = []
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
            self._update_keys(waiting, step.gang)
        statement.discard()
        for source in sorted(waiting, key=lambda each: (each.key, each.number)):
            ordered += source.steps[source.done :]
        return ordered

    def _update_keys(self, waiting: Iterable[_StepSource], gang: Gang) -> None:
        """The keys of all whose queues the step concerns; of all where it is the claimant's."""
        queues = self._session.snapshot.queues

        def path(queue: str) -> tuple[str, ...]:
            node = queues.get(queue)
            return node.path if node is not None else ()

        touched = frozenset(path(gang.queue))
        all_of_them = not touched.isdisjoint(path(self._claimant.queue))
        for source in waiting:
            if all_of_them or not touched.isdisjoint(path(source.first.queue)):
                key = self._running_key(source.first)
                source.key = source.key if key is None else key

    def _build_steps(
        self, gang: Gang, preference: tuple[Any, ...], line: _Line | None = None
    ) -> list[EvictionStep]:
        """Spare members one by one, then the rest at once, where policies let the gang be stopped."""
        running = self._victims.running(gang)
        if running is None:
            return []
        tie = (*preference, -gang.created, tuple(-ord(letter) for letter in gang.key.name))
        spares = SpareMembers(running)
        parts = spares.in_eviction_order()
        leaving = {seat.member.pod.uid for part in parts for seat in part}
        staying = tuple(s for s in running.seats if s.member.pod.uid not in leaving)
        steps = [
            EvictionStep(
                (
                    gang.priority,
                    _STEP_SPARE,
                    len(seats) > 1,
                    sum(s.cost for s in seats),
                    *tie,
                    number,
                ),
                gang,
                seats,
                last=False,
            )
            for number, seats in enumerate(parts)
        ]
        if staying and running.may_end:
            cost = sum(seat.cost for seat in staying) + COST_OF_GANG
            steps.append(
                EvictionStep(
                    (gang.priority, _STEP_WHOLE_GANG, False, cost, *tie, 0),
                    gang,
                    staying,
                    True,
                    line,
                )
            )
        return steps


class EvictionTrials:
    """See the module.

    Args:
        session: looked at as it will be.
        victims: of the session.
        claimant: with those members only for which others may be evicted.
        action: ``preempt`` or ``reclaim``.
        accounts: tells those of the queues of all possible victims.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        claimant: Gang,
        *,
        action: str,
        accounts: Callable[[], LossAccounts],
    ) -> None:
        self._session = session
        self._claimant = claimant
        self._accounts = accounts
        self._steps = EvictionSteps(session, victims, claimant, action)
        self._left = list(victims.left)
        self._held_back: set[GangKey] = set()
        self.work = 0
        """Steps taken, in the units of ``Chooser.work``."""

    def finds_room(self) -> bool:
        """Whether the claimant has a place and nobody leaves, as where only reserved room is in the way."""
        return self._claimant_rows(()) is not None

    def find_fewest_victims(
        self, gangs: VictimsInLines | Iterable[Gang]
    ) -> list[VictimGroup] | None:
        """Victims in order, one at least; None when even all of them do not make room.

        Args:
            gangs: who may be a victim; policies agreed already.
        """
        ordered = self._steps.steps_for(gangs)
        self.work += self._steps.work
        steps = self._allowed_steps(ordered, self._accounts())
        rows = self._claimant_rows(steps)
        if rows is None:
            return None
        low, high = 0, 1
        while high < len(steps) and self._claimant_rows(steps[:high]) is None:
            low, high = high, high * 2
        high = min(high, len(steps))
        while high - low > 1:
            middle = (low + high) // 2
            if self._claimant_rows(steps[:middle]) is None:
                low = middle
            else:
                high = middle
        return [VictimGroup(step.gang, step.seats) for step in self._spare_unneeded(steps[:high])]

    def _spare_unneeded(self, steps: list[EvictionStep]) -> list[EvictionStep]:
        """Without victims that are not needed: first all whose rooms are not used, then each."""
        rows = self._claimant_rows(steps)
        if rows is not None:
            near = {step.gang.key for step in steps if any(s.row in rows for s in step.seats)}
            fewer = [step for step in steps if step.gang.key in near]
            if len(fewer) < len(steps) and self._claimant_rows(fewer) is not None:
                steps = fewer
        for step in reversed(steps):
            ended = any(other.last and other.gang.key == step.gang.key for other in steps)
            if ended and not step.last:
                continue  # the gang ends as a whole, whoever was spare before
            fewer = [other for other in steps if other is not step]
            if self._claimant_rows(fewer) is not None:
                steps = fewer
        return steps

    def _claimant_rows(self, steps: Sequence[EvictionStep]) -> set[int] | None:
        """Rows on which the claimant would be after these steps; None where it finds no place."""
        session = self._session
        statement = session.statement()
        for step in steps:
            for seat in step.seats:
                session.evict(statement, step.gang, seat.member)
        self.work += len(steps) + 100
        rows = None
        if not first_refusal(session.hooks.quota_checks, self._claimant).refuses and (
            place_ignoring_reservations(session, self._claimant, statement) is None
        ):
            rows = {place.row for place in statement.assignments}
        statement.discard()
        return rows

    def _allowed_steps(
        self, ordered: Iterable[EvictionStep], accounts: LossAccounts
    ) -> list[EvictionStep]:
        """Steps that budgets and queues allow one after another, as many of them as are tried at most.

        What is freed inside a department may let it take from others: those come after that.
        """
        lost: dict[int, list[int]] = {}
        allowed: list[EvictionStep] = []
        waiting, found = ordered, True
        while found:
            found, later = False, list[EvictionStep]()
            for step in waiting:
                taken = [accounts.taken_with(seat.member.pod.pod_class) for seat in step.seats]
                loss = accounts.bundle_loss(step.gang, [taken])
                if not may_go_next(accounts.limits, lost, loss):
                    if may_go_ever(accounts.limits, lost, loss):
                        later.append(step)
                    elif step.line is not None:
                        step.line.closed = True  # nor may others that are alike
                elif self._draw_budgets(step):
                    add_loss(lost, loss.accounts, loss.taken)
                    allowed.append(step)
                    found = True
                    if len(allowed) == limits.VICTIM_TRIALS_MAX:
                        return allowed
            waiting = later
        return allowed

    def _draw_budgets(self, step: EvictionStep) -> bool:
        """Whether disruption budgets allow the step after those before it."""
        drawn = Counter(number for seat in step.seats for number in seat.budgets)
        short = any(self._left[number] < count for number, count in drawn.items())
        if short or step.gang.key in self._held_back:
            # Where a spare member must stay, the rest of its gang cannot end either.
            self._held_back.add(step.gang.key)
            return False
        for number, count in drawn.items():
            self._left[number] -= count
        return True
