"""An etcd that is restored from a backup: versions go back, and what was bound is not any more."""

from __future__ import annotations

import pytest

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
