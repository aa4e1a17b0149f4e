"""What a session needed is free when its plan is made, without a search for cycles."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import attrs
import pytest

from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.view import View
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given
from tests.session.preempt.test_stable_claims import only_one_victim, three


@attrs.frozen
class Witness:
    """A policy that notes which hooks and views it was shown, without holding them."""

    seen: list[weakref.ref[Any]]
    name = "witness"
    api = 1

    def open(self, hooks: Hooks, view: View) -> None:
        """See ``Plugin``."""
        self.seen.extend((weakref.ref(hooks), weakref.ref(view)))
        hooks.gang_order(lambda gang: (len(view.queues()), -gang.priority))


@pytest.fixture
def no_collection():
    """Python does not look for cycles meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_nothing_of_a_session_outlives_its_plan(no_collection: None) -> None:
    """Given gangs that start and wait, whoever was asked: arrays of all nodes are free at once."""
    seen: list[weakref.ref[Any]] = []
    c = cluster_under(Witness(seen)).nodes(2, gpus=8)
    c.gang("fits", pods=2, gpus=8)
    c.gang("waits", pods=2, gpus=8)

    for _ in range(2):
        c.when.carried_out()

    assert len(seen) == 4
    assert [each() for each in seen] == [None] * 4
    assert c.then.faults() == ()


def test_tables_of_victims_go_with_their_session(no_collection: None) -> None:
    """Given a claim whose victim is asked whether it would evict others, and one that is in vain."""
    for given, evicted in ((three, ["guest-0"]), (only_one_victim, [])):
        c = given(Given())
        c.when.one_session()
        assert c.then.evicted() == evicted
        left = {type(each).__name__ for each in gc.get_objects()}
        assert not left & {"Preemption", "VictimSelector", "VictimTable", "ChainCheck", "Session"}
