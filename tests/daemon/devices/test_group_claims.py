"""Claims of Kubernetes' own PodGroups on a whole daemon: devices once for the group, reserved for the group."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.devcluster.registry.gangs.features import all_gates
from gpusched.io.watch.informers import KindEventHandler
from tests.daemon.devices.device_objects import API, CLAIMS, bound, classes, named_claim, publish

GROUPS = "podgroups.scheduling.k8s.io"
FROM_TEMPLATE = {"name": "dom", "resourceClaimTemplateName": "one"}
CLAIM_PATH = "/resourceclaims/"


async def native_cluster(w, *, nodes=2, devices=2):
    """Nodes of some devices each, in a cluster that serves native groups."""
    await w.start(nodes=nodes, gangs=all_gates("1.36"))
    for number in range(nodes):
        publish(w, f"node-{number}", devices)
    classes(w)


def native_group(w, name, count, *claims):
    """A native gang with claims."""
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}, "resourceClaims": list(claims)}
    meta = {"name": name, "namespace": "default"}
    body = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}
    return w.client.create(GROUPS, {**body, "metadata": meta, "spec": spec})


def member(w, group, number, *claims, **fields):
    """A pod of a native gang that uses claims."""
    spec = {"schedulingGroup": {"podGroupName": group}, "resourceClaims": list(claims)}
    return w.pod(f"{group}-{number}", gpus=0, spec={**spec, **fields})


def gang_with_claim(w, name="a", count=3, claim=FROM_TEMPLATE, **fields):
    """A native gang whose pods all use the one claim of their group."""
    made = native_group(w, name, count, claim)
    for number in range(count):
        member(w, name, number, claim, **fields)
    return made


def users(w):
    """Whom claims with devices are reserved for, as resource and name, by claim."""
    return {
        claim["metadata"]["name"]: [
            (each["resource"], each["name"]) for each in claim["status"].get("reservedFor", ())
        ]
        for claim in w.client.list(CLAIMS, "default")
        if (claim.get("status") or {}).get("allocation")
    }


def pool_of(w):
    """The node whose device the only claim has."""
    (claim,) = w.client.list(CLAIMS, "default")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return result["pool"]


@pytest.mark.parametrize("lag", [0, 5])
def test_a_claim_of_the_group_is_given_once_and_reserved_for_the_group(play, monkeypatch, lag):
    at_once = KindEventHandler.apply

    def late(self, event_type, item):
        if (
            lag
            and event_type == "MODIFIED"
            and type(item).__name__ in ("ResourceClaim", "PodGroup")
        ):
            asyncio.get_running_loop().call_later(lag, at_once, self, event_type, item)
        else:
            at_once(self, event_type, item)

    monkeypatch.setattr(KindEventHandler, "apply", late)

    async def life(w):
        await native_cluster(w)
        w.daemon()
        group = gang_with_claim(w)
        await w.until(lambda: len(bound(w)) == 3, within=60)
        assert set(bound(w).values()) == {pool_of(w)}
        ((name, whom),) = users(w).items()
        assert whom == [("podgroups", "a")]
        status = w.client.get(CLAIMS, "default", name)["status"]
        assert status["reservedFor"] == [
            {
                "apiGroup": "scheduling.k8s.io",
                "resource": "podgroups",
                "name": "a",
                "uid": group["metadata"]["uid"],
            }
        ]
        # a pod of the group that comes later uses the same
        member(w, "a", 7, FROM_TEMPLATE)
        await w.until(lambda: len(bound(w)) == 4, within=60)
        await w.clock.sleep(30)
        assert users(w) == {name: [("podgroups", "a")]}
        # the claim controller frees it with the group
        for pod in w.pods():
            w.client.delete("pods", "default", pod["metadata"]["name"])
        w.client.delete(GROUPS, "default", "a")
        await w.until(lambda: not users(w), within=60)

    play(life)


def test_a_named_claim_of_two_groups_and_a_pod_is_reserved_for_each(play):
    async def life(w):
        await native_cluster(w)
        named_claim(w, "ours")
        claim = {"name": "dom", "resourceClaimName": "ours"}
        w.daemon()
        gang_with_claim(w, "a", 2, claim)
        gang_with_claim(w, "b", 2, claim)
        w.pod("alone", gpus=0, spec={"resourceClaims": [claim]})
        await w.until(lambda: len(bound(w)) == 5)
        assert len(set(bound(w).values())) == 1
        assert sorted(users(w)["ours"]) == [
            ("podgroups", "a"),
            ("podgroups", "b"),
            ("pods", "alone"),
        ]

    play(life)


def test_a_group_of_more_than_256_pods_shares_a_claim(play):
    async def life(w):
        # given: a device that all nodes reach
        await w.start(nodes=4, gangs=all_gates("1.36"))
        classes(w)
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "allNodes": True, "pool": pool}
        spec["devices"] = [{"name": "channel-0"}]
        body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": "fabric"}}
        w.client.create("resourceslices.resource.k8s.io", {**body, "spec": spec})
        w.daemon()
        gang_with_claim(w, count=300, containers=[{"name": "c", "image": "i"}])
        await w.until(lambda: len(bound(w)) == 300, within=120)
        assert len(set(bound(w).values())) > 2
        assert list(users(w).values()) == [[("podgroups", "a")]]

    play(life)


def told(w, name):
    """What the group is told about why it waits, empty for nothing."""
    status = w.client.get(GROUPS, "default", name).get("status") or {}
    return " ".join(
        each["message"]
        for each in status.get("conditions", ())
        if each["type"] == "gpusched.io/Scheduled" and each["status"] == "False"
    )


def test_own_claims_of_members_stay_their_own(play):
    async def life(w):
        await native_cluster(w)
        own = {"name": "mine", "resourceClaimTemplateName": "one"}
        native_group(w, "a", 1, FROM_TEMPLATE)
        member(w, "a", 0, FROM_TEMPLATE, own)
        w.daemon()
        await w.until(lambda: len(bound(w)) == 1)
        assert sorted(users(w).values()) == [[("podgroups", "a")], [("pods", "a-0")]]

    play(life)


def test_a_group_whose_claim_is_not_made_is_told(play):
    async def life(w):
        await native_cluster(w)
        w.daemon()
        claim = {"name": "dom", "resourceClaimTemplateName": "later"}
        gang_with_claim(w, claim=claim)
        await w.until(lambda: "ResourceClaimTemplate later, which is not there" in told(w, "a"))
        assert not bound(w)

    play(life)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("write", [1, 2, 3, 4])
def test_a_death_at_any_write_is_made_good_by_the_next_leader(play, write, answered):
    async def life(w):
        await native_cluster(w)
        first = w.daemon()
        seen = []

        def fault(method, path):
            mine = (method == "PATCH" and CLAIM_PATH in path) or path.endswith("/binding")
            if mine:
                seen.append(path)
                if len(seen) == write:
                    if answered:
                        asyncio.get_running_loop().call_soon(first.kill)
                    else:
                        first.kill()
            return ""

        first.fault = fault
        gang_with_claim(w)
        await w.until(lambda: first.dead)
        w.daemon()
        await w.until(lambda: len(bound(w)) == 3, within=200)
        assert set(bound(w).values()) == {pool_of(w)}
        assert list(users(w).values()) == [[("podgroups", "a")]]

    play(life)


def test_devices_of_a_group_without_a_pod_on_a_node_are_taken_back(play):
    async def life(w):
        await native_cluster(w)
        # given: the leader dies between the claim and the first binding, and its node goes
        first = w.daemon(kill_at=1, kill_on="/binding", answered=False)
        gang_with_claim(w)
        await w.until(lambda: first.dead)
        node = pool_of(w)
        assert not bound(w)
        w.client.delete("nodes", None, node)
        # then: the next leader takes the devices back, and gives others
        w.daemon()
        await w.until(lambda: len(bound(w)) == 3, within=120)
        assert set(bound(w).values()) == {pool_of(w)}
        assert pool_of(w) != node

    play(life)


def test_devices_of_a_group_with_a_pod_on_a_node_stay(play):
    async def life(w):
        await native_cluster(w)
        w.daemon()
        gang_with_claim(w)
        await w.until(lambda: len(bound(w)) == 3)
        before = w.client.list(CLAIMS, "default")[0]["status"]["allocation"]
        # a member that fits no node waits; nothing is taken from the others
        member(w, "a", 9, FROM_TEMPLATE, nodeSelector={"no": "node"})
        await w.clock.sleep(120)
        assert w.client.list(CLAIMS, "default")[0]["status"]["allocation"] == before
        assert list(users(w).values()) == [[("podgroups", "a")]]

    play(life)


def test_a_refused_write_is_taken_back_and_the_gang_is_decided_again(play):
    async def life(w):
        await native_cluster(w)
        other = {"name": "second", "resourceClaimTemplateName": "one"}
        daemon = w.daemon()
        refused = []

        def fault(method, path):
            if method == "PATCH" and path.endswith("/status") and "resourceclaims/a-second" in path:
                refused.append(path)
                return "422" if len(refused) < 3 else ""
            return ""

        daemon.fault = fault
        await w.until(lambda: daemon.leading)
        native_group(w, "a", 2, FROM_TEMPLATE, other)
        for number in range(2):
            member(w, "a", number, FROM_TEMPLATE, other)
        await w.until(lambda: len(bound(w)) == 2, within=120)
        assert len(refused) >= 3
        assert list(users(w).values()) == [[("podgroups", "a")]] * 2

    play(life)
