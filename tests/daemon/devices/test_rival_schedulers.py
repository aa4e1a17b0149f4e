"""Another scheduler allocates the same devices at the same time: what it has is given back before pods are bound."""

from __future__ import annotations

from gpusched.api.meta.identity import ObjectKey
from tests.daemon.devices.device_objects import API, CLAIMS, bound, classes, publish


def rival_claim(w, name):
    """A claim that a pod of another scheduler names."""
    request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
    body = {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "finalizers": ["resource.kubernetes.io/delete-protection"]},
        "spec": {"devices": {"requests": [request]}},
    }
    w.client.create(CLAIMS, body, "default")


def take(w, name, pool, device):
    """What another scheduler writes of a claim."""
    result = {"request": "g", "driver": "gpu.example.com", "pool": pool, "device": device}
    uid = w.client.get("pods", "default", "theirs")["metadata"]["uid"]
    users = [{"resource": "pods", "name": "theirs", "uid": uid}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    w.client.patch(CLAIMS, "default", name, {"status": status}, subresource="status")


async def two_single_devices(w):
    """Two nodes of one device each, and a claim of another scheduler that waits."""
    await w.start(nodes=2)
    for number in range(2):
        publish(w, f"node-{number}", 1)
    classes(w)
    claims = {"resourceClaims": [{"name": "c", "resourceClaimName": "theirs"}]}
    w.pod("theirs", gpus=0, spec={**claims, "schedulerName": "kube-scheduler"})
    rival_claim(w, "theirs")
    rival_claim(w, "mine")
    daemon = w.daemon()
    await w.until(lambda: daemon.leading)
    return daemon


def user_of_mine(w):
    w.pod("p", gpus=0, spec={"resourceClaims": [{"name": "c", "resourceClaimName": "mine"}]})


def assumed_pool(daemon):
    """The pool of the device that the daemon has chosen for its claim."""
    claim = daemon.app.cache.devices.build_catalog().claims[ObjectKey("default", "mine")]
    return claim.allocation.devices[0].pool if claim.allocation else ""


def test_a_device_that_another_scheduler_takes_before_our_write_costs_one_try(play):
    async def life(w):
        daemon = await two_single_devices(w)
        user_of_mine(w)
        await w.until(lambda: assumed_pool(daemon), every=0.01)
        # when: another scheduler takes the device that was just chosen
        chosen = assumed_pool(daemon)
        take(w, "theirs", chosen, "gpu-0")
        # then: the pod gets the other one, and the first is never written
        await w.until(lambda: "p" in bound(w))
        assert bound(w)["p"] not in {"", chosen}
        written = [each.body for each in daemon.journal if each.path.endswith("/mine/status")]
        assert len(written) == 1

    play(life)


def test_a_device_that_two_schedulers_wrote_is_used_by_neither_pod_of_ours_until_the_other_leaves(
    play,
):
    async def life(w):
        daemon = await two_single_devices(w)
        chosen = []

        def fault(method, path):
            if method == "PATCH" and path.endswith("/mine/status") and not chosen:
                chosen.append(assumed_pool(daemon))
                take(w, "theirs", chosen[0], "gpu-0")
            return ""

        daemon.fault = fault
        user_of_mine(w)
        await w.until(lambda: chosen)
        # then: our claim keeps the device, so that the other scheduler does not take it for free
        await w.clock.sleep(20)
        assert "p" not in bound(w)
        assert w.client.get(CLAIMS, "default", "mine")["status"].get("allocation")
        (condition,) = w.client.get("pods", "default", "p")["status"]["conditions"]
        assert "which claim default/theirs has too" in condition["message"]
        # when: the other pod ends
        w.client.delete("pods", "default", "theirs")
        # then: ours is decided anew
        await w.until(lambda: "p" in bound(w))
        (result,) = w.client.get(CLAIMS, "default", "mine")["status"]["allocation"]["devices"][
            "results"
        ]
        assert result["pool"] == bound(w)["p"]

    play(life)


def test_without_claims_of_others_nothing_is_waited_for(play):
    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", 1)
        classes(w)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        claims = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "one"}]}
        w.pod("p", gpus=0, spec=claims)
        await w.until(lambda: w.client.list(CLAIMS, "default"), every=0.01)
        began = w.clock.monotonic()
        await w.until(lambda: "p" in bound(w), every=0.01)
        assert w.clock.monotonic() - began < 0.5

    play(life)
