"""What gangs below their minimum lose to a claim: single members only where they ran and may lose those."""

from __future__ import annotations

import pytest

from tests.session.running import runs


def torn(c, *, disruption="Pod", starts=False, roles=None):
    """Two of four members have a place, a GPU each; the others wait: they were lost and made again, or not bound yet."""
    c.node("n0", gpus=2)
    group = {"disruption": disruption, "min_member": 4, "roles": roles}
    runs(c, "torn", "n0 n0", since=c.now - 30, role_of=("worker", "worker"))
    c.group("torn", phase="Inqueue" if starts else "Running", **group)
    born = c.now - (60 if starts else 10)
    for number in (2, 3):
        c.pod(f"torn-{number}", group="torn", gpus=1, rank=number, created=born, role="worker")
    return c


def evicted_for_one_gpu(c):
    """Who leaves for a single pod of a higher priority."""
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    return c.then.evicted()


@pytest.mark.parametrize("roles", [None, {"worker": 4}])
def test_a_gang_that_lost_members_can_spare_each_of_the_others(given, roles):
    """It does no work with those that it has: one suffices."""
    assert evicted_for_one_gpu(torn(given, roles=roles)) == ["torn-1"]


@pytest.mark.parametrize("roles", [None, {"worker": 4}])
def test_group_mode_gives_up_no_single_member_below_the_minimum_either(given, roles):
    """Given disruption.mode Group, then all that is left leaves, as its author asked for."""
    c = torn(given, disruption="Group", roles=roles)
    assert evicted_for_one_gpu(c) == ["torn-0", "torn-1"]


@pytest.mark.parametrize("roles", [None, {"worker": 4}])
@pytest.mark.parametrize("mode", ["Pod", "Group"])
def test_a_start_under_way_is_ended_as_a_whole_or_not_at_all(given, mode, roles):
    """Given a gang of which bindings have failed and are tried again, then no single member leaves."""
    c = torn(given, disruption=mode, starts=True, roles=roles)
    assert evicted_for_one_gpu(c) == ["torn-0", "torn-1"]


def test_a_start_under_way_gives_no_member_to_growth(given):
    """Given that others only ask for spare members, then it has none."""
    c = torn(given, disruption="Extras", starts=True)
    assert evicted_for_one_gpu(c) == []
