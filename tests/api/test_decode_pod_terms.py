"""Pods: what they ask of the pods around them, what they were granted, and their claims."""

from __future__ import annotations

import pytest

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import Requirement, Selector, Taint
from gpusched.api.devices.dynamic.claims import PodClaim

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_claims_for_devices_are_part_of_the_class(wire, pod):
    """By name, by template, and with the namespace that they are in; pods without any have none."""
    plain = wire.read("pods", pod).pod_class
    assert (plain.claims, plain.namespace) == ((), "")
    pod["spec"]["resourceClaims"] = [
        {"name": "c", "resourceClaimName": "shared"},
        {"name": "t", "resourceClaimTemplateName": "own"},
    ]
    pod["status"] = {
        **pod.get("status", {}),
        "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "p-t-x"}],
    }
    read = wire.read("pods", pod)
    assert read.pod_class.claims == (
        PodClaim(name="c", claim="shared"),
        PodClaim(name="t", template="own"),
    )
    assert read.pod_class.namespace == pod["metadata"]["namespace"]
    assert read.generated_claims == (("t", "p-t-x"),)
    assert read.pod_class.digest != plain.digest


def test_affinity_to_pods(wire, pod):
    """Required and preferred, with namespaces and label keys."""
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"a": "1"}},
        "namespaces": ["y", "x"],
        "namespaceSelector": {},
        "matchLabelKeys": ["rev"],
        "mismatchLabelKeys": ["team"],
    }
    pod["spec"]["affinity"] = {
        "podAffinity": {REQUIRED: [term], PREFERRED: [{"weight": 7, "podAffinityTerm": term}]},
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "host"}]},
    }
    made = wire.read("pods", pod).pod_class
    read = PodTerm(
        "zone",
        Selector((Requirement("a", "In", ("1",)),)),
        ("x", "y"),
        Selector(),
        ("rev",),
        ("team",),
    )
    assert made.unsupported == ""
    assert made.pod_affinity == (read,)
    assert made.preferred_pod_affinity == ((7, read),)
    assert made.pod_anti_affinity == (PodTerm("host", None),)
    assert read.selector_for({"rev": "3", "team": "t"}) == Selector(
        (
            Requirement("a", "In", ("1",)),
            Requirement("rev", "In", ("3",)),
            Requirement("team", "NotIn", ("t",)),
        )
    )


def test_label_keys_that_the_server_wrote_out_stay(wire, pod):
    """A value in the selector already is the one of the pod's creation, and counts."""
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchExpressions": [{"key": "rev", "operator": "In", "values": ["1"]}]},
        "matchLabelKeys": ["rev"],
    }
    pod["spec"]["affinity"] = {"podAffinity": {REQUIRED: [term]}}
    (read,) = wire.read("pods", pod).pod_class.pod_affinity
    assert read.selector_for({"rev": "2"}) == Selector((Requirement("rev", "In", ("1",)),))


def test_spread_constraints(wire, pod):
    """Those that forbid and those that prefer, with the defaults of the API."""
    pod["spec"]["topologySpreadConstraints"] = [
        {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"},
        {
            "topologyKey": "zone",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
            "matchLabelKeys": ["rev"],
        },
    ]
    made = wire.read("pods", pod).pod_class
    assert made.soft_spread == (SpreadTerm("zone", 2, None),)
    assert made.spread == (
        SpreadTerm(
            "zone",
            1,
            Selector(),
            min_domains=3,
            by_affinity=False,
            by_taints=True,
            same_keys=("rev",),
        ),
    )


def test_host_ports(wire, pod):
    """Of containers and sidecars; a port inside the pod, or of one that ends first, is none."""
    port = {"containerPort": 80, "hostPort": 80}
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": 80},
        {**port, "protocol": "UDP", "hostIP": "10.0.0.1"},
    ]
    pod["spec"]["initContainers"] = [
        {"name": "i", "ports": [{**port, "hostPort": 90}]},
        {"name": "s", "ports": [port], "restartPolicy": "Always"},
    ]
    assert wire.read("pods", pod).pod_class.ports == (
        HostPort("0.0.0.0", "TCP", 80),
        HostPort("10.0.0.1", "UDP", 80),
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("10.0.0.2", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("0.0.0.0", "UDP", 80), ("0.0.0.0", "TCP", 80), True),
        (("0.0.0.0", "TCP", 81), ("0.0.0.0", "TCP", 80), True),
    ],
)
def test_ports_that_go_together(ours, theirs, both):
    """Every address includes each single one."""
    assert HostPort(*ours).conflicts(HostPort(*theirs)) is not both


@pytest.mark.parametrize(
    ("operator", "own", "tolerated"),
    [
        ("Gt", "5", ["6"]),
        ("Lt", "5", ["4"]),
        ("Lt", "five", []),
    ],
)
def test_tolerations_that_compare_numbers(wire, pod, operator, own, tolerated):
    """The taint's value stands left of the operator; what is no number is not tolerated."""
    pod["spec"]["tolerations"] = [{"key": "k", "operator": operator, "value": own}]
    (read,) = wire.read("pods", pod).pod_class.tolerations
    values = ["4", "5", "6", "many"]
    assert [v for v in values if read.tolerates(Taint("k", v, "NoSchedule"))] == tolerated


def granted(name, cpu, *, allocated=None):
    """The status of a container that has so much cpu."""
    made = {"name": name, "resources": {"requests": {"cpu": cpu}}}
    return {**made, "allocatedResources": {"cpu": allocated}} if allocated else made


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, 2000),
        ({"containerStatuses": [granted("c", "3")]}, 3000),
        ({"containerStatuses": [granted("c", "1")]}, 2000),
        ({"containerStatuses": [granted("c", "1", allocated="4")]}, 4000),
        ({"containerStatuses": [granted("other", "9")]}, 2000),
        (
            {
                "containerStatuses": [granted("c", "1")],
                "conditions": [
                    {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
                ],
            },
            1000,
        ),
    ],
)
def test_a_resize_in_place_holds_the_largest(wire, pod, status, cpu):
    """Of what is asked, granted and had; what is infeasible is not asked."""
    pod["spec"].update(
        nodeName="n", containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    )
    pod["status"] = {"phase": "Running", **status}
    assert wire.read("pods", pod).pod_class.requests.get("cpu") == cpu


def test_claims_of_volumes(wire, pod):
    """Named ones, and those that are made for the pod."""
    pod["spec"]["volumes"] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "emptyDir": {}},
    ]
    read = wire.read("pods", pod)
    own = f"{read.name}-b"
    assert (set(read.claims), read.own_claims) == ({"data", own}, (own,))
