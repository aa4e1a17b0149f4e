"""Extended resources that a class of devices stands for, on nodes that have them as devices only."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from tests.daemon.devices.device_objects import API, CLAIMS, bound, given

CLASS = "gpu.example.com"
GPU = "nvidia.com/gpu"
QUEUES = "queues.scheduling.gpusched.io"


def publish(w, node, gpus, **fields):
    """Whole GPUs of a node, numbered."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"index": {"int": number}}, **fields}
        for number in range(gpus)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLASS, "nodeName": node, "pool": pool, "devices": devices}
    body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}
    w.client.create("resourceslices.resource.k8s.io", body)


def gpu_class(w, resource=GPU):
    """A class of all these GPUs that stands for a resource."""
    selectors = [{"cel": {"expression": f'device.driver == "{CLASS}"'}}]
    spec = {"selectors": selectors, **({"extendedResourceName": resource} if resource else {})}
    body = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}
    w.client.create("deviceclasses.resource.k8s.io", body)


def claim_of(w, pod):
    """The claim that was made for a pod's extended resources."""
    (found,) = [
        claim
        for claim in w.client.list(CLAIMS, "default")
        if claim["metadata"]["ownerReferences"][0]["name"] == pod
    ]
    return found


def asking(w, name, gpus, resource=GPU, **fields):
    """A pod of one container that requests some of a resource."""
    need = {"requests": {"cpu": "1", resource: str(gpus)}, "limits": {resource: str(gpus)}}
    spec = {"containers": [{"name": "main", "image": "i", "resources": need}]}
    return w.pod(name, gpus=0, spec=spec, **fields)


def message(w, pod):
    """Why a pod waits."""
    conditions = w.client.get("pods", "default", pod)["status"].get("conditions") or ()
    return next(
        (each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), ""
    )


async def device_nodes(w, nodes=2, gpus=4, resource=GPU):
    await w.start(nodes=0)
    for number in range(nodes):
        w.node(f"node-{number}", gpus=0)
        publish(w, f"node-{number}", gpus)
    gpu_class(w, resource)


def test_a_gang_is_given_devices_for_its_extended_resource(play):
    async def life(w):
        await device_nodes(w)
        w.daemon()
        # given: a gang of two pods of three GPUs each, on two nodes of four devices
        w.group("g", minMember=2)
        for number in range(2):
            asking(w, f"g-{number}", 3, labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: len(bound(w)) == 2)
        # then: each has a claim for three devices of its node, made as kube-scheduler makes it
        assert sorted(bound(w).values()) == ["node-0", "node-1"]
        for pod, node in bound(w).items():
            assert [place for place, _ in given(w)[pod]] == [node] * 3
            claim = claim_of(w, pod)
            meta = claim["metadata"]
            assert meta["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
            assert meta["finalizers"] == ["resource.kubernetes.io/delete-protection"]
            (request,) = claim["spec"]["devices"]["requests"]
            assert request["name"] == "container-0-request-1"
            assert request["exactly"]["deviceClassName"] == CLASS
            assert request["exactly"]["count"] == 3
            (user,) = claim["status"]["reservedFor"]
            assert user["name"] == pod
            shown = w.client.get("pods", "default", pod)
            assert shown["status"]["extendedResourceClaimStatus"] == {
                "resourceClaimName": meta["name"],
                "requestMappings": [
                    {
                        "containerName": "main",
                        "resourceName": GPU,
                        "requestName": "container-0-request-1",
                    }
                ],
            }
            devices = sorted(int(name.removeprefix("gpu-")) for _, name in given(w)[pod])
            slots = shown["metadata"]["annotations"]["gpusched.io/slots"]
            assert slots == ",".join(map(str, devices))
        # and: one more of two does not fit, and says why
        asking(w, "more", 2)
        await w.until(lambda: "nvidia.com/gpu" in message(w, "more"))

    play(life)


def test_nodes_that_publish_the_resource_serve_it_themselves(play):
    async def life(w):
        # given: a node of two devices, and one whose device plugin publishes two
        await device_nodes(w, nodes=1, gpus=2)
        w.node("plain", gpus=2)
        w.daemon()
        w.group("g", minMember=2)
        for number in range(2):
            asking(w, f"g-{number}", 2, labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: len(bound(w)) == 2)
        # then: only the pod on devices has a claim
        nodes = {node: pod for pod, node in bound(w).items()}
        assert list(given(w)) == [nodes["node-0"]]
        told = w.client.get("pods", "default", nodes["plain"])
        assert "extendedResourceClaimStatus" not in told["status"]
        assert told["metadata"]["annotations"]["gpusched.io/slots"] == "0,1"

    play(life)


def test_devices_are_shared_out_with_claims_that_pods_name(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=4)
        request = {"name": "g", "exactly": {"deviceClassName": CLASS, "count": 3}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        body = {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "three"}}
        w.client.create("resourceclaimtemplates.resource.k8s.io", {**body, "spec": spec}, "default")
        w.daemon()
        # given: a pod with a claim for three of the four devices
        claims = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "three"}]}
        w.pod("claimant", gpus=0, spec=claims)
        await w.until(lambda: "claimant" in bound(w))
        # then: one more fits by its extended resource, two do not and the holder is named
        asking(w, "two", 2)
        await w.until(lambda: "held (3 by default/claimant)" in message(w, "two"))
        assert "devices for nvidia.com/gpu, request container-0-request-1" in message(w, "two")
        asking(w, "one", 1)
        await w.until(lambda: "one" in bound(w))
        # when: the holder is gone
        w.client.delete("pods", "default", "claimant")
        await w.until(lambda: "two" in bound(w))
        held = [each for devices in given(w).values() for each in devices]
        assert len(held) == len(set(held)) == 3

    play(life)


