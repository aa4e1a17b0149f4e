"""What a dead leader sent last arrives when the next leader has decided: it changes nothing that was decided since."""

from __future__ import annotations

import json

from gpusched.io.client.api_client import ApiClient
from tests.daemon.deaths.late_writes import LateWrites, hold_writes
from tests.daemon.devices.device_objects import (
    bound,
    claim_status,
    claimant,
    classes,
    given,
    named_claim,
    publish,
    user_of,
)

ACCEPTED_LATE = {
    # as where a leader dies between it and the eviction
    ("PATCH", "pods/status", "DisruptionTarget"),
    # what is told of evictions before: no decision rests on it
    ("PATCH", "podgroups/status", "evictions"),
}


def test_a_late_release_of_devices_takes_none_from_a_pod_that_the_next_leader_bound(
    play, monkeypatch
):
    async def life(w):
        await w.start(nodes=2)
        for number in range(2):
            publish(w, f"node-{number}", 2)
        classes(w)
        named_claim(w, "mine")
        # given: a leader that died when a claim had its devices, and the pod no node
        first = w.daemon(kill_at=1, kill_on="/binding", answered=False)
        user_of(w, "p", "mine")
        await w.until(lambda: first.dead)
        (result,) = claim_status(w, "mine")["allocation"]["devices"]["results"]
        w.client.patch("nodes", None, result["pool"], {"spec": {"unschedulable": True}})
        # given: the next one dies too, and what it took the devices back with is on its way
        late = hold_writes(
            monkeypatch, w, lambda: second, lambda _method, path, _body: path.endswith("/status")
            and "/resourceclaims/" in path,
        )  # fmt: skip
        second = w.daemon()
        await w.until(lambda: late.held, within=60)
        second.kill()
        w.client.patch("nodes", None, result["pool"], {"spec": {"unschedulable": False}})
        # when: the third binds the pod with these devices, and then it arrives
        w.daemon()
        await w.until(lambda: "p" in bound(w), within=60)
        codes = await late.arrive()
        # then: the pod keeps its devices
        assert codes == [409]
        (user,) = claim_status(w, "mine")["reservedFor"]
        assert user["name"] == "p"
        (kept,) = claim_status(w, "mine")["allocation"]["devices"]["results"]
        assert kept["pool"] == bound(w)["p"]

    play(life)


def test_late_devices_of_a_claim_are_refused_when_another_claim_has_them(play, monkeypatch):
    async def life(w):
        await w.start(nodes=1)
        publish(w, "node-0", 1)
        classes(w)
        named_claim(w, "old")
        named_claim(w, "new")
        # given: a leader that dies while a claim gets the only device
        late = hold_writes(
            monkeypatch, w, lambda: first, lambda _method, path, _body: path.endswith("/old/status")
        )  # fmt: skip
        first = w.daemon()
        user_of(w, "p", "old")
        await w.until(lambda: late.held)
        first.kill()
        # when: the next one gives it to the claim of a pod that goes first
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        w.client.create("priorityclasses.scheduling.k8s.io", {**high, "metadata": {"name": "high"}})
        w.pod("q", gpus=0, spec={"priorityClassName": "high", **uses("new")})
        w.daemon()
        await w.until(lambda: "q" in bound(w), within=60)
        await w.clock.sleep(1)
        codes = await late.arrive()
        # then: it is not given twice
        assert codes == [409]
        assert "allocation" not in claim_status(w, "old")

    play(life)


