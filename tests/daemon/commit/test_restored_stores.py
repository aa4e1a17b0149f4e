"""An etcd that is restored from a backup: versions go back, and what was bound is not any more."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.policy.kinds import Namespace
from gpusched.base import limits
from gpusched.cache.cache import Cache
from gpusched.io.watch.informers import on_another_cluster

REPAIRED_S = 60.0
"""Within this every pod that the restore unbound has a place again."""


def cordon(w, *, on):
    """No node takes pods, or all do."""
    for node in w.client.list("nodes"):
        w.client.update("nodes", {**node, "spec": {**node.get("spec", {}), "unschedulable": on}})


async def backed_up(w, *, nodes=2, daemons=1):
    """A cluster whose backup has a gang of two that waits; it runs by now, on both nodes."""
    w.check_journal = False
    await w.start(nodes=nodes)
    cordon(w, on=True)
    made = [w.daemon() for _ in range(daemons)]
    w.gang("a", 2)
    await w.until(lambda: w.condition("a").get("status") == "False")
    await w.clock.sleep(5)
    w.cluster.restarts.take("backup")
    cordon(w, on=False)
    await w.until(lambda: len(w.running("a")) == 2)
    return made


async def restore(w, *, down_s=0.0):
    """The server restarts with the older state; every connection is cut."""
    await w.cluster.restarts.restart("snapshot", "backup", down_s=down_s)
    await w.clock.sleep(down_s)
    cordon(w, on=False)


async def repaired(w, begun):
    """How long it took until the gang runs and is told so."""
    await w.until(lambda: len(w.running("a")) == 2, within=300)
    await w.until(lambda: w.condition("a").get("status") == "True", within=300)
    return w.clock.monotonic() - begun


@pytest.mark.parametrize("down_s", [0.0, 5.0, 25.0])
@pytest.mark.parametrize("ran_s", [1.0, 30.0, 200.0])
def test_pods_that_a_restore_unbound_are_bound_again(play, ran_s, down_s):
    """The backup was taken while they waited; a minute later they run, with true messages."""

    async def scenario(w):
        await backed_up(w)
        await w.clock.sleep(ran_s)
        await restore(w, down_s=down_s)
        took = await repaired(w, w.clock.monotonic())
        assert took < REPAIRED_S

    play(scenario)


def test_versions_that_others_have_written_past_again_hide_nothing(play):
    """While the server was away from us, others wrote so much that its versions are higher than
    the ones we know: the Lease shows that the past is another.
    """

    async def scenario(w):
        (daemon,) = await backed_up(w)
        await w.clock.sleep(30)
        known = int(daemon.app.readers._usual[0].resource_version)
        await w.cluster.restarts.restart("snapshot", "backup", down_s=3.0)
        for number in range(200):
            w.client.create(
                "configmaps",
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": f"c-{number}", "namespace": "default"},
                },
            )
        cordon(w, on=False)
        assert w.cluster.core.store.version > known
        took = await repaired(w, w.clock.monotonic())
        assert took < REPAIRED_S
        assert daemon.app.telemetry._cache_resets[("restored",)] == 1

    play(scenario)


@pytest.mark.parametrize("kill", [False, True])
def test_a_restore_under_two_daemons(play, kill):
    """Whoever leads then repairs it; nothing is bound twice, and nobody ends."""

    async def scenario(w):
        daemons = await backed_up(w, daemons=2)
        await w.clock.sleep(30)
        leader = next(each for each in daemons if each.leading)
        await restore(w, down_s=2.0)
        if kill:
            leader.kill()
        assert await repaired(w, w.clock.monotonic()) < REPAIRED_S
        assert not any(each.task.done() for each in daemons if not each.dead)
        w.node("more")
        w.gang("b", 1)
        await w.until(lambda: len(w.running("b")) == 1)

    play(scenario)


def test_a_backup_of_another_leadership(play):
    """The restored Lease names a daemon that is dead: it runs out, then all is repaired."""

    async def scenario(w):
        (first,) = await backed_up(w)
        first.kill()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(10)
        await restore(w)
        assert await repaired(w, w.clock.monotonic()) < REPAIRED_S

    play(scenario)


def test_a_backup_without_a_lease(play):
    """It was taken before the daemon was first started."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=1)
        w.cluster.restarts.take("backup")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        w.pod("p")
        await w.until(lambda: len(w.running()) == 1)
        await restore(w)
        w.pod("q")
        begun = w.clock.monotonic()
        await w.until(lambda: len(w.running()) == 1, within=300)
        assert w.clock.monotonic() - begun < REPAIRED_S
        assert not daemon.task.done()

    play(scenario)