def test_a_resource_may_be_named_after_its_class(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=2, resource="")
        w.daemon()
        asking(w, "p", 2, resource=f"deviceclass.resource.kubernetes.io/{CLASS}")
        await w.until(lambda: "p" in bound(w))
        assert len(given(w)["p"]) == 2

    play(life)


def test_each_container_has_a_request_of_its_own(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=4)
        w.daemon()
        need = {"limits": {GPU: "1"}}
        containers = [{"name": name, "image": "i", "resources": need} for name in ("a", "b")]
        init = [{"name": "first", "image": "i", "resources": {"limits": {GPU: "2"}}}]
        w.pod("p", gpus=0, spec={"containers": containers, "initContainers": init})
        await w.until(lambda: "p" in bound(w))
        told = w.client.get("pods", "default", "p")["status"]["extendedResourceClaimStatus"]
        assert [
            (each["containerName"], each["requestName"]) for each in told["requestMappings"]
        ] == [
            ("first", "container-0-request-0"),
            ("a", "container-1-request-0"),
            ("b", "container-2-request-0"),
        ]
        assert len(given(w)["p"]) == 4

    play(life)


def test_the_devices_of_a_pod_that_ended_are_free_again(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=2)
        w.daemon()
        asking(w, "first", 2, annotations={"gpusched.io/run-for": "20s"})
        await w.until(lambda: "first" in bound(w))
        asking(w, "next", 2)
        await w.until(lambda: "next" in bound(w), within=120)
        assert list(given(w)) == ["next"]
        # and: the claim of the pod that ended is deleted with it
        assert len(w.client.list(CLAIMS, "default")) == 1

    play(life)


def test_pods_of_kube_scheduler_hold_their_devices(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=4)
        # given: a bound pod of another scheduler with a claim for its extended resource
        need = {"requests": {"cpu": "1", GPU: "3"}, "limits": {GPU: "3"}}
        containers = [{"name": "main", "image": "i", "resources": need}]
        spec = {"containers": containers, "schedulerName": "default-scheduler"}
        pod = w.pod("theirs", gpus=0, spec={**spec, "nodeName": "node-0"})
        uid = pod["metadata"]["uid"]
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "theirs",
            "uid": uid,
            "controller": True,
        }
        request = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 3}
        claim = w.client.create(
            CLAIMS,
            {
                "apiVersion": API,
                "kind": "ResourceClaim",
                "metadata": {
                    "name": "theirs-extended-resources-x",
                    "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                    "ownerReferences": [owner],
                },
                "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
            },
            "default",
        )
        results = [
            {"request": "r", "driver": CLASS, "pool": "node-0", "device": f"gpu-{number}"}
            for number in range(3)
        ]
        status = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "theirs", "uid": uid}],
        }
        name = claim["metadata"]["name"]
        w.client.patch(CLAIMS, "default", name, {"status": status}, subresource="status")
        mapping = {"containerName": "main", "resourceName": GPU, "requestName": "r"}
        told = {"resourceClaimName": name, "requestMappings": [mapping]}
        body = {"status": {"extendedResourceClaimStatus": told}}
        w.client.patch("pods", "default", "theirs", body, subresource="status")
        w.daemon()
        asking(w, "two", 2)
        await w.until(lambda: message(w, "two"))
        asking(w, "one", 1)
        await w.until(lambda: "one" in bound(w))
        assert given(w)["one"] == [("node-0", "gpu-3")]
        assert "two" not in bound(w)

    play(life)


