"""A queue whose extras are below what it deserves gets them back from others' extras above it."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs
from tests.shipped_policy import with_arguments


def lent(c: Given, *, guest: int = 2, least: int = 1, extras: int = 2) -> Given:
    """An owner's gang of two with extras that wait; a guest's gang holds the other six GPUs."""
    c.node("n0", gpus=8)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: guest}})
    runs(c, "own", "n0 n0", min_member=1, queue="owner")
    runs(c, "lent", "n0 n0 n0 n0 n0 n0", min_member=least, queue="guest")
    for number in range(extras):
        c.pod(f"own-more-{number}", group="own", gpus=1, rank=2 + number)
    return c


@pytest.fixture
def given():
    """An empty cluster under the shipped policy."""
    return Given()


def test_extras_within_what_is_deserved_take_back_extras_above_it(given):
    """Two leave, the last in rank; both extras get the room that is held for them."""
    c = lent(given)
    c.when.carried_out()
    assert c.then.evicted() == ["lent-4", "lent-5"]
    c.now += 1.0
    c.when.bound()
    assert c.then.nodes() == {"own-more-0": "n0", "own-more-1": "n0"}
    c.now += 1.0
    c.when.one_session()
    assert (c.then.nodes(), c.then.evicted()) == ({}, [])


def test_extras_above_what_is_deserved_wait_and_say_so(given):
    """Of four extras two are within it; the others take nothing, and the sentence has the numbers."""
    c = lent(given, extras=4)
    c.when.carried_out()
    assert len(c.then.evicted()) == 2
    c.now += 1.0
    c.when.bound()
    c.now += 1.0
    c.when.one_session()
    assert c.then.evicted() == []
    assert (
        "others give members for its growth only within what queue 'owner' deserves: it holds 4 of "
        "4 nvidia.com/gpu"
    ) in c.then.why("own")


def test_no_minimum_is_broken_for_an_extra(given):
    """The guest's gang needs all that it has."""
    c = lent(given, least=6)
    c.when.one_session()
    assert c.then.evicted() == []


def test_a_gang_below_its_minimum_gives_nothing(given):
    """It has lost a member; what it has left is not spare."""
    c = lent(given, least=7)
    c.when.one_session()
    assert c.then.evicted() == []


@pytest.mark.parametrize(("guest", "evicted"), [(6, 0), (5, 1), (4, 2)])
def test_a_queue_gives_only_what_it_holds_above_what_it_deserves(given, guest, evicted):
    """The guest holds six."""
    c = lent(given, guest=guest)
    c.when.one_session()
    assert len(c.then.evicted()) == evicted


def test_extras_wait_where_the_operator_says_so():
    """With ``growth: wait`` no member leaves for an extra."""
    c = lent(Given(config=with_arguments(fairshare={"growth": "wait"})))
    c.when.one_session()
    assert c.then.evicted() == []


def test_room_is_held_while_victims_end(given):
    """Two sessions pass in which the victims are still ending; nobody else gets their room."""
    c = lent(given)
    c.gang("other", pods=1, gpus=1, queue="guest")
    c.when.carried_out(gone=False)
    leaving = c.then.evicted()
    for _ in range(2):
        c.now += 1.0
        c.when.carried_out(gone=False)
        assert (c.then.nodes(), c.then.evicted()) == ({}, [])
        assert c.then.reason("own") == "PreemptionInProgress"
    for name in leaving:
        c.gone(name)
    c.now += 1.0
    c.when.one_session()
    assert c.then.nodes() == {"own-more-0": "n0", "own-more-1": "n0"}


def test_one_victim_ends_before_the_other(given):
    """Each extra is bound as soon as there is room for it, and the rest is still held."""
    c = lent(given)
    c.when.carried_out(gone=False)
    c.gone("lent-5")
    c.now += 1.0
    c.when.carried_out(gone=False)
    assert len(c.then.nodes()) == 1
    c.gone("lent-4")
    c.now += 1.0
    c.when.carried_out(gone=False)
    assert (len(c.then.nodes()), c.then.evicted()) == (1, [])


def test_what_was_taken_is_not_taken_back(given):
    """The guest's members are made again; they are above what their queue deserves and wait."""
    c = lent(given)
    c.when.carried_out()
    for number in (4, 5):
        c.pod(f"lent-again-{number}", group="lent", gpus=1, rank=number)
    for _ in range(4):
        c.now += 1.0
        c.when.carried_out()
        assert c.then.evicted() == []
    assert {"own-more-0", "own-more-1"} <= {pod.name for pod in c.cache.pods.values() if pod.node}


def test_minima_come_before_extras(given):
    """A gang of the owner's waits for as much as is left to it: the extra does not take it."""
    c = lent(given)
    c.gang("new", pods=2, gpus=1, queue="owner")
    c.when.carried_out()
    assert c.then.status("own").pending_reason.reason != "PreemptionInProgress"
    assert len(c.then.evicted()) == 2
    c.now += 1.0
    c.when.bound()
    assert c.then.started() == ["new"]


def test_two_gangs_of_a_queue_grow_alike(given):
    """Each of them gets one of the two that their queue is due."""
    c = given.node("n0", gpus=8)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 2}})
    for name in ("one", "two"):
        runs(c, name, "n0", min_member=1, queue="owner")
        for number in range(3):
            c.pod(f"{name}-more-{number}", group=name, gpus=1, rank=1 + number)
    runs(c, "lent", "n0 n0 n0 n0 n0 n0", min_member=1, queue="guest")
    c.when.carried_out()
    assert len(c.then.evicted()) == 2
    c.now += 1.0
    c.when.bound()
    assert c.then.nodes() == {"one-more-0": "n0", "two-more-0": "n0"}


def parted(c: Given, *, more: tuple[str, ...]) -> Given:
    """The owner's gang has one sub-group of two, complete; members of others wait."""
    c.node("n0", gpus=8)
    c.queue("owner", limits={"deserved": {entities.GPU: 4}})
    c.queue("guest", limits={"deserved": {entities.GPU: 2}})
    parts = tuple(SubGroup(name, 2, TopologyRequest()) for name in ("a", "b"))
    c.group("own", queue="owner", min_member=2, sub_groups=parts, min_sub_groups=1)
    for rank in range(2):
        c.pod(
            f"own-{rank}", group="own", gpus=1, rank=rank, sub_group="a", node="n0",
            slots=1 << rank, plan="p", phase=PodPhase.RUNNING, scheduled=entities.BORN,
        )  # fmt: skip
    runs(c, "lent", "n0 n0 n0 n0 n0 n0", min_member=1, queue="guest")
    for number, part in enumerate(more):
        c.pod(f"own-more-{number}", group="own", gpus=1, rank=2 + number, sub_group=part)
    return c


@pytest.mark.parametrize(
    ("more", "evicted"), [(("a",), 1), (("b",), 0), (("b", "b"), 2), (("a", "a", "a"), 2)]
)
def test_a_further_sub_group_comes_whole_or_not_at_all(given, more, evicted):
    """Members of one that is complete come one by one; those of another with its minimum."""
    c = parted(given, more=more)
    c.when.carried_out()
    assert len(c.then.evicted()) == evicted
    c.now += 1.0
    c.when.bound()
    assert len(c.then.nodes()) == evicted
    c.now += 1.0
    c.when.one_session()
    assert c.then.evicted() == []
