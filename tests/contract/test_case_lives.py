"""Cases B1-B7, D1-D4, V1-V3: binding, deletion and eviction of pods."""

from __future__ import annotations

import pytest

from .api import Api, Reply, condition, pod

case = pytest.mark.case
POLICY = "policy/v1"


@case("B1")
async def test_binding_sets_the_node_and_copies_metadata(api: Api, node: str):
    """201; labels and annotations land on the pod, whose generation stays."""
    await api.create_pod("a")
    done = await api.bind("a", node, labels={"l": "1"}, annotations={"n": "2"})
    assert (done.code, done.body["status"]) == (201, "Success")
    bound = (await api.get(f"{api.pods}/a")).body
    assert bound["spec"]["nodeName"] == node
    assert condition(bound, "PodScheduled")["status"] == "True"
    assert "reason" not in condition(bound, "PodScheduled")
    assert bound["metadata"]["labels"] == {"l": "1"}
    assert bound["metadata"]["annotations"]["n"] == "2"
    assert bound["metadata"]["generation"] == 1
    await api.create_pod("b")
    body = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": node}}
    assert (await api.post(api.path("bindings"), body)).code == 201


@case("B2")
async def test_binding_twice_is_a_conflict(api: Api, node: str):
    """The same node again is refused as another is."""
    await api.create_pod("a")
    await api.bind("a", node)
    for other in (node, "other"):
        again = await api.bind("a", other)
        assert again.code == 409
        assert again.message == (
            'Operation cannot be fulfilled on pods/binding "a": '
            f'pod a is already assigned to node "{node}"'
        )


@case("B3")
async def test_the_pod_must_exist_the_node_need_not(api: Api):
    """A missing pod is 404, a missing node is accepted."""
    missing = await api.bind("none", "n")
    assert (missing.code, missing.message) == (404, 'pods "none" not found')
    await api.create_pod("a")
    assert (await api.bind("a", "contract-no-such-node")).code == 201


@case("B4")
async def test_gated_and_leaving_pods_are_not_bound(api: Api, node: str):
    """Both conflicts say why; lifting the gate leaves the old condition."""
    await api.create_pod("a", schedulingGates=[{"name": "example.com/wait"}])
    gated = await api.bind("a", node)
    assert gated.code == 409
    assert gated.message.endswith("pod a has non-empty .spec.schedulingGates")
    lifted = await api.patch(f"{api.pods}/a", {"spec": {"schedulingGates": None}})
    assert (lifted.code, lifted.meta["generation"]) == (200, 2)
    assert condition(lifted.body, "PodScheduled")["reason"] == "SchedulingGated"
    await api.create_pod("b", meta={"finalizers": ["example.com/hold"]})
    await api.delete(f"{api.pods}/b")
    leaving = await api.bind("b", node)
    assert leaving.code == 409
    assert leaving.message.endswith("is being deleted, cannot be assigned to a host")
    await api.patch(f"{api.pods}/b", {"metadata": {"finalizers": None}})


@case("B5")
async def test_a_uid_in_the_binding_must_fit(api: Api, node: str):
    """A wrong one is the storage layer's conflict; the right one binds."""
    uid = (await api.create_pod("a"))["metadata"]["uid"]
    wrong = await api.bind("a", node, uid="wrong")
    assert wrong.code == 409
    assert "Precondition failed: UID in precondition: wrong, UID in object meta: " in wrong.message
    assert wrong.body["details"]["kind"] == "pods"
    assert (await api.bind("a", node, uid=uid)).code == 201


