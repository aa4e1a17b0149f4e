"""A gang that prefers the nodes of some shards is in these, in the order of its weights, as long as they have room."""

from __future__ import annotations

import pytest


def affinity(required=(), **weights):
    """Node affinity: pools that are possible, and how much some are preferred."""
    terms = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]
            },
        }
        for pool, weight in weights.items()
    ]
    found = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    if required:
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": [*required]}]}
            ]
        }
    return {"affinity": {"nodeAffinity": found}}


def pools(shards):
    """In which pool each bound pod is."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"].rpartition("-")[0]
        for pod in shards.world.bound()
    }


def test_gangs_are_in_the_shard_that_they_prefer(sharded):
    async def story(shards):
        # given a daemon for each of two shards
        await shards.start(nodes=4)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        await shards.world.clock.sleep(5)

        # when gangs come of which half prefer one shard and half the other
        for number in range(4):
            shards.world.pod(f"to-a-{number}", spec=affinity(a=10))
            shards.world.pod(f"to-b-{number}", spec=affinity(b=10))

        # then each is where it wants to be, whatever its name
        await shards.world.until(lambda: len(pools(shards)) == 8, 60)
        assert all(name.startswith(f"to-{pool}-") for name, pool in pools(shards).items())

    sharded(story, "a", "b")


def test_a_preferred_shard_that_is_full_is_not_waited_for(sharded):
    async def story(shards):
        # given two shards of two nodes
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when four gangs prefer the same one
        for number in range(4):
            shards.world.pod(f"g{number}", spec=affinity(b=10))

        # then two are there and the others where there is room
        await shards.world.until(lambda: len(pools(shards)) == 4, 120)
        assert sorted(pools(shards).values()) == ["a", "a", "b", "b"]

    sharded(story, "a", "b")


@pytest.mark.parametrize("order", [("a", "c"), ("c", "a"), ("b", "c")])
def test_shards_are_asked_in_the_order_of_the_weights(sharded, order):
    async def story(shards):
        # given three shards of one node, and gangs that may be in two of them
        await shards.start(nodes=1)
        for name in ("a", "b", "c"):
            shards.daemon(name)
        await shards.world.until(lambda: len(shards.holders()) == 3)
        await shards.world.clock.sleep(5)

        wish = {order[0]: 50, order[1]: 10}

        # when one comes after the other
        found = []
        for number in range(3):
            shards.world.pod(f"g{number}", spec=affinity(order, **wish))
            await shards.world.clock.sleep(40)
            found.append(pools(shards).get(f"g{number}", ""))

        # then the first is where it wants to be most, the next in the other, and the last waits
        assert found == [*order, ""]

    sharded(story, "a", "b", "c")


def test_where_several_shards_are_preferred_alike_a_gang_stays_in_its_own(sharded):
    async def story(shards):
        # given gangs that prefer both shards as much
        await shards.start(nodes=4)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        for number in range(4):
            shards.world.pod(f"g{number}", spec=affinity(a=10, b=10))

        # then none is passed on
        await shards.world.until(lambda: len(pools(shards)) == 4, 60)
        await shards.world.clock.sleep(5)
        assert not shards.board().get("owners")

    sharded(story, "a", "b")
