"""Reclaim: a queue takes back what it is due from queues that hold more than they are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.actions.preempt import claimants_of, name_of
from gpusched.cache.gangs import Gang
from gpusched.objects.quantity import format_quantity
from gpusched.objects.resources import PODS
from gpusched.objects.slot import accelerator
from gpusched.session.making_room import MakingRoom, victims_of
from gpusched.session.proposal import RECLAIM
from gpusched.session.reasons import Reason, cut
from gpusched.session.session import Session
from gpusched.session.statement import Evict
from gpusched.session.victim_choice import Rules


@attrs.frozen
class Reclaim:
    """Victims are of other queues; policies say what each is due, without them nobody leaves."""

    name: ClassVar[str] = RECLAIM

    def run(self, session: Session) -> None:
        """See the class."""
        hooks = session.hooks
        if not hooks.reclaim_checks or not hooks.reclaim_gates:
            return
        victims = victims_of(session)
        queues = list(victims.queues)
        only = queues[0] if len(queues) == 1 else ""
        claimants = claimants_of(session, lambda gang: bool(queues) and gang.queue != only)
        if not claimants:
            return
        rules = Rules(
            action=RECLAIM,
            queues=lambda claimant: [queue for queue in queues if queue != claimant.queue],
            fair_game=lambda claimant, victim: victim.queue != claimant.queue,
        )
        with session.looking_later():
            room = MakingRoom(
                session,
                rules,
                reason=Reason.RECLAIMED,
                sentence=lambda gang, evictions: _sentence(session, gang, evictions),
            )
            room.serve_all(claimants, hooks.reclaim_checks)


def _sentence(session: Session, gang: Gang, evictions: Sequence[Evict]) -> str:
    """Who needs the room, and what both queues hold; asked with the victims evicted already."""
    resource = _matters(gang)
    own = _holds(session, gang.queue, resource)
    if not evictions:
        return f"reclaimed for {name_of(gang)}: {own}"
    victim = evictions[0].gang.queue
    more = len({each.gang.queue for each in evictions}) - 1
    others = f", and {more} more queues" if more else ""
    return cut(
        f"reclaimed for {name_of(gang)}: {own}, {_holds(session, victim, resource)} after "
        f"this{others}"
    )


def _matters(gang: Gang) -> str:
    """The resource by which the queues are compared: GPUs where it asks for any."""
    asked = [name for name, amount in gang.asked.items if amount and name != PODS]
    gpus = [name for name in asked if accelerator(name)]
    return (gpus or asked or ["cpu"])[0]


def _holds(session: Session, queue: str, resource: str) -> str:
    held = format_quantity(session.view.allocated(queue).get(resource), resource=resource)
    node = session.snapshot.queues.get(queue)
    for name in node.path if node else ():
        deserved = session.snapshot.queues.queues[name].queue.deserved
        if resource in deserved:
            due = format_quantity(deserved.get(resource), resource=resource)
            whose = "its" if name == queue else f"{name}'s"
            return f"queue {queue} holds {held} {resource} of {whose} deserved {due}"
    due = format_quantity(session.view.fair_share(queue).get(resource), resource=resource)
    return f"queue {queue} holds {held} {resource} of its fair share of {due}"
