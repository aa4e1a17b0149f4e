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
over: the next leader judges by what the API shows.

An assumption is forgotten on proof only that the binding did not happen and will not: an
answer, or a read-back begun after the server must have given up. Time alone never does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from gpusched.base import limits
from gpusched.base.errors import InvariantBroken
from gpusched.commit.model import (
    OPEN,
    BindCreated,
    BindNotDone,
    BindRefused,
    BindSent,
    BindUnknown,
    BindVoided,
    CommitAccepted,
    CommitPhase,
    CommitState,
    DeadlinePassed,
    DoBind,
    DoConfirm,
    DoDoubtLease,
    DoEvict,
    DoForget,
    DoReadBack,
    DoReadGroup,
    DoSettle,
    Effect,
    Event,
    GangCompleted,
    GroupRead,
    GroupUnreadable,
    LeadershipLost,
    PodEvicted,
    PodGone,
    PodRead,
    PodSeen,
    PodStage,
    PodUnreadable,
    ReadBackSent,
    TermSuperseded,
)
from gpusched.commit.observed_pod import BindingVerdict, ObservedPod

NO_CALL: Final = 0
BIND_CALL: Final = 1
READ_CALL: Final = 2


class CommitStep:
    """A mutable copy of a ``CommitState``; see ``CommitState`` for its fields."""

    __slots__ = (
        "calls", "counts", "effects", "event", "lapsed", "late", "old", "phase", "reads", "stages",
        "stopping", "story", "superseded", "tries", "why",
    )  # fmt: skip

    def __init__(self, old: CommitState, event: Event) -> None:
        self.old = old
        self.event = event
        self.phase = old.phase
        self.stages = bytearray(old.stages)
        self.tries = bytearray(old.tries)
        self.calls = bytearray(old.calls)
        self.counts = list(old.counts)
        self.stopping = old.stopping
        self.late = old.late
        self.superseded = old.superseded
        self.lapsed = old.lapsed
        self.reads = old.reads
        self.why = old.why
        self.story = old.story
        self.effects: list[Effect] = []

    def freeze_state(self) -> CommitState:
        """The state it has become."""
        old = self.old
        return CommitState(
            gang=old.gang, plan=old.plan, fence=old.fence, phase=self.phase,
            stages=bytes(self.stages), tries=bytes(self.tries), calls=bytes(self.calls),
            counts=tuple(self.counts), stopping=self.stopping, late=self.late,
            superseded=self.superseded, lapsed=self.lapsed, reads=self.reads,
            why=self.why, story=self.story,
        )  # fmt: skip

    # -- words ------------------------------------------------------------------------------

    def move_pod(self, index: int, to: PodStage) -> None:
        """Put one pod at a stage."""
        self.counts[self.stages[index]] -= 1
        self.counts[to] += 1
        self.stages[index] = to

    def confirm_pod(self, index: int) -> None:
        """The pod is bound as decided."""
        self.move_pod(index, PodStage.CONFIRMED)
        self.effects.append(DoConfirm(index))

    def forget(self, index: int, why: str, *, stage: PodStage = PodStage.FORGOTTEN) -> None:
        """The pod will not be bound by this plan."""
        self.move_pod(index, stage)
        self.effects.append(DoForget((index,)))
        self.tell_step(f"pod {self.old.gang.binds[index].key}: {why}")

    def withdraw_unsent(self, why: str) -> None:
        """Send nothing new: what was never sent is forgotten at once."""
        self.stopping = True
        self.tell_step(why)
        idle = [i for i, own in enumerate(self.stages) if own == PodStage.ASSUMED]
        never_sent = tuple(i for i in idle if not self.tries[i])
        if never_sent:
            for index in never_sent:
                self.move_pod(index, PodStage.FORGOTTEN)
            self.effects.append(DoForget(never_sent))
        for index in idle:
            if self.tries[index]:
                self.read_last(index)

    def read_last(self, index: int) -> None:
        """An earlier try may still be on its way: look once more when the server gave it up."""
        self.move_pod(index, PodStage.UNKNOWN)
        self.tries[index] = limits.BIND_TRIES_MAX
        self.effects.append(DoReadBack(index, limits.BIND_TIMEOUT_SERVER_S))

    def tell_step(self, what: str) -> None:
        """Add to the story; the first thing told is also the reason given to people."""
        self.story = (*self.story[1 - limits.COMMIT_STORY_MAX :], what)
        self.why = self.why or what

    def raise_broken(self, why: str) -> NoReturn:
        """Raise ``InvariantBroken`` with the whole story."""
        old = self.old
        lines = [
            f"commit of {old.gang.gang} under plan {old.plan}: {why}",
            f"phase {old.phase}, event {self.event}",
            f"needs {old.gang.min_member}, placed before {old.gang.placed}",
            "pods " + ", ".join(f"{s.name.lower()} {old.counts[s]}" for s in PodStage),
            *old.story,
        ]
        index = getattr(self.event, "index", None)
        if index is not None and index < len(old.gang.binds):
            bind = old.gang.binds[index]
            lines.insert(
                1,
                f"pod {bind.key} uid {bind.uid} for node {bind.node}: "
                f"{old.stage_of_pod(index).name.lower()}, tries {old.tries[index]}",
            )
        raise InvariantBroken("; ".join(lines))

    def end_call(self, index: int, kind: int) -> PodStage:
        """An answer came: note it, and say where the pod stands."""
        if self.calls[index] != kind:
            self.raise_broken("an answer that nothing asked for")
        self.calls[index] = NO_CALL
        return PodStage(self.stages[index])

    def binding_verdict(self, index: int, facts: ObservedPod) -> BindingVerdict:
        """What facts mean for one pod; raises when they show that we contradict ourselves."""
        found = facts.binding_verdict(
            self.old.gang.binds[index], plan=self.old.plan, fence=self.old.fence
        )
        if found is BindingVerdict.BROKEN:
            self.raise_broken(f"the API shows our own plan on another node: {facts.text()}")
        return found

    # -- the gang ---------------------------------------------------------------------------

    @property
    def reachable(self) -> int:
        """Members there can still be."""
        return self.old.gang.placed + sum(self.counts[: PodStage.CONFIRMED + 1])

    def settle_gang(self) -> None:
        """Move the gang where its pods have brought it."""
        counts = self.counts
        if self.phase in (CommitPhase.VERIFIED, CommitPhase.BINDING):
            gang = self.old.gang
            reachable = self.reachable
            if not self.stopping and reachable < gang.min_member:
                self.withdraw_unsent(f"only {reachable} of {gang.min_member} members are left")
            if counts[0] or counts[1] or counts[2] or counts[3]:
                return
            if not counts[PodStage.CONFIRMED] or self.superseded:
                self.come_to_rest(CommitPhase.RELEASED)
            elif reachable >= gang.min_member:
                self.come_to_rest(CommitPhase.BOUND)
            elif self.late:
                self.undo_bindings()
            else:
                self.come_to_rest(CommitPhase.REPAIR)
        elif (
            self.phase in (CommitPhase.REPAIR, CommitPhase.UNDOING)
            and not counts[PodStage.CONFIRMED]
        ):
            self.come_to_rest(CommitPhase.RELEASED)

    def come_to_rest(self, phase: CommitPhase) -> None:
        """The gang came to rest."""
        self.phase = phase
        self.effects.append(DoSettle(phase, self.why))

    def undo_bindings(self) -> None:
        """Take back what this plan bound."""
        self.phase = CommitPhase.UNDOING
        self.tell_step("not whole within the recovery time: what this plan bound is evicted")
        bound = tuple(i for i, own in enumerate(self.stages) if own == PodStage.CONFIRMED)
        self.effects.append(DoEvict(bound))


