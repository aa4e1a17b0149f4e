"""Metrics of all replicas together: a sum over them is right, whoever led before."""

from __future__ import annotations

import re

QUEUES = "queues.scheduling.gpusched.io"
OF_THE_CLUSTER = (
    "gpusched_gpus", "gpusched_idle_gpus", "gpusched_held_gpus", "gpusched_pending_pod_groups",
    "gpusched_queue_allocated", "gpusched_queue_fair_share", "gpusched_topology_nodes",
    "gpusched_fragmentation_ratio",
)  # fmt: skip
"""Gauges of what sessions of the leader see."""


def gauges(*daemons):
    """Rows of all replicas by name and labels, summed, of the gauges about the cluster."""
    found = {}
    for daemon in daemons:
        for line in daemon.app.telemetry.render().decode().splitlines():
            row, _, value = line.rpartition(" ")
            if re.split(r"[{ ]", row)[0] in OF_THE_CLUSTER:
                found[row] = found.get(row, 0.0) + float(value)
    return found


def test_a_replica_that_lost_the_lead_shows_nothing_of_the_cluster(play):
    """Given a leader that cannot renew its Lease until another leads, then a sum over both is what there is, not the double."""

    async def scenario(w):
        await w.start(nodes=2)
        made = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
        w.client.create(QUEUES, {**made, "metadata": {"name": "old"}, "spec": {}})
        first = w.daemon()
        await w.until(lambda: first.leading)
        w.gang("runs", 1)
        w.pod("in-old", gpus=8, labels={"gpusched.io/queue": "old"})
        w.gang("waits", 2)
        await w.until(lambda: len(w.running()) == 2)
        await w.clock.sleep(30)
        before = gauges(first)
        assert before['gpusched_gpus{type="unknown"}'] == 16
        assert sum(before.values()) > 16
        second = w.daemon()
        await w.clock.sleep(5)
        assert gauges(second) == {}
        first.fault = lambda _method, path: "lost" if "/leases" in path else ""
        await w.until(lambda: second.leading, within=120)
        first.fault = lambda _method, _path: ""
        w.client.delete(QUEUES, None, "old")
        await w.clock.sleep(90)
        assert (first.leading, second.leading) == (False, True)
        assert gauges(first) == {}
        now = gauges(first, second)
        assert now['gpusched_gpus{type="unknown"}'] == 16
        # When it leads again, then only what it sees now.
        await second.stop()
        await w.until(lambda: first.leading, within=120)
        w.pod("late", gpus=8)
        await w.clock.sleep(60)
        rows = gauges(first)
        assert rows['gpusched_gpus{type="unknown"}'] == 16
        assert [row for row in rows if 'queue="old"' in row and "pending" not in row] == []

    play(scenario, limit_s=3000)
