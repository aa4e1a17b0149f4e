"""Reclaim: a queue takes back what it is due from queues that hold more than they are due."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, Final

import attrs

from gpusched.plugin import (
    PODS,
    RECLAIM,
    ActionNeeds,
    Capability,
    DependsOn,
    EvictOperation,
    Gang,
    GrowingGangs,
    Preemption,
    Reason,
    Resources,
    Session,
    VictimRules,
    Victims,
    accelerator,
    format_quantity,
    gang_text,
    growth_rules,
    late_claims,
    may_have_claimants,
    preemption_claimants,
    reclaim_rules,
    session_victims,
    truncate_message,
)

GROWING_STARTS_MAX: Final = 32
"""Gangs that start in a session and are asked whether they would grow over others that start in it."""


@attrs.frozen
class Reclaim:
    """Victims are of other queues; policies say what each is due, without them none is evicted."""

    name: ClassVar[str] = RECLAIM
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    provides: ClassVar[tuple[Capability, ...]] = (Capability.RECLAIM,)
    needs: ClassVar[ActionNeeds] = ActionNeeds(
        after=(Capability.ADMISSION, Capability.PLACEMENT),
        otherwise="it evicts before free room was tried",
        hooks=("reclaim_check", "reclaim_gate"),
    )

    def run(self, session: Session) -> None:
        """Make room for gangs of queues that are due more than they hold."""
        hooks = session.hooks
        if not hooks.reclaim_checks or not hooks.reclaim_gates:
            return
        if may_have_claimants(session):
            self._make_room(session, session_victims(session))
        late_claims(session).add(lambda victims: self._make_room(session, victims, late=victims))

    def _make_room(
        self, session: Session, victims: Victims, *, late: Victims | None = None
    ) -> None:
        hooks = session.hooks
        queues = list(victims.queues)
        only = queues[0] if len(queues) == 1 else ""
        claimants = preemption_claimants(session, lambda gang: bool(queues) and gang.queue != only)
        with session.pipelining():
            if claimants:
                room = self._preemption(session, reclaim_rules(victims), late)
                room.serve_all(claimants, hooks.reclaim_checks)
            if hooks.growth_checks and queues and not session.early_end.reached:
                self._make_room_to_grow(session, claimants, victims, late)

    def _make_room_to_grow(
        self, session: Session, waiting: Sequence[Gang], victims: Victims, late: Victims | None
    ) -> None:
        """Take back members above a minimum for others that are above theirs and due as much."""
        if late is not None and (late.only_starts or not late.any_start_has_spare_members()):
            return
        growing = GrowingGangs(session, waiting, victims, tells=late is None)
        room = self._preemption(session, growth_rules(victims), late)
        while (claimants := growing.next_claimants()) and not room.full:
            room.serve_all(claimants, [growing.may_claim])
        if late is not None:
            self._take_back_for_growth(session, waiting, late)

    def _take_back_for_growth(
        self, session: Session, waiting: Sequence[Gang], victims: Victims
    ) -> None:
        """Gangs that start now, and would grow over others that start now, claim in the next session."""
        growing = GrowingGangs(session, waiting, victims, tells=False, starting=True)
        supposed = Preemption(
            session,
            growth_rules(victims),
            reason=Reason.RECLAIMED,
            message=lambda _gang, _evictions: "",
            supposing=victims,
        )
        for claimants in islice(growing.claimants, GROWING_STARTS_MAX):
            allowed = (each for each in claimants if not growing.may_claim(each).refuses)
            any(supposed.takes_back_starts(each) for each in allowed)

    def _preemption(self, session: Session, rules: VictimRules, late: Victims | None) -> Preemption:
        return Preemption(
            session, rules, reason=Reason.RECLAIMED, message=_VictimMessages(session), late=late
        )


class _VictimMessages:
    """What victims are told of the queues that take and lose; of thousands, what stays in a session is written once.

    Args:
        session: in which is evicted.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._compared: dict[Resources, str] = {}
        self._due: dict[tuple[str, str], str] = {}

    def __call__(self, gang: Gang, evictions: Sequence[EvictOperation]) -> str:
        """The claimant, and what both queues hold once the victims are evicted."""
        resource = self._compared_resource(gang)
        own = self._holdings_text(gang.queue, resource)
        where = " in this shard" if self._session.snapshot.queues.is_part else ""
        if not evictions:
            return f"reclaimed for {gang_text(gang)}: {own}{where}"
        victim = evictions[0].gang.queue
        more = len({each.gang.queue for each in evictions}) - 1
        others = f", and {more} more queues" if more else ""
        theirs = self._holdings_text(victim, resource)
        return truncate_message(
            f"reclaimed for {gang_text(gang)}: {own}, {theirs} after this{others}{where}"
        )

    def _compared_resource(self, gang: Gang) -> str:
        """Name of the resource by which queues are compared: GPUs where the gang asks for any."""
        requests = gang.pending_requests
        known = self._compared.get(requests)
        if known is None:
            asked = [name for name, amount in requests.items if amount and name != PODS]
            gpus = [name for name in asked if accelerator(name)]
            known = self._compared[requests] = (gpus or asked or ["cpu"])[0]
        return known

    def _holdings_text(self, queue: str, resource: str) -> str:
        amount = self._session.queue_accounts.amount_allocated(queue, resource)
        held = format_quantity(amount, resource=resource)
        due = self._due.get((queue, resource))
        if due is None:
            due = self._due[queue, resource] = self._due_text(queue, resource)
        return f"queue {queue} holds {held} {resource} of {due}"

    def _due_text(self, queue: str, resource: str) -> str:
        session = self._session
        node = session.snapshot.queues.get(queue)
        for name in node.path if node else ():
            deserved = session.snapshot.queues.queues[name].queue.deserved
            if resource in deserved:
                due = format_quantity(deserved.get(resource), resource=resource)
                whose = "its" if name == queue else f"{name}'s"
                return f"{whose} deserved {due}"
        due = format_quantity(session.view.fair_share(queue).get(resource), resource=resource)
        return f"its fair share of {due}"
