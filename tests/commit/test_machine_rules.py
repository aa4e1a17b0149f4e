"""What the commit machine promises beyond single steps: barrier, tries, repair, undo, story."""

from __future__ import annotations

import pytest

from gpusched.base import limits
from gpusched.base.errors import InvariantBroken
from gpusched.commit.machine import advance_commit
from gpusched.commit.model import (
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
    GroupRead,
    GroupUnreadable,
    LeadershipLost,
    PodEvicted,
    PodGone,
    PodRead,
    PodSeen,
    PodStage,
    ReadBackSent,
)


def run(state, *events):
    """The state after some events and the effects of the last."""
    effects = ()
    for event in events:
        state, effects = advance_commit(state, event)
    return state, effects


def test_a_pod_group_is_read_before_anything_is_sent(gang, group_facts):
    """The barrier: no binding before the PodGroup is seen unchanged."""
    state, effects = run(CommitState.for_bind(gang(), "f"), CommitAccepted())
    assert effects == (DoReadGroup(),)
    with pytest.raises(InvariantBroken):
        advance_commit(state, BindSent(0))
    _, effects = run(state, GroupRead(group_facts()))
    assert effects == (DoBind((0, 1)),)


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_gangs_without_a_pod_group_need_no_barrier(gang, kind):
    """There is nothing to read."""
    _, effects = run(CommitState.for_bind(gang(kind=kind), "f"), CommitAccepted())
    assert effects == (DoBind((0, 1)),)


@pytest.mark.parametrize("changed", [{"generation": 4}, {"deleting": True}, {"uid": "u-other"}])
def test_a_changed_pod_group_drops_the_decision(gang, group_facts, changed):
    """Resized, deleting or made again: everything is forgotten, nothing was sent."""
    state, effects = run(
        CommitState.for_bind(gang(), "f"), CommitAccepted(), GroupRead(group_facts(**changed))
    )
    assert state.phase is CommitPhase.RELEASED
    assert effects[0] == DoForget((0, 1))
    assert effects[1].phase is CommitPhase.RELEASED
    assert "changed since the decision" in effects[1].why


def test_a_pod_group_that_cannot_be_read_is_tried_three_times(gang):
    """With growing pauses; then the decision is dropped."""
    state, first = run(CommitState.for_bind(gang(), "f"), CommitAccepted(), GroupUnreadable("503"))
    state, second = run(state, GroupUnreadable("503"))
    assert first == (DoReadGroup(0.25),)
    assert second == (DoReadGroup(0.5),)
    state, _ = run(state, GroupUnreadable("503"))
    assert state.phase is CommitPhase.RELEASED


def test_a_member_lost_before_the_barrier_means_no_start_in_part(gang):
    """One of two is deleted while the PodGroup is read: the other is not bound either."""
    state, effects = run(CommitState.for_bind(gang(), "f"), CommitAccepted(), PodGone(0))
    assert state.phase is CommitPhase.RELEASED
    assert DoForget((1,)) in effects


def test_free_after_doubt_means_the_same_again_three_times(at, facts):
    """Three tries with growing pauses; the last read-back waits until the server gave up."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    pauses, reads = [], []
    for _ in range(limits.BIND_TRIES_MAX):
        state, (read,) = run(state, BindUnknown(0, "timeout"))
        reads.append(read.delay_s)
        state, effects = run(state, ReadBackSent(0), PodRead(0, facts("free", state)))
        if state.stage_of_pod(0) is PodStage.ASSUMED:
            pauses.append(effects[0].delay_s)
            state, _ = run(state, BindSent(0))
    assert state.stage_of_pod(0) is PodStage.FORGOTTEN
    assert pauses == [0.25, 0.5]
    assert reads == [0.0, 0.0, limits.BIND_TIMEOUT_SERVER_S]


def test_once_stopping_free_is_not_believed_at_once(at, facts):
    """The server may still be working on it: read again after its own timeout, then forget."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    state, _ = run(state, LeadershipLost(), BindUnknown(0, "reset"), ReadBackSent(0))
    state, effects = run(state, PodRead(0, facts("free", state)))
    assert effects == (DoReadBack(0, limits.BIND_TIMEOUT_SERVER_S),)
    state, effects = run(state, ReadBackSent(0), PodRead(0, facts("free", state)))
    assert effects[0] == DoForget((0,))