@case("B6")
async def test_bad_targets_are_500_without_reason(api: Api):
    """An empty target and one that is no node."""
    await api.create_pod("a")
    path = f"{api.pods}/a/binding"
    empty = await api.post(path, {"metadata": {"name": "a"}, "target": {}})
    assert (empty.code, empty.message) == (500, "target.name: Required value")
    assert "reason" not in empty.body
    other = await api.post(
        path, {"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "x"}}
    )
    assert other.code == 500
    assert other.message.startswith('target.kind: Unsupported value: "Pod"')


@case("B7")
async def test_other_ways_to_bind_are_closed(api: Api):
    """Another name 400, PUT 405, nodeName by patch 422."""
    await api.create_pod("a")
    body = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n"}}
    other = await api.post(f"{api.pods}/a/binding", body)
    assert (other.code, other.message) == (400, "name in URL does not match name in Binding object")
    assert (await api.put(f"{api.pods}/a/binding", body)).code == 405
    patched = await api.patch(f"{api.pods}/a", {"spec": {"nodeName": "n"}})
    assert patched.code == 422
    assert "pod updates may not change fields other than" in patched.message


@case("D1")
async def test_unbound_and_finished_pods_go_at_once(api: Api, node: str):
    """The answer is the pod with grace 0 and the next generation; then it is gone."""
    await api.create_pod("a")
    gone = await api.delete(f"{api.pods}/a")
    assert (gone.code, gone.body["kind"]) == (200, "Pod")
    assert gone.meta["deletionGracePeriodSeconds"] == 0
    assert gone.meta["generation"] == 2
    assert (await api.get(f"{api.pods}/a")).code == 404
    await api.create_pod("b")
    await api.bind("b", node)
    await api.set_phase("b", "Succeeded")
    await api.delete(f"{api.pods}/b")
    assert (await api.get(f"{api.pods}/b")).code == 404


@case("D2")
async def test_running_pods_have_their_grace(api: Api, node: str):
    """A running pod stays with its 30 s; grace 0 ends it."""
    await api.create_pod("a")
    await api.bind("a", node)
    await api.set_phase("a", "Running")
    leaving = await api.delete(f"{api.pods}/a")
    assert leaving.meta["deletionGracePeriodSeconds"] == 30
    assert (await api.get(f"{api.pods}/a")).meta["generation"] == 2
    ended = await api.delete(f"{api.pods}/a", {"gracePeriodSeconds": 0})
    assert (ended.code, ended.meta["generation"]) == (200, 2)
    assert (await api.get(f"{api.pods}/a")).code == 404


@case("D3")
async def test_finalizers_dry_runs_and_collections(api: Api, node: str):
    """A finalizer holds; a dry run shows the grace; a collection answers with its objects."""
    await api.create_pod("a", meta={"finalizers": ["example.com/hold"]})
    held = await api.delete(f"{api.pods}/a")
    assert held.meta["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{api.pods}/a")).code == 200
    await api.patch(f"{api.pods}/a", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{api.pods}/a")).code == 404
    assert (await api.delete(f"{api.pods}/a")).code == 404
    await api.create_pod("b", labels={"x": "1"})
    await api.bind("b", node)
    tried = await api.delete(f"{api.pods}/b?dryRun=All")
    assert (tried.code, tried.meta["deletionGracePeriodSeconds"]) == (200, 30)
    gone = await api.delete(f"{api.pods}?labelSelector=x%3D1")
    assert (gone.body["kind"], len(gone.body["items"])) == ("PodList", 1)
    assert (await api.get(f"{api.pods}/b")).meta["deletionTimestamp"]


@case("D4")
async def test_preconditions_of_deletion(api: Api):
    """A wrong uid or version is a conflict that names both."""
    uid = (await api.create_pod("a"))["metadata"]["uid"]
    wrong = await api.delete(f"{api.pods}/a", {"preconditions": {"uid": "wrong"}})
    assert wrong.code == 409
    assert wrong.message == (
        'Operation cannot be fulfilled on Pod "a": the UID in the precondition (wrong) does not '
        f"match the UID in record ({uid}). The object might have been deleted and then recreated"
    )
    old = await api.delete(f"{api.pods}/a", {"preconditions": {"resourceVersion": "1"}})
    assert old.code == 409
    assert old.message.endswith("The object might have been modified")


@case("V1")
async def test_eviction_marks_then_deletes(api: Api, node: str):
    """A running pod gets DisruptionTarget and its grace; a pending one goes; a missing is 404."""
    await api.create_pod("a")
    await api.bind("a", node)
    await api.set_phase("a", "Running")
    assert (await api.evict("a")).code == 201
    leaving = (await api.get(f"{api.pods}/a")).body
    told = leaving["status"]["conditions"][-1]
    assert (told["type"], told["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.create_pod("b")
    assert (await api.evict("b")).code == 201
    assert (await api.get(f"{api.pods}/b")).code == 404
    assert (await api.evict("none")).code == 404


def _budget(minimum: int) -> dict:
    selector = {"matchLabels": {"app": "x"}}
    return {"metadata": {"name": "pdb"}, "spec": {"minAvailable": minimum, "selector": selector}}


async def _counted(api: Api, allowed: int) -> Reply:
    def settled(reply: Reply) -> bool:
        status = reply.body["status"]
        return "conditions" in status and status["disruptionsAllowed"] == allowed

    return await api.until(api.path("poddisruptionbudgets", "pdb", group=POLICY), settled)


@case("V2")
async def test_a_budget_is_counted_by_its_controller(api: Api):
    """First zeros, then counts and a condition."""
    made = await api.post(api.path("poddisruptionbudgets", group=POLICY), _budget(1))
    assert made.code == 201
    assert made.body["status"]["disruptionsAllowed"] == 0
    counted = (await _counted(api, 0)).body
    assert counted["status"]["observedGeneration"] == 1
    told = condition(counted, "DisruptionAllowed")
    assert (told["status"], told["reason"]) == ("False", "InsufficientPods")


@case("V3")
async def test_a_budget_refuses_and_allows(api: Api, node: str):
    """With one needed and one there eviction is 429 without a retry time; with two, 201."""
    for name in ("a", "b"):
        await api.post(api.pods, pod(name, labels={"app": "x"}))
        await api.bind(name, node)
    await api.set_phase("a", "Running", ready=True)
    await api.post(api.path("poddisruptionbudgets", group=POLICY), _budget(1))
    await _counted(api, 0)
    await api.until(
        api.path("poddisruptionbudgets", "pdb", group=POLICY),
        lambda reply: reply.body["status"]["currentHealthy"] == 1,
    )
    refused = await api.evict("a")
    assert refused.code == 429
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.body["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget pdb needs 1 healthy pods and has 1 currently",
        }
    ]
    assert "Retry-After" not in refused.headers
    await api.set_phase("b", "Running", ready=True)
    await _counted(api, 1)
    assert (await api.evict("a")).code == 201
