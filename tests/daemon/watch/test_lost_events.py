"""Events that the API server's watch cache never told: found by an audit, and made up for."""

from __future__ import annotations

import pytest

from gpusched.base import limits
from gpusched.io.watch.informers import KindEventHandler
from gpusched.io.watch.list_pages import ListPages
from gpusched.io.watch.reflector import Reflector
from tests.daemon.devices.device_objects import CLAIMS, bound, claimant, classes, publish

QUEUES = "queues.scheduling.gpusched.io"
AUDIT_S = 120
AUDITED_S = AUDIT_S + limits.COMPARE_GRACE_S + 10


@pytest.fixture
def audited(tmp_path):
    """A configuration by which everything is listed every two minutes, not every ten."""
    file = tmp_path / "gpusched.yaml"
    file.write_text(f"limits: {{auditPeriod: {AUDIT_S}s}}\n")
    return str(file)


@pytest.fixture
def losing(monkeypatch):
    """Names of objects of which events are lost on their way; versions go on."""
    names: set[str] = set()
    apply = KindEventHandler.apply

    def lossy(self, event_type, item):
        if getattr(item, "name", None) not in names:
            apply(self, event_type, item)

    monkeypatch.setattr(KindEventHandler, "apply", lossy)
    return names


def lost(daemon):
    """Counts of the metric, by kind and change."""
    return dict(daemon.app.telemetry._events_lost)


def test_a_pod_whose_creation_was_lost_is_placed(play, audited, losing):
    """Nobody told of it: within one audit it is found."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        losing.add("p")
        w.pod("p")
        await w.clock.sleep(60)
        assert w.bound() == []
        losing.clear()
        await w.until(lambda: len(w.bound()) == 1, within=AUDITED_S)
        assert lost(daemon) == {("pods", "ADDED"): 1.0}

    play(scenario, limit_s=3000)


def test_a_pod_whose_end_was_lost_gives_its_gpus_back(play, audited, losing):
    """Deleted while nobody was told: its node is free again after one audit."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=audited)
        w.pod("p")
        await w.until(lambda: len(w.running()) == 1)
        losing.add("p")
        w.client.delete("pods", "default", "p")
        await w.until(lambda: w.pods() == [])
        losing.clear()
        w.pod("q")
        await w.clock.sleep(60)
        assert w.bound() == []
        await w.until(lambda: len(w.bound()) == 1, within=AUDITED_S)
        assert lost(daemon) == {("pods", "DELETED"): 1.0}

    play(scenario, limit_s=3000)


def test_a_node_whose_change_was_lost_is_seen(play, audited, losing):
    """It was cordoned unseen, and uncordoned unseen."""

    async def scenario(w):
        await w.start(nodes=0)
        w.node("n")
        w.client.update(
            "nodes", {**w.client.get("nodes", None, "n"), "spec": {"unschedulable": True}}
        )
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        losing.add("n")
        w.client.update(
            "nodes", {**w.client.get("nodes", None, "n"), "spec": {"unschedulable": False}}
        )
        await w.clock.sleep(5)
        losing.clear()
        w.pod("p")
        await w.clock.sleep(5)
        assert w.bound() == []
        await w.until(lambda: len(w.bound()) == 1, within=AUDITED_S)
        assert lost(daemon) == {("nodes", "MODIFIED"): 1.0}

    play(scenario, limit_s=3000)


def test_a_queue_whose_change_was_lost_counts(play, audited, losing):
    """Its capability was raised unseen: who waits for it starts after one audit."""

    async def scenario(w):
        await w.start(nodes=1)
        named = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
        small = {**named, "metadata": {"name": "q"}, "spec": {"capability": {"nvidia.com/gpu": 1}}}
        w.client.create(QUEUES, small)
        daemon = w.daemon(config_file=audited)
        w.group("g", queue="q", minMember=2)
        w.job("j", 2, gpus=1, group="g")
        await w.clock.sleep(5)
        losing.add("q")
        larger = {"spec": {"capability": {"nvidia.com/gpu": 8}}}
        w.client.patch(QUEUES, None, "q", larger)
        await w.clock.sleep(5)
        losing.clear()
        await w.clock.sleep(60)
        assert w.bound() == []
        await w.until(lambda: len(w.bound()) == 2, within=AUDITED_S)
        assert lost(daemon) == {("queues", "MODIFIED"): 1.0}

    play(scenario, limit_s=3000)


