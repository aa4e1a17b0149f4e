"""Gangs whose pods must all run: joint allocation finds what taking pods one by one misses."""

from __future__ import annotations

import itertools

import pytest

from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.requests import make_ready
from tests.devices.conftest import claim_entity, recorded, world


def placements(case):
    """Each way to spread the pods over the nodes."""
    names = [each["metadata"]["name"] for each in case["nodes"]]
    return itertools.product(names, repeat=len(case["pods"]))


def all_run(case, there, where):
    """Whether the pods find devices on these nodes, all of them together."""
    claims = {
        each["metadata"]["name"]: make_ready(
            each["metadata"]["name"], claim_entity(each).spec, there.catalog.classes
        )
        for each in case["claims"]
    }
    for node in set(where):
        asked = [
            claims[ref["resourceClaimName"]]
            for pod, at in zip(case["pods"], where, strict=True)
            if at == node
            for ref in pod["spec"]["resourceClaims"]
        ]
        found = allocate(there.inventory, there.usage, there.devices_of(node), asked)
        assert found.outcome is not AllocationOutcome.BOUNDED
        if found.outcome is not AllocationOutcome.ALLOCATED:
            return False
    return True


@pytest.mark.parametrize("case", recorded("gang-cases"), ids=lambda case: case["name"])
def test_a_gang_runs_where_a_joint_allocation_exists(case):
    """An exhaustive search over nodes and devices made the data; here nodes alone are gone through."""
    there = world(case)
    assert any(all_run(case, there, where) for where in placements(case)) == case["feasible"]
