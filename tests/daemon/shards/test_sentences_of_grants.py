"""What is told of queues and nodes is true of the cluster, or says of which shard it is."""

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
        told = shards.world.condition("here")["message"]
        assert told.startswith(
            f"{SENTENCES[limit]}; {left} more are not granted to this shard yet; in shard a"
        )

    sharded(story, "a", "b")


def test_who_would_not_fit_with_all_grants_is_told_nothing_of_them(sharded):
    async def story(shards):
        # given a user who holds most of a limit in the first shard, and the second without a daemon
        await shards.start(nodes=2)
        shards.queue("team", **QUEUES["user"])
        shards.daemon("a")
        gone = shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        for number in range(2):
            shards.gang(f"a{number}", 1, only="a", user="ann", queue="team")
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        gone.kill()

        # when a gang comes that needs more than the rest
        shards.gang("here", 2, only="a", user="ann", queue="team")
        await shards.world.clock.sleep(30)

        # then the rest is not told as what it waits for
        assert shards.world.condition("here")["message"] == (
            "needs 16 nvidia.com/gpu; user ann holds 16 of at most 24 in queue team: default/a0 8, "
            "default/a1 8; in shard a"
        )

    sharded(story, "a", "b")


def test_who_lacks_room_with_all_grants_is_told_so_while_it_asks_for_none(sharded):
    async def story(shards):
        # given a shard that is full, and a user who holds nothing
        await shards.start(nodes=2)
        shards.queue("team", **QUEUES["user"])
        for name in shards.names:
            shards.daemon(name)
        await shards.world.until(lambda: len(shards.holders()) == 2)
        shards.gang("full", 2, only="a")
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)

        # when a gang of the user comes that has to be there, was granted what it needs, and asks for nothing since
        shards.gang("here", 2, only="a", user="ann", queue="team")
        await shards.world.clock.sleep(30)

        # then it is told what it lacked then
        assert shards.world.condition("here")["message"] == (
            "needs 16 nvidia.com/gpu; user ann holds 0 of at most 24 in queue team; 24 more are not granted to "
            "this shard yet; in shard a, which had no room for it when it was granted enough"
        )

    sharded(story, "a", "b")


def test_what_one_shard_lacks_is_not_told_of_the_cluster(sharded):
    async def story(shards):
        # given two shards with GPUs of a type each
        await shards.start(nodes=0)
        for name, product in (("a", "H100"), ("b", "A100")):
            shards.world.node(f"{name}-0", 8, pool=name, **{"nvidia.com/gpu.product": product})
        for name in shards.names:
            shards.daemon(name)
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when a gang comes that takes GPUs of both
        both = {"speeds": {"A100": "0.5", "H100": "1.0"}}
        shards.gang("either", 1, only="a", gpuTypes=both)
        await shards.world.until(lambda: shards.world.bound("either"), 60)
        await shards.world.clock.sleep(5)

        # then it is not told that there are none of one type
        told = shards.world.condition("either", "Admitted")["message"]
        assert "gpuTypes.speeds names A100, which no node of its shard has" in told

    sharded(story, "a", "b")


def test_who_was_evicted_is_told_of_which_amounts_its_queue_held_too_much(sharded):
    async def story(shards):
        # given two shards that are full of gangs of one queue
        await shards.start(nodes=1)
        shards.queue("due", deserved={"nvidia.com/gpu": "8"})
        shards.queue("lent")
        shards.daemon("a")
        shards.daemon("b")
        for name in shards.names:
            shards.gang(f"fills-{name}", 1, queue="lent", only=name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)

        # when a gang takes room back that its queue deserves
        shards.gang("claims", 1, queue="due")

        # then who leaves is told amounts of that shard as such
        await shards.world.until(lambda: shards.world.bound("claims"), 120)
        await shards.world.clock.sleep(5)
        notes = [each.get("message") or "" for each in shards.world.client.list("events")]
        (said,) = {each for each in notes if "reclaimed for" in each}
        assert said.startswith("reclaimed for default/claims: queue due holds ")
        assert said.endswith(" after this in this shard")

    sharded(story, "a", "b")
