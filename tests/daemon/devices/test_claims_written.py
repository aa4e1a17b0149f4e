"""Writing claims on a whole daemon: lagging watches, refusals, lost answers and deaths give no device twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gpusched.base import errors
from gpusched.io.client.api_client import ApiClient
from gpusched.io.watch.informers import KindEventHandler
from tests.daemon.devices.device_objects import (
    CLAIMS,
    bound,
    claim_status,
    claimant,
    classes,
    given,
    named_claim,
    publish,
    user_of,
)

CLAIM_PATH = "/resourceclaims/"


async def two_nodes(w):
    """Two nodes of two devices each."""
    await w.start(nodes=2)
    for number in range(2):
        publish(w, f"node-{number}", 2)
    classes(w)


def gang_of_four(w):
    w.group("g", minMember=4)
    for number in range(4):
        claimant(w, f"g-{number}", labels={"gpusched.io/pod-group": "g"})


def given_twice(w):
    """Devices that more than one claim has."""
    held = Counter(each for devices in given(w).values() for each in devices)
    return {device: times for device, times in held.items() if times > 1}


async def none_twice(w, done, *, within=120):
    """Look four times a second until it is done: no device is given twice at any time."""
    for _ in range(within * 4):
        await w.clock.sleep(0.25)
        assert not given_twice(w)
        if done():
            return
    raise AssertionError(f"not done after {within} s: bound {bound(w)}, devices {given(w)}")


def delay_claim_events(monkeypatch, seconds, *, allocated=False):
    """Let the watch tell of changed claims so many seconds late, or only of those with devices."""
    at_once = KindEventHandler.apply

    def late(self, event_type, item):
        mine = type(item).__name__ == "ResourceClaim" and event_type == "MODIFIED"
        if mine and (item.allocation is not None or not allocated):
            asyncio.get_running_loop().call_later(seconds, at_once, self, event_type, item)
        else:
            at_once(self, event_type, item)

    monkeypatch.setattr(KindEventHandler, "apply", late)


def write_log(w, monkeypatch):
    """Seconds, ends of paths and statuses of all patches of claims."""
    answers = []
    original = ApiClient.request

    async def request(self, method, path, **how):
        answer = await original(self, method, path, **how)
        if method == "PATCH" and CLAIM_PATH in path:
            answers.append((w.clock.monotonic(), path, answer.status))
        return answer

    monkeypatch.setattr(ApiClient, "request", request)
    return answers


@pytest.mark.parametrize("lag", [0, 10])
def test_a_new_claim_costs_two_writes_however_late_the_watch_is(play, monkeypatch, lag):
    async def life(w):
        await two_nodes(w)
        delay_claim_events(monkeypatch, lag)
        answers = write_log(w, monkeypatch)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        gang_of_four(w)
        await w.until(lambda: len(bound(w)) == 4)
        assert [status for _, _, status in answers] == [200] * 8
        assert answers[-1][0] - answers[0][0] < 0.5

    play(life)


@pytest.mark.parametrize("lag", [0, 4])
def test_a_refused_gang_gives_no_device_away_twice(play, monkeypatch, lag):
    async def life(w):
        await two_nodes(w)
        delay_claim_events(monkeypatch, lag, allocated=True)
        daemon = w.daemon()
        refused = []

        def fault(method, path):
            if method == "PATCH" and path.endswith("/status") and "resourceclaims/g-3" in path:
                refused.append(path)
                return "422" if len(refused) < 3 else ""
            return ""

        daemon.fault = fault
        await w.until(lambda: daemon.leading)
        # given: a gang of which one claim is refused when the others are written
        gang_of_four(w)
        await w.until(lambda: refused)
        # when: others come for the same devices while the watch lags
        for number in range(4):
            claimant(w, f"r-{number}")
        # then: no device has two claims at any time, and four pods run
        await none_twice(w, lambda: len(bound(w)) == 4)
        assert all(given(w)[pod][0][0] == node for pod, node in bound(w).items())

    play(life)


@pytest.mark.parametrize("applied", ["not at all", "at once", "late"])
def test_an_unanswered_write_gives_no_device_away_twice(play, monkeypatch, applied):
    async def life(w):
        await two_nodes(w)
        delay_claim_events(monkeypatch, 20, allocated=True)
        lost = []
        original = ApiClient.request

        async def request(self, method, path, **how):
            mine = path.endswith("/status") and "resourceclaims/g-1" in path and len(lost) < 3
            if method != "PATCH" or not mine:
                return await original(self, method, path, **how)
            lost.append(path)
            if applied == "at once" and len(lost) == 3:
                await original(self, method, path, **how)
            if applied == "late" and len(lost) == 3:

                async def afterwards():
                    await w.clock.sleep(12)
                    return await original(self, method, path, **how)

                lost.append(asyncio.ensure_future(afterwards()))
            raise errors.OutcomeUnknown("the answer was lost")

        monkeypatch.setattr(ApiClient, "request", request)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        gang_of_four(w)
        await w.until(lambda: len(lost) >= 3)
        for number in range(4):
            claimant(w, f"r-{number}")
        await none_twice(w, lambda: len(bound(w)) == 4)
        await w.clock.sleep(20)
        assert not given_twice(w)
        assert all(given(w)[pod][0][0] == node for pod, node in bound(w).items())
        if applied == "late":
            assert (await lost[3]).status == 409

    play(life)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("write", range(1, 9))
def test_a_death_at_any_claim_write_is_made_good_by_the_next_leader(play, write, answered):
    async def life(w):
        await two_nodes(w)
        first = w.daemon()
        seen = []

        def fault(method, path):
            if method == "PATCH" and CLAIM_PATH in path:
                seen.append(path)
                if len(seen) == write:
                    if answered:
                        asyncio.get_running_loop().call_soon(first.kill)
                    else:
                        first.kill()
            return ""

        first.fault = fault
        gang_of_four(w)
        await w.until(lambda: first.dead)
        w.daemon()
        await none_twice(w, lambda: len(bound(w)) == 4, within=200)
        assert {pod: held[0][0] for pod, held in given(w).items()} == bound(w)

    play(life)


def test_a_named_claim_whose_pod_is_not_bound_is_released(play):
    async def life(w):
        await two_nodes(w)
        named_claim(w, "mine")
        # given: the leader dies between the claim's devices and the binding
        first = w.daemon(kill_at=1, kill_on="/binding", answered=False)
        user_of(w, "p", "mine")
        await w.until(lambda: first.dead)
        node = claim_status(w, "mine")["allocation"]["devices"]["results"][0]["pool"]
        # when: the node of its devices is gone
        w.client.delete("nodes", None, node)
        w.daemon()
        # then: the next leader takes them back and gives it others
        await w.until(lambda: "p" in bound(w), within=120)
        assert bound(w)["p"] != node
        (user,) = claim_status(w, "mine")["reservedFor"]
        assert user["name"] == "p"

    play(life)


def test_a_release_without_an_answer_takes_no_device_from_a_pod_that_is_bound_meanwhile(
    play, monkeypatch
):
    async def life(w):
        await two_nodes(w)
        named_claim(w, "mine")
        first = w.daemon(kill_at=1, kill_on="/binding", answered=False)
        user_of(w, "p", "mine")
        await w.until(lambda: first.dead)
        devices = claim_status(w, "mine")["allocation"]
        node = devices["devices"]["results"][0]["pool"]
        late = []
        original = ApiClient.request

        async def request(self, method, path, **how):
            if method != "PATCH" or not path.endswith("/mine/status") or len(late) == 3:
                return await original(self, method, path, **how)

            async def afterwards():
                await w.clock.sleep(12)
                return await original(self, method, path, **how)

            late.append(asyncio.ensure_future(afterwards()))
            raise errors.OutcomeUnknown("the answer was lost")

        monkeypatch.setattr(ApiClient, "request", request)
        # given: the next leader takes the devices back from a pod that has no node, and gets no answer
        w.client.patch("nodes", None, node, {"spec": {"unschedulable": True}})
        w.daemon()
        await w.until(lambda: len(late) == 3, within=60)
        # when: the pod is bound after all, before the API server carries that out
        w.client.patch("nodes", None, node, {"spec": {"unschedulable": False}})
        await w.until(lambda: "p" in bound(w), within=60)
        await w.clock.sleep(20)
        # then: it keeps its devices
        assert [(await each).status for each in late] == [409] * 3
        (user,) = claim_status(w, "mine")["reservedFor"]
        assert user["name"] == "p"
        assert (
            claim_status(w, "mine")["allocation"]["devices"]["results"][0]["pool"] == bound(w)["p"]
        )

    play(life)


def test_a_claim_in_use_loses_only_the_pod_that_is_not_bound(play):
    async def life(w):
        await two_nodes(w)
        named_claim(w, "ours")
        w.daemon()
        user_of(w, "runs", "ours")
        await w.until(lambda: "runs" in bound(w))
        devices = claim_status(w, "ours")["allocation"]
        # given: a reservation for a pod that can never be bound
        selector = {"nodeSelector": {"no": "node"}}
        claims = {"resourceClaims": [{"name": "c", "resourceClaimName": "ours"}]}
        waits = w.pod("waits", gpus=0, spec={**claims, **selector})
        uid = waits["metadata"]["uid"]
        users = claim_status(w, "ours")["reservedFor"]
        more = [*users, {"resource": "pods", "name": "waits", "uid": uid}]
        body = {"status": {"reservedFor": more}}
        w.client.patch(CLAIMS, "default", "ours", body, subresource="status")
        # then: it is taken out, and the pod that runs keeps its devices
        await w.until(lambda: claim_status(w, "ours")["reservedFor"] == users, within=60)
        assert claim_status(w, "ours")["allocation"] == devices

    play(life)


def test_a_release_that_fails_is_tried_ever_more_seldom(play, monkeypatch):
    async def life(w):
        await two_nodes(w)
        named_claim(w, "mine")
        first = w.daemon(kill_at=1, kill_on="/binding", answered=False)
        user_of(w, "p", "mine")
        await w.until(lambda: first.dead)
        node = claim_status(w, "mine")["allocation"]["devices"]["results"][0]["pool"]
        w.client.delete("nodes", None, node)
        second = w.daemon()
        tried = []

        def fault(method, path):
            if method == "PATCH" and path.endswith("/mine/status"):
                tried.append(w.clock.monotonic())
                return "422"
            return ""

        second.fault = fault
        await w.until(lambda: tried)
        for number in range(100):
            claimant(w, f"other-{number}")  # sessions all the time
            await w.clock.sleep(1)
        assert 3 <= len(tried) <= 9

    play(life)


def test_a_pod_that_vanishes_while_its_claim_is_written_costs_one_try(play):
    async def life(w):
        await two_nodes(w)
        daemon = w.daemon()

        def fault(method, path):
            if method == "PATCH" and path.endswith("/status") and "resourceclaims/g-1" in path:
                daemon.fault = lambda _method, _path: ""
                w.client.delete("pods", "default", "g-1")
                claimant(w, "g-1", labels={"gpusched.io/pod-group": "g"})
            return ""

        daemon.fault = fault
        await w.until(lambda: daemon.leading)
        gang_of_four(w)
        await none_twice(w, lambda: len(bound(w)) == 4)
        assert {pod: held[0][0] for pod, held in given(w).items()} == bound(w)

    play(life)


def test_a_node_that_is_cordoned_while_claims_are_written_is_not_used(play, monkeypatch):
    async def life(w):
        await two_nodes(w)
        original = ApiClient.request

        async def request(self, method, path, **how):
            answer = await original(self, method, path, **how)
            if method == "PATCH" and CLAIM_PATH in path:
                await w.clock.sleep(3)
            return answer

        monkeypatch.setattr(ApiClient, "request", request)
        w.daemon()
        # given: a pod whose claim takes seconds to be written
        claimant(w, "p")
        await w.until(lambda: given(w))
        ((node, _),) = given(w)["p"]
        # when: its node is cordoned meanwhile
        w.client.patch("nodes", None, node, {"spec": {"unschedulable": True}})
        # then: it gets another node, with a device of that
        await w.until(lambda: "p" in bound(w), within=120)
        assert bound(w)["p"] != node
        assert given(w)["p"][0][0] == bound(w)["p"]

    play(life)
