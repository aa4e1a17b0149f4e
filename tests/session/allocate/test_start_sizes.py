"""Gangs that cannot start with exactly what they need, because sub-groups come whole."""

from __future__ import annotations

import pytest

from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup
from gpusched.testing.given import Given


def crew(c: Given, cap: int) -> Given:
    """Two leaders of two GPUs, which the role needs, and three workers of one, which come as one."""
    c.nodes(1, gpus=8).queue("q", limits={"capability": {"nvidia.com/gpu": cap}})
    c.group(
        "g", queue="q", min_member=1, roles={"leader": 2},
        sub_groups=(SubGroup("workers", 3, NO_TOPOLOGY_REQUEST),), min_sub_groups=1,
    )  # fmt: skip
    c.pods("leader", 2, group="g", role="leader", gpus=2)
    return c.pods("worker", 3, group="g", role="worker", sub_group="workers", gpus=1)


def test_a_start_with_more_members_than_needed_obeys_the_quota(given: Given) -> None:
    """It needs three at least, but starts with five and seven GPUs: a cap of six forbids that."""
    c = crew(given, 6)
    c.when.one_session()
    assert c.then.started() == []
    assert "queue q" in c.then.why("g")
    assert "7 nvidia.com/gpu" in c.then.why("g")


def test_with_the_quota_for_it_all_five_start(given: Given) -> None:
    """Seven GPUs for five members."""
    c = crew(given, 7)
    c.when.one_session()
    assert len(c.then.nodes()) == 5


@pytest.mark.parametrize(("sizes", "least", "started"), [((2, 3), 1, 2), ((4, 3), 2, 7)])
def test_the_fewest_members_that_complete_sub_groups_start(
    given: Given, sizes: tuple[int, ...], least: int, started: int
) -> None:
    """A minimum of one member is none where sub-groups need more; the room is exact."""
    c = given.nodes(started, gpus=1)
    c.group(
        "g", min_member=1, min_sub_groups=least,
        sub_groups=tuple(SubGroup(f"s{n}", size, NO_TOPOLOGY_REQUEST) for n, size in enumerate(sizes)),
    )  # fmt: skip
    for number, size in enumerate(sizes):
        c.pods(f"s{number}", size, group="g", sub_group=f"s{number}", gpus=1)
    c.when.one_session()
    assert len(c.then.nodes()) == started
