"""A daemon in real time whose plugin does not come back: named, told, and free to end."""

from __future__ import annotations

import asyncio
import logging
import random
import sys

from gpusched.app import App, AppOptions
from gpusched.base.clock import SystemClock
from gpusched.config.load import load_config
from gpusched.devcluster import cluster as devcluster

HANG = """
import threading

import attrs

inside, release = threading.Event(), threading.Event()


@attrs.frozen
class Hang:
    name = "hang"
    api = 1

    def open(self, hooks, view):
        def key(queue):
            if view.now:
                inside.set()
                release.wait(120)
            return (0,)

        hooks.queue_order(key)
"""


def test_a_daemon_names_the_plugin_that_hangs_and_still_ends_in_order(
    packages, tmp_path, monkeypatch, caplog
):
    """The loop goes on: an event is written, and an end that is asked for comes."""
    monkeypatch.setattr("gpusched.base.limits.WATCHDOG_PERIOD_S", 0.02)
    monkeypatch.setattr("gpusched.base.limits.PLUGIN_STUCK_S", 0.1)
    monkeypatch.setattr("gpusched.base.limits.SHUTDOWN_S", 1.0)
    packages.install("acme_hang", plugins="hang = acme_hang.it:Hang", it=HANG)
    config = load_config("tiers:\n- plugins: [{name: hang}]\n", source="f.yaml")

    async def main():
        cluster = await devcluster.start(devcluster.ClusterOptions(clock=SystemClock(), token="t"))
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(cluster.kubeconfig_text)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"schedulerName": "gpusched", "containers": [{"name": "c", "image": "i"}]},
        }
        app = App(
            AppOptions(
                config=config,
                clock=SystemClock(),
                rng=random.Random(1),
                kubeconfig=str(kubeconfig),
            )
        )
        running = asyncio.create_task(app.run())
        cluster.client.create("pods", pod)
        while not any(e["reason"] == "PluginStuck" for e in cluster.client.list("events")):
            assert not running.done(), running.exception()
            await asyncio.sleep(0.05)
        app.stop()
        await running
        sys.modules["acme_hang.it"].release.set()
        await cluster.close()

    with caplog.at_level(logging.ERROR, logger="gpusched"):
        asyncio.run(main())
    stuck = [record for record in caplog.records if record.message == "a plugin does not come back"]
    assert stuck[0].gpusched_facts["plugin"] == "hang"
    assert stuck[0].gpusched_facts["hook"] == "queue_order"
    assert "release.wait(120)" in stuck[0].gpusched_dump
