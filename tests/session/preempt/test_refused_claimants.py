"""What policies refuse to one claimant says nothing of a smaller one of its class."""

from __future__ import annotations

import pytest

from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs


@pytest.fixture
def given():
    """An owner of four GPUs, and a guest that holds all there are."""
    c = Given().node("n0", gpus=8)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}}, weight=0)
    return runs(c, "lent", "n0 n0 n0 n0 n0 n0 n0 n0", min_member=1, queue="guest")


@pytest.mark.parametrize("large", [5, 8])
def test_a_gang_that_asks_for_less_is_asked_about_itself(given, large):
    """The older gang needs more than its queue is due; the younger one of the same pods does not."""
    given.queue("owner", limits={"deserved": {entities.GPU: 4}}, weight=0)
    given.gang("large", pods=large, gpus=1, queue="owner", created=entities.BORN)
    given.gang("small", pods=2, gpus=1, queue="owner", created=entities.BORN + 1)
    given.when.carried_out()
    assert len(given.then.evicted()) == 2
    given.now += 1.0
    given.when.bound()
    assert given.then.started() == ["small"]


def test_a_gang_that_asks_for_more_is_not_asked_about(given):
    """Nor is the larger one served where the smaller one was refused."""
    given.queue("owner", limits={"deserved": {entities.GPU: 1}}, weight=0)
    given.gang("two", pods=2, gpus=1, queue="owner", created=entities.BORN)
    given.gang("three", pods=3, gpus=1, queue="owner", created=entities.BORN + 1)
    given.when.one_session()
    assert given.then.evicted() == []
