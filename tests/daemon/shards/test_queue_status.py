"""A queue that spans shards shows what it holds in all of them."""

from __future__ import annotations


def test_a_queue_shows_the_sum_of_its_shards(sharded):
    async def story(shards):
        # given gangs of one queue in two shards
        await shards.start(nodes=2)
        shards.queue("team", deserved={"nvidia.com/gpu": "8"})
        shards.daemon("a")
        shards.daemon("b")
        for pool in ("a", "b"):
            shards.world.pod(
                f"in-{pool}",
                labels={"gpusched.io/queue": "team"},
                spec={"nodeSelector": {"pool": pool}},
            )
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        await shards.world.clock.sleep(15)

        # then its status has the sum, and the part of each
        status = shards.world.client.get("queues.scheduling.gpusched.io", None, "team")["status"]
        assert status["allocated"]["nvidia.com/gpu"] == "16"
        assert status["borrowed"]["nvidia.com/gpu"] == "8"
        assert status["running"] == 2
        assert [(row["name"], row["allocated"]["nvidia.com/gpu"]) for row in status["shards"]] == [
            ("a", "8"),
            ("b", "8"),
        ]

    sharded(story, "a", "b")


def test_a_queue_shows_the_sum_of_its_node_pools(sharded):
    async def story(shards):
        # given gangs of one queue on nodes of one pool in two shards
        await shards.start(nodes=2)
        pool = {"name": "all", "nodeSelector": {"gpusched.io/rack": "r0"}}
        shards.queue("team", nodePools=[{**pool, "capability": {"nvidia.com/gpu": "24"}}])
        shards.daemon("a")
        shards.daemon("b")
        for name in ("a", "b"):
            shards.gang(f"in-{name}", 1, queue="team", only=name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        await shards.world.clock.sleep(15)

        # then its status has the sum, and the part of each
        status = shards.world.client.get("queues.scheduling.gpusched.io", None, "team")["status"]
        (whole,) = status["nodePools"]
        assert (whole["name"], whole["allocated"]) == ("all", {"nvidia.com/gpu": "16"})
        parts = [(row["name"], row["nodePools"][0]["allocated"]) for row in status["shards"]]
        assert parts == [("a", {"nvidia.com/gpu": "8"}), ("b", {"nvidia.com/gpu": "8"})]

    sharded(story, "a", "b")


def test_a_queue_names_all_shards_of_a_daemon_that_took_one_over(sharded):
    async def story(shards):
        # given two daemons that care for each other's shards, and a queue in which nothing happens
        await shards.start(nodes=1)
        shards.queue("idle", deserved={"nvidia.com/gpu": "8"})
        shards.daemon("a", "b")
        second = shards.daemon("b", "a")
        await shards.world.until(lambda: shards.holders() == {"a": "d-0", "b": "d-1"}, 90)
        await shards.world.clock.sleep(30)

        # when one daemon is gone and the other has taken its shard over
        second.kill()
        await shards.world.until(lambda: shards.holders() == {"a": "d-0", "b": "d-0"}, 90)
        await shards.world.clock.sleep(60)

        # then the queue's status names both shards with what it has in them
        status = shards.world.client.get("queues.scheduling.gpusched.io", None, "idle")["status"]
        assert [row["name"] for row in status["shards"]] == ["a,b"]

        # when that daemon is there again, each has a row
        shards.daemon("b", "a", identity="back")
        await shards.world.until(lambda: shards.holders() == {"a": "d-0", "b": "back"}, 90)
        await shards.world.clock.sleep(60)
        status = shards.world.client.get("queues.scheduling.gpusched.io", None, "idle")["status"]
        assert [row["name"] for row in status["shards"]] == ["a", "b"]

    sharded(story, "a", "b")