def test_a_backup_in_which_gone_pods_run(play):
    """Pods that were deleted since hold their GPUs again, and are counted."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=1)
        w.daemon()
        w.pod("old")
        await w.until(lambda: len(w.running()) == 1)
        w.cluster.restarts.take("backup")
        w.client.delete("pods", "default", "old")
        await w.until(lambda: w.pods() == [])
        await restore(w)
        w.pod("new")
        await w.clock.sleep(REPAIRED_S)
        assert [p["metadata"]["name"] for p in w.bound()] == ["old"]
        w.client.delete("pods", "default", "old")
        await w.until(lambda: [p["metadata"]["name"] for p in w.running()] == ["new"])

    play(scenario)


def test_nothing_is_bound_while_what_became_of_the_server_is_unknown(play):
    """The plan is from before the restore and its PodGroup is read after it, a moment after the
    watches were cut off: the pod that the restore brought back has the GPUs.
    """

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=1)
        daemon = w.daemon()
        w.pod("old")
        await w.until(lambda: len(w.running()) == 1)
        w.gang("new", 1)
        await w.until(lambda: w.condition("new").get("status") == "False")
        w.cluster.restarts.take("backup")
        asked = asyncio.Event()

        def slow(method, path):
            if method != "GET" or not path.endswith("/podgroups/new"):
                return ""
            asked.set()
            return "slow"

        daemon.fault = slow
        w.client.delete("pods", "default", "old")
        await asked.wait()
        await w.clock.sleep(0.3 * limits.BIND_TIMEOUT_CLIENT_S - 0.2)
        assert w.pods("new")
        assert not w.bound()
        await restore(w)
        await w.clock.sleep(REPAIRED_S)
        assert [p["metadata"]["name"] for p in w.bound()] == ["old"]
        w.client.delete("pods", "default", "old")
        await w.until(lambda: len(w.running("new")) == 1)

    play(scenario)


def test_an_eviction_that_was_restored_is_decided_again(play):
    """The backup knows neither the promise nor that the victim left."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=1)
        w.daemon()
        for name, value in (("low", 100), ("high", 1000)):
            w.client.create(
                "priorityclasses.scheduling.k8s.io",
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                },
            )
        w.pod("victim", spec={"priorityClassName": "low"})
        await w.until(lambda: len(w.running()) == 1)
        w.cluster.restarts.take("backup")
        w.pod("urgent", spec={"priorityClassName": "high"})
        await w.until(lambda: [p["metadata"]["name"] for p in w.running()] == ["urgent"])
        await restore(w)
        assert [p["metadata"]["name"] for p in w.bound()] == ["victim"]
        w.pod("urgent", spec={"priorityClassName": "high"})
        begun = w.clock.monotonic()
        await w.until(
            lambda: [p["metadata"]["name"] for p in w.running()] == ["urgent"], within=300
        )
        assert w.clock.monotonic() - begun < REPAIRED_S

    play(scenario)


def test_another_cluster_at_the_same_address(play):
    """Everything is new, and its pods are placed."""

    async def scenario(w):
        (daemon,) = await backed_up(w)
        await w.clock.sleep(30)
        await w.cluster.restarts.restart("empty", down_s=2.0)
        w.node("node-9")
        w.pod("p")
        begun = w.clock.monotonic()
        await w.until(lambda: len(w.running()) == 1, within=300)
        assert w.clock.monotonic() - begun < REPAIRED_S
        assert not daemon.task.done()

    play(scenario)


def test_a_system_namespace_with_another_uid_is_noticed():
    """Told once, when it is seen; the same again is nothing."""
    told: list[str] = []
    cache = Cache(["gpusched"])
    look = on_another_cluster(cache, told.append)

    def system(uid):
        return Namespace(
            name="kube-system", uid=UID(uid), resource_version=ResourceVersion("1"), labels={},
            queue="",
        )  # fmt: skip

    for uid in ("a", "a", "b"):
        look(system(uid))
        cache.put_namespace(ObjectKey("", "kube-system"), system(uid))
    assert len(told) == 1
    assert told[0].startswith("namespace kube-system had UID a and has b: ")