def test_a_pod_group_whose_creation_was_lost_starts(play, audited, losing):
    """Its pods are known and wait for it: after one audit they run."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        losing.add("g")
        w.group("g", minMember=2)
        w.job("j", 2, gpus=1, group="g")
        await w.clock.sleep(60)
        losing.clear()
        assert w.bound() == []
        await w.until(lambda: len(w.bound()) == 2, within=AUDITED_S)
        assert lost(daemon) == {("podgroups", "ADDED"): 1.0}

    play(scenario, limit_s=3000)


def test_an_audit_whose_stream_is_renewed_is_repeated_at_once(play, audited, losing, monkeypatch):
    """Events of what it listed may have been on their way: it looks again, not a whole period later."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        following = Reflector.following.fget
        renewal = AUDIT_S + limits.COMPARE_GRACE_S / 2

        def renewed(self):
            return following(self) and 1 + (w.clock.monotonic() > renewal)

        monkeypatch.setattr(Reflector, "following", property(renewed))
        losing.add("p")
        w.pod("p")
        await w.clock.sleep(60)
        losing.clear()
        await w.until(lambda: len(w.bound()) == 1, within=AUDITED_S + limits.COMPARE_GRACE_S)
        assert lost(daemon) == {("pods", "ADDED"): 1.0}

    play(scenario, limit_s=3000)


def test_a_cut_off_stream_does_not_put_the_next_audit_off(play, audited, losing):
    """The server restarts, which makes one audit; what is lost after it is found in time too."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        await w.cluster.restarts.restart("kept", down_s=1.0)
        await w.clock.sleep(60)
        losing.add("p")
        w.pod("p")
        await w.clock.sleep(5)
        losing.clear()
        await w.until(lambda: len(w.bound()) == 1, within=AUDITED_S)

    play(scenario, limit_s=3000)


def test_an_audit_of_a_busy_cluster_finds_nothing(play, audited):
    """Pods come and go while lists are read: what is on its way is not lost."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        end = w.clock.monotonic() + AUDITED_S
        number = 0
        while w.clock.monotonic() < end:
            w.pod(f"p-{number}", gpus=1)
            await w.clock.sleep(2.7)
            if number >= 8:
                w.client.delete("pods", "default", f"p-{number - 8}")
            number += 1
        assert lost(daemon) == {}

    play(scenario, limit_s=3000)


def test_a_server_that_restarts_under_load_has_lost_nothing(play, audited):
    """Connections are cut again and again while pods come and go: no etcd was restored."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon(config_file=audited)
        await w.until(lambda: daemon.leading)
        for number in range(100):
            w.pod(f"p-{number}", gpus=1)
            if number % 37 == 20:
                await w.unplug()
                await w.clock.sleep(number / 4)
                await w.plug()
            await w.clock.sleep(0.9)
            if number >= 8:
                w.client.delete("pods", "default", f"p-{number - 8}")
        await w.clock.sleep(60)
        assert lost(daemon) == {}
        assert daemon.app.telemetry._cache_resets[("restored",)] == 0

    play(scenario, limit_s=3000)


def test_a_claim_whose_release_was_lost_gives_its_devices_back(play, audited, losing):
    """A device of a claim that ended while nobody was told is free again after one audit."""

    async def scenario(w):
        await w.start(nodes=1)
        publish(w, "node-0", 1)
        classes(w)
        w.daemon(config_file=audited)
        claimant(w, "first")
        await w.until(lambda: "first" in bound(w))
        (claim,) = w.client.list(CLAIMS, "default")
        losing.add(claim["metadata"]["name"])
        w.client.delete("pods", "default", "first")
        await w.until(lambda: not w.client.list(CLAIMS, "default"))
        losing.clear()
        claimant(w, "second")
        await w.clock.sleep(20)
        assert "second" not in bound(w)
        await w.until(lambda: "second" in bound(w), within=AUDITED_S)

    play(scenario, limit_s=3000)


def test_an_audit_of_what_is_known_decodes_nothing(play, audited, monkeypatch):
    """Given twenty pods that wait and nothing that was lost, when an audit lists them, then none is decoded again."""
    decoded = []

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=audited)
        for number in range(20):
            w.pod(f"p-{number}", gpus=64)
        await w.until(lambda: daemon.leading)
        await w.clock.sleep(AUDIT_S / 2)
        decode = ListPages._decoded

        def counted(self, body):
            decoded.append(self._kind.name)
            return decode(self, body)

        monkeypatch.setattr(ListPages, "_decoded", counted)
        await w.clock.sleep(2 * AUDITED_S)
        assert lost(daemon) == {}

    play(scenario, limit_s=3000)
    assert "pods" not in decoded
    assert "nodes" not in decoded
