"""A gang whose minimum has succeeded asks for a sub-group as a whole, where pods wait in one, and waits for it."""

from __future__ import annotations

import pytest

from gpusched.api.affinity.pod_terms import PodTerm
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities
from tests.session.running import runs


def second_part(c, *, queue, size=2):
    """Sub-group a has succeeded, which was enough; b waits for its pods."""
    parts = (SubGroup("a", 1, TopologyRequest()), SubGroup("b", size or 2, TopologyRequest()))
    c.group("parts", queue=queue, min_member=1, sub_groups=parts, min_sub_groups=1)
    c.pod("parts-a", group="parts", sub_group="a", gpus=1, phase=PodPhase.SUCCEEDED)
    for n in range(size):
        c.pod(f"parts-b{n}", group="parts", sub_group="b", gpus=1, rank=n + 1)


@pytest.mark.parametrize(("capability", "bound"), [(2, 0), (3, 2)])
def test_it_stays_within_the_capability_of_its_queue(given, capability, bound):
    """Both members of b start or none does: the queue holds one already."""
    given.node("n0", gpus=8).queue("a", limits={"capability": {entities.GPU: capability}})
    runs(given, "own", "n0", queue="a")
    second_part(given, queue="a")
    given.when.carried_out()
    assert sum(name.startswith("parts-b") for name in given.then.nodes()) == bound


@pytest.mark.parametrize(("deserved", "evicted"), [(2, 0), (3, 1)])
def test_its_queue_takes_back_no_more_than_it_is_due(given, deserved, evicted):
    """One GPU is free: with one more the queue would hold three."""
    given.node("n0", gpus=6)
    given.queue("a", weight=0, limits={"deserved": {entities.GPU: deserved}})
    given.queue("b", weight=0, limits={"deserved": {entities.GPU: 2}})
    runs(given, "own", "n0", queue="a")
    for n in range(4):
        runs(given, f"lent-{n}", "n0", queue="b")
    second_part(given, queue="a")
    given.when.one_session()
    assert len(given.then.evicted()) == evicted


def full_of_others(c, **lent):
    """Four GPUs, all of them held by gangs of another queue; what the queue of ``parts`` is due."""
    c.node("n0", gpus=4)
    c.queue("a", weight=0, limits={"deserved": {entities.GPU: 4}})
    c.queue("b", weight=0, **lent)
    for n in range(4):
        runs(c, f"lent-{n}", "n0", queue="b")


@pytest.mark.parametrize("size", [1, 2])
def test_room_that_is_being_freed_for_it_stays_promised(given, size):
    """While the victims have not left no session promises it anew, as promises would never end so."""
    full_of_others(given)
    second_part(given, queue="a", size=size)
    claims = []
    for _ in range(3):
        given.when.carried_out(gone=False)
        claims.append(sum(len(each.nominations) for each in given.then.plan.preemptions))
        given.now += 1.0
    assert claims == [size, 0, 0]
    assert f"room for {size} pod" in given.then.why("parts")


def test_it_is_told_which_sub_group_finds_no_room(given):
    """Nobody can be evicted for it."""
    full_of_others(given, reclaimable=False)
    second_part(given, queue="a")
    given.when.one_session()
    assert given.then.why("parts") == (
        "its minimum has succeeded; sub-group b finds no room for 2 pods"
    )


def test_a_member_of_a_complete_sub_group_is_told_that_it_finds_no_room(given):
    """Sub-group a has what it needs, and one more of its pods waits."""
    full_of_others(given, reclaimable=False)
    second_part(given, queue="a", size=0)
    given.pod("parts-more", group="parts", sub_group="a", gpus=1, rank=5)
    given.when.one_session()
    assert given.then.why("parts") == ("its minimum has succeeded; there is no room for 1 more")


def test_it_goes_on_where_rules_between_its_pods_are_followed_one_by_one(given):
    """One member of b keeps off the node of the other, which asks for nothing of the kind."""
    host = "kubernetes.io/hostname"
    for n in range(2):
        given.node(f"n{n}", gpus=2, labels={host: f"n{n}"})
    given.queue("a")
    second_part(given, queue="a", size=0)
    apart = PodTerm(host, Selector((Requirement("app", "In", ("x",)),)))
    for n, rules in enumerate(([], [apart])):
        given.pod(
            f"parts-b{n}", group="parts", sub_group="b", gpus=1, rank=n + 1, labels={"app": "x"},
            pod_anti_affinity=rules,
        )  # fmt: skip
    given.when.carried_out()
    assert sorted(given.then.nodes().values()) == ["n0", "n1"]
