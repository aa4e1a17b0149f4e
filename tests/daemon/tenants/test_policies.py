"""The daemon on a cluster with the shipped policies, and with the rights of its account alone."""

from __future__ import annotations

import asyncio
from contextvars import Context

import aiohttp
import pytest

from gpusched.io.client.api_client import ApiClient

QUEUES = "queues.scheduling.gpusched.io"


def late_bindings(monkeypatch, world, delay_s):
    """What the first daemon binds is delivered so much later; return the codes of the answers."""
    original = ApiClient.request
    codes: list[int] = []
    sending: list[asyncio.Task[None]] = []

    async def deliver(path, body):
        await world.clock.sleep(delay_s)
        headers = {"Authorization": f"Bearer {world.token}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{world.cluster.url}{path}", data=body) as answer,
        ):
            codes.append(answer.status)

    async def request(self, method, path, **how):
        if path.endswith("/binding") and b"d-0_" in how["body"]:
            network = asyncio.create_task(deliver(path, how["body"]), context=Context())
            sending.append(network)
            await asyncio.get_running_loop().create_future()  # until the daemon gives up
        return await original(self, method, path, **how)

    monkeypatch.setattr(ApiClient, "request", request)
    return codes


@pytest.mark.parametrize(("policies", "code"), [(True, 403), (False, 201)])
def test_a_deposed_leaders_late_binding_meets_the_fence(play, monkeypatch, policies, code):
    """It stands still, and what it sent last is on its way, for longer than the lease.

    The server refuses it. Without the policy the gang is bound, to nodes that are gone.
    """

    async def scenario(w):
        await w.start(nodes=2, policies=policies)
        codes = late_bindings(monkeypatch, w, 40.0)
        first = w.daemon()
        await w.until(lambda: first.leading)
        w.gang("a", 2)
        await w.clock.sleep(1)
        loop = asyncio.get_running_loop()
        loop.freeze(first)
        for name in ("node-0", "node-1"):
            w.client.delete("nodes", None, name)
        second = w.daemon()
        await w.until(lambda: second.leading)
        assert w.bound() == []
        await w.until(lambda: len(codes) == 2)
        loop.thaw(first)
        assert codes == [code, code]
        assert len(w.bound()) == (0 if policies else 2)
        if policies:
            w.node("late-0")
            w.node("late-1")
            await w.until(lambda: len(w.running("a")) == 2)
            held = {p["metadata"]["annotations"]["gpusched.io/fence"] for p in w.bound()}
            assert {fence.partition("/")[0][:3] for fence in held} == {"d-1"}
        else:
            for pod in w.bound():  # the invariants would tell
                w.client.delete("pods", "default", pod["metadata"]["name"], grace_s=0)
            w.client.delete("jobs.batch", "default", "a")

    play(scenario, freezing=True)


@pytest.fixture
def lively(tmp_path):
    """A configuration with every action that evicts, moves or pauses."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("actions: [enqueue, allocate, preempt, reclaim, consolidate, backfill]\n")
    return str(file)


def queue(w, name, **spec):
    """A queue of its own."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": spec})


def test_a_life_with_every_policy(play, lively):
    """Gangs, reclaim of a suspended Job, its return, a preemption: nothing of it is refused."""

    async def scenario(w):
        await w.start(nodes=2, policies=True)
        w.check_journal = False
        queue(w, "lender", deserved={"nvidia.com/gpu": 0})
        queue(w, "owner", deserved={"nvidia.com/gpu": 16})
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
        )
        daemon = w.daemon(config_file=lively)
        await w.until(lambda: daemon.leading)
        w.job("lent", 2, queue="lender", suspend=True)
        await w.until(lambda: len(w.bound()) == 2)
        lent = w.client.get("jobs.batch", "default", "lent")
        assert lent["metadata"]["annotations"]["gpusched.io/admitted"]
        w.group("low", queue="owner", minMember=2)
        w.job("low", 2, group="low")
        await w.until(lambda: len(w.running("low")) == 2)
        assert w.client.get("jobs.batch", "default", "lent")["spec"]["suspend"] is True
        w.group("top", queue="owner", minMember=1, priorityClassName="high")
        label = {"gpusched.io/pod-group": "top"}
        w.pod("top-0", spec={"priorityClassName": "high"}, labels=label)
        await w.until(lambda: len(w.running("top")) == 1)
        assert {201} == set(daemon.bindings)
        evictions = [write for write in w.journal if write.path.endswith("/eviction")]
        assert evictions, "the preemption evicted"

    play(scenario)
