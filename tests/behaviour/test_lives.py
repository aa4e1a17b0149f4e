"""Lives in sessions: nothing is started to be evicted at once, no victim evicts; and the watch sees it."""

from __future__ import annotations

import pytest

from tests.behaviour.histories import stability
from tests.behaviour.histories.life_stories import draw_life
from tests.behaviour.histories.session_life import SessionLife
from tests.behaviour.histories.stability import Evicted, Outside, Started
from tests.behaviour.notation.cases import parse_cases
from tests.populations import one_of


@pytest.mark.parametrize(
    "seed", one_of(2, [1, 4, 13, 19, 22, 28, 80, 115, 235, 333, 614, 683, 822], first=1)
)
def test_a_life_is_stable(seed):
    """Seeds that started and evicted, or made chains, or failed, before these were looked for."""
    (case,) = parse_cases(draw_life(seed), family="life")
    life = SessionLife(case).run()
    assert life.wrong == []
    assert stability.early(life.journal) == []
    assert stability.chains(life.journal) == []


@pytest.mark.parametrize("seed", [250, 408, 505])
def test_nobody_starves_in_a_life(seed):
    """A smaller gang stood behind a refused one of its class; one waits for stability, and not for ever."""
    (case,) = parse_cases(draw_life(seed), family="life")
    life = SessionLife(case).run()
    assert life.starving() == []
    assert life.wrong == []


def test_rights_that_run_in_a_circle_leave_no_room_idle():
    """g2 had priority over g9, g3 a right to g2's room, g9 to g3's: each start was taken back for the next, for ever."""
    (case,) = parse_cases(draw_life(864), family="life")
    life = SessionLife(case).run()
    assert life.wrong == []
    told = {each.gang.name: each.scheduled.message for each in life.given.then.plan.gangs}
    assert "of which it would be evicted at once for default/g3" in told["g2"]


def started(at, gang, *pods, whole=True):
    """Pods of a gang of the queue of that letter were bound."""
    return Started(at, gang, gang[0], pods or (gang,), whole)


def evicted(at, gang, claimant, *pods, whole=True):
    """Pods of a gang go for another one."""
    return Evicted(at, gang, gang[0], pods or (gang,), claimant, claimant[:1], whole)


@pytest.mark.parametrize(
    ("journal", "found"),
    [
        ([Outside(0), started(0, "a1"), evicted(1, "a1", "b1")], 1),
        ([Outside(0), started(0, "a1"), evicted(11, "a1", "b1")], 0),
        ([Outside(0), started(0, "a1"), Outside(1), evicted(1, "a1", "b1")], 0),
        ([started(0, "a1"), started(5, "a1", "x", whole=False), evicted(11, "a1", "b1", "x")], 0),
        (
            [
                started(0, "a1"),
                started(5, "a1", "x", whole=False),
                evicted(11, "a1", "b1", "x", whole=False),
            ],
            1,
        ),
        ([started(0, "a1"), evicted(1, "a1", "")], 0),
        ([started(0, "a1"), evicted(1, "c1", ""), evicted(2, "a1", "c1")], 0),
        ([evicted(0, "c1", ""), started(1, "a1"), evicted(2, "a1", "c1")], 1),
    ],
)
def test_the_watch_sees_what_is_started_and_evicted_at_once(journal, found):
    """Unless something happened meanwhile; members above the minimum count by themselves."""
    assert len(stability.early(journal)) == found


@pytest.mark.parametrize(
    ("journal", "chains", "passed_on", "again"),
    [
        ([evicted(1, "a1", "b1"), evicted(2, "c1", "a1")], 1, 0, 0),
        ([evicted(1, "a1", "b1"), Outside(2), evicted(2, "c1", "a1")], 0, 0, 0),
        ([evicted(1, "a1", "b1"), evicted(2, "d1", ""), evicted(3, "c1", "a1")], 0, 0, 0),
        ([evicted(1, "a1", "b1"), evicted(2, "c1", "a2")], 0, 1, 0),
        ([evicted(1, "a1", "b1"), evicted(1, "c1", "a1")], 0, 0, 0),
        ([evicted(1, "a1", "b1"), evicted(2, "a1", "b2")], 0, 0, 1),
    ],
)
def test_the_watch_sees_who_evicts_after_it_was_evicted(journal, chains, passed_on, again):
    """A victim, another gang of its queue, and a gang that loses twice are told apart."""
    assert len(stability.chains(journal)) == chains
    assert len(stability.passed_on(journal)) == passed_on
    assert len(stability.again(journal)) == again
