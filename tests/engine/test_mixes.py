"""The mixes of M6 in small: the same gangs under each policy, and how long they run on each type."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.lab.experiments.mixes import (
    ROLES_MIX,
    TYPES_MIX,
    mix_arrivals,
    play_roles,
    play_types,
    role_configurations,
    type_policies,
)

FEW_ROLES = attrs.evolve(ROLES_MIX, gangs=10, nodes=12, load=1.5)
FEW_TYPES = attrs.evolve(TYPES_MIX, gangs=10, nodes=8, load=1.5)


@pytest.mark.parametrize("name", sorted(role_configurations()))
def test_every_gang_of_several_roles_ends(name: str) -> None:
    record = play_roles(name, mix=FEW_ROLES)
    assert [job.end for job in record.jobs] == ["Succeeded"] * 10
    assert not record.broken
    assert not record.evictions


@pytest.mark.parametrize("name", sorted(type_policies()))
def test_a_gang_runs_as_fast_as_its_slowest_gpus(name: str) -> None:
    """Whatever a policy knows, it takes the time at speed 1 divided by the speed on one of its types."""
    record = play_types(name, mix=FEW_TYPES)
    assert [job.end for job in record.jobs] == ["Succeeded"] * 10
    asked = {}
    for arrival in mix_arrivals(FEW_TYPES, told=False):
        group = arrival.objects[0]
        shape = next(
            each for each in FEW_TYPES.shapes if group["metadata"]["name"].startswith(each.name)
        )
        asked[group["metadata"]["name"]] = (group["spec"]["expectedDuration"], shape.a100)
    for job in record.jobs:
        assert job.ended is not None
        assert job.ready is not None
        expected, a100 = asked[job.key.partition("/")[2]]
        seconds = parse_duration(expected) / NANOSECONDS
        ran = job.ended - job.ready
        assert min(abs(ran - seconds), abs(ran - seconds / a100)) < 2
