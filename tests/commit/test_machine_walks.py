"""Random walks: a small world of pods, a scheduler, an API that loses answers, and time."""

from __future__ import annotations

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.commit.machine import advance_commit
from gpusched.commit.model import (
    FINAL,
    BindCreated,
    BindNotDone,
    BindRefused,
    BindSent,
    BindUnknown,
    CommitAccepted,
    CommitPhase,
    CommitState,
    DeadlinePassed,
    DoBind,
    DoConfirm,
    DoEvict,
    DoForget,
    DoReadBack,
    DoReadGroup,
    GroupRead,
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
from gpusched.commit.observed_pod import ObservedPod
from tests.populations import examples


@attrs.define
class World:
    """The truth, and what is under way between it and the machine."""

    state: CommitState
    data: st.DataObject
    group: object
    bound: set[int] = attrs.Factory(set)
    gone: set[int] = attrs.Factory(set)
    taken: set[int] = attrs.Factory(set)
    landing: set[int] = attrs.Factory(set)
    todo: list[tuple] = attrs.Factory(list)
    confirmed: set[int] = attrs.Factory(set)
    forgotten: set[int] = attrs.Factory(set)
    faults: bool = True

    def feed(self, event):
        """One step; its effects become things to do."""
        if self.state.phase in FINAL:
            return
        self.state, effects = advance_commit(self.state, event)
        for effect in effects:
            match effect:
                case DoConfirm(index):
                    assert index not in self.forgotten | self.confirmed
                    self.confirmed.add(index)
                case DoForget(indices):
                    assert not self.confirmed & set(indices)
                    self.forgotten |= set(indices)
                case DoBind(indices, _):
                    self.todo += [("bind", i) for i in indices]
                case DoReadBack(index, delay_s):
                    self.todo.append(("settle" if delay_s > 2 else "read", index))
                case DoReadGroup(_):
                    self.todo.append(("group", 0))
                case DoEvict(indices):
                    self.todo += [("evict", i) for i in indices]

    def facts(self, i):
        """What the API would say of a pod."""
        if i in self.gone:
            return None
        bind = self.state.gang.binds[i]
        free = ObservedPod(bind.uid, "", "", "", deleting=False, gated=False)
        if i in self.taken:
            return attrs.evolve(free, node="n-x", plan="other", fence="other/9")
        if i in self.bound:
            return attrs.evolve(free, node=bind.node, plan=self.state.plan, fence=self.state.fence)
        return free

    def land(self, i):
        """A binding reaches the server's storage."""
        free = i not in self.gone | self.taken | self.bound
        if free:
            self.bound.add(i)
        return free

    def do(self, kind, i):
        """Carry out one effect, with whatever answer."""
        draw = self.data.draw
        if kind == "group":
            self.feed(GroupRead(self.group))
        elif kind == "bind":
            if self.state.phase not in FINAL and self.state.stage_of_pod(i) is PodStage.ASSUMED:
                self.feed(BindSent(i))
                self.answer(i, draw(st.sampled_from(OUTCOMES)) if self.faults else "honest")
        elif kind in ("read", "settle"):
            if kind == "settle" and i in self.landing:
                self.landing.discard(i)
                self.land(i)
            if self.state.phase not in FINAL and self.state.stage_of_pod(i) is PodStage.UNKNOWN:
                self.feed(ReadBackSent(i))
                lost = self.faults and draw(st.booleans())
                self.feed(PodUnreadable(i, "no answer") if lost else PodRead(i, self.facts(i)))
                if lost and kind == "settle":
                    return
        elif kind == "evict":
            self.bound.discard(i)
            self.gone.add(i)
            self.feed(PodEvicted(i))

    def answer(self, i, outcome):
        """What came of a binding that was sent."""
        if outcome == "lost-undone":
            self.feed(BindUnknown(i, "reset"))
        elif outcome == "lost-late":
            # Still on its way inside the server: lands later, or when the server gives up.
            self.landing.add(i)
            self.feed(BindUnknown(i, "reset"))
        elif outcome == "lost-done":
            self.land(i)
            self.feed(BindUnknown(i, "timeout"))
        elif outcome == "busy":
            self.feed(BindNotDone(i, "429"))
        elif outcome == "denied":
            self.feed(BindRefused(i, "403", denied=True))
        elif i in self.gone:
            self.feed(BindRefused(i, "404"))
        elif self.land(i):
            if outcome == "watch-first":
                self.feed(PodSeen(i, self.facts(i)))
            self.feed(BindCreated(i))
        else:
            self.feed(BindUnknown(i, "409"))


OUTCOMES = ("honest", "watch-first", "lost-undone", "lost-late", "lost-done", "busy", "denied")
TURNS = ("work", "work", "work", "show", "delete", "steal", "land", "fence", "depose")


@settings(max_examples=examples(100, whole=250), deadline=None)
@given(data=st.data(), pods=st.integers(1, 5), extras=st.integers(0, 2), placed=st.integers(0, 2))
def test_no_walk_leaves_a_gang_in_part(make_gang_and_group, data, pods, extras, placed):
    """Whatever fails: no pod is both confirmed and forgotten, no room is freed under a bound
    pod, and when all has settled the gang is whole or nothing of the plan is bound.
    """
    make, group = make_gang_and_group
    need = max(1, pods + placed - extras)
    gang = make(
        pods, need=need, placed=placed, kind=data.draw(st.sampled_from(["Job", "PodGroup"]))
    )
    world = World(CommitState.for_bind(gang, "me/1"), data, group)
    world.feed(CommitAccepted())
    for turn in data.draw(st.lists(st.sampled_from(TURNS), max_size=25)):
        i = data.draw(st.integers(0, pods - 1))
        if turn == "work" and world.todo:
            world.do(*world.todo.pop(data.draw(st.integers(0, len(world.todo) - 1))))
        elif turn == "show" and (facts := world.facts(i)) is not None:
            world.feed(PodSeen(i, facts))
        elif turn == "delete":
            world.gone.add(i)
            world.bound.discard(i)
            world.landing.discard(i)
            world.feed(PodGone(i))
        elif turn == "steal" and i not in world.bound | world.gone:
            world.taken.add(i)
            world.landing.discard(i)
        elif turn == "land" and i in world.landing:
            world.landing.discard(i)
            world.land(i)
        elif turn == "fence":
            world.feed(LeadershipLost())
        elif turn == "depose":
            world.feed(TermSuperseded())
    world.faults = False
    _calm(world)
    state = world.state
    assert state.phase in FINAL or state.phase is CommitPhase.UNDOING
    alive = world.bound - world.gone
    if state.phase is CommitPhase.RELEASED and not state.superseded:
        assert not alive
    if state.phase is CommitPhase.BOUND:
        assert state.gang.placed + state.confirmed >= state.gang.min_member
    assert not world.forgotten & alive
    assert not world.confirmed & world.forgotten


def _calm(world):
    """No more faults: everything is answered, then the deadline passes."""
    for _ in range(2):
        while world.todo:
            world.do(*world.todo.pop(0))
        world.feed(DeadlinePassed())
