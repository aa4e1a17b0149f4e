"""What is left after a choice: partitions and shares are taken so that the usual requests still find room.

Nodes with GPUs in partitions (counters) or shares (capacity) take the same small requests one after
another, in our order of devices and in the order in which drivers list them, as Kubernetes' own allocator.
"""

from __future__ import annotations

import random

from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.fit import count_pods
from gpusched.devices.inventory import DeviceInventory
from gpusched.devices.requests import make_ready
from gpusched.devices.usage import DeviceUsage
from gpusched.testing.given import Given
from tests.session.devices.conftest import Devices

SLOTS = {"whole": 4, "half": 2, "quarter": 1}


def partitions(devices, rng, gpus):
    """GPUs of four slots, whole or in parts, in any order; requests for each kind."""
    listed = [
        {
            "name": f"g{gpu}-{kind}-{number}",
            "attributes": {"kind": {"string": kind}},
            "consumesCounters": [
                {"counterSet": f"c{gpu}", "counters": {"slot": {"value": str(size)}}}
            ],
        }
        for gpu in range(gpus)
        for kind, size in SLOTS.items()
        for number in range(4 // size)
    ]
    rng.shuffle(listed)
    sets = [{"name": f"c{gpu}", "counters": {"slot": {"value": "4"}}} for gpu in range(gpus)]
    devices.on_node("node-0", listed, counters=sets)
    texts = [f'device.attributes["gpu.example.com"].kind == "{kind}"' for kind in SLOTS]
    return [{"selectors": [{"cel": {"expression": text}}]} for text in texts]


def shares(devices, gpus):
    """GPUs of eight units that several claims share; requests for all, half and a quarter."""
    found = [
        {
            "name": f"g{gpu}",
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": "8"}},
        }
        for gpu in range(gpus)
    ]
    devices.on_node("node-0", found)
    return [{"capacity": {"requests": {"memory": str(amount)}}} for amount in (8, 4, 2)]


def node_of(seed):
    """One node, claims for all sizes from the biggest, and which of them come."""
    rng = random.Random(seed)
    c = Given().nodes(1)
    devices = Devices(c).a_class("gpu", 'device.driver == "gpu.example.com"')
    gpus = rng.randint(2, 4)
    asked = shares(devices, gpus) if seed % 2 else partitions(devices, rng, gpus)
    for number, each in enumerate(asked):
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", **each}}
        devices.template(f"t{number}", request)
    catalog = c.cache.take_snapshot(c.now).devices
    inventory = DeviceInventory(catalog)
    named = {key.name: each for key, each in catalog.templates.items()}
    claims = [make_ready("c", named[name].spec, inventory.classes) for name in sorted(named)]
    come = [rng.randint(1, 2) for _ in range(rng.randint(1, 3 * gpus))]
    return inventory, claims, come


def filled(inventory, claims, come, *, listed):
    """Which of the requests were served, and how many of each size find room afterwards."""
    usage, node, served = DeviceUsage(inventory), inventory.node_devices("node-0", {}), []
    for number in come:
        found = allocate(inventory, usage, node, [claims[number]], listed=listed)
        served.append(found.outcome is AllocationOutcome.ALLOCATED)
        if served[-1]:
            usage.add(found.claims[0].devices)
    return served, [count_pods(inventory, usage, node, [each], most=16).most for each in claims]


def test_at_least_as_much_room_is_left_as_after_first_fit():
    """Where both served the same requests; on some nodes there is more."""
    more = 0
    for seed in range(200):
        node = node_of(seed)
        served, left = filled(*node, listed=False)
        by_list, left_by_list = filled(*node, listed=True)
        if served == by_list:
            assert all(a >= b for a, b in zip(left, left_by_list, strict=True)), seed
            more += left != left_by_list
        else:
            assert served > by_list, seed  # the first request that only one serves is ours
    assert more >= 20
