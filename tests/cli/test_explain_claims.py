"""What explain tells of claims for devices: what each got and where, or what keeps devices from it."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main

GROUPS = "/apis/scheduling.gpusched.io/v1alpha1/namespaces/team-a/podgroups"
DEVICES = "/apis/resource.k8s.io/v1"
KINDS = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
SHARE = "9d7d2c2e-38a1-4d2b-9d3c-6f4a8c4a6a10"


def meta(name, namespace="", **more):
    """Metadata as the server fills them in."""
    found = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **more}
    return {**found, "namespace": namespace} if namespace else found


def pod(name, *, node="", made=True, group="llm", namespace="team-a"):
    """A member with one claim from the template ``one``."""
    status = {"phase": "Running" if node else "Pending"}
    if made:
        status["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": f"{name}-c"}]
    spec = {
        "schedulerName": "gpusched", "containers": [{"resources": {}}],
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "one"}],
    }  # fmt: skip
    if node:
        spec["nodeName"] = node
    labels = {"gpusched.io/pod-group": group} if group else {}
    return {"metadata": meta(name, namespace, labels=labels), "spec": spec, "status": status}


REQUESTS = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]


def claim(name, *devices, user="", namespace="team-a", requests=REQUESTS, **more):
    """A claim, with devices of the pool of node n1."""
    status = {}
    if devices:
        results = [
            {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": each, **more}
            for each in devices
        ]
        status["allocation"] = {"devices": {"results": results}}
    if user:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    return {
        "metadata": meta(name, namespace), "spec": {"devices": {"requests": requests}}, "status": status
    }  # fmt: skip


@pytest.fixture
def devices(cluster):
    """Node n1 with three GPUs; a gang of two, of which one runs."""
    cluster.objects |= {
        "/apis": {"groups": [{"name": "resource.k8s.io", "versions": [{"version": "v1"}]}]},
        DEVICES: {"resources": [{"name": each} for each in KINDS]},
        f"{DEVICES}/resourceslices": [
            {
                "metadata": meta("s1"),
                "spec": {
                    "driver": "gpu.example.com", "nodeName": "n1",
                    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{number}"} for number in range(3)],
                },
            }
        ],
        f"{DEVICES}/deviceclasses": [{"metadata": meta("gpu"), "spec": {}}],
        f"{DEVICES}/resourceclaimtemplates": [
            {"metadata": meta("one", "team-a"), "spec": {"spec": {"devices": {"requests": REQUESTS}}}}
        ],
        f"{DEVICES}/resourceclaims": [
            claim("llm-0-c", "gpu-0", user="llm-0"),
            claim("llm-1-c"),
            claim("theirs-c", "gpu-1", "gpu-2", user="theirs", namespace="team-b"),
        ],
        "/api/v1/nodes": [{"metadata": meta("n1"), "spec": {}}],
        f"{GROUPS}/llm": {"metadata": meta("llm", "team-a"), "spec": {"minMember": 2}, "status": {}},
        "/api/v1/namespaces/team-a/pods": [pod("llm-0", node="n1"), pod("llm-1")],
        "/api/v1/namespaces/team-b/pods": [pod("theirs", node="n1", group="big", namespace="team-b")],
        "/api/v1/namespaces/team-a/events": [],
    }  # fmt: skip
    return cluster


def told(capsys, *more):
    """What explain prints of the gang."""
    assert main(["explain", "podgroup", "team-a/llm", *more]) == 0
    return capsys.readouterr().out


def test_devices_of_running_pods_and_what_keeps_them_from_waiting_ones(devices, capsys):
    lines = told(capsys).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("POD "))
    assert lines[at : at + 6] == [
        "POD     CLAIM         REQUEST   ASKS FOR   DEVICE                     NODE",
        "llm-0   c (llm-0-c)   r         1 of gpu   gpu.example.com/n1/gpu-0   n1",
        "llm-1   c (llm-1-c)   r         1 of gpu   waiting                    -",
        "",
        "No devices for llm-1:",
        "  claim c, request r: 3 devices match, 0 free, 3 held (2 by team-b/big, 1 by team-a/llm)",
    ]
    assert "1 waiting pod with claim c each" in "\n".join(lines)


def test_the_same_as_json(devices, capsys):
    first, second = json.loads(told(capsys, "-o", "json"))["claims"]
    assert (first["state"], first["node"], first["reservedFor"]) == ("reserved", "n1", ["llm-0"])
    (request,) = first["requests"]
    assert request["devices"] == [
        {
            "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "alternative": "",
            "adminAccess": False, "shareID": "", "consumedCapacity": {},
            "awaits": [], "failed": "",
        }
    ]  # fmt: skip
    assert (second["state"], second["requests"][0]["devices"]) == ("waiting", [])
    assert second["why"][0].startswith("claim c, request r: 3 devices match, 0 free")


def test_a_claim_of_the_group_names_the_group(devices, capsys):
    shared = claim("llm-c-x", "gpu-0")
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "llm", "uid": "g"}
    shared["status"]["reservedFor"] = [group]
    devices.objects[f"{DEVICES}/resourceclaims"] = [shared]
    members = [pod("llm-0", node="n1"), pod("llm-1")]
    for member in members:
        member["spec"]["schedulingGroup"] = {"podGroupName": "llm"}
        member["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = "llm-c-x"
    devices.objects["/api/v1/namespaces/team-a/pods"] = members
    text = told(capsys)
    for name in ("llm-0", "llm-1"):
        assert f"{name}   c (llm-c-x, of PodGroup llm)   r " in text
    stories = json.loads(told(capsys, "-o", "json"))["claims"]
    assert [(each["state"], each["group"]) for each in stories] == [("reserved", "llm")] * 2


def test_shares_tell_what_they_consume(devices, capsys):
    devices.objects[f"{DEVICES}/resourceclaims"][0] = claim(
        "llm-0-c", "gpu-0", user="llm-0", shareID=SHARE, consumedCapacity={"memory": "10Gi"}
    )
    assert f"gpu.example.com/n1/gpu-0 (share {SHARE} of 10Gi memory)" in told(capsys)


def test_devices_that_are_not_ready_tell_what_they_wait_for(devices, capsys):
    conditions = {
        "bindingConditions": ["x/attached"],
        "bindingFailureConditions": ["x/failed"],
    }
    given = claim("llm-0-c", "gpu-0", user="llm-0", **conditions)
    devices.objects[f"{DEVICES}/resourceclaims"][0] = given
    assert "gpu.example.com/n1/gpu-0 (waits for x/attached)" in told(capsys)
    device = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    for condition, text in (("x/attached", "n1/gpu-0  "), ("x/failed", "failed: x/failed)")):
        told_by_driver = [{"type": condition, "status": "True"}]
        given["status"]["devices"] = [{**device, "conditions": told_by_driver}]
        assert text in told(capsys)


def test_alternatives_are_told_each_and_the_one_that_was_taken(devices, capsys):
    whole = {"name": "whole", "deviceClassName": "gpu", "count": 2}
    half = {"name": "half", "deviceClassName": "gpu"}
    requests = [{"name": "r", "firstAvailable": [whole, half]}]
    claims = devices.objects[f"{DEVICES}/resourceclaims"]
    claims[0] = claim("llm-0-c", "gpu-0", user="llm-0", requests=requests, request="r/half")
    claims[1] = claim("llm-1-c", requests=requests)
    text = told(capsys)
    assert "2 of gpu, else 1 of gpu   gpu.example.com/n1/gpu-0 (as half)" in text
    assert "claim c, request r/whole: " in text
    assert "claim c, request r/half: " in text


def test_claims_that_are_not_made_yet_and_templates_that_are_not_there(devices, capsys):
    devices.objects["/api/v1/namespaces/team-a/pods"][1] = pod("llm-1", made=False)
    assert "not made yet" in told(capsys)
    devices.objects[f"{DEVICES}/resourceclaimtemplates"] = []
    assert "ResourceClaimTemplate one is not there" in told(capsys)


def test_classes_that_are_not_there_are_named(devices, capsys):
    devices.objects[f"{DEVICES}/deviceclasses"] = []
    assert "claim c, request r: there is no DeviceClass gpu" in told(capsys)


def test_a_user_who_may_read_one_namespace_alone_sees_its_claims(devices, capsys):
    for kind in ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates"):
        devices.objects[f"{DEVICES}/{kind}"], kept = 403, devices.objects[f"{DEVICES}/{kind}"]
        if kind.startswith("resourceclaim"):
            mine = [each for each in kept if each["metadata"]["namespace"] == "team-a"]
            devices.objects[f"{DEVICES}/namespaces/team-a/{kind}"] = mine
    devices.objects["/api/v1/nodes"] = 403
    text = told(capsys)
    assert "gpu.example.com/n1/gpu-0" in text
    assert "devices may not be listed by this user: the condition tells" in text


def test_gangs_without_claims_ask_for_nothing_of_devices(devices, capsys):
    for each in devices.objects["/api/v1/namespaces/team-a/pods"]:
        del each["spec"]["resourceClaims"]
    assert "CLAIM" not in told(capsys)
    assert not [path for path, _ in devices.asked if path.startswith("/apis/resource.k8s.io")]


def test_get_devices_has_a_line_for_each_pool(devices, capsys):
    assert main(["get", "devices", "-o", "wide"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "NODE", "DRIVER", "POOL", "DEVICES", "FREE", "HELD", "PARTLY", "TAINTED", "HOLDERS"
    ]  # fmt: skip
    assert line.split() == [
        "n1", "gpu.example.com", "n1", "3", "0", "3", "0", "0", "team-b/big", "2,", "team-a/llm", "1"
    ]  # fmt: skip
    assert main(["get", "devices", "-o", "json"]) == 0
    (pool,) = json.loads(capsys.readouterr().out)
    assert pool["holders"] == [
        {"name": "team-b/big", "devices": 2},
        {"name": "team-a/llm", "devices": 1},
    ]


def test_get_devices_names_pools_that_cannot_be_used(devices, capsys):
    (part,) = devices.objects[f"{DEVICES}/resourceslices"]
    part["spec"]["pool"]["resourceSliceCount"] = 2
    assert main(["get", "devices"]) == 0
    assert "n1 (not all of its slices are there)" in capsys.readouterr().out


def test_get_devices_where_there_are_none(cluster, capsys):
    cluster.objects |= {"/apis": {"groups": []}, "/api/v1/nodes": []}
    assert main(["get", "devices"]) == 0
    assert "There are no devices" in capsys.readouterr().out


def test_get_devices_says_nothing_of_what_may_not_be_seen(devices, capsys):
    """Given no right to list slices, then it is not said that there are no devices."""
    devices.objects[f"{DEVICES}/resourceslices"] = 403
    assert main(["get", "devices"]) == 77
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "could not read resourceslices: this user may not list them" in shown.err
