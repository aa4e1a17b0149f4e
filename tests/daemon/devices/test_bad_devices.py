"""Device objects that contradict each other, vanish or cannot be judged: told, and nothing else is held up."""

from __future__ import annotations

import json

import pytest

from tests.daemon.devices.device_objects import (
    API,
    CLAIMS,
    bound,
    claimant,
    classes,
    given,
    publish,
)

SLICES = "resourceslices.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"


def a_slice(w, name, node, devices, *, pool="", generation=1, slices=1, **more):
    """One slice of a pool."""
    spec = {
        "driver": "gpu.example.com",
        "nodeName": node,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": slices},
        "devices": devices,
        **more,
    }
    body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    w.client.create(SLICES, body)


def a_template(w, name, *expressions, device_class="gpu", **request):
    """A template whose claims ask for one device."""
    selectors = [{"cel": {"expression": text}} for text in expressions]
    exactly = {"deviceClassName": device_class, **request}
    if selectors:
        exactly["selectors"] = selectors
    spec = {"spec": {"devices": {"requests": [{"name": "g", "exactly": exactly}]}}}
    body = {
        "apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip
    w.client.create(TEMPLATES, body, "default")


def user_of(w, name, template):
    """A pod with a claim from a template."""
    w.pod(
        name,
        gpus=0,
        spec={"resourceClaims": [{"name": "c", "resourceClaimTemplateName": template}]},
    )


async def one_good_node(w, *, nodes=2):
    """Nodes of which ``node-1`` has two good devices; what is bad is on ``node-0``."""
    await w.start(nodes=nodes)
    publish(w, "node-1", 2)
    classes(w)


async def good_pod_runs(w, name="good"):
    """A pod with an ordinary claim runs all the same."""
    claimant(w, name)
    await w.until(lambda: name in bound(w))
    assert bound(w)[name] == "node-1"


def test_slices_that_contradict_each_other_are_not_used(play):
    """A device twice in one pool, and two slices that disagree about how many there are."""

    async def life(w):
        await one_good_node(w, nodes=3)
        for number in range(2):
            a_slice(w, f"twice-{number}", "node-0", [{"name": "gpu-0"}], slices=2)
            a_slice(w, f"count-{number}", "node-2", [{"name": f"gpu-{number}"}], slices=number + 1)
        w.daemon()
        await good_pod_runs(w)
        await good_pod_runs(w, "second")
        claimant(w, "third")
        await w.clock.sleep(20)
        assert "third" not in bound(w)
        message = w.told("third")["message"]
        assert "3 in pools that are not complete or contradict themselves" in message
        devices = [device for held in given(w).values() for device in held]
        assert len(devices) == len(set(devices)) == 2

    play(life)


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.example.com'].missing == 'x'",
        "device.attributes['gpu.example.com'].missing.matches('(a|a)*b')",
        "[1,2,3,4,5,6,7,8,9,10].all(a, " * 9 + "true" + ")" * 9,
        "cel.bind(a0, 'xxxxxxxxxx', " + "".join(f"cel.bind(a{n + 1}, a{n} + a{n}, " for n in range(40))
        + "a40 != ''" + ")" * 41,
    ],
    ids=["fails", "a pattern", "runs for ever", "grows for ever"],
)  # fmt: skip
def test_a_selector_that_has_no_value_holds_up_its_own_pod_alone(play, expression):
    async def life(w):
        await one_good_node(w, nodes=3)
        for number in (0, 2):
            publish(w, f"node-{number}", 0)
        a_template(w, "bad", expression)
        w.daemon()
        for number in range(3):
            user_of(w, f"bad-{number}", "bad")
        await good_pod_runs(w)
        await w.clock.sleep(30)
        assert sorted(bound(w)) == ["good"]
        told = w.told("bad-0")["message"]
        assert "selector" in told or "claim c" in told, told

    play(life)


def test_a_claim_of_another_namespace_is_not_found(play):
    async def life(w):
        await one_good_node(w)
        w.client.create(
            "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        )
        request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
        claim = {
            "apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": "theirs"},
            "spec": {"devices": {"requests": [request]}},
        }  # fmt: skip
        w.client.create(CLAIMS, claim, "other")
        w.daemon()
        w.pod("p", gpus=0, spec={"resourceClaims": [{"name": "c", "resourceClaimName": "theirs"}]})
        await good_pod_runs(w)
        await w.clock.sleep(20)
        assert "p" not in bound(w)
        assert "names ResourceClaim theirs, which is not there" in w.told("p")["message"]
        assert "status" not in w.client.get(CLAIMS, "other", "theirs") or not w.client.get(
            CLAIMS, "other", "theirs"
        )["status"].get("allocation")

    play(life)


