"""What is believed of a real API server and was not recorded (each confirmed by a live run)."""

from __future__ import annotations

import asyncio
import json

import pytest

from .api import Api, config_map, names, pod

pytestmark = pytest.mark.unrecorded
POLICY = "policy/v1"
STRATEGIC = "strategic-merge-patch+json"


async def test_warnings_stand_in_a_header(api: Api):
    """An unknown field under Warn is dropped with a Warning header."""
    reply = await api.post(f"{api.pods}?fieldValidation=Warn", pod("a", nonsense=1))
    assert reply.code == 201
    assert reply.headers.getall("Warning") == ['299 - "unknown field \\"spec.nonsense\\""']


async def test_retry_times_stand_in_a_header_too(api: Api):
    """A list of the future says when to ask again."""
    reply = await api.get(f"{api.pods}?resourceVersion=99999999999")
    assert reply.headers["Retry-After"] == str(reply.body["details"]["retryAfterSeconds"])


async def test_writers_are_recorded(api: Api):
    """Each manager owns what it wrote; an apply is told from an update."""
    path = api.path("configmaps")
    made = await api.post(f"{path}?fieldManager=one", config_map("a", x="1"))
    (entry,) = made.meta["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:x": {}}}
    raw = json.dumps(config_map("a", x="2")).encode()
    clash = await api.send(
        "PATCH", f"{path}/a?fieldManager=two", raw, media="application/apply-patch+yaml"
    )
    assert clash.code == 409
    assert 'conflict with "one" using v1' in clash.message


async def test_a_write_of_nothing_is_no_event(api: Api):
    """Watchers do not hear of it."""
    await api.create_pod("a")
    since = (await api.get(api.pods)).meta["resourceVersion"]
    await api.patch(f"{api.pods}/a", {"metadata": {"labels": {}}})
    await api.create_pod("b")
    (event,) = await api.watch(f"{api.pods}?watch=1&resourceVersion={since}", 1)
    assert event["object"]["metadata"]["name"] == "b"


async def test_binding_clears_the_nomination(api: Api, node: str):
    """The nominated node goes with the binding."""
    await api.create_pod("a")
    await api.patch(f"{api.pods}/a/status", {"status": {"nominatedNodeName": node}})
    await api.bind("a", node)
    assert "nominatedNodeName" not in (await api.get(f"{api.pods}/a")).body["status"]


async def test_an_unprocessed_budget_asks_to_wait(api: Api, node: str):
    """Or it was processed meanwhile: then the eviction goes by its count."""
    await api.create_pod("a", labels={"app": "x"})
    await api.bind("a", node)
    await api.set_phase("a", "Running", ready=True)
    selector = {"matchLabels": {"app": "x"}}
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": selector}}
    await api.post(api.path("poddisruptionbudgets", group=POLICY), budget)
    reply = await api.evict("a")
    if reply.code == 429:
        assert reply.headers["Retry-After"] == "10"
    else:
        assert reply.code == 201


async def test_two_budgets_on_a_pod(api: Api, node: str):
    """The answer is a Failure of code 500 that asks for one budget."""
    await api.create_pod("a", labels={"app": "x"})
    await api.bind("a", node)
    await api.set_phase("a", "Running", ready=True)
    selector = {"matchLabels": {"app": "x"}}
    for name in ("b", "c"):
        budget = {"metadata": {"name": name}, "spec": {"minAvailable": 0, "selector": selector}}
        await api.post(api.path("poddisruptionbudgets", group=POLICY), budget)
    reply = await api.evict("a")
    assert reply.body["status"] == "Failure"
    assert reply.body["code"] == 500
    assert "more than one PodDisruptionBudget" in reply.message


async def test_a_grace_can_be_shortened(api: Api, node: str):
    """And never prolonged."""
    await api.create_pod("a")
    await api.bind("a", node)
    await api.set_phase("a", "Running")
    for asked, left in ((20, 20), (25, 20), (10, 10)):
        reply = await api.delete(f"{api.pods}/a", {"gracePeriodSeconds": asked})
        assert reply.meta["deletionGracePeriodSeconds"] == left


async def _owned(api: Api, name: str, owner: dict, *, block: bool) -> None:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }
    body = config_map(name)
    body["metadata"]["ownerReferences"] = [reference]
    assert (await api.post(api.path("configmaps"), body)).code == 201


async def test_orphans_stay(api: Api):
    """The owner goes, what it owned loses the reference."""
    maps = api.path("configmaps")
    owner = (await api.post(maps, config_map("owner"))).body
    await _owned(api, "child", owner, block=False)
    await api.delete(f"{maps}/owner", {"propagationPolicy": "Orphan"})
    await api.until(f"{maps}/owner", lambda reply: reply.code == 404)
    left = await api.until(f"{maps}/child", lambda r: "ownerReferences" not in r.meta)
    assert left.code == 200


async def test_foreground_deletion_waits_for_dependents(api: Api):
    """The owner stays with its finalizer until what blocks it is gone."""
    maps = api.path("configmaps")
    owner = (await api.post(maps, config_map("owner"))).body
    await _owned(api, "child", owner, block=True)
    gone = await api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"})
    assert gone.meta["finalizers"] == ["foregroundDeletion"]
    await api.until(f"{maps}/owner", lambda reply: reply.code == 404)
    assert (await api.get(f"{maps}/child")).code == 404