def advance_commit(state: CommitState, event: Event) -> tuple[CommitState, tuple[Effect, ...]]:
    """The state after an event, and what is to be done now.

    Raises:
        InvariantBroken: the event cannot happen in this state, or the API shows that we
            contradicted ourselves.
    """
    draft = CommitStep(state, event)
    _HANDLERS[type(event)](draft, event)
    draft.settle_gang()
    return draft.freeze_state(), tuple(draft.effects)


# -- events of the gang -----------------------------------------------------------------------


def _on_accepted(d: CommitStep, _event: CommitAccepted) -> None:
    total = len(d.stages)
    if d.phase is not CommitPhase.VERIFIED or d.counts[PodStage.PLANNED] != total or not total:
        d.raise_broken("accepted twice, or a gang without pods")
    for index in range(total):
        d.move_pod(index, PodStage.ASSUMED)
    if d.old.gang.gang.kind == "PodGroup":
        d.effects.append(DoReadGroup())
    else:
        _bind_all(d)


def _bind_all(d: CommitStep) -> None:
    d.phase = CommitPhase.BINDING
    idle = tuple(i for i, own in enumerate(d.stages) if own == PodStage.ASSUMED)
    if idle and d.reachable >= d.old.gang.min_member:
        d.effects.append(DoBind(idle))


def _group_read(d: CommitStep, event: GroupRead) -> None:
    if d.phase is CommitPhase.RELEASED:
        return
    if d.phase is not CommitPhase.VERIFIED or d.counts[PodStage.PLANNED]:
        d.raise_broken("a PodGroup was read that nothing asked for")
    change = "it was deleted" if event.facts is None else event.facts.change_since(d.old.gang)
    if change:
        d.withdraw_unsent(f"PodGroup {d.old.gang.gang} changed since the decision: {change}")
    else:
        _bind_all(d)


