"""Faults of what only reports, reads again or looks after: counted, told, and nobody waits for them."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.io.cycle.config_watcher import ConfigWatcher
from gpusched.io.watch.cache_comparer import CacheComparer
from gpusched.io.watch.discovery import KindDiscovery
from gpusched.session.status import queue_status
from tests.daemon.containment.test_containment import KINDS, metric
from tests.daemon.tenants.test_tenant_queues import QUEUES, queue

pytestmark = pytest.mark.contains


@KINDS
def test_a_queue_whose_status_cannot_be_counted_serves_its_gangs(play, monkeypatch, kind):
    """Only the report fails: nobody is set aside, other queues are told, and it is counted."""
    original = queue_status._count_admitted

    def planted(session, lines, looked_at):
        if any(line.key.queue == "bad" for line in lines):
            raise kind("counted")
        return original(session, lines, looked_at)

    async def scenario(w):
        await w.start(nodes=4)
        queue(w, "bad")
        queue(w, "good")
        with monkeypatch.context() as patch:
            patch.setattr(queue_status, "_count_admitted", planted)
            daemon = w.daemon()
            w.group("one", queue="bad", minMember=1)
            w.job("one", 1, group="one")
            await w.until(lambda: w.running("one"), within=10)
            w.group("waits", queue="bad", minMember=1)
            w.job("waits", 1, gpus=16, group="waits")
            w.group("two", queue="good", minMember=1)
            w.job("two", 1, group="two")
            await w.until(lambda: w.running("two"), within=10)
            await w.until(lambda: w.client.get(QUEUES, None, "good")["status"]["running"] == 1)
            assert w.condition("waits")["reason"] == "NoFeasibleNode"
            assert metric(daemon, "set_aside_objects") == {}
            faults = metric(daemon, "contained_faults_total")
            assert set(faults) == {("queue statuses", "object")}
            assert "queue statuses failed" in daemon.app.readiness()[1]
        await w.until(lambda: w.client.get(QUEUES, None, "bad")["status"]["running"] == 1)

    play(scenario)


@KINDS
def test_a_gang_without_a_name_to_tell_ends_no_process(play, monkeypatch, kind):
    """The fault is counted under what kind of thing it is."""

    def nameless(key):
        raise kind(key.name)

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        with monkeypatch.context() as patch:
            patch.setattr(GangKey, "__str__", nameless)
            with daemon.app.faults.contain("recovery", GangKey("PodGroup", "default", "bad")):
                raise kind("planted")
            with daemon.app.faults.contain("recovery", GangKey("PodGroup", "default", "bad")):
                pass
        assert metric(daemon, "contained_faults_total") == {("recovery", "object"): 1}
        w.gang("one", 1)
        await w.until(lambda: w.running("one"))

    play(scenario)


@KINDS
@pytest.mark.parametrize(
    "looks",
    [
        (CacheComparer, "_compare_kind", "audit"),
        (CacheComparer, "_read", "audit"),
        (KindDiscovery, "_discover_kinds", "discovery"),
        (ConfigWatcher, "_look_at_file", "configuration"),
    ],
    ids=["audit", "audit-list", "discovery", "configuration"],
)
def test_what_looks_after_things_is_counted_where_it_fails(
    play, monkeypatch, tmp_path, kind, looks
):
    """It is tried again; meanwhile gangs start."""
    owner, name, stage = looks
    file = tmp_path / "gpusched.yaml"
    file.write_text("cycle: {maxPeriod: 60s}\n")

    async def broken(*_args, **_how):
        raise kind("planted")

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon(config_file=str(file))
        await w.until(lambda: daemon.leading)
        monkeypatch.setattr(owner, name, broken)
        w.gang("one", 1)
        await w.until(lambda: w.running("one"))
        daemon.app.readers._auditors[0].look_soon()  # as after a stream that was cut off
        await w.until(lambda: metric(daemon, "contained_faults_total"), within=300, every=1)
        assert set(metric(daemon, "contained_faults_total")) == {(stage, "object")}
        assert f"{stage} failed" in daemon.app.readiness()[1]

    play(scenario)