def test_shares_of_gpus_by_annotation_are_not_placed_on_devices(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=4)
        w.daemon()
        w.pod("share", gpus=0, annotations={"gpusched.io/gpu-fraction": "0.5"})
        await w.until(lambda: message(w, "share"))
        await w.clock.sleep(30)
        assert "share" not in bound(w)
        # when: a node publishes GPUs itself
        w.node("plain", gpus=1)
        await w.until(lambda: bound(w).get("share") == "plain")

    play(life)


def test_a_class_that_comes_later_serves_pods_that_wait(play):
    async def life(w):
        await w.start(nodes=0)
        w.node("node-0", gpus=0)
        publish(w, "node-0", 2)
        w.daemon()
        asking(w, "p", 2)
        await w.until(lambda: message(w, "p"))
        gpu_class(w)
        await w.until(lambda: "p" in bound(w))
        # when: the class is gone, nothing new is placed there, and what runs goes on
        w.client.delete("deviceclasses.resource.k8s.io", None, CLASS)
        asking(w, "q", 1)
        await w.until(lambda: message(w, "q"))
        assert bound(w) == {"p": "node-0"}

    play(life)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("write", range(1, 7))
def test_a_death_at_any_write_is_made_good_by_the_next_leader(play, write, answered):
    async def life(w):
        await device_nodes(w, nodes=2, gpus=1)
        first = w.daemon()
        seen = []

        def fault(method, path):
            claim = "/resourceclaims" in path or (path.endswith("/status") and "/pods/g-" in path)
            if claim and method in ("POST", "PATCH") and len(bound(w)) < 2:
                seen.append(path)
                if len(seen) == write:
                    if answered:
                        asyncio.get_running_loop().call_soon(first.kill)
                    else:
                        first.kill()
            return ""

        first.fault = fault
        # given: a gang of two whose leader dies at one of the writes of its claims
        w.group("g", minMember=2)
        for number in range(2):
            asking(w, f"g-{number}", 1, labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: first.dead)
        w.daemon()
        # then: the next one starts it, and no device has two claims at any time
        for _ in range(800):
            await w.clock.sleep(0.25)
            held = [each for devices in given(w).values() for each in devices]
            assert len(held) == len(set(held))
            if len(bound(w)) == 2:
                break
        assert {pod: devices[0][0] for pod, devices in given(w).items()} == bound(w)
        assert len(w.client.list(CLAIMS, "default")) == 2

    play(life)


@pytest.mark.parametrize("refused", ["make", "allocate", "tell", "bind"])
def test_a_refused_write_gives_everything_back(play, refused):
    async def life(w):
        await device_nodes(w, nodes=2, gpus=1)
        daemon = w.daemon()
        times = []

        def fault(method, path):
            hit = {
                "make": method == "POST" and path.endswith("/resourceclaims"),
                "allocate": path.endswith("/status") and "/resourceclaims/g-1" in path,
                "tell": path.endswith("/status") and "/pods/g-1/" in path and daemon.leading,
                "bind": path.endswith("/g-1/binding"),
            }[refused]
            if hit and len(times) < 3:
                times.append(path)
                return "422"
            return ""

        await w.until(lambda: daemon.leading)
        daemon.fault = fault
        w.group("g", minMember=2)
        for number in range(2):
            asking(w, f"g-{number}", 1, labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: times)
        # given: others that want the same devices meanwhile
        asking(w, "other", 1)
        for _ in range(600):
            await w.clock.sleep(0.25)
            held = [each for devices in given(w).values() for each in devices]
            assert len(held) == len(set(held))
        # then: those who run have a device of their node each, and no claim is left over
        assert len(w.client.list(CLAIMS, "default")) == len(bound(w))
        if refused == "bind":
            return  # the other member was evicted, and is not made again
        w.client.delete("pods", "default", "other")
        await w.until(lambda: sorted(bound(w)) == ["g-0", "g-1"], within=200)
        assert {pod: devices[0][0] for pod, devices in given(w).items()} == bound(w)
        assert len(w.client.list(CLAIMS, "default")) == 2

    play(life)


def test_a_gang_of_higher_priority_takes_the_devices_of_others(play):
    async def life(w):
        await device_nodes(w, nodes=2, gpus=2)
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {**body, "metadata": {"name": "high"}, "value": 1000},
        )
        w.daemon()
        for number in range(2):
            asking(w, f"low-{number}", 2)
        await w.until(lambda: len(bound(w)) == 2)
        need = {"requests": {"cpu": "1", GPU: "2"}, "limits": {GPU: "2"}}
        containers = [{"name": "main", "image": "i", "resources": need}]
        w.pod("high", gpus=0, spec={"containers": containers, "priorityClassName": "high"})
        await w.until(lambda: "high" in bound(w), within=180)
        assert len(given(w)["high"]) == 2

    play(life)


