"""Each recorded verdict of kube-scheduler: whether a node has devices for a pod's claims."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.meta.quantity import parse_billionths
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.extended_requests import read_extended_requests
from gpusched.devices.allocator import AllocationOutcome, allocate
from gpusched.devices.extended_resources import (
    extended_claim_spec,
    served_resources,
    with_classes,
)
from gpusched.devices.requests import make_ready
from tests.devices.conftest import claim_entity, device_id, entity, recorded, world

CASES = recorded("scheduler-verdicts")
DRAWN = recorded("drawn-verdicts")


def hold(there, allocated):
    """Take what kube-scheduler gave to a pod that runs."""
    for found in allocated.values():
        for each in found["results"]:
            if each.get("adminAccess"):
                continue
            there.usage.add_device(
                device_id(each),
                share=bool(each.get("shared")),
                consumed=[
                    (name if "/" in name else f"{each['driver']}/{name}", parse_billionths(amount))
                    for name, amount in (each.get("consumedCapacity") or {}).items()
                ],
            )


def held_claims(case):
    """Claims of running pods with the nodes they may be used from, by name."""
    found = {}
    for running in case["running"]:
        names = {
            each["name"]: each.get("resourceClaimName")
            for each in running["pod"]["spec"].get("resourceClaims") or ()
        }
        for name, allocation in running["allocated"].items():
            if names.get(name):
                found[names[name]] = allocation
    return found


def ready_claims(case, there):
    """The claims of the probe that are to be allocated, and those that it shares."""
    by_name = {each["metadata"]["name"]: each for each in case["claims"]}
    templates = {each["metadata"]["name"]: each for each in case["templates"]}
    held = held_claims(case)
    ready, shared = [], []
    for each in case["pod"]["spec"].get("resourceClaims") or ():
        if each.get("resourceClaimName") in held:
            shared.append(held[each["resourceClaimName"]])
            continue
        if "resourceClaimTemplateName" in each:
            template = templates[each["resourceClaimTemplateName"]]
            spec = entity("ResourceClaimTemplate", template, "default").spec
        else:
            spec = claim_entity(by_name[each["resourceClaimName"]]).spec
        ready.append(make_ready(each["name"], spec, there.catalog.classes))
    spec = extended_spec(case, there)
    if spec.requests:
        ready.append(make_ready("(extended)", spec, there.catalog.classes))
    return ready, shared


def extended_spec(case, there):
    """The claim that requests for extended resources are, where no node has them otherwise."""
    text = msgspec.json.encode(case["pod"]["spec"])
    spec = msgspec.json.decode(text, type=pod_wire.PodSpec)
    requests = read_extended_requests(spec)
    served = served_resources({each.resource for each in requests}, there.catalog.classes)
    return extended_claim_spec(with_classes(requests, served))


def fits(case, name):
    """Whether the node has devices for the probe."""
    there = world(case)
    for running in case["running"]:
        hold(there, running["allocated"])
    ready, shared = ready_claims(case, there)
    node = next(each for each in case["nodes"] if each["metadata"]["name"] == name)
    labels = node["metadata"].get("labels") or {}
    for each in shared:
        selector = each.get("nodeSelector")
        if selector is not None and not _selects(selector, name, labels):
            return False
    found = allocate(there.inventory, there.usage, there.devices_of(name, labels), ready)
    assert found.outcome is not AllocationOutcome.BOUNDED
    return found.outcome is AllocationOutcome.ALLOCATED


def _selects(selector, name, labels):
    for term in selector["nodeSelectorTerms"]:
        parts = [(each, {"metadata.name": name}) for each in term.get("matchFields") or ()]
        parts += [(each, labels) for each in term.get("matchExpressions") or ()]
        if all(where.get(each["key"]) in each["values"] for each, where in parts):
            return True
    return False


VERDICTS = [(case, name) for case in (*CASES, *DRAWN) for name in case["verdicts"]]


@pytest.mark.parametrize(
    ("case", "name"), VERDICTS, ids=lambda each: each if isinstance(each, str) else each["id"]
)
def test_a_node_fits_where_it_does_for_kube_scheduler(case, name):
    verdict = case["verdicts"][name]
    assert fits(case, name) == verdict["fits"], verdict


def test_requests_of_extended_resources_are_named_as_kubernetes_names_them():
    """The claim that kube-scheduler made tells the names."""
    found = 0
    for case in CASES:
        there = world(case)
        for verdict in case["verdicts"].values():
            made = (verdict.get("allocated") or {}).get("(extended)")
            if made:
                found += 1
                asked = [
                    {"name": each.name, "deviceClassName": each.alternatives[0].device_class,
                     "count": each.alternatives[0].count}
                    for each in extended_spec(case, there).requests
                ]  # fmt: skip
                assert asked == made["claimRequests"]
    assert found
