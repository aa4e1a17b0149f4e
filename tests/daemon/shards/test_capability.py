"""A queue spans shards whose daemons do not talk, and never holds more than its capability."""

from __future__ import annotations

import random

import pytest


def running(shards, *gangs):
    return [name for name in gangs if shards.world.bound(name)]


def test_a_queue_in_two_shards_never_holds_more_than_its_capability(sharded):
    async def story(shards):
        # given room for 8 gangs of 8 GPUs in two shards, and a queue that may hold 24
        await shards.start(nodes=4)
        shards.queue("team", capability=24)
        shards.cap("team", 24)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when 8 gangs come
        for number in range(8):
            shards.gang(f"g{number}", 1, queue="team")

        # then 3 of them run, whichever shards they are in
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 60)
        await shards.world.clock.sleep(30)
        assert len(shards.world.bound()) == 3
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_two_gangs_that_each_need_all_of_a_capability_start_one_after_the_other(sharded):
    async def story(shards):
        # given a queue that may hold 8 GPUs
        await shards.start(nodes=2)
        shards.queue("team", capability=8)
        shards.cap("team", 8)
        shards.daemon("a")
        shards.daemon("b")

        # when gangs of 8 GPUs that run for a minute come to both shards
        for number in range(4):
            shards.gang(f"g{number}", 1, queue="team", run_for="20s")

        # then all of them have run, one at a time
        await shards.world.until(lambda: len(shards.world.running()) == 4, 400)
        assert shards.exceeded == []

    sharded(story, "a", "b", limit_s=2000)


def test_a_daemon_of_two_shards_gives_one_what_the_other_does_not_need(sharded):
    async def story(shards):
        # given one daemon of both shards, and a queue of 16 GPUs of which each was granted half
        await shards.start(nodes=2)
        shards.queue("team", capability=16)
        shards.cap("team", 16)
        shards.daemon("a", "b")
        for name in shards.names:
            shards.gang(f"half-{name}", 1, queue="team", run_for="20s", only=name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        await shards.world.until(lambda: shards.used(["team"]) == 0, 60)

        # when a gang comes that needs all of it in one shard
        shards.gang("whole", 2, queue="team", only="a")

        # then it starts there
        await shards.world.until(lambda: len(shards.world.bound("whole")) == 2, 60)
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_queues_above_count_too(sharded):
    async def story(shards):
        # given two teams of a department that may hold 16 GPUs, and 16 each
        await shards.start(nodes=3)
        shards.queue("department", capability=16)
        shards.queue("one", capability=16, parent="department")
        shards.queue("two", parent="department")
        shards.cap("department", 16, "one", "two")
        shards.daemon("a")
        shards.daemon("b")

        # when both want more
        for number in range(6):
            shards.gang(f"g{number}", 1, queue=("one", "two")[number % 2])

        # then the department holds 16
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        await shards.world.clock.sleep(30)
        assert len(shards.world.bound()) == 2
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_a_capability_that_is_lowered_holds_for_every_shard(sharded):
    async def story(shards):
        # given a queue with room for 4 of 6 gangs
        await shards.start(nodes=4)
        shards.queue("team", capability=32)
        shards.daemon("a")
        shards.daemon("b")
        for number in range(6):
            shards.gang(f"g{number}", 1, queue="team", run_for="30s")
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 60)

        # when its capability is lowered
        shards.world.client.patch(
            "queues.scheduling.gpusched.io", None, "team",
            {"spec": {"capability": {"nvidia.com/gpu": "8"}}},
        )  # fmt: skip
        await shards.world.clock.sleep(5)
        shards.cap("team", 8)

        # then the others run one at a time
        await shards.world.until(lambda: len(shards.world.running()) == 6, 400)
        assert shards.exceeded == []

    sharded(story, "a", "b", limit_s=2000)


@pytest.mark.parametrize("seed", range(2))
def test_daemons_that_die_at_any_write_exceed_no_capability(sharded, seed):
    dice = random.Random(seed)

    async def story(shards):
        # given three shards, a queue that may hold half of them, and daemons that care for each other's shards
        await shards.start(nodes=3)
        shards.queue("team", capability=36)
        shards.cap("team", 36)
        names = shards.names
        for number in range(3):
            shards.daemon(
                *(names[(number + step) % 3] for step in range(2)),
                kill_at=dice.randint(2, 25),
                answered=dice.random() < 0.5,
            )

        # when gangs come and end, daemons die, and others are started
        for number in range(14):
            pods = dice.choice((1, 1, 2))
            shards.gang(f"g{number}", pods, gpus=dice.choice((4, 8)), queue="team", run_for="40s")
            await shards.world.clock.sleep(dice.random() * 4)
        for number in range(3):
            shards.daemon(*(names[(number + step) % 3] for step in range(2)))

        # then every gang has run, and at no binding did the queue hold more than its capability
        await shards.world.until(
            lambda: len(shards.world.running()) == len(shards.world.pods()), 1500
        )
        assert shards.exceeded == []

    sharded(story, "a", "b", "c", limit_s=4000)