@pytest.mark.parametrize(
    "end",
    [
        (BindNotDone(0, "429"),),
        (BindRefused(0, "404"),),
        (BindRefused(0, "403", denied=True),),
    ],
)
def test_an_earlier_try_may_still_land(at, facts, end):
    """A reset, free when read, then a definite answer to the second try: the first one may
    still be inside the server, so the room is kept until that has given up.
    """
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    state, _ = run(
        state, BindUnknown(0, "reset"), ReadBackSent(0), PodRead(0, facts("free", state))
    )
    state, _ = run(state, BindSent(0), LeadershipLost())
    state, effects = run(state, *end)
    assert state.stage_of_pod(0) is PodStage.UNKNOWN
    assert effects[0] == DoReadBack(0, limits.BIND_TIMEOUT_SERVER_S)


def test_withdrawing_a_second_try_reads_once_more(at, facts):
    """The same when the second try was never sent."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    state, _ = run(
        state, BindUnknown(0, "reset"), ReadBackSent(0), PodRead(0, facts("free", state))
    )
    state, effects = run(state, LeadershipLost())
    assert effects == (DoReadBack(0, limits.BIND_TIMEOUT_SERVER_S),)


def test_not_done_is_tried_without_end_until_the_deadline(at):
    """A server that is away longer than three tries loses nothing, and time alone stops it."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    for _ in range(50):
        state, effects = run(state, BindNotDone(0, "no connection"))
        assert effects == (DoBind((0,), limits.BIND_RETRY_S),)
        state, _ = run(state, BindSent(0))
    state, effects = run(state, DeadlinePassed(), BindNotDone(0, "no connection"))
    assert effects == (DoForget((0,)),)


def test_a_denial_stops_the_gang_and_doubts_the_lease(at):
    """403: what was not sent is forgotten; what was is followed."""
    state = at([PodStage.SENT, PodStage.SENT, PodStage.ASSUMED], [1, 1, 0])
    state, effects = run(state, BindRefused(0, "403", denied=True))
    assert DoDoubtLease("403") in effects
    assert DoForget((2,)) in effects
    assert state.stage_of_pod(1) is PodStage.SENT


def test_a_missing_pod_spares_the_rest_of_a_gang_that_cannot_be_whole(at):
    """404 of a member that is needed: its siblings are not sent any more."""
    state = at([PodStage.SENT, PodStage.ASSUMED], [1, 0])
    state, effects = run(state, BindRefused(0, "404"))
    assert state.phase is CommitPhase.RELEASED
    assert DoForget((1,)) in effects


def test_extras_above_the_minimum_never_trigger_anything(at):
    """One of three fails where two are needed: the gang is bound."""
    state = at([PodStage.CONFIRMED, PodStage.CONFIRMED, PodStage.SENT], [0, 0, 1], need=2)
    state, effects = run(state, BindRefused(2, "404"))
    assert state.phase is CommitPhase.BOUND
    assert effects[-1].phase is CommitPhase.BOUND


def test_members_placed_before_count(at):
    """A plan for the rest of a gang completes it."""
    state = at([PodStage.SENT], [1], need=4, placed=3)
    state, effects = run(state, BindCreated(0))
    assert effects == (DoConfirm(0), DoSettle(CommitPhase.BOUND, ""))


def test_part_waits_for_repair_and_is_undone_at_the_deadline(at):
    """Bound in part: a later plan may help until the deadline; then only ours is evicted."""
    state = at([PodStage.CONFIRMED, PodStage.SENT], [0, 1])
    state, effects = run(state, BindRefused(1, "404"))
    assert state.phase is CommitPhase.REPAIR
    assert effects[-1] == DoSettle(CommitPhase.REPAIR, "pod ns/p-1: 404")
    state, effects = run(state, DeadlinePassed())
    assert effects == (DoEvict((0,)),)
    state, effects = run(state, PodEvicted(0))
    assert state.phase is CommitPhase.RELEASED


def test_after_the_deadline_the_last_answer_decides(at):
    """A late 201 that completes the gang is kept; one that does not is taken back."""
    for answer, phase in (
        (BindCreated(1), CommitPhase.BOUND),
        (BindRefused(1, "404"), CommitPhase.UNDOING),
    ):
        state = at([PodStage.CONFIRMED, PodStage.SENT], [0, 1])
        state, _ = run(state, DeadlinePassed(), answer)
        assert state.phase is phase


def test_all_members_gone_in_repair_ends_it(at):
    """Nothing is left to complete or to undo."""
    state = at([PodStage.CONFIRMED, PodStage.FORGOTTEN], phase=CommitPhase.REPAIR)
    state, effects = run(state, PodGone(0))
    assert state.phase is CommitPhase.RELEASED
    assert effects[0].phase is CommitPhase.RELEASED