async def test_no_finalizer_joins_a_deletion(api: Api):
    """A leaving object takes no new finalizers."""
    await api.create_pod("a", meta={"finalizers": ["example.com/hold"]})
    await api.delete(f"{api.pods}/a")
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    reply = await api.patch(f"{api.pods}/a", more)
    assert reply.code == 422
    assert "no new finalizers can be added if the object is being deleted" in reply.message
    await api.patch(f"{api.pods}/a", {"metadata": {"finalizers": None}})


async def test_put_with_another_uid(api: Api):
    """409 in the words of a precondition."""
    made = await api.post(api.path("configmaps"), config_map("a"))
    body = {**made.body, "metadata": {**made.meta, "uid": "other"}}
    reply = await api.put(api.path("configmaps", "a"), body)
    assert reply.code == 409
    assert "Precondition failed: UID in precondition: other" in reply.message


async def test_put_creates_leases_and_not_config_maps(api: Api):
    """A lease may be created by PUT; most kinds are 404."""
    path = api.path("leases", "l", group="coordination.k8s.io/v1")
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    assert (await api.put(path, body)).code == 201
    assert (await api.put(api.path("configmaps", "a"), config_map("a"))).code == 404


async def test_leases_are_replaced_with_their_version(api: Api):
    """A PUT without one is 422."""
    path = api.path("leases", "l", group="coordination.k8s.io/v1")
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    await api.put(path, body)
    reply = await api.put(path, {**body, "spec": {"holderIdentity": "b"}})
    assert reply.code == 422
    assert "metadata.resourceVersion" in reply.message
    assert "must be specified for an update" in reply.message


async def test_a_broken_page_token_is_400(api: Api):
    """Whatever is broken about it."""
    reply = await api.get(f"{api.pods}?limit=1&continue=e30")
    assert reply.code == 400
    assert reply.body["reason"] == "BadRequest"


async def test_absent_fields_differ_from_values(api: Api):
    """A pod without a node has one that is not x."""
    await api.create_pod("a")
    assert names(await api.get(f"{api.pods}?fieldSelector=spec.nodeName!%3Dx")) == ["a"]


async def test_quota_wants_to_know_what_it_counts(api: Api):
    """A pod that says nothing of a compute resource under quota is refused."""
    quotas = api.path("resourcequotas")
    hard = {"requests.cpu": "1"}
    await api.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await api.until(f"{quotas}/q", lambda reply: reply.body["status"].get("used"))
    reply = await api.post(api.pods, pod("a"))
    assert reply.code == 403
    assert "failed quota: q: must specify requests.cpu" in reply.message


async def test_nodes_have_no_generation(cluster_api: Api, node: str):
    """Neither at creation nor after a change of spec."""
    path = f"/api/v1/nodes/{node}"
    reply = await cluster_api.patch(path, {"spec": {"unschedulable": True}})
    assert "generation" not in reply.meta


async def test_many_writers_lose_nothing(api: Api):
    """Twenty writers that retry on conflict all get their turn."""
    path = api.path("configmaps", "a")
    await api.post(api.path("configmaps"), config_map("a", n="0"))

    async def raise_by_one() -> None:
        while True:
            now = (await api.get(path)).body
            now["data"]["n"] = str(int(now["data"]["n"]) + 1)
            if (await api.put(path, now)).code == 200:
                return

    async with asyncio.timeout(15):
        await asyncio.gather(*(raise_by_one() for _ in range(20)))
    assert (await api.get(path)).body["data"]["n"] == "20"


async def test_answers_are_not_to_be_cached(api: Api):
    """Objects and errors alike."""
    for path in (api.pods, f"{api.pods}/none"):
        assert (await api.get(path)).headers["Cache-Control"] == "no-cache, private"


async def test_budgets_are_replaced_with_their_version(api: Api):
    """A PUT without one is 422."""
    path = api.path("poddisruptionbudgets", group=POLICY)
    selector = {"matchLabels": {"app": "x"}}
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}
    await api.post(path, budget)
    reply = await api.put(f"{path}/b", budget)
    assert reply.code == 422
    assert "must be specified for an update" in reply.message


async def test_put_creates_events(api: Api):
    """As it creates leases."""
    involved = {"kind": "Pod", "namespace": api.ns, "name": "p"}
    body = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R", "type": "Normal"}
    assert (await api.put(api.path("events", "e"), body)).code == 201


async def test_unready_pods_may_always_go(api: Api, node: str):
    """AlwaysAllow lets a running pod that is not ready go, whatever the budget."""
    await api.create_pod("a", labels={"app": "x"})
    await api.bind("a", node)
    await api.set_phase("a", "Running")
    spec = {
        "minAvailable": 1,
        "selector": {"matchLabels": {"app": "x"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    path = api.path("poddisruptionbudgets", group=POLICY)
    await api.post(path, {"metadata": {"name": "b"}, "spec": spec})
    await api.until(f"{path}/b", lambda reply: "conditions" in reply.body["status"])
    assert (await api.evict("a")).code == 201