def forged(w, namespace, pod):
    """A tenant's claim that looks as if it was made for a pod's extended resource."""
    uid = pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    request = {"name": "r", "exactly": {"deviceClassName": CLASS}}
    w.client.create(
        CLAIMS,
        {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {
                "name": "forged",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": [request]}},
        },
        namespace,
    )


def test_a_forged_claim_of_another_namespace_changes_nothing(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=2)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        w.client.create("namespaces", body)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        asked = []

        def fault(method, path):
            if "/namespaces/other/resourceclaims" in path and method != "GET":
                asked.append(path)
            return ""

        daemon.fault = fault
        forged(w, "other", asking(w, "p", 2))
        await w.until(lambda: "p" in bound(w), within=10)
        assert asked == []

    play(life)


def test_a_forged_claim_of_the_own_namespace_is_deleted(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=2)
        pod = asking(w, "p", 2)
        forged(w, "default", pod)
        w.daemon()
        await w.until(lambda: "p" in bound(w))
        assert [
            claim["metadata"]["name"] == "forged" for claim in w.client.list(CLAIMS, "default")
        ] == [False]

    play(life)


@pytest.mark.parametrize("counted", [True, False])
def test_queues_divide_what_nodes_have_as_devices_once(play, tmp_path, counted):
    async def life(w):
        # given: eight devices of a resource that deviceQuota counts as cards, too, or not at all
        await device_nodes(w, nodes=2, gpus=4)
        config = tmp_path / "gpusched.yaml"
        row = {"deviceClass": CLASS, "amounts": {GPU: 1}}
        config.write_text(yaml.safe_dump({"deviceQuota": [row] if counted else []}))
        queue = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
        for name in ("a", "b"):
            spec = {"deserved": {GPU: "4"}, "capability": {GPU: "6"}}
            w.client.create(QUEUES, {**queue, "metadata": {"name": name}, "spec": spec})
        w.daemon(config_file=str(config))
        for number in range(7):
            asking(w, f"a-{number}", 1, labels={"gpusched.io/queue": "a"})
        # then: a queue gets what it may have at most, and its status shows that
        await w.until(lambda: len(bound(w)) == 6)
        await w.clock.sleep(20)
        assert len(bound(w)) == 6
        await w.until(lambda: allocated(w, "a") == "6")
        # and: another queue takes back what it deserves
        for number in range(4):
            asking(w, f"b-{number}", 1, labels={"gpusched.io/queue": "b"})
        await w.until(
            lambda: len([pod for pod in bound(w) if pod.startswith("b")]) == 4, within=200
        )
        await w.until(lambda: allocated(w, "a") == allocated(w, "b") == "4")

    play(life)


def allocated(w, queue):
    """GPUs that a queue's status shows as allocated."""
    status = w.client.get(QUEUES, None, queue).get("status") or {}
    return (status.get("allocated") or {}).get(GPU)


def test_devices_that_another_scheduler_takes_meanwhile_are_not_used(play):
    async def life(w):
        await device_nodes(w, nodes=1, gpus=2)
        w.daemon()
        # given: a pod of another scheduler waits for the same resource
        need = {"requests": {"cpu": "1", GPU: "2"}, "limits": {GPU: "2"}}
        containers = [{"name": "main", "image": "i", "resources": need}]
        spec = {"containers": containers, "schedulerName": "default-scheduler"}
        theirs = w.pod("theirs", gpus=0, spec=spec)
        await w.clock.sleep(1)
        asking(w, "ours", 2)
        # when: it is given both devices half a second after ours was
        await w.until(lambda: "ours" in given(w))
        await w.clock.sleep(0.5)
        uid = theirs["metadata"]["uid"]
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "theirs",
            "uid": uid,
            "controller": True,
        }
        note = {"resource.kubernetes.io/extended-resource-claim": "true"}
        meta = {"name": "t", "annotations": note, "ownerReferences": [owner]}
        request = {"name": "r", "exactly": {"deviceClassName": CLASS, "count": 2}}
        body = {"apiVersion": API, "kind": "ResourceClaim", "metadata": meta}
        devices = {"devices": {"requests": [request]}}
        w.client.create(CLAIMS, {**body, "spec": devices}, "default")
        results = [
            {"request": "r", "driver": CLASS, "pool": "node-0", "device": f"gpu-{number}"}
            for number in range(2)
        ]
        user = {"resource": "pods", "name": "theirs", "uid": uid}
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
        w.client.patch(CLAIMS, "default", "t", {"status": status}, subresource="status")
        # then: our pod is not bound while the other claim is there
        await w.clock.sleep(30)
        assert "ours" not in bound(w)
        w.client.delete("pods", "default", "theirs")
        await w.until(lambda: "ours" in bound(w), within=120)

    play(life)
