"""Partitions of GPUs: what the counters cannot hold is refused at once, and proven."""

from __future__ import annotations

import pytest

from gpusched.devcluster.controllers.nodes.devices.device_entries import DeviceEntry
from gpusched.devcluster.controllers.nodes.devices.published_slices import classes_of, slices_of
from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.requests import make_ready
from tests.devices.conftest import claim_entity, recorded, world

ENTRIES = (DeviceEntry("mig", 2),)
PROFILES = {"half": "3g.40gb", "seventh": "1g.10gb"}


def gpus():
    """One node with two GPUs that can be partitioned."""
    return world({"resourceSlices": slices_of("n", ENTRIES), "deviceClasses": classes_of(ENTRIES)})


def claims(there, **counts):
    """So many claims of one device of each kind."""
    found = []
    for kind, count in counts.items():
        body = {"deviceClassName": "gpu.nvidia.com"}
        if kind in PROFILES:
            text = f"device.attributes['gpu.nvidia.com'].profile == '{PROFILES[kind]}'"
            body = {
                "deviceClassName": "mig.nvidia.com",
                "selectors": [{"cel": {"expression": text}}],
            }
        spec = {"devices": {"requests": [{"name": "r", "exactly": body}]}}
        entity = claim_entity({"metadata": {"name": kind}, "spec": spec})
        found += [make_ready(kind, entity.spec, there.catalog.classes)] * count
    return found


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"seventh": 14}, True),
        ({"seventh": 15}, False),
        ({"whole": 1, "half": 1, "seventh": 4}, True),
        ({"whole": 1, "half": 1, "seventh": 5}, False),
        ({"half": 3, "seventh": 4}, True),
        ({"half": 3, "seventh": 5}, False),
    ],
)
def test_what_two_gpus_hold_is_known_in_a_few_steps(asked, fits):
    """Alike claims without the hint that they are, so that a search alone would go on for ever."""
    there = gpus()
    found = allocate(
        there.inventory, there.usage, there.devices_of("n"), claims(there, **asked), steps_max=500
    )
    assert found.outcome is (AllocationOutcome.ALLOCATED if fits else AllocationOutcome.NONE)


def test_what_others_hold_is_taken_off():
    there = gpus()
    held = allocate(there.inventory, there.usage, there.devices_of("n"), claims(there, half=1))
    there.usage.add(held.claims[0].devices)
    # The half lies where it costs three sevenths; four are left beside it.
    for count, fits in ((12, False), (11, True)):
        found = allocate(
            there.inventory, there.usage, there.devices_of("n"), claims(there, seventh=count),
            steps_max=500,
        )  # fmt: skip
        assert (found.outcome is AllocationOutcome.ALLOCATED) == fits, found.outcome


LISTED = [
    case
    for case in recorded("allocator-cases")
    if case["expect"]["outcome"] == "allocated"
    and not case["allocatedDevices"]
    and not case["allocatedCapacity"]
]


@pytest.mark.parametrize("case", LISTED, ids=lambda case: case["name"])
def test_first_fit_chooses_what_kubernetes_chooses(case):
    """The baseline of experiments: device for device what Kubernetes' own allocator gave."""
    there = world(case, frozenset(case["features"]))
    ready = [
        make_ready(each["metadata"]["name"], claim_entity(each).spec, there.catalog.classes)
        for each in case["claims"]
    ]
    node = there.devices_of(case["node"]["name"], case["node"].get("labels"))
    found = allocate(there.inventory, there.usage, node, ready, near=False, listed=True)
    ours = [
        sorted((each.request, each.driver, each.pool, each.device) for each in one.devices)
        for one in found.claims
    ]
    theirs = [
        sorted((e["request"], e["driver"], e["pool"], e["device"]) for e in one["results"])
        for one in case["expect"]["allocations"]
    ]
    assert ours == theirs
