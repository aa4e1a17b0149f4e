"""Cases E1-E5 and P1-P9: envelopes of answers, and the creation of pods."""

from __future__ import annotations

import re

import pytest

from .api import TABLE, Api, condition, pod

case = pytest.mark.case


@case("E1")
async def test_errors_are_statuses(api: Api):
    """An error is a Status whose code is that of HTTP, with a reason."""
    reply = await api.get(f"{api.pods}/none")
    assert reply.code == reply.body["code"] == 404
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Failure")
    assert (reply.body["metadata"], reply.body["reason"]) == ({}, "NotFound")


@case("E2")
async def test_details_name_the_object(api: Api):
    """Details have the plural on 404 and 409, the kind on 422, nothing on 400."""
    assert (await api.get(f"{api.pods}/none")).body["details"] == {"name": "none", "kind": "pods"}
    invalid = await api.post(api.pods, pod("a", containers=[]))
    assert invalid.body["details"]["kind"] == "Pod"
    assert "details" not in (await api.post(api.pods, b"{")).body


@case("E3")
async def test_invalid_objects_are_told_in_one_sentence(api: Api):
    """One error stands alone; several stand in brackets; list items have no kind."""
    reply = await api.post(api.pods, pod("a", containers=[]))
    assert reply.message == 'Pod "a" is invalid: spec.containers: Required value'
    several = await api.post(api.pods, pod("B_", containers=[]))
    assert several.message.startswith('Pod "B_" is invalid: [metadata.name: Invalid value: "B_"')
    await api.create_pod("a")
    listed = await api.get(api.pods)
    assert "kind" not in listed.body["items"][0]


@case("E4")
async def test_generation_is_counted_for_some_kinds(api: Api):
    """Pods begin at generation 1; config maps and leases have none."""
    assert (await api.create_pod("a"))["metadata"]["generation"] == 1
    made = await api.post(api.path("configmaps"), {"metadata": {"name": "a"}})
    assert "generation" not in made.meta
    lease = await api.post(
        api.path("leases", group="coordination.k8s.io/v1"), {"metadata": {"name": "a"}}
    )
    assert "generation" not in lease.meta


@case("E5")
async def test_no_rights_and_no_identity(api: Api):
    """Rights are checked before existence; a bad token is 401."""
    nobody = {"Impersonate-User": "contract-nobody"}
    listed = await api.get(api.pods, headers=nobody)
    assert (listed.code, listed.body["reason"]) == (403, "Forbidden")
    assert listed.message == (
        'pods is forbidden: User "contract-nobody" cannot list resource "pods" in API group "" '
        f'in the namespace "{api.ns}"'
    )
    named = await api.get(f"{api.pods}/none", headers=nobody)
    assert named.message.startswith('pods "none" is forbidden: ')
    bad = await api.get(api.pods, headers={"Authorization": "Bearer garbage"})
    assert (bad.code, bad.message) == (401, "Unauthorized")


