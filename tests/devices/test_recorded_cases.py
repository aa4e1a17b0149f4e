"""Each recorded call of Kubernetes' allocators: the same outcome, and a choice that is as good."""

from __future__ import annotations

import pytest

from gpusched.api.meta.quantity import format_billionths, parse_billionths
from gpusched.devices.allocator import allocate
from gpusched.devices.requests import make_ready
from tests.devices.conftest import claim_entity, device_id, recorded, world

CASES = recorded("allocator-cases")


def taken(case, there):
    """Usage with what the case says is in use."""
    whole = [each for each in case["allocatedDevices"] if not _shares(case, each)]
    for each in whole:
        there.usage.add_device(device_id(each), share=False)
    for each in case["allocatedCapacity"]:
        there.usage.add_device(
            device_id(each),
            share=True,
            consumed=[
                (name if "/" in name else f"{each['driver']}/{name}", parse_billionths(amount))
                for name, amount in each["consumedCapacity"].items()
            ],
        )


def _shares(case, device):
    return any(device_id(each) == device_id(device) for each in case["allocatedCapacity"])


def decide(case):
    there = world(case, frozenset(case["features"]))
    taken(case, there)
    claims = [
        make_ready(each["metadata"]["name"], claim_entity(each).spec, there.catalog.classes)
        for each in case["claims"]
    ]
    node = there.devices_of(case["node"]["name"], case["node"].get("labels"))
    return there, allocate(there.inventory, there.usage, node, claims)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_outcome_is_that_of_kubernetes(case):
    _, found = decide(case)
    want = case["expect"]["outcome"]
    if want == "error" and case["expect"]["scope"] == "node":
        want = "none"
    assert found.outcome.value == want, found


ALLOCATED = [case for case in CASES if case["expect"]["outcome"] == "allocated"]


@pytest.mark.parametrize("case", ALLOCATED, ids=lambda case: case["name"])
def test_no_better_alternative_was_to_be_had(case):
    """Names of results tell which alternatives Kubernetes took: never better ones than ours."""
    _, found = decide(case)
    for ours, theirs in zip(found.claims, case["expect"]["allocations"], strict=True):
        assert sorted(each.request for each in ours.devices) == sorted(
            each["request"] for each in theirs["results"]
        )


@pytest.mark.parametrize("case", ALLOCATED, ids=lambda case: case["name"])
def test_equal_devices_have_equal_results(case):
    """Where the choice is the same, so are shares, conditions, nodes and settings of drivers."""
    _, found = decide(case)
    released = case.get("in_1_36_1", case["expect"])
    for number, (ours, theirs) in enumerate(
        zip(found.claims, case["expect"]["allocations"], strict=True)
    ):
        if {(each.request, each.driver, each.pool, each.device) for each in ours.devices} != {
            (each["request"], *device_id(each)) for each in theirs["results"]
        }:
            continue
        wanted = {(each["request"], device_id(each)): each for each in theirs["results"]}
        for each in ours.devices:
            want = wanted[each.request, (each.driver, each.pool, each.device)]
            consumed = {
                name.removeprefix(f"{each.driver}/"): format_billionths(amount)
                for name, amount in each.consumed
            }
            assert consumed == (want.get("consumedCapacity") or {})
            assert each.admin == want.get("adminAccess", False)
            assert bool(each.share) == want.get("shared", False)
            assert list(each.binding_conditions) == want.get("bindingConditions", [])
        assert (ours.nodes is None) == (theirs.get("nodeSelector") is None)
        told = [
            [(each["source"], tuple(each.get("requests") or ())) for each in one.get("config", ())]
            for one in (theirs, *released.get("allocations", ())[number : number + 1])
        ]
        assert [(each.source, each.config.requests) for each in ours.configs] in told


def test_usage_is_the_same_after_a_search():
    """Whatever was tried is undone."""
    for case in CASES:
        there = world(case)
        taken(case, there)
        before = sorted(map(str, there.usage.taken_devices()))
        claims = [
            make_ready(each["metadata"]["name"], claim_entity(each).spec, there.catalog.classes)
            for each in case["claims"]
        ]
        node = there.devices_of(case["node"]["name"], case["node"].get("labels"))
        allocate(there.inventory, there.usage, node, claims)
        assert sorted(map(str, there.usage.taken_devices())) == before
