"""Claims that several pods share, on a whole daemon: devices once, then all their users."""

from __future__ import annotations

import pytest

from gpusched.io.client.api_client import ApiClient
from tests.daemon.devices.device_objects import bound, classes, publish
from tests.daemon.devices.test_claims_written import claim_status, named_claim


def user_of(w, pod, claim, **fields):
    """A pod that uses a named claim, alone or in a gang."""
    claims = {"resourceClaims": [{"name": "c", "resourceClaimName": claim}]}
    w.pod(pod, **{"gpus": 0, **fields}, spec=claims)


def gang_with_one_claim(w, pods):
    named_claim(w, "all")
    w.group("g", minMember=pods)
    for number in range(pods):
        user_of(w, f"g-{number}", "all", labels={"gpusched.io/pod-group": "g"})


def users(w):
    return sorted(each["name"] for each in claim_status(w, "all")["reservedFor"])


def told(w):
    """Conditions of the gang."""
    group = w.client.get("podgroups.scheduling.gpusched.io", "default", "g")
    return str(group.get("status", {}).get("conditions"))


def test_a_gang_shares_one_device_and_frees_it_when_it_ends(play):
    async def life(w):
        await w.start(nodes=3)
        publish(w, "node-1", 1)
        classes(w)
        w.daemon()
        gang_with_one_claim(w, 3)
        await w.until(lambda: len(bound(w)) == 3)
        assert set(bound(w).values()) == {"node-1"}
        assert len(claim_status(w, "all")["allocation"]["devices"]["results"]) == 1
        assert users(w) == ["g-0", "g-1", "g-2"]
        # when: a pod comes later, then it goes where the device is
        user_of(w, "later", "all")
        await w.until(lambda: "later" in bound(w))
        assert bound(w)["later"] == "node-1"
        # when: all are gone, then the device is free again
        for name in bound(w):
            w.client.delete("pods", "default", name)
        await w.until(lambda: not claim_status(w, "all").get("allocation"))

    play(life)


def test_a_gang_whose_users_find_no_common_node_waits_and_says_so(play):
    async def life(w):
        await w.start(nodes=2)
        for number in range(2):
            publish(w, f"node-{number}", 1)
        classes(w)
        w.daemon()
        named_claim(w, "all")
        w.group("g", minMember=3)
        for number in range(3):
            user_of(w, f"g-{number}", "all", gpus=4, labels={"gpusched.io/pod-group": "g"})
        await w.until(lambda: "share ResourceClaim all" in told(w))
        assert "the best of 2 nodes takes 2 of them now" in told(w)
        assert not bound(w)

    play(life)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("write", range(1, 6))
def test_a_leader_that_dies_at_a_write_leaves_a_shared_claim_whole(play, write, answered):
    async def life(w):
        await w.start(nodes=2)
        publish(w, "node-1", 1)
        classes(w)
        first = w.daemon(kill_at=write, answered=answered)
        gang_with_one_claim(w, 2)
        await w.until(lambda: first.dead)
        w.daemon()
        await w.until(lambda: len(bound(w)) == 2, within=120)
        assert set(bound(w).values()) == {"node-1"}
        assert users(w) == ["g-0", "g-1"]

    play(life)


def test_a_pod_waits_for_the_devices_of_its_claim_that_are_being_taken_back(play, monkeypatch):
    """Given what an earlier attempt left, when its pod has room again before that is taken back, then it gets devices anew."""
    late = []

    async def life(w):
        await w.start(nodes=2)
        publish(w, "node-1", 1)
        classes(w)
        first = w.daemon(kill_at=1, kill_on="/binding")
        named_claim(w, "all")
        user_of(w, "g-0", "all", gpus=8)
        await w.until(lambda: first.dead)
        assert users(w) == ["g-0"]
        w.pod("other", spec={"schedulerName": "another", "nodeName": "node-1"})
        at_once = ApiClient.request

        async def request(self, method, path, **how):
            if method == "PATCH" and path.endswith("/resourceclaims/all/status") and not late:
                late.append(path)
                await w.clock.sleep(2)
            return await at_once(self, method, path, **how)

        monkeypatch.setattr(ApiClient, "request", request)
        w.daemon()
        await w.until(lambda: late)
        w.client.delete("pods", "default", "other")
        await w.until(lambda: "g-0" in bound(w))
        assert users(w) == ["g-0"]
        await w.clock.sleep(10)
        assert users(w) == ["g-0"]
        assert claim_status(w, "all")["allocation"]

    play(life)
