"""The search against one that tries everything, on small random nodes: same verdict, valid choice."""

from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.fit import count_pods
from gpusched.devices.inventory import DeviceId
from gpusched.devices.requests import make_ready
from tests.devices.conftest import claim_entity, world

DRIVER = "d.example.com"
CLASSES = [
    {
        "metadata": {"name": kind},
        "spec": {
            "selectors": [
                {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{kind}"'}}
            ]
        },
    }
    for kind in ("a", "b")
]
BY_KIND = {"a", "b"}

device = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["a", "b"]),
        "root": st.integers(0, 2),
        "uses": st.integers(0, 3),
        "tainted": st.booleans(),
    }
)
request = st.fixed_dictionaries(
    {
        "kinds": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2, unique=True),
        "count": st.integers(1, 2),
        "tolerates": st.booleans(),
    }
)
claim = st.fixed_dictionaries(
    {
        "requests": st.lists(request, min_size=1, max_size=2),
        "rule": st.sampled_from(["", "match", "distinct"]),
    }
)
cases = st.tuples(
    st.lists(device, min_size=1, max_size=5),
    st.integers(2, 6),
    st.lists(claim, min_size=1, max_size=3),
    st.sets(st.integers(0, 4)),
)


def node_of(devices, total):
    """One node with these devices, which share a counter."""
    made = []
    for number, each in enumerate(devices):
        body = {
            "name": f"d{number}",
            "attributes": {"kind": {"string": each["kind"]}, "root": {"int": each["root"]}},
        }
        if each["uses"]:
            counters = {"slots": {"value": str(each["uses"])}}
            body["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
        if each["tainted"]:
            body["taints"] = [{"key": "t", "effect": "NoSchedule"}]
        made.append(body)
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": made}
    spec["sharedCounters"] = [{"name": "set", "counters": {"slots": {"value": str(total)}}}]
    slices = [{"metadata": {"name": "s"}, "spec": spec}]
    return world({"resourceSlices": slices, "deviceClasses": CLASSES})


def spec_of(asked):
    """A claim as the API has it."""
    requests = []
    for number, each in enumerate(asked["requests"]):
        tolerations = [{"key": "t", "operator": "Exists"}] if each["tolerates"] else []
        parts = [
            {
                "name": kind, "deviceClassName": kind, "count": each["count"],
                "tolerations": tolerations,
            }
            for kind in each["kinds"]
        ]  # fmt: skip
        name = f"r{number}"
        if len(parts) == 1:
            requests.append({"name": name, "exactly": parts[0]})
        else:
            requests.append({"name": name, "firstAvailable": parts})
    rules = [{f"{asked['rule']}Attribute": f"{DRIVER}/root"}] if asked["rule"] else []
    body = {"devices": {"requests": requests, "constraints": rules}}
    return claim_entity({"metadata": {"name": "c"}, "spec": json.loads(json.dumps(body))}).spec


def ways(devices, asked):
    """Each way to serve one claim alone, as a set of device numbers."""
    choices = []
    for each in asked["requests"]:
        of_request = []
        for kind in each["kinds"]:
            usable = [
                number
                for number, found in enumerate(devices)
                if found["kind"] == kind and (each["tolerates"] or not found["tainted"])
            ]
            of_request += itertools.combinations(usable, each["count"])
        choices.append(of_request)
    for combination in itertools.product(*choices):
        taken = [number for part in combination for number in part]
        roots = [devices[number]["root"] for number in taken]
        if len(set(taken)) < len(taken):
            continue
        if asked["rule"] == "match" and len(set(roots)) > 1:
            continue
        if asked["rule"] == "distinct" and len(set(roots)) < len(roots):
            continue
        yield frozenset(taken)


def feasible(devices, total, claims, held):
    """Whether all claims can be served together beside what is held, by trying everything."""
    used = sum(devices[number]["uses"] for number in held)

    def serve(left, taken):
        if sum(devices[number]["uses"] for number in taken) + used > total and any(
            devices[number]["uses"] for number in taken
        ):
            return False
        if not left:
            return True
        return any(
            serve(left[1:], taken | way)
            for way in set(ways(devices, left[0]))
            if not way & taken and not way & held
        )

    return serve(claims, frozenset())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(cases)
def test_the_verdict_is_that_of_a_search_that_tries_everything(case):
    devices, total, claims, taken = case
    held = frozenset(number for number in taken if number < len(devices))
    there = node_of(devices, total)
    for number in held:
        there.usage.add_device(DeviceId(DRIVER, "p", f"d{number}"), share=False)
    ready = [make_ready("c", spec_of(each), there.catalog.classes) for each in claims]
    found = allocate(there.inventory, there.usage, there.devices_of("n"), ready)
    assert found.outcome is not AllocationOutcome.BOUNDED
    fits = found.outcome is AllocationOutcome.ALLOCATED
    assert fits == feasible(devices, total, claims, held)
    chosen = [frozenset(int(each.device[1:]) for each in one.devices) for one in found.claims]
    for asked, way in zip(claims, chosen, strict=False):
        assert way in set(ways(devices, asked))
    everything = [number for way in chosen for number in way]
    assert len(set(everything)) == len(everything)
    assert not held & set(everything)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases)
def test_as_many_pods_fit_as_can_be_served_together(case):
    devices, total, claims, _ = case
    there = node_of(devices, total)
    ready = [make_ready("c", spec_of(claims[0]), there.catalog.classes)]
    found = count_pods(there.inventory, there.usage, there.devices_of("n"), ready, most=3)
    most = max(
        pods for pods in range(4) if feasible(devices, total, [claims[0]] * pods, frozenset())
    )
    assert (found.most, found.bounded) == (most, False)
