"""A gang whose minimum has succeeded asks for a sub-group as a whole, where pods wait in one."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing import entities
from tests.session.running import runs


def second_part(c, *, queue, size=2):
    """Sub-group a has succeeded, which was enough; b waits for its pods."""
    parts = (SubGroup("a", 1, TopologyRequest()), SubGroup("b", size, TopologyRequest()))
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