def _group_unread(d: CommitStep, event: GroupUnreadable) -> None:
    if d.phase is CommitPhase.RELEASED:
        return
    if d.phase is not CommitPhase.VERIFIED or d.counts[PodStage.PLANNED]:
        d.raise_broken("a PodGroup was read that nothing asked for")
    d.reads += 1
    d.tell_step(event.why)
    if d.reads < limits.BIND_TRIES_MAX:
        d.effects.append(DoReadGroup(limits.BIND_RETRY_S * (1 << d.reads - 1)))
    else:
        d.withdraw_unsent(f"PodGroup {d.old.gang.gang} could not be read")


def _on_fenced(d: CommitStep, _event: LeadershipLost) -> None:
    if d.phase in (CommitPhase.VERIFIED, CommitPhase.BINDING):
        _begin_commit(d)
        d.lapsed = True
        d.withdraw_unsent("the lease does not last long enough to write")


def _on_superseded(d: CommitStep, _event: TermSuperseded) -> None:
    d.superseded = d.lapsed = True
    if d.phase in (CommitPhase.VERIFIED, CommitPhase.BINDING):
        _begin_commit(d)
        d.withdraw_unsent("the leadership that decided it is over")
    elif d.phase in (CommitPhase.REPAIR, CommitPhase.UNDOING):
        d.tell_step("the leadership that decided it is over")
        d.come_to_rest(CommitPhase.RELEASED)


def _on_deadline(d: CommitStep, _event: DeadlinePassed) -> None:
    if d.phase in (CommitPhase.VERIFIED, CommitPhase.BINDING):
        _begin_commit(d)
        d.late = True
        d.withdraw_unsent(f"not bound within {limits.GANG_RECOVERY_MAX_S:g} s")
    elif d.phase is CommitPhase.REPAIR:
        d.late = True
        d.undo_bindings()


def _begin_commit(d: CommitStep) -> None:
    if d.counts[PodStage.PLANNED]:
        d.raise_broken("it was not accepted yet")


def _on_completed(d: CommitStep, _event: GangCompleted) -> None:
    if d.phase is CommitPhase.REPAIR:
        d.come_to_rest(CommitPhase.BOUND)


# -- events of a pod --------------------------------------------------------------------------


def _on_sent(d: CommitStep, event: BindSent) -> None:
    i = event.index
    if d.phase is not CommitPhase.BINDING or d.stages[i] != PodStage.ASSUMED or d.calls[i]:
        d.raise_broken("a binding must not be sent now")
    d.calls[i] = BIND_CALL
    d.move_pod(i, PodStage.SENT)


def _on_voided(d: CommitStep, event: BindVoided) -> None:
    i = event.index
    if d.stages[i] != PodStage.ASSUMED or d.calls[i]:
        d.raise_broken("only what is about to be sent can be left")
    if d.tries[i]:
        d.tell_step(event.why)
        d.read_last(i)
    else:
        d.forget(i, event.why)


def _on_created(d: CommitStep, event: BindCreated) -> None:
    stage = d.end_call(event.index, BIND_CALL)
    # What the API showed before may have been written over by others: its own word counts.
    if stage in (PodStage.SENT, PodStage.FORGOTTEN):
        d.confirm_pod(event.index)


def _on_doubted(d: CommitStep, event: BindUnknown) -> None:
    i = event.index
    if d.end_call(i, BIND_CALL) is not PodStage.SENT:
        return
    d.move_pod(i, PodStage.UNKNOWN)
    d.tries[i] += 1
    d.tell_step(event.why)
    # The last read-back may free the slots: by then the server has given up on the binding.
    last = d.tries[i] >= limits.BIND_TRIES_MAX
    d.effects.append(DoReadBack(i, limits.BIND_TIMEOUT_SERVER_S if last else 0.0))


def _not_done(d: CommitStep, event: BindNotDone) -> None:
    i = event.index
    if d.end_call(i, BIND_CALL) is not PodStage.SENT:
        return
    d.tell_step(event.why)
    if d.stopping and d.tries[i]:
        d.read_last(i)
    elif d.stopping:
        d.forget(i, event.why)
    else:
        d.move_pod(i, PodStage.ASSUMED)
        d.effects.append(DoBind((i,), limits.BIND_RETRY_S))


