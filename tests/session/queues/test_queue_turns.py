"""Queues are compared with their siblings, and stand there with the gang they would serve."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest

from gpusched.actions.allocate import Allocate
from gpusched.session.allocate.queue_order import in_queue_order
from gpusched.session.state.policy import Policy
from gpusched.session.state.session import Session
from gpusched.testing.given import Given
from tests.session.running import runs


@attrs.frozen
class Order:
    """Largest next gang first, except that queue ``last`` comes last wherever it stands."""

    name: ClassVar[str] = "order"
    api: ClassVar[int] = 1

    def open(self, hooks, _view):
        """See the class."""
        hooks.queue_order(lambda node: (node.queue.name == "last",))
        hooks.queue_turn(lambda _node, gang: (-gang.pending,))


@pytest.fixture
def c():
    """A cluster under that order."""
    return Given(policy=Policy(actions=(Allocate(),), tiers=((Order(),),)))


def order(c):
    """Names of all gangs in the order of their turns."""
    snapshot = c.cache.take_snapshot(c.now)
    session = Session(
        snapshot,
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=c.session_cache,
        placement=c.placement,
    )
    return [gang.key.name for gang in in_queue_order(session, session.gangs)]


def test_siblings_are_compared_first(c):
    """A child is compared below its parent only, whatever its own key against strangers."""
    c.queue("last").queue("last-a", parent="last").queue("b").queue("b-a", parent="b")
    c.queue("b-b", parent="b")
    c.gang("huge", pods=9, queue="last-a").gang("small", pods=1, queue="b-a")
    c.gang("mid", pods=3, queue="b-b")
    assert order(c) == ["mid", "small", "huge"]


def test_an_inner_queue_stands_with_the_gang_of_its_best_child(c):
    """Its own key follows the gang that would come out of it, turn by turn."""
    c.queue("x").queue("x-a", parent="x").queue("x-b", parent="x").queue("y")
    c.gang("x1", pods=5, queue="x-a").gang("x2", pods=2, queue="x-b").gang("y1", pods=3, queue="y")
    assert order(c) == ["x1", "y1", "x2"]


def test_silent_policies_let_siblings_take_turns(c):
    """Equal queues alternate, at each level of the tree."""
    c.queue("x").queue("x-a", parent="x").queue("x-b", parent="x").queue("y")
    for name, queue in (("1", "x-a"), ("2", "x-a"), ("3", "x-b"), ("4", "y"), ("5", "y")):
        c.gang(name, pods=1, queue=queue)
    assert order(c) == ["1", "4", "3", "5", "2"]


def test_queues_that_do_not_exist_come_last(c):
    """Each gang still gets its turn, so that it can be told why it waits."""
    c.gang("lost", pods=9, queue="nowhere").gang("found", pods=1)
    assert order(c) == ["found", "lost"]


def test_a_parent_with_gangs_of_its_own(c):
    """Its own gangs and its childrens' all get their turn exactly once."""
    c.queue("x").queue("x-a", parent="x")
    c.gang("own", pods=1, queue="x").gang("a1", pods=1, queue="x-a").gang("a2", pods=1, queue="x-a")
    assert sorted(order(c)) == ["a1", "a2", "own"]


def test_a_gang_at_its_minimum_grows_before_one_above_it(given):
    """The first member beyond the minimum comes before another gang's second, whatever their age."""
    c = given.node("n1", gpus=4)
    runs(c, "old", "n1 n1", min_member=1)
    runs(c, "young", "n1", min_member=1)
    c.pod("old-more", group="old", gpus=1)
    c.pod("young-more", group="young", gpus=1)
    c.when.one_session()
    assert c.then.nodes() == {"young-more": "n1"}
