"""Resource claims made from templates, reserved, freed and deleted with the pods that use them."""

from __future__ import annotations

from gpusched.devcluster.controllers.resource_claims import CLAIMS, FINALIZER, TEMPLATES

HEAD = {"apiVersion": "resource.k8s.io/v1"}
DEVICES = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}
RESULT = {"request": "g", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}


def template(cluster, name="tpl"):
    labels = {"metadata": {"labels": {"team": "a"}}, "spec": DEVICES}
    body = {**HEAD, "kind": "ResourceClaimTemplate", "spec": labels, "metadata": {"name": name}}
    return cluster.client.create(TEMPLATES, body, "n")


def claim(cluster, name="c"):
    body = {**HEAD, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": DEVICES}
    return cluster.client.create(CLAIMS, body, "n")


def pod(cluster, name, **source):
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}],
        "resourceClaims": [{"name": "g", **source}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return cluster.client.create("pods", body, "n")


def allocate(cluster, name, *pods):
    """Allocate a claim as schedulers do: finalizer first, then allocation and reservations."""
    cluster.client.patch(CLAIMS, "n", name, {"metadata": {"finalizers": [FINALIZER]}})
    users = [{"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]}
             for p in pods]  # fmt: skip
    state = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": users}
    cluster.client.patch(CLAIMS, "n", name, {"status": state}, subresource="status")


def finish(cluster, name):
    cluster.client.patch(
        "pods", "n", name, {"status": {"phase": "Succeeded"}}, subresource="status"
    )


async def test_a_template_makes_one_claim_for_a_pod(start):
    """The pod learns the name of its claim, which it owns; the template gives labels and spec."""
    cluster = await start()
    template(cluster)
    pod(cluster, "p", resourceClaimTemplateName="tpl")
    await cluster.clock.advance(1)
    (made,) = cluster.client.list(CLAIMS, "n")
    meta = made["metadata"]
    assert meta["name"].startswith("p-g-")
    assert meta["labels"] == {"team": "a"}
    assert meta["annotations"] == {"resource.kubernetes.io/pod-claim-name": "g"}
    owner = meta["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    told = cluster.client.get("pods", "n", "p")["status"]["resourceClaimStatuses"]
    assert told == [{"name": "g", "resourceClaimName": meta["name"]}]


async def test_a_template_that_comes_late(start):
    """A missing template is told in an event; the claim follows as soon as the template is there."""
    cluster = await start()
    pod(cluster, "p", resourceClaimTemplateName="tpl")
    await cluster.clock.advance(1)
    assert "FailedResourceClaimCreation" in cluster.reasons
    assert cluster.client.list(CLAIMS, "n") == []
    template(cluster)
    await cluster.clock.settle()
    assert len(cluster.client.list(CLAIMS, "n")) == 1


async def test_a_lost_claim_is_made_again(start):
    """A pod that still waits gets another claim when somebody deletes its own."""
    cluster = await start()
    template(cluster)
    pod(cluster, "p", resourceClaimTemplateName="tpl")
    await cluster.clock.advance(1)
    (first,) = cluster.client.list(CLAIMS, "n")
    cluster.client.delete(CLAIMS, "n", first["metadata"]["name"])
    await cluster.clock.advance(1)
    (second,) = cluster.client.list(CLAIMS, "n")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    told = cluster.client.get("pods", "n", "p")["status"]["resourceClaimStatuses"]
    assert told == [{"name": "g", "resourceClaimName": second["metadata"]["name"]}]


async def test_a_shared_claim_is_freed_with_its_last_pod(start):
    """Reservations of finished and deleted pods go; the last takes allocation and finalizer along."""
    cluster = await start()
    claim(cluster)
    pods = [pod(cluster, name, resourceClaimName="c") for name in ("a", "b")]
    await cluster.clock.advance(1)
    allocate(cluster, "c", *pods)
    for name in ("a", "b"):
        cluster.client.bind("n", name, "n1")
    await cluster.clock.advance(1)
    finish(cluster, "a")
    await cluster.clock.advance(1)
    half = cluster.client.get(CLAIMS, "n", "c")
    assert [user["name"] for user in half["status"]["reservedFor"]] == ["b"]
    assert "allocation" in half["status"]
    cluster.client.delete("pods", "n", "b", grace_s=0)
    await cluster.clock.advance(1)
    free = cluster.client.get(CLAIMS, "n", "c")
    assert free["status"] == {}
    assert "finalizers" not in free["metadata"]


async def test_a_generated_claim_goes_when_its_pod_is_done(start):
    """A finished pod may stay, the devices it had do not."""
    cluster = await start()
    template(cluster)
    made = pod(cluster, "p", resourceClaimTemplateName="tpl")
    await cluster.clock.advance(1)
    (own,) = cluster.client.list(CLAIMS, "n")
    allocate(cluster, own["metadata"]["name"], made)
    cluster.client.bind("n", "p", "n1")
    await cluster.clock.advance(1)
    assert len(cluster.client.list(CLAIMS, "n")) == 1
    finish(cluster, "p")
    await cluster.clock.advance(2)
    assert cluster.client.list(CLAIMS, "n") == []
    assert cluster.client.get("pods", "n", "p") is not None


async def test_a_deleted_claim_in_use_waits_for_its_pod(start):
    """The finalizer keeps a deleted claim until nobody uses it."""
    cluster = await start()
    claim(cluster)
    user = pod(cluster, "p", resourceClaimName="c")
    allocate(cluster, "c", user)
    cluster.client.delete(CLAIMS, "n", "c")
    await cluster.clock.advance(1)
    assert "deletionTimestamp" in cluster.client.get(CLAIMS, "n", "c")["metadata"]
    cluster.client.delete("pods", "n", "p", grace_s=0)
    await cluster.clock.advance(1)
    assert cluster.client.get(CLAIMS, "n", "c") is None


async def test_a_pod_bound_by_hand_is_reserved_for(start):
    """An allocated claim is reserved for a pod that was bound without that."""
    cluster = await start()
    claim(cluster)
    pod(cluster, "p", resourceClaimName="c")
    allocate(cluster, "c")
    cluster.client.bind("n", "p", "n1")
    await cluster.clock.advance(1)
    users = cluster.client.get(CLAIMS, "n", "c")["status"]["reservedFor"]
    assert [user["name"] for user in users] == ["p"]
