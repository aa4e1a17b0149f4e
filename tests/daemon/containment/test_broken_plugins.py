"""An outside author's plugin breaks under a running daemon: blamed, set aside, and back again."""

from __future__ import annotations

import re
import sys

import pytest

from tests.daemon.conftest import GROUPS

CONFIG = """\
actions: [enqueue, allocate]
tiers:
- plugins: [{name: priority}, {name: gang}, {name: quota}, {name: predicates}, {name: moody}]
cycle: {maxPeriod: 1s}
"""
MOODY = """
import attrs
from gpusched.plugin import ALLOW

broken = []


@attrs.frozen
class Moody:
    name = "moody"
    api = 1

    def open(self, hooks, view):
        def check(gang):
            if gang.queue in broken:
                raise LookupError("no such mood")
            return ALLOW

        hooks.quota_check(check)
"""
BLAME = "plugin moody failed in hook quota_check: LookupError: no such mood"


@pytest.fixture
def file(tmp_path, packages):
    packages.install("acme_moody", plugins="moody = acme_moody.it:Moody", it=MOODY)
    path = tmp_path / "gpusched.yaml"
    path.write_text(CONFIG)
    return path


def metric(daemon, name):
    text = daemon.app.telemetry.render().decode()
    return {
        found[1] or "": float(found[2])
        for found in re.finditer(rf"^gpusched_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    }


def told(world):
    """Reasons of the events about the daemon itself."""
    events = world.client.list("events")
    return [e["reason"] for e in events if e["involvedObject"]["kind"] == "Lease"]


def queue_named(name):
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {},
    }


def broken():
    return sys.modules["acme_moody.it"].broken


WHO = 'hook="quota_check",plugin="moody"'


async def degraded(world, file):
    """A daemon whose plugin fails for queue sad until it is set aside."""
    await world.start()
    daemon = world.daemon(config_file=str(file))
    await world.until(lambda: daemon.leading)
    broken().append("sad")
    for queue in ("sad", "glad"):
        world.client.create("queues.scheduling.gpusched.io", queue_named(queue))
        world.pod(queue, gpus=1, labels={"gpusched.io/queue": queue})
    await world.until(lambda: daemon.app.health.degraded)
    return daemon


def test_a_hook_that_keeps_failing_is_shown_wherever_an_operator_looks(play, file, caplog):
    """Pod condition, event, metrics, log and /readyz name plugin, hook and fault."""

    async def scenario(world):
        daemon = await degraded(world, file)
        await world.clock.sleep(2)
        ready, why = daemon.app.readiness()
        assert ready
        assert why.startswith(f"leader; degraded: {BLAME}")
        assert metric(daemon, "plugin_faults_total")[WHO] >= 10
        assert metric(daemon, "plugin_quarantined") == {WHO: 1}
        assert WHO in metric(daemon, "plugin_hook_seconds_count")
        assert told(world) == ["PluginDegraded"]
        assert BLAME in world.told("sad")["message"]
        assert "sad" not in [pod["metadata"]["name"] for pod in world.bound()]

    play(scenario)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.message for record in errors] == [
        "a hook failed for the first time",
        "a plugin failed",
        "hooks are set aside",
    ]
    assert 'raise LookupError("no such mood")' in errors[0].gpusched_dump


def test_it_comes_back_by_itself_when_it_works_again(play, file):
    """One try a session; then everything that waited is placed, and that is told too."""

    async def scenario(world):
        daemon = await degraded(world, file)
        broken().clear()
        await world.until(lambda: len(world.bound()) == 2)
        assert daemon.app.readiness() == (True, "leader")
        assert metric(daemon, "plugin_quarantined") == {}
        await world.until(lambda: told(world) == ["PluginDegraded", "PluginRecovered"])

    play(scenario)


def test_a_reload_without_it_ends_the_trouble(play, file):
    """The operator's way out needs no restart: take its name out of the file."""

    async def scenario(world):
        daemon = await degraded(world, file)
        file.write_text(CONFIG.replace(", {name: moody}", ""))
        await world.until(lambda: len(world.bound()) == 2)
        assert daemon.app.readiness() == (True, "leader")
        assert metric(daemon, "plugin_quarantined") == {}

    play(scenario)


@pytest.mark.contains
@pytest.mark.parametrize("within", [{}, {"topology": {"required": "rack"}}])
def test_a_shipped_filter_that_always_fails_is_told_as_such(play, monkeypatch, within):
    """Other filters of the same plugin answer: that changes nothing about the one that fails."""

    def broken(_pod, _nodes):
        raise KeyError("planted")

    why = "filter predicates/node_filter failed: KeyError: 'planted'; no node is accepted until it"
    who = 'hook="node_filter",plugin="predicates"'

    async def scenario(world):
        await world.start(nodes=6)
        with monkeypatch.context() as patch:
            patch.setattr("gpusched_plugins.nodes.predicates.node_rules._ready", broken)
            daemon = world.daemon()
            world.group("g", minMember=1, **within)
            world.job("g", 1, group="g")
            await world.until(lambda: daemon.app.health and daemon.app.health.degraded, within=300)
            shown = world.client.get(GROUPS, "default", "g")["status"]["conditions"]
            (told_g,) = [each for each in shown if each["type"] == "Scheduled"]
            assert (told_g["reason"], told_g["message"].startswith(why)) == ("BackOff", True)
            blame = "leader; degraded: plugin predicates failed in hook node_filter: KeyError"
            assert daemon.app.readiness()[1].startswith(blame)
            assert metric(daemon, "plugin_faults_total")[who] >= 10
            assert metric(daemon, "plugin_quarantined") == {who: 1}
            await world.until(lambda: told(world) == ["PluginDegraded"])
        await world.until(lambda: world.running("g"))
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)
