"""Two daemons of two shards: each decides about its own nodes, and nothing is bound twice."""

from __future__ import annotations


def test_two_daemons_fill_their_own_shards(sharded):
    async def story(shards):
        # given a cluster in two shards with a daemon for each
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")

        # when gangs come that fill both
        for number in range(4):
            shards.gang(f"g{number}", 1)

        # then all run, each in one shard
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 60)
        assert shards.holders() == {"a": "d-0", "b": "d-1"}

    sharded(story, "a", "b")
