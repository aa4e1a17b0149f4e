"""Reservations keep nodes in every shard that has some of theirs."""

from __future__ import annotations

from gpusched.api.meta.identity import format_time


def reserve(shards, name, *, begins=0.0, lasts="1h", **spec):
    """A Reservation whose window begins in so many seconds."""
    shards.world.client.create(
        "reservations.scheduling.gpusched.io",
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name},
            "spec": {
                "from": format_time(shards.world.clock.now() + begins),
                "duration": lasts,
                **spec,
            },
        },
    )


def status(shards, name):
    found = shards.world.client.get("reservations.scheduling.gpusched.io", None, name)
    return found.get("status") or {}


def nodes_used(shards):
    return sorted(pod["spec"]["nodeName"] for pod in shards.world.bound())


def test_nodes_under_maintenance_are_kept_in_every_shard(sharded):
    async def story(shards):
        # given a window on a node of each shard that has begun
        await shards.start(nodes=2)
        reserve(shards, "firmware", purpose="Maintenance", nodeNames=["a-0", "b-0"])
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when more gangs come than there is room for beside it
        for number in range(4):
            shards.gang(f"g{number}", 1)

        # then the other nodes are used
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        await shards.world.clock.sleep(30)
        assert nodes_used(shards) == ["a-1", "b-1"]
        told = status(shards, "firmware")
        assert (told["phase"], told["nodes"]) == ("Active", ["a-0"])
        assert [each["status"] for each in told["conditions"]] == ["True"]

    sharded(story, "a", "b")


def test_a_window_that_is_far_away_stops_no_shard(sharded):
    async def story(shards):
        # given a window of next month on all nodes of the second shard
        await shards.start(nodes=2)
        reserve(
            shards, "later", begins=30 * 86_400, purpose="Maintenance", nodeSelector={"pool": "b"}
        )
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when gangs come for every node
        for number in range(4):
            shards.gang(f"g{number}", 1)

        # then all of them start
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 60)

    sharded(story, "a", "b")


def test_nodes_are_chosen_in_the_shard_that_has_them(sharded):
    async def story(shards):
        # given a Reservation of one node of the second shard
        await shards.start(nodes=2)
        reserve(shards, "one", nodes=1, nodeSelector={"pool": "b"})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: status(shards, "one").get("nodes"), 60)

        # when more gangs come than there is room for beside it
        for number in range(4):
            shards.gang(f"g{number}", 1)

        # then one node of that shard stays free
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 60)
        await shards.world.clock.sleep(30)
        (kept,) = status(shards, "one")["nodes"]
        assert kept.startswith("b-")
        assert kept not in nodes_used(shards)
        assert len(shards.world.bound()) == 3

    sharded(story, "a", "b")
