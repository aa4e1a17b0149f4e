"""Victims found by trying: for gangs of several classes, and where a queue itself is full.

Every trial evicts, asks quotas and places the whole minimum, then takes all of it back. The
shortest beginning of the list of victims that makes room is found by doubling and halving; then
everybody who is not needed is spared. So a few dozen trials do, whatever the number of victims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpusched import limits
from gpusched.cache.gangs import Gang
from gpusched.objects.meta import GangKey
from gpusched.session.placing import place_minimum
from gpusched.session.proof_steps import Step, Steps
from gpusched.session.session import Session
from gpusched.session.verdict import first_refusal
from gpusched.session.victim_pool import Leaving
from gpusched.session.victims import Victims


class Prover:
    """See the module.

    Args:
        session: looked at as it will be.
        victims: of the session.
        claimant: for whom; with those members only for whom may be evicted.
        action: ``preempt`` or ``reclaim``.
        gangs: who may be a victim; policies agreed already.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        claimant: Gang,
        *,
        action: str,
        gangs: Iterable[Gang],
    ) -> None:
        self._session = session
        self._claimant = claimant
        self._left = list(victims.left)
        self._held_back: set[GangKey] = set()
        self.work = 0
        """Steps taken, in the units of ``Chooser.work``."""
        steps = Steps(session, victims, claimant, action)
        ordered = steps.of(gangs)
        self.work += steps.work
        self._all = [step for step in ordered if self._draw(step)][: limits.VICTIM_TRIALS_MAX]

    def fewest(self) -> list[Leaving] | None:
        """Who leaves, in order; None when not even everybody's leaving makes room."""
        steps = self._all
        rows = self._rows(steps)
        if rows is None:
            return None
        low, high = 0, 1
        while high < len(steps) and self._rows(steps[:high]) is None:
            low, high = high, high * 2
        high = min(high, len(steps))
        while high - low > 1:
            middle = (low + high) // 2
            if self._rows(steps[:middle]) is None:
                low = middle
            else:
                high = middle
        return [Leaving(step.gang, step.seats) for step in self._spared(steps[:high])]

    def _spared(self, steps: list[Step]) -> list[Step]:
        """Without those who are not needed: first all whose rooms are not used, then each."""
        rows = self._rows(steps)
        if rows is not None:
            near = {step.gang.key for step in steps if any(s.row in rows for s in step.seats)}
            fewer = [step for step in steps if step.gang.key in near]
            if len(fewer) < len(steps) and self._rows(fewer) is not None:
                steps = fewer
        for step in reversed(steps):
            ended = any(other.last and other.gang.key == step.gang.key for other in steps)
            if ended and not step.last:
                continue  # the gang ends as a whole, whoever was spare before
            fewer = [other for other in steps if other is not step]
            if self._rows(fewer) is not None:
                steps = fewer
        return steps

    def _rows(self, steps: Sequence[Step]) -> set[int] | None:
        """Rows on which the claimant would be after these steps; None where it finds no place."""
        session = self._session
        statement = session.statement()
        for step in steps:
            for seat in step.seats:
                session.evict(statement, step.gang, seat.member)
        self.work += len(steps) + 100
        rows = None
        if not first_refusal(session.hooks.quota_checks, self._claimant).refuses and (
            place_minimum(session, self._claimant, statement) is None
        ):
            rows = {place.row for place in statement.places}
        statement.discard()
        return rows

    def _draw(self, step: Step) -> bool:
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
