"""Pods: defaults, binding, deletion and eviction as clients of a scheduler decide on them."""

PODS = "/api/v1/namespaces/default/pods"


async def test_a_pod_gets_its_defaults_and_requests_from_limits(http):
    """A minimal pod is answered whole: defaults, tolerations, priority, phase and class."""
    made = await http.create_pod("p")
    spec = made["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert [t["tolerationSeconds"] for t in spec["tolerations"]] == [300, 300]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


async def test_creation_is_refused_with_the_reason_clients_look_for(http):
    """Taken name, missing namespace, bad amount: each its own code and reason."""
    await http.create_pod("p")
    again = await http.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}})
    assert (again.code, again.body["reason"]) == (422, "Invalid")
    taken = await http.post(
        PODS,
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    assert (taken.code, taken.body["reason"]) == (409, "AlreadyExists")
    nowhere = await http.post("/api/v1/namespaces/nope/pods", {"metadata": {"name": "x"}})
    assert (nowhere.code, nowhere.message) == (404, 'namespaces "nope" not found')
    many = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "many"}}}]}
    unread = await http.post(PODS, {"metadata": {"name": "y"}, "spec": many})
    assert unread.code == 400
    assert "quantities must match" in unread.message


async def test_a_dry_run_leaves_nothing(http):
    """A dry-run create answers with a uid and no version, and stores nothing."""
    body = {"metadata": {"name": "d"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    dry = await http.post(f"{PODS}?dryRun=All", body)
    assert dry.code == 201
    assert "uid" in dry.body["metadata"]
    assert "resourceVersion" not in dry.body["metadata"]
    assert (await http.get(f"{PODS}/d")).code == 404


async def test_a_binding_lands_with_its_annotations_in_one_write(http):
    """Annotations and labels of a Binding are on the pod; its generation stays 1."""
    before = await http.create_pod("p")
    reply = await http.bind("p", "n1", annotations={"gpusched.io/slots": "0,1"})
    assert (reply.code, reply.body["status"]) == (201, "Success")
    after = (await http.get(f"{PODS}/p")).body
    assert after["spec"]["nodeName"] == "n1"
    assert after["metadata"]["annotations"] == {"gpusched.io/slots": "0,1"}
    assert after["metadata"]["generation"] == 1
    assert int(after["metadata"]["resourceVersion"]) == (
        int(before["metadata"]["resourceVersion"]) + 1
    )
    assert after["status"]["conditions"][0]["type"] == "PodScheduled"


async def test_a_bound_pod_cannot_be_bound_again(http):
    """Binding is not idempotent: the same node again is a conflict that names the node."""
    await http.create_pod("p")
    await http.bind("p", "n1")
    again = await http.bind("p", "n1")
    assert again.code == 409
    assert again.message.endswith('pod p is already assigned to node "n1"')
    assert again.body["details"] == {"name": "p", "kind": "pods/binding"}


async def test_gates_uid_and_target_stop_a_binding(http):
    """A closed gate and a foreign uid are conflicts; a bad target is the server's own 500."""
    await http.create_pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    assert "schedulingGates" in (await http.bind("gated", "n1")).message
    await http.create_pod("p")
    foreign = await http.bind("p", "n1", uid="00000000-0000-0000-0000-000000000000")
    assert foreign.code == 409
    assert "StorageError: invalid object" in foreign.message
    empty = await http.bind("p", "")
    assert (empty.code, "reason" in empty.body) == (500, False)


async def test_an_unbound_pod_goes_at_once_a_bound_one_with_grace(http):
    """Grace only concerns what may run; asking for zero seconds ends it."""
    await http.create_pod("waiting")
    gone = await http.delete(f"{PODS}/waiting")
    assert gone.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await http.get(f"{PODS}/waiting")).code == 404
    await http.create_pod("running")
    await http.bind("running", "n1")
    stays = await http.delete(f"{PODS}/running")
    assert stays.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await http.get(f"{PODS}/running")).code == 200
    forced = await http.delete(f"{PODS}/running", {"gracePeriodSeconds": 0})
    assert forced.body["metadata"]["generation"] == 2
    assert (await http.get(f"{PODS}/running")).code == 404


async def test_a_finalizer_keeps_a_deleted_pod_until_it_is_lifted(http):
    """The last finalizer's removal completes the deletion."""
    await http.create_pod("p")
    await http.patch(f"{PODS}/p", {"metadata": {"finalizers": ["example.com/hold"]}})
    await http.delete(f"{PODS}/p")
    kept = (await http.get(f"{PODS}/p")).body
    assert kept["metadata"]["deletionTimestamp"]
    assert (await http.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})).code == 200
    assert (await http.get(f"{PODS}/p")).code == 404


async def test_a_delete_for_another_uid_is_a_conflict(http):
    """Preconditions protect a recreated pod."""
    await http.create_pod("p")
    reply = await http.delete(f"{PODS}/p", {"preconditions": {"uid": "other"}})
    assert (reply.code, reply.body["details"]["kind"]) == (409, "Pod")


async def test_a_budget_without_room_refuses_the_eviction(http):
    """429 with a DisruptionBudget cause; with room the pod is marked and deleted gracefully."""
    await http.create_pod("p", labels={"app": "x"})
    await http.bind("p", "n1")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await http.patch(f"{PODS}/p/status", {"status": ready})
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await http.post(budgets, {"metadata": {"name": "b"}, "spec": spec})
    counts = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1}
    await http.patch(f"{budgets}/b/status", {"status": {**counts, "desiredHealthy": 1}})
    refused = await http.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert refused.code == 429
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await http.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
    assert (await http.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})).code == 201
    leaving = (await http.get(f"{PODS}/p")).body
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    assert leaving["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"


async def test_a_quota_admits_until_it_is_full(http):
    """The pod that would exceed a quota is refused with the numbers."""
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await http.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    early = await http.post(PODS, {"metadata": {"name": "e"}, "spec": {"containers": [_c()]}})
    assert "status unknown for quota: q" in early.message
    await http.patch(f"{quotas}/q/status", {"status": {"used": {"pods": "0"}}})
    await http.create_pod("first")
    full = await http.post(PODS, {"metadata": {"name": "x"}, "spec": {"containers": [_c()]}})
    assert full.code == 403
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in full.message


def _c():
    return {"name": "c", "image": "i"}
