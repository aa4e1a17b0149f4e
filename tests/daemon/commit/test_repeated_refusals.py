"""What cannot succeed is not tried again and again: bindings that are refused, groups without pods."""

from __future__ import annotations

import pytest

from tests.daemon.conftest import GROUPS
from tests.daemon.tenants.test_tenant_queues import queue


def refusing(name):
    """Every binding of pods of that name is answered 409."""
    return lambda _method, path: "409" if path.endswith("/binding") and f"/{name}" in path else ""


def bindings(daemon, seen):
    """Count bindings sent from now on, by wrapping what becomes of requests."""
    fault = daemon.fault

    def counted(method, path):
        answer = fault(method, path)
        if path.endswith("/binding") and answer:
            seen.append(path)
        return answer

    daemon.fault = counted


def test_bindings_that_are_always_refused_are_tried_with_growing_pauses(play):
    """Others are not disturbed; the owner is told; when it works again the gang starts."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        seen = []
        daemon.fault = refusing("bad")
        bindings(daemon, seen)
        w.gang("bad", 1)
        await w.clock.sleep(60)
        assert 6 <= len(seen) <= 30  # three tries a commit, pauses of 1, 2, 4 ... s
        told = w.condition("bad")
        assert told["reason"] == "BackOff"
        assert "its bindings failed" in told["message"]
        assert "tried again after" in told["message"]
        w.gang("good", 1)
        await w.until(lambda: w.running("good"), within=5)
        daemon.fault = lambda _method, _path: ""
        await w.until(lambda: w.running("bad"), within=120)

    play(scenario)


@pytest.mark.parametrize("change", ["pod", "group", "node"])
def test_a_change_ends_the_pause(play, change):
    """Pod made anew, PodGroup changed, node that becomes another: tried at once."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        daemon.fault = refusing("bad")
        w.gang("bad", 1)
        await w.clock.sleep(100)
        assert w.condition("bad")["reason"] == "BackOff"
        daemon.fault = lambda _method, _path: ""
        await w.clock.sleep(1)
        assert not w.bound("bad")
        if change == "pod":
            w.client.delete("pods", "default", w.pods("bad")[0]["metadata"]["name"])
        elif change == "group":
            w.client.patch(GROUPS, "default", "bad", {"spec": {"minRuntime": "1m"}})
        else:
            w.client.patch("nodes", "", "node-0", {"spec": {"unschedulable": True}})
            await w.clock.sleep(1)
            w.client.patch("nodes", "", "node-0", {"spec": {"unschedulable": False}})
        # A pod that was deleted is made again by its Job after 10 s.
        await w.until(lambda: w.running("bad"), within=15 if change == "pod" else 5)

    play(scenario)


def test_one_refusal_costs_no_pause(play):
    """A single conflict is tried again at once."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        left = [1]

        def fault(_method, path):
            if path.endswith("/binding") and left:
                left.pop()
                return "409"
            return ""

        daemon.fault = fault
        w.gang("one", 1)
        await w.until(lambda: w.running("one"), within=5)

    play(scenario)


def writes_of(w, name):
    """Status writes of one PodGroup so far."""
    return [each for each in w.journal if f"/podgroups/{name}" in each.path]


@pytest.mark.parametrize("pods", [0, 1])
def test_a_group_whose_pods_do_not_exist_is_left_in_peace(play, pods):
    """It is admitted once, holds no quota, and nothing more is written about it."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "small", capability={"nvidia.com/gpu": "16"})
        w.daemon()
        w.group("short", queue="small", minMember=2)
        if pods:
            w.job("short", 1, group="short")
        await w.clock.sleep(60)
        before = len(writes_of(w, "short"))
        await w.clock.sleep(900)
        assert len(writes_of(w, "short")) == before
        assert w.condition("short")["reason"] == "NotEnoughMembers"
        w.group("other", queue="small", minMember=2)
        w.job("other", 2, group="other")
        await w.until(lambda: len(w.running("other")) == 2, within=5)

    play(scenario)


def test_a_group_that_reserves_before_its_pods_exist_gives_back_for_longer_and_longer(play):
    """MinResources holds quota for 300 s; then the pauses double, and pods end them."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "small", capability={"nvidia.com/gpu": "16"})
        w.daemon()
        w.group("empty", queue="small", minMember=2, minResources={"nvidia.com/gpu": 16})
        await w.clock.sleep(400)
        assert "admitted again 240 s later" in w.condition("empty", "Admitted")["message"]
        await w.clock.sleep(600)
        assert "admitted again 480 s later" in w.condition("empty", "Admitted")["message"]
        w.job("empty", 2, group="empty")
        await w.until(lambda: len(w.running("empty")) == 2, within=5)

    play(scenario)


def test_a_commit_that_ends_with_the_lease_costs_no_pause(play):
    """The lease is renewed late: nothing was refused, and the gang starts as soon as it is."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        daemon.fault = lambda _method, path: "503" if "/leases/" in path else ""
        await w.clock.sleep(5)  # a binding may last longer than the lease now
        w.gang("late", 1)
        for number in range(4):  # each is a session, and a commit that may not begin
            await w.clock.sleep(0.5)
            w.pod(f"other-{number}", gpus=0)
        assert daemon.leading
        assert not w.bound("late")
        daemon.fault = lambda _method, _path: ""
        await w.until(lambda: w.bound("late"), within=2.5)  # a retry period, and a session
        assert daemon.app.leadership.fence in w.bound("late")[0]["metadata"]["annotations"].values()

    play(scenario)


def test_a_gang_that_is_bound_in_part_pauses_for_seconds_only(play):
    """What it holds is of use only when it is whole."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        w.group("part", minMember=2)
        w.pod("free", labels={"gpusched.io/pod-group": "part"})
        daemon.fault = refusing("bad")
        w.pod("bad", labels={"gpusched.io/pod-group": "part"})
        await w.clock.sleep(60)
        assert [pod["metadata"]["name"] for pod in w.bound("part")] == ["free"]
        daemon.fault = lambda _method, _path: ""
        await w.until(lambda: len(w.bound("part")) == 2, within=6)

    play(scenario)


def test_failures_before_a_change_do_not_count(play):
    """A refusal, another pod in its place, and one more refusal: not the second in a row."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        refused = []

        def fault(_method, path):
            if path.endswith("/binding") and path not in refused:
                refused.append(path)
                if path.endswith("/a/binding"):
                    w.client.delete("pods", "default", "a")
                return "422"
            return ""

        daemon.fault = fault
        w.group("one", minMember=1)
        w.pod("a", labels={"gpusched.io/pod-group": "one"})
        await w.clock.sleep(30)
        w.pod("b", labels={"gpusched.io/pod-group": "one"})
        await w.until(lambda: w.bound("one"), within=0.9)  # a pause lasts for a second
        assert len(refused) == 2

    play(scenario)
