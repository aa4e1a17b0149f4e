"""Departments that claim: what goes inside one counts before what others owe it."""

from __future__ import annotations

import pytest

from tests.session.queues.test_reclaim_gates import deserves
from tests.session.running import runs


@pytest.fixture
def departments(given):
    """Two departments, ``d2`` with a queue that borrows and one that deserves all of it."""
    given.queue("d1", limits=deserves(0)).queue("d2", limits=deserves(4))
    given.queue("a", parent="d1", limits=deserves(0))
    given.queue("b", parent="d2", limits=deserves(0))
    return given.queue("c", parent="d2", limits=deserves(4))


def test_room_comes_from_the_own_department_and_from_another(departments):
    """Neither suffices alone, and only together do they keep the department within its due."""
    c = departments.node("n1", gpus=4)
    runs(c, "a-runs", "n1", gpus=2, queue="a")
    runs(c, "b-runs", "n1", gpus=2, queue="b").gang("claim", pods=1, gpus=4, queue="c")
    c.when.one_session()
    assert c.then.evicted() == ["a-runs-0", "b-runs-0"]


def test_no_more_comes_from_others_than_the_department_is_due(departments):
    """Of three loans to others two would do, but the department itself gives first."""
    c = departments.node("n1", gpus=6)
    runs(c, "x", "n1", gpus=2, queue="a")
    runs(c, "y", "n1", gpus=2, queue="a")
    runs(c, "b-runs", "n1", gpus=2, queue="b").gang("claim", pods=1, gpus=4, queue="c")
    c.when.one_session()
    gone = c.then.evicted()
    assert "b-runs-0" in gone
    assert len(gone) == 2


def test_others_keep_what_they_have_where_the_department_cannot_give(departments):
    """What is not preemptible inside the department keeps it at its due: nobody leaves."""
    c = departments.node("n1", gpus=4)
    runs(c, "a-runs", "n1", gpus=2, queue="a")
    runs(c, "b-runs", "n1", gpus=2, queue="b", group={"preemptible": False})
    c.gang("claim", pods=1, gpus=4, queue="c")
    c.when.one_session()
    assert c.then.evicted() == []


def test_a_department_below_its_due_takes_from_others_first_in_their_order(departments):
    """Where it may hold the claimant as it is, its own queues have no turn of their own."""
    c = departments.node("n1", gpus=4)
    runs(c, "a-runs", "n1", gpus=3, queue="a")
    runs(c, "b-runs", "n1", gpus=1, queue="b").gang("claim", pods=1, gpus=3, queue="c")
    c.when.one_session()
    assert c.then.evicted() == ["a-runs-0"]


def test_losses_found_by_trial_are_spread_over_queues(given):
    """A gang of two kinds of pods takes one from each of two queues that are equally over."""
    c = given.node("n1", gpus=6)
    for name in ("a", "b"):
        c.queue(name, limits=deserves(2))
        for number in range(3):
            runs(c, f"{name}{number}", "n1", queue=name)
    c.queue("c", limits=deserves(2)).group("claim", queue="c", min_member=2)
    c.pods("claim-one", 1, group="claim", gpus=1)
    c.pods("claim-two", 1, group="claim", gpus=1, cpu=2000)
    c.when.one_session()
    assert sorted(name[0] for name in c.then.evicted()) == ["a", "b"]
