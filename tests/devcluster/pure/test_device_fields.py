"""What devices, slices and claims may say: fields and texts of refusals, as a real server has them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpusched.devcluster.registry.devices.classes_and_slices import (
    DeviceClassStrategy,
    ResourceSliceStrategy,
)
from gpusched.devcluster.registry.devices.resource_claims import (
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
)

RECORDED = Path(__file__).parents[2] / "devices" / "data" / "scheduler-verdicts.json.gz"
POOL = {"name": "p", "generation": 1, "resourceSliceCount": 1}


def slice_errors(device: dict[str, Any], **spec: Any) -> list[tuple[str, str]]:
    """Refusals of a slice with one device, whose path is left out."""
    whole = {"driver": "d.example.com", "pool": POOL, "nodeName": "n", **spec}
    whole.setdefault("devices", [{"name": "a", **device}])
    errors = ResourceSliceStrategy().validate({"spec": whole})
    return [(each.field.removeprefix("spec.devices[0]."), each.text) for each in errors]


def capacity(**policy: Any) -> dict[str, Any]:
    amounts = {"memory": {"value": "10Gi", "requestPolicy": policy}}
    return {"allowMultipleAllocations": True, "capacity": amounts}


def counted(**counters: str) -> dict[str, Any]:
    return {name: {"value": value} for name, value in counters.items()}


@pytest.mark.parametrize(
    ("device", "field", "text"),
    [
        ({"attributes": {"a-b": {"int": 1}}}, "attributes", "a valid C identifier must start"),
        ({"attributes": {"/a": {"int": 1}}}, "attributes", "the domain must not be empty"),
        ({"attributes": {"x.y/a/b": {"int": 1}}}, "attributes", "must not contain more than one slash"),
        ({"attributes": {"a": {}}}, "attributes[a]", "exactly one value must be specified"),
        ({"attributes": {"a": {"ints": []}}}, "attributes[a].ints", "must not be empty if specified"),
        ({"attributes": {"a": {"versions": ["1"]}}}, "attributes[a].versions[0]", "semver.org spec"),
        ({"attributes": {"a": {"string": "x" * 65}}}, "attributes[a].string", "Too long"),
        ({"taints": [{"key": "-k", "effect": "NoExecute"}]}, "taints[0].key", "name part must"),
        ({"taints": [{"key": "k"}]}, "taints[0].effect", "Required value"),
        ({"taints": [{"key": "k", "effect": "Never"}]}, "taints[0].effect",
         'supported values: "NoExecute", "NoSchedule", "None"'),
        ({"consumesCounters": [{"counterSet": "s"}]}, "consumesCounters[0].counters", "Required"),
        ({"consumesCounters": [{"counterSet": "s", "counters": counted(a="1")}] * 2},
         "consumesCounters[1]", "Duplicate value"),
        ({"nodeName": "n"}, "spec.devices[0]", "can only be set if `perDeviceNodeSelection`"),
        ({"bindingConditions": ["x"]}, "bindingFailureConditions", "are required to use"),
        ({"bindingConditions": ["x"], "bindingFailureConditions": ["x"]},
         "bindingFailureConditions[0]", "must not overlap"),
        ({"capacity": {"memory": {"value": "1Gi", "requestPolicy": {}}}},
         "capacity[memory].requestPolicy", "allowMultipleAllocations must be true"),
        (capacity(validValues=["1Gi"]), "capacity[memory].requestPolicy.default", "required when"),
        (capacity(default="1Gi", validValues=["2Gi", "1Gi"]),
         "capacity[memory].requestPolicy.validValues[1]", "sorted in ascending order"),
        (capacity(default="1Gi", validValues=["1Gi", "20Gi"]),
         "capacity[memory].requestPolicy.validValues[1]", "option is larger than capacity"),
        (capacity(default="1Gi", validRange={"min": "2Gi"}),
         "capacity[memory].requestPolicy.validRange.default", "default is less than min: 2Gi"),
        (capacity(default="3Gi", validRange={"min": "2Gi", "step": "2Gi"}),
         "capacity[memory].requestPolicy.validRange.step", "not a multiple of a given step (2Gi)"),
    ],
)  # fmt: skip
def test_devices_that_are_refused(device: dict[str, Any], field: str, text: str) -> None:
    """The one mistake is told with its field."""
    ((where, message),) = slice_errors(device)
    assert where == field
    assert text in message


def test_counters_are_named_once_and_bounded() -> None:
    """Sets of counters have counters, other names, and are at most eight."""
    sets = [{"name": "s", "counters": counted(a="1")}, {"name": "s"}]
    found = slice_errors({}, sharedCounters=sets, devices=[])
    assert [where for where, _ in found] == [
        "spec.sharedCounters[1].counters",
        "spec.sharedCounters[1]",
    ]
    many = [{"name": f"s{i}", "counters": counted(a="1")} for i in range(9)]
    ((where, message),) = slice_errors({}, sharedCounters=many, devices=[])
    assert (where, message) == ("spec.sharedCounters", "Too many: 9: must have at most 8 items")


def test_each_device_names_its_nodes_where_the_slice_says_so() -> None:
    """Exactly one way, and only then."""
    per_device = {"nodeName": None, "perDeviceNodeSelection": True}
    assert slice_errors({"allNodes": True}, **per_device) == []
    ((where, message),) = slice_errors({}, **per_device)
    assert where == "spec.devices[0]"
    assert "is required when `perDeviceNodeSelection` is set to true" in message
    assert len(slice_errors({"allNodes": True, "nodeName": "n"}, **per_device)) == 1


def test_claims_that_are_refused() -> None:
    """Names twice, attributes without a domain and tolerations that mean nothing are told at once."""
    wanted = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
    tolerations = [{"operator": "Exists", "value": "x"}, {"operator": "Like"}, {"effect": "Never"}]
    exactly = {**wanted, "tolerations": tolerations}
    requests = [{"name": "r", "exactly": exactly}, {"name": "r", "exactly": wanted}]
    constraints = [
        {"matchAttribute": "short"},
        {"requests": ["r", "r"], "distinctAttribute": "d.e/f"},
    ]
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    errors = ResourceClaimStrategy().validate({"spec": spec})
    assert [each.field.removeprefix("spec.devices.") for each in errors] == [
        "requests[0].exactly.tolerations[0].value",
        "requests[0].exactly.tolerations[1].operator",
        "requests[0].exactly.tolerations[2].operator",
        "requests[0].exactly.tolerations[2].effect",
        "requests[1]",
        "constraints[0].matchAttribute",
        "constraints[1].requests[1]",
    ]


def test_status_of_devices_is_of_allocated_ones() -> None:
    """A driver speaks of devices that the claim has, once of each."""
    device = {"driver": "d.example.com", "pool": "p", "device": "a"}
    allocation = {"devices": {"results": [{"request": "r", **device}]}}
    old = {"metadata": {}, "spec": {}, "status": {"allocation": allocation}}
    told = [device, device, {**device, "device": "b"}]
    new = {**old, "status": {"allocation": allocation, "devices": told}}
    errors = ResourceClaimStrategy().validate_status(new, old)
    assert [(each.field, each.text.partition(":")[0]) for each in errors] == [
        ("status.devices[1]", "Duplicate value"),
        ("status.devices[2]", "Invalid value"),
    ]


def test_what_a_real_server_took_is_taken() -> None:
    """Every class, slice, claim and template of the recorded clusters."""
    kinds = {
        "deviceClasses": DeviceClassStrategy(),
        "resourceSlices": ResourceSliceStrategy(),
        "claims": ResourceClaimStrategy(),
        "templates": ResourceClaimTemplateStrategy(),
    }
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    checked = 0
    for cluster in recorded["cases"]:
        for part, strategy in kinds.items():
            for obj in cluster.get(part) or ():
                strategy.default(obj)
                assert strategy.validate(obj) == [], obj["metadata"]["name"]
                checked += 1
    assert checked > 1000