@pytest.mark.parametrize("call", [0, 1])
def test_a_successor_with_the_same_plan_did_not_do_our_work(at, facts, call):
    """A leader that was paused wakes: same plan, same node, another fence. Nothing is broken."""
    state = at([PodStage.SENT if call else PodStage.ASSUMED, PodStage.ASSUMED], [call, 0])
    shown = PodSeen(0, facts("successor", state))
    lost, effects = run(state, shown)
    assert lost.stage_of_pod(0) is PodStage.FORGOTTEN
    assert DoForget((0,)) in effects
    if not call:
        ended, _ = run(state, LeadershipLost(), shown)
        assert ended.phase is CommitPhase.RELEASED
    else:
        after, _ = run(state, LeadershipLost(), shown, BindUnknown(0, "409: bound already"))
        assert after.phase is CommitPhase.RELEASED


def test_a_binding_whose_node_is_not_the_one_decided_on_is_left(at):
    """Its node was made again: it is forgotten, and its siblings with it if they need it."""
    state = at([PodStage.ASSUMED, PodStage.ASSUMED])
    state, effects = run(state, BindVoided(0, "node n-0 was removed and added again"))
    assert state.phase is CommitPhase.RELEASED
    assert effects[:2] == (DoForget((0,)), DoForget((1,)))
    assert "removed and added again" in state.why


def test_a_second_try_whose_node_is_gone_is_read_once_more(at, facts):
    """The first one may still land: the room is kept until the server has given up."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    state, _ = run(
        state, BindUnknown(0, "reset"), ReadBackSent(0), PodRead(0, facts("free", state))
    )
    _, effects = run(state, BindVoided(0, "node n-0 is gone"))
    assert effects == (DoReadBack(0, limits.BIND_TIMEOUT_SERVER_S),)


def test_a_confirmed_pod_that_another_leader_bound_elsewhere_is_let_go(at, facts):
    """The store went back in time and was written since: what it shows is what there is."""
    state = at([PodStage.CONFIRMED, PodStage.FORGOTTEN], phase=CommitPhase.REPAIR)
    state, effects = run(state, PodSeen(0, facts("lost", state)))
    assert state.phase is CommitPhase.RELEASED
    assert effects[0] == DoForget((0,))


def test_a_binding_that_was_given_up_and_happens_is_kept(at, facts):
    """A server that was stopped itself answers late: the API is right."""
    state = at([PodStage.FORGOTTEN, PodStage.SENT], [0, 1], tries=bytes([limits.BIND_TRIES_MAX, 0]))
    state, effects = run(state, PodSeen(0, facts("ours", state)))
    assert effects == (DoConfirm(0),)
    assert state.stage_of_pod(0) is PodStage.CONFIRMED


@pytest.mark.parametrize(
    "what", ["deleting", "gated", "again", "elsewhere", "forged", "lost", "successor"]
)
def test_what_a_read_back_calls_lost(at, facts, what):
    """Deleting, gated, made again, bound by others or by an older leader: forget."""
    state = at([PodStage.UNKNOWN, PodStage.SENT], [2, 1])
    state, _ = run(state, PodRead(0, facts(what, state)))
    assert state.stage_of_pod(0) is PodStage.FORGOTTEN


def test_annotations_changed_after_the_binding_prove_nothing(at, facts):
    """Whoever may patch pods cannot stop the commits of all others."""
    state = at([PodStage.CONFIRMED, PodStage.SENT], [0, 1])
    after, effects = run(state, PodSeen(0, facts("elsewhere", state)))
    assert (after, effects) == (state, ())


def test_the_story_tells_pod_node_and_what_happened(at, facts):
    """A broken invariant is explained by one message."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    state, _ = run(state, BindUnknown(0, "HTTP 500"))
    with pytest.raises(InvariantBroken) as broken:
        run(state, PodSeen(0, facts("broken", state)))
    for part in ("ns/g", state.plan, "ns/p-0", "u-0", "n-0", "unknown", "HTTP 500", "n-x"):
        assert part in str(broken.value)


def test_the_story_is_bounded(at):
    """Fifty failures leave a short story and the first cause."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    for n in range(50):
        state, _ = run(state, BindNotDone(0, f"failure {n}"), BindSent(0))
    assert len(state.story) == limits.COMMIT_STORY_MAX
    assert state.why == "failure 0"
    assert state.story[-1] == "failure 49"


def test_a_step_changes_no_state_but_makes_one(at):
    """The old state is still what it was: the machine is a function."""
    state = at([PodStage.SENT, PodStage.SENT], [1, 1])
    copy = at([PodStage.SENT, PodStage.SENT], [1, 1])
    assert advance_commit(state, BindCreated(0)) == advance_commit(state, BindCreated(0))
    assert state == copy


def test_an_empty_gang_cannot_be_accepted(gang):
    """There is nothing to bind."""
    with pytest.raises(InvariantBroken):
        advance_commit(CommitState.for_bind(gang(0), "f"), CommitAccepted())
