"""Sessions that end when they have started somebody, and leave everybody else to the session that follows."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.pod import PodPhase
from gpusched.base.clock import SystemClock
from gpusched.cache.snapshot import TenantRound
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import decide
from gpusched.session.state.order.round_progress import RoundProgress
from gpusched.session.state.session_cache import SessionCache
from tests.populations import WHOLE
from tests.session.state.kept_histories import DECIDED
from tests.session.state.test_gang_rounds import Rounds
from tests.session.state.test_tenant_looks import rounds_of


def resting(*lengths, more=()):
    """Lines that are too long for a session, everybody of which was looked at; a node is full of pods of one GPU.

    Args:
        lengths: of the lines.
        more: gangs of one GPU that wait, by name, with their queues.
    """
    rounds = Rounds(*lengths)
    c = rounds.c.nodes(1, prefix="more", gpus=8)
    for slot in range(8):
        c.pod(
            f"small-{slot}", gpus=1, node="more-1", slots=1 << slot, plan="p", queue="q0",
            scheduled=c.now - 5, phase=PodPhase.RUNNING,
        )  # fmt: skip
    for name, queue in more:
        c.gang(name, pods=1, gpus=1, queue=queue)
    rounds.until_rest()
    return rounds


def started(plan):
    return [each.gang.name for each in plan.binds]


def anew(snapshot, policy, **changes):
    """The session that would be held on a snapshot if nothing were kept."""
    return decide(
        attrs.evolve(snapshot, **changes), policy, guard=PluginGuard(SystemClock()),
        session_cache=SessionCache(),
    )  # fmt: skip


def test_a_session_that_started_a_gang_leaves_the_others_to_the_next():
    """Given long lines at rest, when a pod ends and a gang starts, its session tells of nobody else, and the next one looks at everybody."""
    rounds = resting(30, 30, more=[("fits", "q0"), ("second", "q1")])
    c = rounds.c
    c.gone("small-0")
    rounds.changes += 1
    before = c.cache.rounds
    told, follows = rounds.session()
    assert c.decision.ended_early
    assert len(started(c.decision.plan)) == 1
    assert (told, follows, c.decision.waiting, c.decision.plan.queues) == (set(), True, {}, ())
    whole = anew(c.snapshot, c.policy, may_end_early=False)
    assert started(whole.plan) == started(c.decision.plan)
    assert [(each.left, each.looked_at) for each in c.cache.rounds] == [
        (each.left, each.looked_at) for each in before
    ]
    c.when.carry_out(c.decision.plan)
    rounds.changes += 1
    told, _ = rounds.session()
    assert not c.decision.ended_early
    assert told >= {"second", "g1-0"}


def test_the_session_after_one_that_ended_early_is_whole():
    """Given room for several gangs, then every other session at least looks at everybody who is to be looked at."""
    rounds = resting(30, 30, more=[(f"fits-{number}", f"q{number % 2}") for number in range(8)])
    c, early, names = rounds.c, [], set()
    for slot in range(4):
        c.gone(f"small-{slot}")
    rounds.changes += 1
    while len(names) < 4:
        rounds.session()
        early.append(c.decision.ended_early)
        names.update(started(c.decision.plan))
        c.when.carry_out(c.decision.plan)
        rounds.changes += 1
    assert early[0]
    assert not any(one and two for one, two in pairwise(early))


def test_what_ended_meanwhile_is_told_by_the_session_that_follows():
    """Given a gang that is done when another starts, then its status is not lost with what the session left out."""
    rounds = resting(30, 30, more=[("fits", "q0")])
    c = rounds.c
    c.gang("done", pods=1, gpus=1, queue="q0", phase=PodPhase.SUCCEEDED, node="more-1")
    c.gone("small-0")
    rounds.changes += 1
    rounds.session()
    assert c.decision.ended_early
    assert "done" in {gang.key.name for gang in c.snapshot.gangs}
    c.when.carry_out(c.decision.plan)
    rounds.changes += 1
    rounds.session()
    assert "done" in {gang.key.name for gang in c.snapshot.gangs}


def test_a_session_with_new_gangs_looks_at_all_of_them():
    """Given gangs of long lines that nobody looked at yet, then a session that starts some does not end before them."""
    rounds = resting(30, 30)
    c = rounds.c
    for slot in range(2):
        c.gone(f"small-{slot}")
    c.gang("new", pods=1, gpus=1, queue="q0")
    rounds.changes += 1
    rounds.session()
    assert "new" in started(c.decision.plan)
    assert not c.decision.ended_early


def test_a_gang_that_may_grow_gets_the_places_that_it_has_with_all_its_members():
    """Given that a gang starts that has more members than it needs, then its session is whole, and binds them together."""
    rounds = resting(30, 30)
    c = rounds.c
    c.gang("grows", pods=2, min_member=1, gpus=2, queue="q0", created=c.now - 900)
    rounds.changes += 1
    rounds.until_rest()
    for slot in range(4):
        c.gone(f"small-{slot}")
    rounds.changes += 1
    rounds.session()
    assert not c.decision.ended_early
    (bind,) = c.decision.plan.binds
    assert bind.gang.name == "grows"
    assert len(bind.binds) == 2


def test_a_session_that_ended_early_counts_for_no_round():
    """Given that a session ended early, then the next one follows at once, knows of the same change, and does not end early."""
    progress = RoundProgress()
    progress.begin_session(1, (), now=0.0)
    assert progress.may_end_early
    following = progress.note_session(1, rounds=(), stays_until=9.0, now=0.0, ended_early=True)
    assert following == (None, 0.0)
    assert not progress.may_end_early
    rounds = progress.begin_session(1, (TenantRound("q", "n", rests=True),), now=0.0)
    assert [(each.changed, each.rests) for each in rounds] == [(True, False)]
    progress.note_session(1, rounds=(), stays_until=9.0, now=0.0)
    assert progress.may_end_early


def test_a_start_does_not_wait_for_the_round_whose_time_has_come():
    """Given a round through long lines that is to go on now, when a pod ends, then the gang that starts is found first, and the round goes on next."""
    rounds = resting(30, 30, more=[("z-fits", "q0")])
    c = rounds.c
    c.gang("new", pods=1, gpus=9, queue="q1")
    rounds.changes += 1
    told, _ = rounds.session()
    assert told == {"g0-0", "g1-0", "new"}
    assert c.now == c.snapshot.now + 1, "the others are to be looked at a second later"
    c.gone("small-0")
    rounds.changes += 1
    rounds.session()
    assert (started(c.decision.plan), c.decision.ended_early) == (["z-fits"], True)
    assert all(each.paused for each in c.snapshot.tenant_rounds)
    c.when.carry_out(c.decision.plan)
    rounds.changes += 1
    told, _ = rounds.session()
    assert len(told) > 3


def test_a_round_gives_way_to_a_change_once():
    """Given a change before each session, then a round whose time has come is left to the next session, and not by that one again."""
    progress, rounds = (
        RoundProgress(),
        (TenantRound("q", "n", left=(GangKey("PodGroup", "n", "a"),)),),
    )

    def paused(changes, now):
        (found,) = progress.begin_session(changes, rounds, now=now)
        progress.note_session(changes, rounds=rounds, stays_until=9.0, now=now)
        return found.paused

    assert paused(1, now=0.0)
    assert [paused(2 + number, now=1.0) for number in range(2)] == [True, False]
    assert paused(4, now=1.5)
    assert not paused(4, now=2.0), "nothing has changed"
    assert [paused(5 + number, now=3.0) for number in range(2)] == [True, False]


@pytest.mark.parametrize("seed", range(60 if WHOLE else 12))
def test_who_starts_early_would_start_in_a_whole_session_in_the_same_places(seed):
    """Given random changes, then a session that ends early gives what a whole one gives first, and is as anew."""
    for c in rounds_of(seed):
        found = c.decision
        if not found.ended_early:
            continue
        again = anew(c.snapshot, c.policy)
        assert [name for name in DECIDED if getattr(found, name) != getattr(again, name)] == []
        whole = anew(c.snapshot, c.policy, may_end_early=False)
        assert set(found.plan.binds) <= set(whole.plan.binds)
