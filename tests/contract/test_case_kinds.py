"""Cases J1-J5, M1, M2, K1-K3, X1: Jobs, events, leases, quota, discovery, dynamic resources."""

from __future__ import annotations

import uuid

import pytest

from .api import TABLE, Api, condition, pod

case = pytest.mark.case
BATCH = "batch/v1"
STRATEGIC = "strategic-merge-patch+json"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def job(name: str, **spec: object) -> dict:
    """A Job whose pods no scheduler takes."""
    container = {"name": "c", "image": "img", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    inner = {"schedulerName": "nobody", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": name}, "spec": {**spec, "template": {"spec": inner}}}


async def _pods_of(api: Api, name: str, count: int) -> list[dict]:
    path = f"{api.pods}?labelSelector=job-name%3D{name}"
    reply = await api.until(path, lambda reply: len(reply.body["items"]) == count)
    return reply.body["items"]


async def _job_until(api: Api, name: str, holds) -> dict:
    path = api.path("jobs", name, group=BATCH)
    return (await api.until(path, lambda reply: holds(reply.body))).body


@case("J1")
async def test_a_job_is_completed_with_defaults(api: Api):
    """Counts, selector and the four labels; requests are not copied into the template."""
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    made = (await api.post(api.path("jobs", group=BATCH), job("a", **spec))).body
    uid = made["metadata"]["uid"]
    assert made["spec"]["backoffLimit"] == 6
    assert made["spec"]["suspend"] is False
    assert made["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid,
        "job-name": "a",
    }
    template = made["spec"]["template"]
    assert template["metadata"]["labels"] == made["metadata"]["labels"] == labels
    resources = template["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"nvidia.com/gpu": "1"}}


@case("J2")
async def test_an_indexed_job_runs_to_completion(api: Api, node: str):
    """One pod an index, which it knows; two conditions when all have succeeded."""
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    await api.post(api.path("jobs", group=BATCH), job("a", **spec))
    pods = sorted(await _pods_of(api, "a", 2), key=lambda p: p["metadata"]["name"])
    for index, made in enumerate(pods):
        meta = made["metadata"]
        assert meta["name"].startswith(f"a-{index}-")
        assert made["spec"]["hostname"] == f"a-{index}"
        assert meta["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert meta["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        assert made["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
        await api.bind(meta["name"], node)
        await api.set_phase(meta["name"], "Succeeded")
    done = await _job_until(api, "a", lambda j: condition(j, "Complete").get("status") == "True")
    assert condition(done, "SuccessCriteriaMet")["reason"] == "CompletionsReached"
    assert (done["status"]["succeeded"], done["status"]["completedIndexes"]) == (2, "0,1")


@case("J3")
async def test_suspend_and_resume(api: Api):
    """No pods while suspended; directives may change on the way; suspension deletes pods."""
    path = api.path("jobs", "a", group=BATCH)
    await api.post(api.path("jobs", group=BATCH), job("a", suspend=True))
    held = await _job_until(api, "a", lambda j: condition(j, "Suspended").get("status") == "True")
    assert condition(held, "Suspended")["reason"] == "JobSuspended"
    assert "startTime" not in held["status"]
    assert await _pods_of(api, "a", 0) == []
    change = {"suspend": False, "template": {"spec": {"nodeSelector": {"pool": "x"}}}}
    resumed = await api.patch(path, {"spec": change}, STRATEGIC)
    assert resumed.code == 200, resumed.body
    (made,) = await _pods_of(api, "a", 1)
    assert made["spec"]["nodeSelector"] == {"pool": "x"}
    running = await _job_until(api, "a", lambda j: j["status"].get("active") == 1)
    assert condition(running, "Suspended")["reason"] == "JobResumed"
    await api.patch(path, {"spec": {"suspend": True}})
    await _pods_of(api, "a", 0)
    held = await _job_until(api, "a", lambda j: condition(j, "Suspended").get("status") == "True")
    assert "failed" not in held["status"]


@case("J4")
async def test_failure_and_deadline(api: Api, node: str):
    """A back-off limit of 0 ends with the first failure; the deadline with its time."""
    await api.post(api.path("jobs", group=BATCH), job("a", backoffLimit=0))
    (made,) = await _pods_of(api, "a", 1)
    await api.bind(made["metadata"]["name"], node)
    await api.set_phase(made["metadata"]["name"], "Failed")
    failed = await _job_until(api, "a", lambda j: condition(j, "Failed").get("status") == "True")
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert condition(failed, "FailureTarget")["reason"] == "BackoffLimitExceeded"
    assert failed["status"]["failed"] == 1
    await api.post(api.path("jobs", group=BATCH), job("b", activeDeadlineSeconds=1))
    late = await _job_until(api, "b", lambda j: condition(j, "Failed").get("status") == "True")
    assert condition(late, "Failed")["reason"] == "DeadlineExceeded"


@case("J4")
async def test_pods_go_with_their_job(api: Api):
    """Background deletion leaves collection to the garbage collector."""
    await api.post(api.path("jobs", group=BATCH), job("a"))
    await _pods_of(api, "a", 1)
    options = {"propagationPolicy": "Background"}
    gone = await api.delete(api.path("jobs", "a", group=BATCH), options)
    assert gone.code == 200
    await _pods_of(api, "a", 0)


@case("J5")
async def test_tables_and_sealed_fields_of_jobs(api: Api):
    """Status and Completions are told; completions and template may not change at will."""
    spec = {"completions": 2, "completionMode": "Indexed", "suspend": True}
    await api.post(api.path("jobs", group=BATCH), job("a", **spec))
    table = (await api.get(api.path("jobs", group=BATCH), accept=TABLE)).body
    assert [c["name"] for c in table["columnDefinitions"]][:4] == [
        "Name",
        "Status",
        "Completions",
        "Duration",
    ]
    assert (table["rows"][0]["cells"][2], table["rows"][0]["cells"][3]) == ("0/2", "")
    path = api.path("jobs", "a", group=BATCH)
    without = {"completionMode": "Indexed", "parallelism": 2}
    bad = await api.post(api.path("jobs", group=BATCH), job("b", **without))
    assert bad.code == 422
    assert "spec.completions" in bad.message
    containers = [{"name": "c", "image": "other"}]
    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    sealed = await api.patch(path, change, STRATEGIC)
    assert sealed.code == 422
    assert "spec.template.spec: Invalid value" in sealed.message
    assert "field is immutable" in sealed.message


@case("M1")
async def test_events_are_one_store_with_two_views(api: Api):
    """A new event shows in the old view; the new one asks for an action."""
    new = api.path("events", group="events.k8s.io/v1")
    body = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Bind",
        "reason": "Bound",
        "type": "Normal",
        "note": "told",
        "regarding": {"kind": "Pod", "namespace": api.ns, "name": "p"},
    }
    assert (await api.post(new, body)).code == 201
    old = (await api.get(api.path("events", "e"))).body
    assert (old["message"], old["involvedObject"]["name"]) == ("told", "p")
    assert (old["firstTimestamp"], old["lastTimestamp"]) == (None, None)
    del body["action"]
    refused = await api.post(new, {**body, "metadata": {"name": "f"}})
    assert refused.code == 422
    assert "action: Required value" in refused.message


@case("M1")
async def test_leases_lock(api: Api):
    """Microseconds round-trip; a stale PUT conflicts; durations are positive."""
    leases = api.path("leases", group="coordination.k8s.io/v1")
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15}
    spec["renewTime"] = "2026-01-01T00:00:00.123456Z"
    made = await api.post(leases, {"metadata": {"name": "l"}, "spec": spec})
    assert made.body["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"
    await api.patch(f"{leases}/l", {"spec": {"holderIdentity": "b"}})
    stale = await api.put(f"{leases}/l", made.body)
    assert stale.code == 409
    assert stale.message.startswith(
        'Operation cannot be fulfilled on leases.coordination.k8s.io "l": '
    )
    zero = await api.patch(f"{leases}/l", {"spec": {"leaseDurationSeconds": 0}})
    assert zero.code == 422
    assert "must be greater than 0" in zero.message


@case("M2")
async def test_access_reviews(api: Api):
    """The admin may; the answer says allowed."""
    asked = {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": api.ns}}
    path = "/apis/authorization.k8s.io/v1"
    mine = await api.post(f"{path}/selfsubjectaccessreviews", {"spec": asked})
    assert mine.code == 201
    assert mine.body["status"]["allowed"] is True
    other = await api.post(
        f"{path}/subjectaccessreviews", {"spec": {**asked, "user": "contract-nobody"}}
    )
    assert other.body["status"]["allowed"] is False


@case("M2")
async def test_quota_refuses_what_exceeds_it(api: Api):
    """403 with what was asked, used and allowed."""
    quotas = api.path("resourcequotas")
    hard = {"requests.nvidia.com/gpu": "1"}
    await api.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await api.until(f"{quotas}/q", lambda reply: reply.body["status"].get("used"))
    await api.create_pod("a")
    over = await api.post(api.pods, pod("b"))
    assert over.code == 403
    assert over.message == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=1, '
        "used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1"
    )


@case("M2")
async def test_a_namespace_ends_in_steps(cluster_api: Api):
    """200 with the namespace Terminating; creates are refused; then it is gone."""
    name = f"contract-{uuid.uuid4().hex[:10]}"
    await cluster_api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    api = cluster_api.within(name)
    await api.until_ready_for_pods()
    await api.create_pod("a", meta={"finalizers": ["example.com/hold"]})
    path = f"/api/v1/namespaces/{name}"
    gone = await api.delete(path)
    assert (gone.code, gone.body["status"]["phase"]) == (200, "Terminating")
    refused = await api.post(api.pods, pod("b"))
    assert refused.code == 403
    assert f"unable to create new content in namespace {name}" in refused.message
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await api.patch(f"{api.pods}/a", {"metadata": {"finalizers": None}})
    await api.until(path, lambda reply: reply.code == 404)


@case("K1")
async def test_discovery(cluster_api: Api):
    """Plain and aggregated; /api without apiVersion; eviction is of policy/v1."""
    assert "apiVersion" not in (await cluster_api.get("/api")).body
    listed = (await cluster_api.get("/api/v1")).body
    entries = {entry["name"]: entry for entry in listed["resources"]}
    assert entries["pods"]["shortNames"] == ["po"]
    assert (entries["pods/eviction"]["group"], entries["pods/eviction"]["version"]) == (
        "policy",
        "v1",
    )
    aggregated = await cluster_api.get("/api", accept=DISCOVERY)
    assert aggregated.body["kind"] == "APIGroupDiscoveryList"
    resources = aggregated.body["items"][0]["versions"][0]["resources"]
    found = next(r for r in resources if r["resource"] == "pods")
    assert found["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    assert found["scope"] == "Namespaced"


@case("K2")
async def test_openapi_and_health(cluster_api: Api):
    """The index has hashed addresses that lead to documents; health is ok."""
    index = (await cluster_api.get("/openapi/v3")).body
    where = index["paths"]["api/v1"]["serverRelativeURL"]
    assert where.startswith("/openapi/v3/api/v1?hash=")
    document = (await cluster_api.get(where)).body
    assert "io.k8s.api.core.v1.Pod" in document["components"]["schemas"]
    for path in ("/healthz", "/readyz", "/livez"):
        assert (await cluster_api.get(path, accept="*/*")).body == "ok"


@case("K3")
async def test_unknown_paths(cluster_api: Api):
    """Plain text for paths and groups, a Status for resources."""
    for path in ("/nope", "/apis/nope.example.com/v1/things"):
        unknown = await cluster_api.get(path)
        assert (unknown.code, unknown.body) == (404, "404 page not found\n")
    resource = await cluster_api.get("/api/v1/nopes")
    assert resource.message == "the server could not find the requested resource"
    assert resource.body["details"] == {}


@case("X1")
async def test_claims_are_made_and_allocated(api: Api):
    """A claim has no generation; its allocation cannot be replaced."""
    claims = api.path("resourceclaims", group="resource.k8s.io/v1")
    exactly = {"deviceClassName": "contract", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "r", "exactly": exactly}]
    made = await api.post(
        claims, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
    )
    assert made.code == 201, made.body
    assert "generation" not in made.meta
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "0"}
    status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    assert (await api.patch(f"{claims}/c/status", status)).code == 200
    status["status"]["allocation"]["devices"]["results"][0]["device"] = "1"
    again = await api.patch(f"{claims}/c/status", status)
    assert again.code == 422
    assert "status.allocation: Invalid value" in again.message
    assert "field is immutable" in again.message
