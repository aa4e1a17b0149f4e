"""Devices that claims hold beyond what there is of them."""

from __future__ import annotations

import json

import pytest

from gpusched.api.devices.dynamic.decode import CODECS
from gpusched.devices.inventory import PoolId
from gpusched.devices.usage import overbooked_devices

POOL = PoolId("d", "node-0")
COUNTERS = [{"name": "set", "counters": {"memory": {"value": "40"}}}]
DEVICES = [
    {"name": "whole"},
    {
        "name": "shared",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80"}},
    },
    *(
        {
            "name": name,
            "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "20"}}}],
        }
        for name in ("part-0", "part-1", "part-2")
    ),
]


def slice_of(devices=DEVICES, counters=COUNTERS, generation=1):
    spec = {
        "driver": "d",
        "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": generation, "resourceSliceCount": 1},
        "devices": devices,
        "sharedCounters": counters,
    }
    metadata = {"name": f"s-{generation}", "uid": "s", "resourceVersion": "1"}
    text = json.dumps({"metadata": metadata, "spec": spec})
    return CODECS["ResourceSlice"].entity_of(text.encode())


def claim(name, *results):
    found = [
        {"request": "r", "driver": "d", "pool": "node-0", "device": device, **more}
        for device, more in results
    ]
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}
    status = {"allocation": {"devices": {"results": found}}}
    whole = {"metadata": metadata, "spec": {"devices": {}}, "status": status}
    return CODECS["ResourceClaim"].entity_of(json.dumps(whole).encode())


def share(amount):
    return {"shareID": f"id-{amount}", "consumedCapacity": {"memory": str(amount)}}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([[("whole", {})]], []),
        ([[("whole", {})], [("whole", {})]], ["whole"]),
        ([[("whole", {})], [("whole", {"adminAccess": True})]], []),
        ([[("shared", share(40))], [("shared", share(39))]], []),
        ([[("shared", share(40))], [("shared", share(41))]], ["shared"]),
        ([[("shared", {})], [("shared", share(1))]], ["shared"]),
        ([[("part-0", {})], [("part-1", {})]], []),
        ([[("part-0", {})], [("part-1", {})], [("part-2", {})]], ["part-0", "part-1", "part-2"]),
        ([[("unknown", {})], [("unknown", {})]], ["unknown"]),
    ],
)
def test_what_is_held_beyond_what_there_is(claims, expected):
    held = [claim(f"c-{number}", *results) for number, results in enumerate(claims)]
    found = overbooked_devices(POOL, [slice_of()], held)
    assert sorted(each.device for each in found) == expected


def test_only_the_newest_generation_tells_what_there_is():
    parts = [claim(f"c-{number}", (f"part-{number}", {})) for number in range(3)]
    more = [{"name": "set", "counters": {"memory": {"value": "60"}}}]
    slices = [slice_of(), slice_of(counters=more, generation=2)]
    assert not overbooked_devices(POOL, slices, parts)
