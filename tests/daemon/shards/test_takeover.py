"""A shard whose daemon is gone is taken over, and given back when that daemon is there again."""

from __future__ import annotations

from gpusched.shards.nodes import REST_S


async def wait_for_holders(shards, within=90, **holders):
    await shards.world.until(lambda: shards.holders() == holders, within)


def test_a_shard_is_taken_over_when_its_daemon_is_killed(sharded):
    async def story(shards):
        # given two daemons that care for each other's shards
        await shards.start(nodes=2)
        shards.daemon("a", "b")
        second = shards.daemon("b", "a")
        await wait_for_holders(shards, a="d-0", b="d-1")
        for number in range(2):
            shards.gang(f"early{number}", 1)
        await shards.world.until(lambda: len(shards.world.bound()) == 2)

        # when one is killed, and gangs come for the rest of both shards
        second.kill()
        await wait_for_holders(shards, a="d-0", b="d-0")
        for number in range(2):
            shards.gang(f"late{number}", 1)

        # then the other places them in both
        await shards.world.until(lambda: len(shards.world.bound()) == 4)

        # when it comes back
        shards.daemon("b", "a", identity="back")

        # then it gets its shard back
        await wait_for_holders(shards, a="d-0", b="back")

    sharded(story, "a", "b")


def test_a_shard_that_nobody_else_cares_for_waits_for_its_daemon(sharded):
    async def story(shards):
        # given two daemons of one shard each, and gangs that no one shard has room for alone
        await shards.start(nodes=1)
        shards.daemon("a")
        second = shards.daemon("b")
        await wait_for_holders(shards, a="d-0", b="d-1")

        # when one is killed
        second.kill()
        for number in range(2):
            shards.gang(f"g{number}", 1)
        await shards.world.clock.sleep(60)

        # then the other decides about its own shard alone
        assert {pod["spec"]["nodeName"] for pod in shards.world.bound()} <= {"a-0"}

        # when the daemon is there again, all is placed
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.world.bound()) == 2)

    sharded(story, "a", "b")


def test_a_daemon_that_is_stopped_leaves_its_shard_to_its_own_standby(sharded):
    async def story(shards):
        # given a standby of the same shard, and a neighbour that cares for it as well
        await shards.start(nodes=1)
        first = shards.daemon("a")
        shards.daemon("b", "a")
        await wait_for_holders(shards, a="d-0", b="d-1")
        shards.daemon("a")
        await shards.world.clock.sleep(5)

        # when the daemon is stopped in order
        await first.stop()

        # then the standby has the shard, not the neighbour
        await wait_for_holders(shards, a="d-2", b="d-1")

    sharded(story, "a", "b")


def test_a_node_that_comes_from_another_shard_rests_before_it_is_used(sharded):
    async def story(shards):
        # given two daemons, of which one has all nodes in use
        await shards.start(nodes=1)
        shards.daemon("a")
        shards.daemon("b")
        await wait_for_holders(shards, a="d-0", b="d-1")
        shards.world.pod("first", spec={"nodeSelector": {"pool": "a"}})
        await shards.world.until(shards.world.bound)

        # when its shard gets the node of the other, and pods wait for it
        shards.world.client.patch("nodes", None, "b-0", {"metadata": {"labels": {"pool": "a"}}})
        shards.world.pod("second", spec={"nodeSelector": {"pool": "a"}})

        # then it is used after half a minute, when all that was decided about it before is known
        await shards.world.clock.sleep(25)
        assert len(shards.world.bound()) == 1
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 30)

    sharded(story, "a", "b")


def test_gangs_that_run_on_a_node_that_changes_its_shard_stay_charged_once(sharded):
    async def story(shards):
        # given a queue that may hold 16 GPUs, 8 of them on a node
        await shards.start(nodes=2)
        shards.queue("team", capability=16)
        shards.cap("team", 16)
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("first", 1, queue="team")
        await shards.world.until(lambda: shards.world.bound("first"), 60)

        # when the node goes over to the other shard, and more gangs come
        (pod,) = shards.world.bound("first")
        to = {"a": "b", "b": "a"}[pod["spec"]["nodeName"][0]]
        shards.world.client.patch(
            "nodes", None, pod["spec"]["nodeName"], {"metadata": {"labels": {"pool": to}}}
        )
        for number in range(4):
            shards.gang(f"g{number}", 1, queue="team")
        await shards.world.clock.sleep(60)

        # then the queue holds its capability
        assert len(shards.world.bound()) == 2
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_a_node_that_changes_over_while_a_daemon_starts_is_used_after_its_rest(sharded):
    async def story(shards):
        # given a daemon of one shard, and one of another that begins
        await shards.start(nodes=1)
        world, moved = shards.world, []

        def relabel():
            moved.append(world.clock.monotonic())
            world.client.patch("nodes", None, "b-0", {"metadata": {"labels": {"pool": "a"}}})

        shards.daemon("b")
        await world.until(lambda: len(shards.holders()) == 1)
        shards.gang("two", 2, only="a")

        # when the node of the other changes over just as everything was listed
        shards.daemon("a", on_listed=relabel)

        # then the gang that needs both nodes starts, not before half a minute has passed
        await world.until(lambda: len(world.bound("two")) == 2, 120)
        assert world.clock.monotonic() - moved[0] >= REST_S

    sharded(story, "a", "b")
