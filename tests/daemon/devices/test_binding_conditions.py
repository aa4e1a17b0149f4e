"""Devices that are not ready when they are given, on a whole daemon: their pods are bound once they are."""

from __future__ import annotations

import pytest

from tests.daemon.devices.device_objects import (
    API,
    CLAIMS,
    bound,
    claim_status,
    claimant,
    classes,
    named_claim,
    user_of,
)

READY, BROKEN = "fabric.example.com/attached", "fabric.example.com/failed"


def publish_fabric(w, node, gpus):
    """GPUs that a fabric attaches once they are given."""
    named = {"bindingConditions": [READY], "bindingFailureConditions": [BROKEN]}
    spec = {
        "driver": "gpu.example.com",
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", **named} for number in range(gpus)],
    }
    body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}
    w.client.create("resourceslices.resource.k8s.io", body)


def allocated(w):
    """Claims with devices, by the pod that owns them."""
    return {
        claim["metadata"]["ownerReferences"][0]["name"]: claim
        for claim in w.client.list(CLAIMS, "default")
        if (claim.get("status") or {}).get("allocation")
    }


def stamps(w):
    """When claims got the devices that they have."""
    return sorted(
        claim["status"]["allocation"]["allocationTimestamp"] for claim in allocated(w).values()
    )


def report(w, claim, condition):
    """The driver says something of the device of a claim."""
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    told = {
        "type": condition,
        "status": "True",
        "reason": "Told",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    place = {key: result[key] for key in ("driver", "pool", "device")}
    body = {"status": {"devices": [{**place, "conditions": [told]}]}}
    name = claim["metadata"]["name"]
    w.client.patch(CLAIMS, "default", name, body, subresource="status")


async def gang_of_two(w):
    await w.start(nodes=1)
    publish_fabric(w, "node-0", 2)
    classes(w)
    w.group("g", minMember=2)
    for number in range(2):
        claimant(w, f"g-{number}", labels={"gpusched.io/pod-group": "g"})


def test_a_gang_is_bound_when_all_its_devices_are_ready(play):
    async def life(w):
        await gang_of_two(w)
        w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        for claim in allocated(w).values():
            assert claim["status"]["allocation"]["allocationTimestamp"]
        report(w, allocated(w)["g-0"], READY)
        await w.clock.sleep(120)
        assert not bound(w)
        report(w, allocated(w)["g-1"], READY)
        await w.until(lambda: len(bound(w)) == 2)

    play(life)


def test_a_device_that_fails_is_given_back_and_decided_again(play):
    async def life(w):
        await gang_of_two(w)
        w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        first = stamps(w)
        await w.clock.sleep(30)
        report(w, allocated(w)["g-0"], BROKEN)
        # then: all that the gang had is given again, without what the driver said before
        await w.until(lambda: len(stamps(w)) == 2 and not set(stamps(w)) & set(first), within=60)
        again = allocated(w).values()
        assert not any(claim["status"].get("devices") for claim in again)
        assert not bound(w)
        for claim in again:
            report(w, claim, READY)
        await w.until(lambda: len(bound(w)) == 2)

    play(life)


def test_devices_that_are_never_ready_are_given_back_after_ten_minutes(play):
    async def life(w):
        await gang_of_two(w)
        w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        first = stamps(w)
        await w.clock.sleep(590)
        assert stamps(w) == first
        await w.until(lambda: len(stamps(w)) == 2 and not set(stamps(w)) & set(first), within=30)
        assert not bound(w)

    play(life)


@pytest.mark.parametrize("ready", [False, True])
def test_the_next_leader_goes_on_with_the_wait(play, ready):
    async def life(w):
        await gang_of_two(w)
        first = w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        before = stamps(w)
        first.kill()
        if ready:
            for claim in allocated(w).values():
                report(w, claim, READY)
        w.daemon()
        await w.clock.sleep(120)
        assert stamps(w) == before
        for claim in allocated(w).values():
            report(w, claim, READY)
        await w.until(lambda: len(bound(w)) == 2, within=30)
        assert stamps(w) == before

    play(life)


def test_the_next_leader_gives_back_when_the_first_ones_time_is_over(play):
    async def life(w):
        await gang_of_two(w)
        first = w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        before = stamps(w)
        began = w.clock.monotonic()
        await w.clock.sleep(300)
        first.kill()
        w.daemon()
        await w.clock.sleep(began + 595 - w.clock.monotonic())
        assert stamps(w) == before
        await w.until(lambda: len(stamps(w)) == 2 and not set(stamps(w)) & set(before), within=40)

    play(life)


def test_what_a_dead_leader_waited_for_is_given_back_where_the_gang_cannot_be_placed(play):
    async def life(w):
        await gang_of_two(w)
        first = w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        first.kill()
        w.client.patch("nodes", None, "node-0", {"spec": {"unschedulable": True}})
        w.daemon()
        await w.until(lambda: not allocated(w), within=120)
        assert not bound(w)

    play(life)


def said(w, kind, name):
    """The message of the condition that tells why it waits."""
    status = w.client.get(kind, "default", name).get("status") or {}
    types = ("Scheduled", "PodScheduled")
    found = [each for each in status.get("conditions", ()) if each["type"] in types]
    return " ".join(each["message"] for each in found if each["status"] == "False")


def test_the_wait_is_told_on_the_group_and_its_pods(play):
    async def life(w):
        await gang_of_two(w)
        w.daemon()
        await w.until(lambda: len(allocated(w)) == 2)
        kinds = [("podgroups.scheduling.gpusched.io", "g"), ("pods", "g-0"), ("pods", "g-1")]
        text = "waits for fabric.example.com/attached of device gpu.example.com/node-0/gpu-"
        await w.until(lambda: all(text in said(w, *each) for each in kinds), within=60)
        assert "and 1 more device, until 20" in said(w, *kinds[0])
        report(w, allocated(w)["g-0"], READY)
        await w.until(lambda: "more device" not in said(w, *kinds[0]), within=60)
        report(w, allocated(w)["g-1"], READY)
        await w.until(lambda: len(bound(w)) == 2)
        await w.until(lambda: not said(w, *kinds[0]), within=60)

    play(life)


@pytest.mark.parametrize("how", ["fails", "late"])
def test_a_named_claim_whose_device_is_never_ready_is_given_back(play, how):
    async def life(w):
        await w.start(nodes=1)
        publish_fabric(w, "node-0", 2)
        classes(w)
        named_claim(w, "mine")
        w.daemon()
        user_of(w, "p", "mine")

        def stamp():
            return (claim_status(w, "mine").get("allocation") or {}).get("allocationTimestamp")

        await w.until(stamp)
        before = stamp()
        if how == "fails":
            report(w, w.client.get(CLAIMS, "default", "mine"), BROKEN)
        await w.until(lambda: stamp() not in (None, before), within=40 if how == "fails" else 640)
        assert not bound(w)
        report(w, w.client.get(CLAIMS, "default", "mine"), READY)
        await w.until(lambda: "p" in bound(w))

    play(life)