def test_late_devices_that_come_to_light_while_others_are_given_are_taken_back(play, monkeypatch):
    async def life(w):
        await w.start(nodes=2)
        for number in range(2):
            publish(w, f"node-{number}", 1)
        classes(w)
        # given: a leader that dies while a pod's own claim gets a device, of a node that is cordoned then
        late = hold_writes(
            monkeypatch, w, lambda: first, lambda _method, path, _body: path.endswith("/status")
            and "/resourceclaims/" in path,
        )  # fmt: skip
        first = w.daemon()
        claimant(w, "p")
        await w.until(lambda: late.held)
        first.kill()
        (sent,) = [json.loads(body) for _, _, body, _ in late.held]
        (result,) = sent["status"]["allocation"]["devices"]["results"]
        w.client.patch("nodes", None, result["pool"], {"spec": {"unschedulable": True}})
        # when: that write arrives just before the first one of the next leader to the claim
        codes = arrive_before_others(monkeypatch, late)
        w.daemon()
        await w.until(lambda: "p" in bound(w), within=60)
        # then: the pod runs where it was decided since, with that node's device alone
        assert codes == [200]
        assert bound(w)["p"] != result["pool"]
        assert given(w) == {"p": [(bound(w)["p"], "gpu-0")]}

    play(life)


def arrive_before_others(monkeypatch, late):
    """Late writes are carried out before the first patch of a claim that anybody sends from now on."""
    codes = []
    original = ApiClient.request

    async def request(self, method, path, **how):
        if method == "PATCH" and "/resourceclaims/" in path and not codes:
            codes.extend(await late.arrive())
        return await original(self, method, path, **how)

    monkeypatch.setattr(ApiClient, "request", request)
    return codes


def uses(claim):
    """Part of a pod that uses a named claim."""
    return {"resourceClaims": [{"name": "c", "resourceClaimName": claim}]}


def test_of_what_a_leader_wrote_nothing_that_was_decided_since_is_changed_late(play):
    async def life(w):
        # given a leader that bound, told, promised, evicted and died
        await w.start(nodes=2)
        for number in range(2):
            publish(w, f"node-{number}", 2)
        classes(w)
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        w.client.create("priorityclasses.scheduling.k8s.io", {**high, "metadata": {"name": "high"}})
        first = w.daemon()
        w.gang("low", 2)
        await w.until(lambda: len(w.running("low")) == 2)
        w.group("high", minMember=2, priorityClassName="high")
        w.job("high", 2, group="high")
        named_claim(w, "mine")
        user_of(w, "p", "mine")
        await w.until(lambda: len(w.running("high")) == 2 and "p" in bound(w))
        await w.clock.sleep(5)
        first.kill()
        sent = list(w.journal)

        # when the next leads, and all of it arrives once more
        second = w.daemon()
        await w.until(lambda: second.leading)
        w.client.delete("jobs.batch", "default", "high")
        for pod in w.pods("high"):
            w.client.delete("pods", "default", pod["metadata"]["name"], grace_s=0)
        await w.until(lambda: len(w.running("low")) == 2)
        await w.clock.sleep(5)
        before = bound(w), claim_status(w, "mine")
        accepted = await send_again(w, sent)
        await w.clock.sleep(30)

        # then places and devices stay as they were decided
        assert {write.path.split("/")[-1] for write in sent} >= {"binding", "eviction", "status"}
        assert accepted <= ACCEPTED_LATE
        assert (bound(w), claim_status(w, "mine")) == before

    play(life)


async def send_again(w, writes):
    """Carry writes out once more; method, kind and content of those that the server takes, events left out."""
    late = LateWrites(w)
    told = [write for write in writes if "/events" not in write.path]
    for write in told:
        own = "/pods/" in write.path and write.path.endswith("/status")
        merge = "strategic-merge" if own else "merge"
        kind = "application/json" if write.method != "PATCH" else f"application/{merge}-patch+json"
        late.held.append((write.method, write.path, write.body, kind))
    codes = await late.arrive()
    return {
        (write.method, _kind_of(write.path), _content_of(write.body))
        for write, code in zip(told, codes, strict=True)
        if code < 300
    }


def _kind_of(path):
    parts = path.split("/")
    return f"{parts[-3]}/{parts[-1]}"


def _content_of(body):
    status = json.loads(body).get("status") or {}
    conditions = [each["type"] for each in status.get("conditions", ())]
    return ",".join(sorted({*(status.keys() - {"conditions"}), *conditions}))
