"""The next state of a commit while one step works it out: the words the machine is written in."""

from __future__ import annotations

from typing import Final, NoReturn

from gpusched import limits
from gpusched.commit.facts import PodFacts, Verdict
from gpusched.commit.model import (
    CommitState,
    DoConfirm,
    DoEvict,
    DoForget,
    DoReadBack,
    DoSettle,
    Effect,
    Event,
    Phase,
    Stage,
)
from gpusched.errors import InvariantBroken

NO_CALL: Final = 0
BIND_CALL: Final = 1
READ_CALL: Final = 2


class Draft:
    """A mutable copy of a ``CommitState``; see ``CommitState`` for its fields."""

    __slots__ = (
        "calls", "counts", "effects", "event", "late", "old", "phase", "reads", "stages",
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
        self.reads = old.reads
        self.why = old.why
        self.story = old.story
        self.effects: list[Effect] = []

    def freeze(self) -> CommitState:
        """The state it has become."""
        old = self.old
        return CommitState(
            gang=old.gang, plan=old.plan, fence=old.fence, phase=self.phase,
            stages=bytes(self.stages), tries=bytes(self.tries), calls=bytes(self.calls),
            counts=tuple(self.counts), stopping=self.stopping, late=self.late,
            superseded=self.superseded, reads=self.reads,
            why=self.why, story=self.story,
        )  # fmt: skip

    # -- words ------------------------------------------------------------------------------

    def move(self, index: int, to: Stage) -> None:
        """Put one pod at a stage."""
        self.counts[self.stages[index]] -= 1
        self.counts[to] += 1
        self.stages[index] = to

    def confirm(self, index: int) -> None:
        """The pod is bound as decided."""
        self.move(index, Stage.CONFIRMED)
        self.effects.append(DoConfirm(index))

    def forget(self, index: int, why: str, *, stage: Stage = Stage.FORGOTTEN) -> None:
        """The pod will not be bound by this plan."""
        self.move(index, stage)
        self.effects.append(DoForget((index,)))
        self.tell(f"pod {self.old.gang.binds[index].key}: {why}")

    def withdraw(self, why: str) -> None:
        """Send nothing new: what was never sent is forgotten at once."""
        self.stopping = True
        self.tell(why)
        idle = [i for i, own in enumerate(self.stages) if own == Stage.ASSUMED]
        never_sent = tuple(i for i in idle if not self.tries[i])
        if never_sent:
            for index in never_sent:
                self.move(index, Stage.FORGOTTEN)
            self.effects.append(DoForget(never_sent))
        for index in idle:
            if self.tries[index]:
                self.read_last(index)

    def read_last(self, index: int) -> None:
        """An earlier try may still be on its way: look once more when the server gave it up."""
        self.move(index, Stage.UNKNOWN)
        self.tries[index] = limits.BIND_TRIES_MAX
        self.effects.append(DoReadBack(index, limits.BIND_TIMEOUT_SERVER_S))

    def tell(self, what: str) -> None:
        """Add to the story; the first thing told is also the reason given to people."""
        self.story = (*self.story[1 - limits.STORY_MAX :], what)
        self.why = self.why or what

    def broken(self, why: str) -> NoReturn:
        """Raise ``InvariantBroken`` with the whole story."""
        old = self.old
        lines = [
            f"commit of {old.gang.gang} under plan {old.plan}: {why}",
            f"phase {old.phase}, event {self.event}",
            f"needs {old.gang.min_member}, placed before {old.gang.placed}",
            "pods " + ", ".join(f"{s.name.lower()} {old.counts[s]}" for s in Stage),
            *old.story,
        ]
        index = getattr(self.event, "index", None)
        if index is not None and index < len(old.gang.binds):
            bind = old.gang.binds[index]
            lines.insert(
                1,
                f"pod {bind.key} uid {bind.uid} for node {bind.node}: "
                f"{old.stage(index).name.lower()}, tries {old.tries[index]}",
            )
        raise InvariantBroken("; ".join(lines))

    def end_call(self, index: int, kind: int) -> Stage:
        """An answer came: note it, and say where the pod stands."""
        if self.calls[index] != kind:
            self.broken("an answer that nothing asked for")
        self.calls[index] = NO_CALL
        return Stage(self.stages[index])

    def verdict(self, index: int, facts: PodFacts) -> Verdict:
        """What facts mean for one pod; raises when they show that we contradict ourselves."""
        found = facts.verdict(self.old.gang.binds[index], plan=self.old.plan, fence=self.old.fence)
        if found is Verdict.BROKEN:
            self.broken(f"the API shows our own plan on another node: {facts.text()}")
        return found

    # -- the gang ---------------------------------------------------------------------------

    @property
    def reachable(self) -> int:
        """Members there can still be."""
        return self.old.gang.placed + sum(self.counts[: Stage.CONFIRMED + 1])

    def settle(self) -> None:
        """Move the gang where its pods have brought it."""
        counts = self.counts
        if self.phase in (Phase.VERIFIED, Phase.BINDING):
            gang = self.old.gang
            reachable = self.reachable
            if not self.stopping and reachable < gang.min_member:
                self.withdraw(f"only {reachable} of {gang.min_member} members are left")
            if counts[0] or counts[1] or counts[2] or counts[3]:
                return
            if not counts[Stage.CONFIRMED] or self.superseded:
                self.rest(Phase.RELEASED)
            elif reachable >= gang.min_member:
                self.rest(Phase.BOUND)
            elif self.late:
                self.undo()
            else:
                self.rest(Phase.REPAIR)
        elif self.phase in (Phase.REPAIR, Phase.UNDOING) and not counts[Stage.CONFIRMED]:
            self.rest(Phase.RELEASED)

    def rest(self, phase: Phase) -> None:
        """The gang came to rest."""
        self.phase = phase
        self.effects.append(DoSettle(phase, self.why))

    def undo(self) -> None:
        """Take back what this plan bound."""
        self.phase = Phase.UNDOING
        self.tell("not whole within the recovery time: what this plan bound is evicted")
        bound = tuple(i for i, own in enumerate(self.stages) if own == Stage.CONFIRMED)
        self.effects.append(DoEvict(bound))