def test_a_template_that_vanishes_is_named(play):
    async def life(w):
        await one_good_node(w)
        a_template(w, "gone", count=2)
        w.daemon()
        await good_pod_runs(w)
        user_of(w, "p", "gone")
        await w.clock.sleep(5)
        w.client.delete(TEMPLATES, "default", "gone")
        user_of(w, "q", "gone")
        await w.clock.sleep(20)
        assert sorted(bound(w)) == ["good"]
        assert "ResourceClaimTemplate gone, which is not there" in w.told("q")["message"]
        await good_pod_runs(w, "second")

    play(life)


def test_allocations_of_what_nobody_publishes_hold_up_nothing(play):
    """Of an unknown driver, pool and device; each claim keeps what it says, and no other gets it."""

    async def life(w):
        await one_good_node(w)
        request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
        results = [
            ("no.example.com", "pool", "device"), ("gpu.example.com", "no-pool", "gpu-0"),
            ("gpu.example.com", "node-1", "gpu-77"), ("gpu.example.com", "node-1", "gpu-0"),
        ]  # fmt: skip
        for number, (driver, pool, device) in enumerate(results):
            name = f"claim-{number}"
            body = {
                "apiVersion": API,
                "kind": "ResourceClaim",
                "metadata": {
                    "name": name, "finalizers": ["resource.kubernetes.io/delete-protection"],
                },
                "spec": {"devices": {"requests": [request]}},
            }  # fmt: skip
            w.client.create(CLAIMS, body, "default")
            result = {"request": "g", "driver": driver, "pool": pool, "device": device}
            status = {"allocation": {"devices": {"results": [result]}}}
            w.client.patch(CLAIMS, "default", name, {"status": status}, subresource="status")
        w.daemon()
        await good_pod_runs(w)
        (good,) = [
            each["status"]["allocation"]["devices"]["results"]
            for each in w.client.list(CLAIMS, "default")
            if each["metadata"].get("ownerReferences")
        ]
        assert [each["device"] for each in good] == ["gpu-1"]
        claimant(w, "late")
        await w.clock.sleep(20)
        assert "late" not in bound(w)
        assert "0 free" in w.told("late")["message"] or "in use" in w.told("late")["message"]

    play(life)


def test_devices_that_vanish_while_they_are_allocated_are_not_given_again(play):
    """The driver's slice goes and comes back, once without the device: its holder keeps what it has."""

    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", 2)
        classes(w)
        w.daemon()
        claimant(w, "first")
        await w.until(lambda: "first" in bound(w))
        (held,) = given(w)["first"]
        w.client.delete(SLICES, "", "node-0")
        claimant(w, "second")
        await w.clock.sleep(20)
        assert "second" not in bound(w)
        assert "0 devices" in w.told("second")["message"]
        publish(w, "node-0", 2)
        await w.until(lambda: "second" in bound(w))
        (other,) = given(w)["second"]
        assert other != held
        assert given(w)["first"] == [held]

    play(life)


def damage(w, name, change):
    """Change a slice behind the API server's back, which would not take it."""
    collection = w.cluster.core.store.collection(SLICES)
    key, stored = next(
        each for each in collection.scan() if each[1].obj["metadata"]["name"] == name
    )
    made = json.loads(json.dumps(stored.obj))
    change(made["spec"])
    collection.write(key, made)


BAD_SLICES = {
    "counters below zero": lambda spec: spec.update(
        sharedCounters=[{"name": "c", "counters": {"slots": {"value": "-1"}}}]
    ),
    "a hundred thousand attributes": lambda spec: spec["devices"][0].update(
        attributes={f"a{number}": {"int": number} for number in range(100_000)}
    ),
    "an amount that is none": lambda spec: spec["devices"][0].update(
        capacity={"memory": {"value": "much"}}
    ),
    "too many devices": lambda spec: spec.update(
        devices=[{"name": f"d-{number}"} for number in range(5_000)]
    ),
}


@pytest.mark.parametrize("change", BAD_SLICES.values(), ids=BAD_SLICES.keys())
def test_a_slice_that_cannot_be_believed_is_named_and_the_others_count(play, change):
    """The event stands beside the slice, where the driver's operator looks."""

    async def life(w):
        await one_good_node(w)
        publish(w, "node-0", 1)
        w.daemon()
        damage(w, "node-0", change)
        await w.clock.sleep(10)
        for name in ("good", "second"):
            await good_pod_runs(w, name)
        claimant(w, "third")
        await w.clock.sleep(20)
        assert "third" not in bound(w)
        events = [
            each for each in w.client.list("events") if each["involvedObject"]["name"] == "node-0"
        ]
        assert any(each["involvedObject"]["kind"] == "ResourceSlice" for each in events), events

    play(life)
