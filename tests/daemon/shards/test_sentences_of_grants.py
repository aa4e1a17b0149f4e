"""Who waits for what other shards are granted is told what is held, and how much of the rest is not granted here."""

from __future__ import annotations

import pytest

POOL = [
    {
        "name": "one",
        "nodeSelector": {"kind": "one"},
        "capability": {"nvidia.com/gpu": "24"},
    }
]
QUEUES = {
    "capability": {"capability": 24},
    "user": {"userLimits": {"perUser": {"resources": {"nvidia.com/gpu": "24"}}}},
    "gangs of a user": {"userLimits": {"perUser": {"maxRunning": 3}}},
    "pools": {"nodePools": POOL},
    "deserved": {"deserved": {"nvidia.com/gpu": "24"}},
}
SENTENCES = {
    "capability": "needs 8 nvidia.com/gpu; queue team holds 8 of its capability of 24",
    "user": "needs 8 nvidia.com/gpu; user ann holds 8 of at most 24 in queue team",
    "gangs of a user": "user ann has 1 of at most 3 gangs running in queue team",
    "pools": "needs 8 nvidia.com/gpu of node pool one; queue team holds 8 of its capability of 24",
    "deserved": "is not preemptible and needs 8 nvidia.com/gpu; queue team deserves 24, of which 8 are held by "
    "others that are not preemptible",
}


@pytest.mark.parametrize("limit", QUEUES)
def test_a_gang_is_told_what_is_held_and_what_is_not_granted_to_its_shard(sharded, limit):
    async def story(shards):
        # given a queue of which shard b was granted room for three gangs, of which one runs, and b without a daemon
        await shards.start(nodes=0)
        for name in shards.names:
            for number in range(3):
                shards.world.node(f"{name}-{number}", 8, pool=name, kind="one")
        shards.queue("team", **QUEUES[limit])
        how = {"user": "ann", "queue": "team", "preemptible": limit != "deserved"}
        shards.daemon("a")
        gone = shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        for number, run_for in enumerate(("10h", "20s", "20s")):
            shards.gang(f"b{number}", 1, only="b", run_for=run_for, **how)
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 60)
        await shards.world.until(lambda: shards.used(["team"]) == 8, 60)
        await shards.world.clock.sleep(5)
        gone.kill()

        # when one comes that has to be in the other shard
        shards.gang("here", 1, only="a", **how)
        await shards.world.clock.sleep(30)

        # then it is told how it is: the rest of the queue is not held, and not granted to its shard
        left = 2 if limit == "gangs of a user" else 16
        assert (
            shards.world.condition("here")["message"]
            .partition(". ")[0]
            .startswith(f"{SENTENCES[limit]}, with {left} more that this shard is not granted yet")
        )

    sharded(story, "a", "b")
