"""Scenario 71: kubelets that refuse pods, on the whole daemon."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.api.meta.identity import format_time

PERIOD = 300.0


def refuse(w: Any, name: str, reason: str) -> None:
    """What a kubelet writes on a pod that it does not take."""
    status = {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {reason}",
        "startTime": format_time(w.clock.now()),
    }
    w.client.patch("pods", "default", name, {"status": status}, subresource="status")


def where(w: Any, name: str) -> str:
    """Node of a pod, empty while it has none."""
    return w.client.get("pods", "default", name)["spec"].get("nodeName", "")


async def bound(w: Any, name: str, gpus: int = 4) -> str:
    """Make a pod and wait until it has a node."""
    w.pod(name, gpus=gpus)
    await w.until(lambda: where(w, name))
    return where(w, name)


async def cluster(w: Any, nodes: int) -> None:
    """Nodes whose kubelets are played by the test."""
    await w.start(nodes=0, stages=False)
    for number in range(nodes):
        w.node(f"n{number}")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        w.client.patch("nodes", None, f"n{number}", ready, subresource="status")
    w.daemon()


REASONS = ("UnexpectedAdmissionError", "TopologyAffinityError", "OutOfcpu", "OutOfnvidia.com/gpu")


@pytest.mark.parametrize("reason", REASONS)
def test_what_a_kubelet_refused_is_tried_elsewhere(play, reason):
    """At most one refusal a node: the next such pod goes to another one, others still go there."""

    async def scenario(w: Any) -> None:
        await cluster(w, 3)
        seen = []
        for number in range(3):
            seen.append(await bound(w, f"p{number}"))
            refuse(w, f"p{number}", reason)
            await w.clock.sleep(1.0)
        assert sorted(seen) == ["n0", "n1", "n2"]
        w.pod("p3", gpus=4)
        await w.until(lambda: "3 refused such a pod lately" in w.told("p3").get("message", ""))
        assert await bound(w, "other", gpus=2)
        assert where(w, "p3") == ""

    play(scenario)


def test_a_node_is_tried_again_after_a_time_that_doubles(play):
    """Five minutes after the first refusal, ten after the second."""

    async def scenario(w: Any) -> None:
        await cluster(w, 1)
        await bound(w, "p0")
        refuse(w, "p0", "TopologyAffinityError")
        for turn, wait in ((1, PERIOD), (2, 2 * PERIOD)):
            name = f"p{turn}"
            w.pod(name, gpus=4)
            await w.clock.sleep(wait - 30.0)
            assert where(w, name) == ""
            await w.clock.sleep(60.0)
            assert where(w, name) == "n0"
            refuse(w, name, "TopologyAffinityError")

    play(scenario, limit_s=3000.0)


def test_a_restart_remembers_refusals_by_the_failed_pods(play):
    """The pod is still there, and says when: another daemon avoids the node as well."""

    async def scenario(w: Any) -> None:
        await cluster(w, 2)
        first = await bound(w, "p0")
        refuse(w, "p0", "UnexpectedAdmissionError")
        await w.daemons[0].stop()
        w.daemon()
        assert await bound(w, "p1") != first

    play(scenario)


def test_a_pod_that_is_deleted_at_once_is_remembered(play):
    """Many controllers delete what failed: the process that saw it avoids the node."""

    async def scenario(w: Any) -> None:
        await cluster(w, 2)
        first = await bound(w, "p0")
        refuse(w, "p0", "UnexpectedAdmissionError")
        await w.clock.sleep(1.0)
        w.client.delete("pods", "default", "p0", grace_s=0)
        assert await bound(w, "p1") != first

    play(scenario)


@pytest.mark.parametrize("reason", ["Evicted", "NodeShutdown", "", "Error"])
def test_other_failures_are_no_refusals(play, reason):
    """A pod that failed for another reason says nothing about its node."""

    async def scenario(w: Any) -> None:
        await cluster(w, 1)
        await bound(w, "p0")
        refuse(w, "p0", reason)
        assert await bound(w, "p1") == "n0"

    play(scenario)


def test_a_pod_that_ran_was_not_refused(play):
    """With a container it got past the kubelet's admission, whatever it says now."""

    async def scenario(w: Any) -> None:
        await cluster(w, 1)
        await bound(w, "p0")
        ended = [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]
        status = {"phase": "Failed", "reason": "OutOfMemoryOfItsOwn", "containerStatuses": ended}
        w.client.patch("pods", "default", "p0", {"status": status}, subresource="status")
        assert await bound(w, "p1") == "n0"

    play(scenario)
