"""Claimants: gangs for which others might be evicted, and whom the actions would look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.plugin import Capability
from gpusched.session.framework.proposal import PREEMPT, RECLAIM
from gpusched.session.framework.reasons import shorten
from gpusched.session.framework.verdict import Verdict, first_refusal
from gpusched.session.preempt.victim_selection import VictimRules
from gpusched.session.state.session import Session


def preemption_claimants(
    session: Session, has_victims: Callable[[Gang], bool] = lambda _gang: True
) -> list[Gang]:
    """Gangs for which others might be evicted: admitted, ready, not started, and not nominated.

    Args:
        session: in which they find no room.
        has_victims: whether there may be a victim for a gang; asked first.
    """
    return [
        gang
        for gang in session.early_end.with_turn(session.pending_gangs)
        if has_victims(gang)
        and (gang.missing_members or not gang.placed)
        and session.outcomes.is_admitted(gang)
        and not session.nominations.has_nomination(gang)
        and not session.placements.assigned(gang)
        and gang.ready_members + gang.pending >= gang.min_member
        and not first_refusal(session.hooks.ready_checks, gang).refuses
    ]


def may_have_claimants(session: Session) -> bool:
    """Whether members wait for a place: where the session gave all of them one, nobody is evicted for any."""
    assigned = session.placements.assigned
    return any(len(assigned(gang)) < gang.pending for gang in session.pending_gangs)


def gang_text(gang: Gang) -> str:
    """Namespace and name of a gang, cut to fit into a message."""
    return shorten(f"{gang.key.namespace}/{gang.key.name}")


def preempt_rules() -> VictimRules:
    """Victims are of the same queue and of strictly lower priority."""
    return VictimRules(
        action=PREEMPT,
        queues=lambda claimant: (claimant.queue,),
        may_be_victim=lambda claimant, victim: victim.priority < claimant.priority,
        by_kind=True,
    )


class RunningQueues(Protocol):
    """Queues in which gangs run that may be victims."""

    @property
    def queues(self) -> Iterable[str]:
        """Names of the queues."""

    def lowest(self, queue: str) -> int | None:
        """The lowest priority of such a gang in a queue."""


def reclaim_rules(victims: RunningQueues) -> VictimRules:
    """Victims are of other queues."""
    queues = list(victims.queues)
    return VictimRules(
        action=RECLAIM,
        queues=lambda claimant: [queue for queue in queues if queue != claimant.queue],
        may_be_victim=lambda claimant, victim: victim.queue != claimant.queue,
        by_kind=True,
    )


@frozen(eq=False)
class ClaimRules:
    """Rules of one action that evicts.

    Attributes:
        may_claim: whether there may be a victim for a gang; asked first.
        checks: must allow the gang too.
    """

    victims: VictimRules
    may_claim: Callable[[Gang], bool]
    checks: Sequence[Callable[[Gang], Verdict]] = ()

    def allow(self, gang: Gang) -> bool:
        """Whether others may be evicted for the gang, as far as that can be told without them."""
        return self.may_claim(gang) and not first_refusal(self.checks, gang).refuses


def claim_rules(session: Session, victims: RunningQueues) -> list[ClaimRules]:
    """Rules of the actions of this session that evict for others, in the shipped order."""

    def has_lower(gang: Gang) -> bool:
        lowest = victims.lowest(gang.queue)
        return lowest is not None and lowest < gang.priority

    hooks, found = session.hooks, []
    if Capability.PREEMPTION in session.capabilities:
        found.append(ClaimRules(preempt_rules(), has_lower))
    if Capability.RECLAIM in session.capabilities and hooks.reclaim_checks and hooks.reclaim_gates:
        found.append(ClaimRules(reclaim_rules(victims), lambda _: True, hooks.reclaim_checks))
    return found