@case("P1")
async def test_a_minimal_pod_is_completed(api: Api):
    """Defaults are filled in and the pod is Pending."""
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "img"}]}}
    created = (await api.post(api.pods, body)).body
    spec = created["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["securityContext"] == {}
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["enableServiceLinks"] is True
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert [t["tolerationSeconds"] for t in spec["tolerations"]] == [300, 300]
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@case("P2")
async def test_requests_are_copied_and_names_generated(api: Api):
    """Limits become requests; a generated name ends in five characters of a small alphabet."""
    limits = {"cpu": "1", "memory": "1Gi"}
    containers = [{"name": "c", "image": "img", "resources": {"limits": limits}}]
    created = await api.create_pod("a", containers=containers)
    assert created["spec"]["containers"][0]["resources"]["requests"] == limits
    assert created["status"]["qosClass"] == "Guaranteed"
    body = pod("")
    body["metadata"] = {"generateName": "gen-"}
    made = await api.post(api.pods, body)
    assert re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", made.meta["name"])


@case("P3")
async def test_names_and_namespaces_are_checked(api: Api):
    """Taken 409, missing namespace 404, other namespace 400, bad name 422."""
    await api.create_pod("a")
    taken = await api.post(api.pods, pod("a"))
    assert (taken.code, taken.message) == (409, 'pods "a" already exists')
    gone = api.within("contract-no-such-namespace")
    missing = await gone.post(gone.pods, pod("a"))
    assert (missing.code, missing.message) == (404, f'namespaces "{gone.ns}" not found')
    other = await api.post(api.pods, pod("b", meta={"namespace": "other"}))
    assert other.code == 400
    bad = await api.post(api.pods, pod("Bad_Name"))
    assert bad.code == 422
    assert "a lowercase RFC 1123 subdomain must consist of" in bad.message


@case("P4")
@pytest.mark.parametrize(
    ("resources", "code", "text"),
    [
        ({"limits": {"cpu": "many"}}, 400, "quantities must match the regular expression"),
        ({"limits": {"cpu": "-1"}}, 422, "must be greater than or equal to 0"),
        ({"limits": {"nvidia.com/gpu": "500m"}}, 422, "must be an integer"),
        (
            {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}},
            422,
            'Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        ),
    ],
)
async def test_quantities_are_checked(api: Api, resources: dict, code: int, text: str):
    """Unreadable ones are decode errors, bad ones are field errors."""
    containers = [{"name": "c", "image": "img", "resources": resources}]
    reply = await api.post(api.pods, pod("a", containers=containers))
    assert reply.code == code
    assert text in reply.message


@case("P5")
async def test_bodies_are_decoded_strictly_when_asked(api: Api):
    """Cut JSON and other kinds are 400, other media 415; unknown fields count when Strict."""
    assert (await api.post(api.pods, b'{"kind"')).code == 400
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    assert (await api.post(api.pods, node)).code == 400
    assert (await api.post(api.pods, b"x", media="text/plain")).code == 415
    strict = await api.post(f"{api.pods}?fieldValidation=Strict", pod("a", nonsense=1))
    assert (strict.code, strict.body["reason"]) == (400, "BadRequest")
    assert strict.message.endswith('strict decoding error: unknown field "spec.nonsense"')
    dropped = await api.post(api.pods, pod("a", nonsense=1))
    assert dropped.code == 201
    assert "nonsense" not in dropped.body["spec"]


@case("P6")
async def test_a_dry_run_stores_nothing(api: Api):
    """The answer has a uid and no version; the pod does not exist."""
    tried = await api.post(f"{api.pods}?dryRun=All", pod("a"))
    assert tried.code == 201
    assert tried.meta["uid"]
    assert "resourceVersion" not in tried.meta
    assert (await api.get(f"{api.pods}/a")).code == 404


@case("P7")
async def test_priority_comes_from_the_class(api: Api):
    """A class gives value; unknown ones and numbers of one's own are refused."""
    made = await api.create_pod("a", priorityClassName="system-cluster-critical")
    assert made["spec"]["priority"] == 2_000_000_000
    unknown = await api.post(api.pods, pod("b", priorityClassName="contract-nope"))
    assert unknown.code == 403
    assert unknown.message.endswith("no PriorityClass with name contract-nope was found")
    own = await api.post(api.pods, pod("b", priority=5))
    assert own.code == 403
    assert "the integer value of priority (5) must not be provided in pod spec" in own.message


@case("P8")
async def test_gates_hold_a_pod(api: Api):
    """A gated pod says so at once, and cannot name its node."""
    gates = [{"name": "example.com/wait"}]
    made = await api.create_pod("a", schedulingGates=gates)
    assert condition(made, "PodScheduled")["reason"] == "SchedulingGated"
    reply = await api.post(api.pods, pod("b", schedulingGates=gates, nodeName="n"))
    assert reply.code == 422
    assert "cannot be set until all schedulingGates have been cleared" in reply.message


@case("P9")
async def test_pods_as_a_table(api: Api):
    """The nine columns of pods, rows with metadata only."""
    await api.create_pod("a")
    table = (await api.get(api.pods, accept=TABLE)).body
    assert [c["name"] for c in table["columnDefinitions"]] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
        "IP",
        "Node",
        "Nominated Node",
        "Readiness Gates",
    ]
    row = table["rows"][0]
    assert row["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert row["cells"][5:] == ["<none>"] * 4
    assert row["object"]["kind"] == "PartialObjectMetadata"
