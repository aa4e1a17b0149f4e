"""The commit machine: what an event does to a gang that is being bound. No I/O, no clock.

A pod::

    planned --> assumed --> sent ------------------> confirmed --> gone | evicted
                 |  ^        |  |                       ^
                 |  +--------+  +--> unknown --(read)---+
                 |   not done          |   |
                 |  ^------------------+   |   free: the same slots again, three tries
                 +--> forgotten <----------+   lost: bound otherwise, made again, deleting

A gang::

    verified --> binding --> bound
        |          |   |
        |          |   +--> repair --> bound        (a later plan completed it)
        |          |          |
        |          |          +--> undoing --> released    (deadline: evict what we bound)
        +----------+--> released                    (nothing of this plan is bound)

Whatever its phase, a gang is released without undoing when the leadership that decided it is
over: whoever leads next judges by what the API shows.

Whoever forgets an assumption has proof that the binding did not happen and will not: an
answer, or a read-back begun after the server must have given up. Time alone never does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gpusched import limits
from gpusched.commit.draft import BIND_CALL, READ_CALL, Draft
from gpusched.commit.facts import Verdict
from gpusched.commit.model import (
    OPEN,
    Accepted,
    CommitState,
    Completed,
    Created,
    Deadline,
    DoBind,
    DoDoubtLease,
    DoReadBack,
    DoReadGroup,
    Doubted,
    Effect,
    Event,
    Evicted,
    Fenced,
    Found,
    Gone,
    GroupRead,
    GroupUnread,
    NotDone,
    Phase,
    ReadBack,
    Refused,
    Sent,
    Shown,
    Stage,
    Superseded,
    Unread,
    Voided,
)


def step(state: CommitState, event: Event) -> tuple[CommitState, tuple[Effect, ...]]:
    """The state after an event, and what is to be done now.

    Raises:
        InvariantBroken: the event cannot happen in this state, or the API shows that we
            contradicted ourselves.
    """
    draft = Draft(state, event)
    _HANDLERS[type(event)](draft, event)
    draft.settle()
    return draft.freeze(), tuple(draft.effects)


# -- events of the gang -----------------------------------------------------------------------


def _accepted(d: Draft, _event: Accepted) -> None:
    total = len(d.stages)
    if d.phase is not Phase.VERIFIED or d.counts[Stage.PLANNED] != total or not total:
        d.broken("accepted twice, or a gang without pods")
    for index in range(total):
        d.move(index, Stage.ASSUMED)
    if d.old.gang.gang.kind == "PodGroup":
        d.effects.append(DoReadGroup())
    else:
        _bind_all(d)


def _bind_all(d: Draft) -> None:
    d.phase = Phase.BINDING
    idle = tuple(i for i, own in enumerate(d.stages) if own == Stage.ASSUMED)
    if idle and d.reachable >= d.old.gang.min_member:
        d.effects.append(DoBind(idle))


def _group_read(d: Draft, event: GroupRead) -> None:
    if d.phase is Phase.RELEASED:
        return
    if d.phase is not Phase.VERIFIED or d.counts[Stage.PLANNED]:
        d.broken("a PodGroup was read that nothing asked for")
    change = "it was deleted" if event.facts is None else event.facts.change(d.old.gang)
    if change:
        d.withdraw(f"PodGroup {d.old.gang.gang} changed since the decision: {change}")
    else:
        _bind_all(d)


def _group_unread(d: Draft, event: GroupUnread) -> None:
    if d.phase is Phase.RELEASED:
        return
    if d.phase is not Phase.VERIFIED or d.counts[Stage.PLANNED]:
        d.broken("a PodGroup was read that nothing asked for")
    d.reads += 1
    d.tell(event.why)
    if d.reads < limits.BIND_TRIES_MAX:
        d.effects.append(DoReadGroup(limits.BIND_RETRY_S * (1 << d.reads - 1)))
    else:
        d.withdraw(f"PodGroup {d.old.gang.gang} could not be read")


def _fenced(d: Draft, _event: Fenced) -> None:
    if d.phase in (Phase.VERIFIED, Phase.BINDING):
        _begun(d)
        d.withdraw("the lease does not last long enough to write")


def _superseded(d: Draft, _event: Superseded) -> None:
    d.superseded = True
    if d.phase in (Phase.VERIFIED, Phase.BINDING):
        _begun(d)
        d.withdraw("the leadership that decided it is over")
    elif d.phase in (Phase.REPAIR, Phase.UNDOING):
        d.tell("the leadership that decided it is over")
        d.rest(Phase.RELEASED)


def _deadline(d: Draft, _event: Deadline) -> None:
    if d.phase in (Phase.VERIFIED, Phase.BINDING):
        _begun(d)
        d.late = True
        d.withdraw(f"not bound within {limits.GANG_RECOVERY_MAX_S:g} s")
    elif d.phase is Phase.REPAIR:
        d.late = True
        d.undo()


def _begun(d: Draft) -> None:
    if d.counts[Stage.PLANNED]:
        d.broken("it was not accepted yet")


def _completed(d: Draft, _event: Completed) -> None:
    if d.phase is Phase.REPAIR:
        d.rest(Phase.BOUND)


# -- events of a pod --------------------------------------------------------------------------


def _sent(d: Draft, event: Sent) -> None:
    i = event.index
    if d.phase is not Phase.BINDING or d.stages[i] != Stage.ASSUMED or d.calls[i]:
        d.broken("a binding must not be sent now")
    d.calls[i] = BIND_CALL
    d.move(i, Stage.SENT)


def _voided(d: Draft, event: Voided) -> None:
    i = event.index
    if d.stages[i] != Stage.ASSUMED or d.calls[i]:
        d.broken("only what is about to be sent can be left")
    if d.tries[i]:
        d.tell(event.why)
        d.read_last(i)
    else:
        d.forget(i, event.why)


def _created(d: Draft, event: Created) -> None:
    stage = d.end_call(event.index, BIND_CALL)
    # What the API showed before may have been written over by others: its own word counts.
    if stage in (Stage.SENT, Stage.FORGOTTEN):
        d.confirm(event.index)


def _doubted(d: Draft, event: Doubted) -> None:
    i = event.index
    if d.end_call(i, BIND_CALL) is not Stage.SENT:
        return
    d.move(i, Stage.UNKNOWN)
    d.tries[i] += 1
    d.tell(event.why)
    # The last read-back may free the slots: by then the server has given up on the binding.
    last = d.tries[i] >= limits.BIND_TRIES_MAX
    d.effects.append(DoReadBack(i, limits.BIND_TIMEOUT_SERVER_S if last else 0.0))


def _not_done(d: Draft, event: NotDone) -> None:
    i = event.index
    if d.end_call(i, BIND_CALL) is not Stage.SENT:
        return
    d.tell(event.why)
    if d.stopping and d.tries[i]:
        d.read_last(i)
    elif d.stopping:
        d.forget(i, event.why)
    else:
        d.move(i, Stage.ASSUMED)
        d.effects.append(DoBind((i,), limits.BIND_RETRY_S))


def _refused(d: Draft, event: Refused) -> None:
    i = event.index
    if d.end_call(i, BIND_CALL) is Stage.SENT:
        if d.tries[i]:
            d.tell(event.why)
            d.read_last(i)
        else:
            d.forget(i, event.why)
    if event.denied:
        d.effects.append(DoDoubtLease(event.why))
        if d.phase is Phase.BINDING:
            d.withdraw(event.why)


def _read_back(d: Draft, event: ReadBack) -> None:
    if d.stages[event.index] != Stage.UNKNOWN or d.calls[event.index]:
        d.broken("a read-back must not begin now")
    d.calls[event.index] = READ_CALL


def _found(d: Draft, event: Found) -> None:
    i = event.index
    if d.end_call(i, READ_CALL) is not Stage.UNKNOWN:
        return
    if event.facts is None:
        d.forget(i, "it no longer exists", stage=Stage.GONE)
        return
    match d.verdict(i, event.facts):
        case Verdict.OURS:
            d.confirm(i)
        case Verdict.LOST:
            d.forget(i, f"it cannot be bound as decided: {event.facts.text()}")
        case _ if d.tries[i] >= limits.BIND_TRIES_MAX:
            d.forget(i, f"not bound after {d.tries[i]} tries")
        case _ if d.stopping:
            d.read_last(i)
        case _:
            d.move(i, Stage.ASSUMED)
            d.effects.append(DoBind((i,), limits.BIND_RETRY_S * (1 << d.tries[i] - 1)))


def _unread(d: Draft, event: Unread) -> None:
    if d.end_call(event.index, READ_CALL) is Stage.UNKNOWN:
        d.tell(event.why)
        d.effects.append(DoReadBack(event.index, limits.READ_RETRY_S))


def _shown(d: Draft, event: Shown) -> None:
    i, facts = event.index, event.facts
    stage = Stage(d.stages[i])
    if stage is Stage.PLANNED:
        d.broken("it was not accepted yet")
    if stage in (Stage.GONE, Stage.EVICTED):
        return
    found = d.verdict(i, facts)
    if stage is Stage.CONFIRMED:
        # Annotations may be changed by others later, the node may not: a store that went back
        # in time was written by another leader since, and what it shows is what there is.
        if facts.node and facts.node != d.old.gang.binds[i].node:
            d.forget(i, f"it is bound otherwise: {facts.text()}")
    elif stage is Stage.FORGOTTEN:
        if found is Verdict.OURS and not d.tries[i]:
            d.broken(f"a binding that was never sent happened: {facts.text()}")
        if found is Verdict.OURS:  # a server that held it for longer than it may
            d.tell(f"pod {d.old.gang.binds[i].key}: a binding that was given up happened")
            d.confirm(i)
    elif found is Verdict.OURS:
        d.confirm(i)
    elif found is Verdict.LOST and (facts.node or stage is Stage.ASSUMED):
        d.forget(i, f"it cannot be bound as decided: {facts.text()}")


def _gone(d: Draft, event: Gone) -> None:
    stage = Stage(d.stages[event.index])
    if stage is Stage.PLANNED:
        d.broken("it was not accepted yet")
    if stage is Stage.CONFIRMED:
        d.move(event.index, Stage.GONE)
    elif stage in OPEN:
        d.forget(event.index, "it was deleted", stage=Stage.GONE)


def _evicted(d: Draft, event: Evicted) -> None:
    stage = Stage(d.stages[event.index])
    if stage is Stage.CONFIRMED and d.phase is Phase.UNDOING:
        d.move(event.index, Stage.EVICTED)
    elif stage not in (Stage.GONE, Stage.FORGOTTEN):
        d.broken("evicted what was not to be evicted")


_HANDLERS: Final[dict[type[Event], Callable[[Draft, Any], None]]] = {
    Accepted: _accepted,
    GroupRead: _group_read,
    GroupUnread: _group_unread,
    Fenced: _fenced,
    Superseded: _superseded,
    Deadline: _deadline,
    Completed: _completed,
    Sent: _sent,
    Voided: _voided,
    Created: _created,
    Doubted: _doubted,
    NotDone: _not_done,
    Refused: _refused,
    ReadBack: _read_back,
    Found: _found,
    Unread: _unread,
    Shown: _shown,
    Gone: _gone,
    Evicted: _evicted,
}