def _on_refused(d: CommitStep, event: BindRefused) -> None:
    i = event.index
    if d.end_call(i, BIND_CALL) is PodStage.SENT:
        if d.tries[i]:
            d.tell_step(event.why)
            d.read_last(i)
        else:
            d.forget(i, event.why)
    if event.denied:
        d.effects.append(DoDoubtLease(event.why))
        if d.phase is CommitPhase.BINDING:
            d.withdraw_unsent(event.why)


def _read_back(d: CommitStep, event: ReadBackSent) -> None:
    if d.stages[event.index] != PodStage.UNKNOWN or d.calls[event.index]:
        d.raise_broken("a read-back must not begin now")
    d.calls[event.index] = READ_CALL


def _on_found(d: CommitStep, event: PodRead) -> None:
    i = event.index
    if d.end_call(i, READ_CALL) is not PodStage.UNKNOWN:
        return
    if event.facts is None:
        d.forget(i, "it no longer exists", stage=PodStage.GONE)
        return
    match d.binding_verdict(i, event.facts):
        case BindingVerdict.OURS:
            d.confirm_pod(i)
        case BindingVerdict.LOST:
            d.forget(i, f"it cannot be bound as decided: {event.facts.text()}")
        case _ if d.tries[i] >= limits.BIND_TRIES_MAX:
            d.forget(i, f"not bound after {d.tries[i]} tries")
        case _ if d.stopping:
            d.read_last(i)
        case _:
            d.move_pod(i, PodStage.ASSUMED)
            d.effects.append(DoBind((i,), limits.BIND_RETRY_S * (1 << d.tries[i] - 1)))


def _on_unread(d: CommitStep, event: PodUnreadable) -> None:
    if d.end_call(event.index, READ_CALL) is PodStage.UNKNOWN:
        d.tell_step(event.why)
        d.effects.append(DoReadBack(event.index, limits.READ_RETRY_S))


def _on_shown(d: CommitStep, event: PodSeen) -> None:
    i, facts = event.index, event.facts
    stage = PodStage(d.stages[i])
    if stage is PodStage.PLANNED:
        d.raise_broken("it was not accepted yet")
    if stage in (PodStage.GONE, PodStage.EVICTED):
        return
    found = d.binding_verdict(i, facts)
    if stage is PodStage.CONFIRMED:
        # Annotations may be changed by others later, the node may not: a store that went back
        # in time was written by another leader since, and what it shows is what there is.
        if facts.node and facts.node != d.old.gang.binds[i].node:
            d.forget(i, f"it is bound otherwise: {facts.text()}")
    elif stage is PodStage.FORGOTTEN:
        if found is BindingVerdict.OURS and not d.tries[i]:
            d.raise_broken(f"a binding that was never sent happened: {facts.text()}")
        if found is BindingVerdict.OURS:  # a server that held it for longer than it may
            d.tell_step(f"pod {d.old.gang.binds[i].key}: a binding that was given up happened")
            d.confirm_pod(i)
    elif found is BindingVerdict.OURS:
        d.confirm_pod(i)
    elif found is BindingVerdict.LOST and (facts.node or stage is PodStage.ASSUMED):
        d.forget(i, f"it cannot be bound as decided: {facts.text()}")


def _on_gone(d: CommitStep, event: PodGone) -> None:
    stage = PodStage(d.stages[event.index])
    if stage is PodStage.PLANNED:
        d.raise_broken("it was not accepted yet")
    if stage is PodStage.CONFIRMED:
        d.move_pod(event.index, PodStage.GONE)
    elif stage in OPEN:
        d.forget(event.index, "it was deleted", stage=PodStage.GONE)


def _on_evicted(d: CommitStep, event: PodEvicted) -> None:
    stage = PodStage(d.stages[event.index])
    if stage is PodStage.CONFIRMED and d.phase is CommitPhase.UNDOING:
        d.move_pod(event.index, PodStage.EVICTED)
    elif stage not in (PodStage.GONE, PodStage.FORGOTTEN):
        d.raise_broken("evicted what was not to be evicted")


_HANDLERS: Final[dict[type[Event], Callable[[CommitStep, Any], None]]] = {
    CommitAccepted: _on_accepted,
    GroupRead: _group_read,
    GroupUnreadable: _group_unread,
    LeadershipLost: _on_fenced,
    TermSuperseded: _on_superseded,
    DeadlinePassed: _on_deadline,
    GangCompleted: _on_completed,
    BindSent: _on_sent,
    BindVoided: _on_voided,
    BindCreated: _on_created,
    BindUnknown: _on_doubted,
    BindNotDone: _not_done,
    BindRefused: _on_refused,
    ReadBackSent: _read_back,
    PodRead: _on_found,
    PodUnreadable: _on_unread,
    PodSeen: _on_shown,
    PodGone: _on_gone,
    PodEvicted: _on_evicted,
}
