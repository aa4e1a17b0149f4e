"""Gangs with claims for devices on a whole daemon: devices are given before pods are bound, and freed after."""

from __future__ import annotations

from collections import Counter

from tests.daemon.devices.device_objects import CLAIMS, bound, claimant, classes, given, publish


def test_claims_are_given_devices_before_pods_are_bound(play):
    async def life(w):
        await w.start(nodes=2)
        for number in range(2):
            publish(w, f"node-{number}", 2)
        classes(w)
        w.daemon()
        w.group("g", minMember=4)
        for number in range(4):
            claimant(w, f"g-{number}", labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: len(bound(w)) == 4)
        devices = given(w)
        assert Counter(each for held in devices.values() for each in held).most_common(1)[0][1] == 1
        assert {pod: held[0][0] for pod, held in devices.items()} == bound(w)
        for claim in w.client.list(CLAIMS, "default"):
            (user,) = claim["status"]["reservedFor"]
            assert user["name"] == claim["metadata"]["ownerReferences"][0]["name"]
            assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]

    play(life)


def test_a_device_is_free_again_when_its_pod_has_ended(play):
    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", 1)
        classes(w)
        w.daemon()
        claimant(w, "first")
        await w.until(lambda: "first" in bound(w))
        claimant(w, "second")
        await w.clock.sleep(5)
        assert "second" not in bound(w)
        (waits,) = [pod for pod in w.pods() if pod["metadata"]["name"] == "second"]
        assert "1 device matches, 0 free" in str(waits["status"]["conditions"])
        w.client.delete("pods", "default", "first")
        await w.until(lambda: "second" in bound(w))

    play(life)


def test_devices_of_all_members_are_on_the_rail_that_has_room_for_all(play):
    """The first gang lies together on rail a, the second has rail b over two nodes, the third waits."""

    async def life(w):
        await w.start(nodes=2)
        for number, rails in enumerate((["a", "a", "b"], ["b"])):
            publish(w, f"node-{number}", 3, rails=rails)
        classes(w)
        w.daemon()
        w.group("g", minMember=2, devices={"matchAttribute": "dra.net/rail"})
        for number in range(2):
            claimant(w, f"g-{number}", labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: len(bound(w)) == 2)
        assert set(bound(w).values()) == {"node-0"}  # two of rail a lie together
        w.group("h", minMember=2, devices={"matchAttribute": "dra.net/rail"})
        for number in range(2):
            claimant(w, f"h-{number}", labels={"gpusched.io/pod-group": "h"})
        await w.until(lambda: len(bound(w)) == 4)
        held = given(w)
        assert {each for pod in ("h-0", "h-1") for each in held[pod]} == {
            ("node-0", "gpu-2"), ("node-1", "gpu-0")
        }  # fmt: skip
        w.group("late", minMember=2, devices={"matchAttribute": "dra.net/rail"})
        for number in range(2):
            claimant(w, f"late-{number}", labels={"gpusched.io/pod-group": "late"})
        await w.clock.sleep(5)
        assert len(bound(w)) == 4
        (late,) = [
            each for each in w.client.list("podgroups.scheduling.gpusched.io", "default")
            if each["metadata"]["name"] == "late"
        ]  # fmt: skip
        assert "one dra.net/rail" in str(late["status"]["conditions"])

    play(life)


def test_a_clique_that_slices_tell_is_a_level(play):
    """A gang that requires one NVLink domain is in one, and its status names it."""

    async def life(w):
        await w.start(nodes=4)
        for number, clique in enumerate(["a.0", "b.0", "b.0", "b.0"]):
            publish(w, f"node-{number}", 1, told={"cliqueID": {"string": clique}})
        classes(w)
        w.daemon()
        w.group("g", minMember=3, topology={"required": "clique"})
        for number in range(3):
            claimant(w, f"g-{number}", labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: len(bound(w)) == 3)
        assert set(bound(w).values()) == {"node-1", "node-2", "node-3"}

        def placement():
            (group,) = w.client.list("podgroups.scheduling.gpusched.io", "default")
            return group["status"].get("placement", {}).get("clique")

        await w.until(lambda: placement() == "r0/b.0")

    play(life)
