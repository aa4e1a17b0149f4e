"""Victims that would leave for one supposed claimant, of which the next one is told first.

A claim asks for one victim after the other whether it would have others evicted once it is made again. Most of
those that would find the same others: whether these may leave, and would make room, is asked with a tenth
of the work of a search. Where they do not, they are searched for as ever, so that an answer rests on
nothing but the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.proposal import allowed_victims, victim_sort_keys
from gpusched.session.preempt.claims.giving_order import refused_victim
from gpusched.session.preempt.victim_pool import VictimGroup
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session

KEPT_MAX: Final = 4
"""Choices that are kept: who claims for one queue finds others than who claims for another."""


class SupposedVictims:
    """Choices of whole gangs that ran before the session, the one that was of use last first.

    Args:
        session: one of these is made for it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: list[tuple[Gang, ...]] = []

    def note(self, victims: Victims, chosen: Sequence[VictimGroup]) -> None:
        """These would leave for a claimant.

        Args:
            victims: among which they were chosen.
            chosen: parts of gangs; kept where each is all of a gang that runs.
        """
        gangs = tuple(part.gang for part in chosen)
        if gangs and all(
            victims.ran_before(part.gang) and len(part.seats) == len(part.gang.placed)
            for part in chosen
        ):
            self._kept = [gangs, *(each for each in self._kept if each != gangs)][:KEPT_MAX]

    def for_claimant(
        self, claimant: Gang, victims: Victims, rules: VictimRules
    ) -> list[list[VictimGroup]]:
        """Choices that rules and policies allow for a claimant; whether they make room is not known.

        Args:
            claimant: that is supposed to claim.
            victims: those that are left.
            rules: which gangs may be victims.
        """
        if rules.only_spare or not self._kept:
            return []
        queues = frozenset(rules.queues(claimant))
        found = []
        for gangs in self._kept:
            if all(
                gang.queue in queues
                and gang.key != claimant.key
                and rules.may_be_victim(claimant, gang)
                for gang in gangs
            ):
                chosen = _whole_gangs(victims, gangs)
                if chosen is not None and self._policies_allow(claimant, victims, rules, chosen):
                    found.append(chosen)
        return found

    def _policies_allow(
        self, claimant: Gang, victims: Victims, rules: VictimRules, chosen: list[VictimGroup]
    ) -> bool:
        hooks, action = self._session.hooks, rules.action
        gangs = [part.gang for part in chosen]
        filters = (*hooks.victim_filters, *hooks.stop_filters)
        if len(allowed_victims(filters, claimant, gangs, action)) < len(gangs):
            return False
        if None in victim_sort_keys(hooks.victim_orders, claimant, gangs, action):
            return False  # nobody knows where it stands: it is no victim
        return refused_victim(self._session, claimant, victims, chosen, action) is None


def supposed_victims(session: Session) -> SupposedVictims:
    """The choices of a session."""
    return session.cycle_state.get_or_make(SupposedVictims, lambda: SupposedVictims(session))


def _whole_gangs(victims: Victims, gangs: Sequence[Gang]) -> list[VictimGroup] | None:
    """Gangs with all that they could lose now; None where one may not leave as a whole, or budgets forbid it."""
    chosen = []
    drawn: Counter[int] = Counter()
    for gang in gangs:
        running = victims.running(gang) if victims.ran_before(gang) else None
        if (
            running is None
            or not running.may_end
            or len(running.seats) != len(gang.placed)
            or running.every_member_is_spare
        ):
            return None
        chosen.append(VictimGroup(gang, running.seats))
        drawn.update(budget for seat in running.seats for budget in seat.budgets)
    return chosen if all(victims.left[each] >= count for each, count in drawn.items()) else None
