"""Starts that a claim which the next session would make takes back: asked after the last action.

A claim changes room and what queues hold. A gang that found no victims before it may find some
after it, gangs among them that this session starts. So where a session made a claim and starts
anything, the gangs that still wait are asked once more, and starts that they would have evicted
are taken back. Nothing else comes of it: their claims are made by the next session.
"""

from __future__ import annotations

from typing import Final

from gpusched.base import limits
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.claims.claimants import claim_rules, preemption_claimants
from gpusched.session.preempt.claims.session_starts import started_gangs
from gpusched.session.preempt.preemption import Preemption
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session

CLAIMS_MAX: Final = 32
"""Gangs that are asked after the last action of one session: each costs about as much as a claim."""


def withdraw_starts_of_no_length(session: Session) -> None:
    """Take back what the next session would evict of what this one starts."""
    if not session.hooks.stable.starts or not session.nominations.plans:
        return
    asked = 0
    with session.pipelining():
        while started_gangs(session) and asked < CLAIMS_MAX:
            more, took = _ask(session, CLAIMS_MAX - asked)
            asked += more
            if not took:
                return


def _ask(session: Session, most: int) -> tuple[int, bool]:
    """How many gangs were asked, and whether one of them took starts back, which ends the round."""
    asked = 0
    victims = Victims(session)
    for rules in claim_rules(session, victims):
        room = Preemption(
            session,
            rules.victims,
            reason=Reason.PREEMPTED,
            message=lambda _gang, _evictions: "",
            supposing=victims,
        )
        for gang in in_queue_order(session, preemption_claimants(session, rules.may_claim)):
            if asked >= most or room.full or not session.has_budget_for(gang):
                break
            if first_refusal(rules.checks, gang).refuses:
                continue
            asked += 1
            session.work_budget.spend(limits.WORK_CLASS)
            if room.takes_back_starts(gang):
                return asked, True
    return asked, False
