"""A gang is in one shard at a time, and is passed on where it cannot start, or another one has room."""

from __future__ import annotations

from tests.daemon.shards.conftest import HOSTS, begins_in


def test_gangs_go_where_they_fit(sharded):
    async def story(shards):
        # given a small shard and a large one
        await shards.start(nodes=1)
        for number in range(1, 5):
            shards.world.node(f"b-{number}", 8, pool="b")
        shards.daemon("a")
        shards.daemon("b")

        # when gangs come of which two are too large for the small one, and others name a pool
        shards.gang("large1", 2)
        shards.gang("large2", 2)
        shards.world.pod("named-a", spec={"nodeSelector": {"pool": "a"}})
        shards.world.pod("named-b", spec={"nodeSelector": {"pool": "b"}})

        # then all run, each gang in one shard
        await shards.world.until(lambda: len(shards.world.bound()) == 6, 60)
        assert shards.shards_of("large1") == shards.shards_of("large2") == {"b"}

    sharded(story, "a", "b")


def test_a_gang_that_waits_is_passed_on_when_another_shard_has_room(sharded):
    async def story(shards):
        # given two shards that are full
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        for pool in ("a", "b"):
            for number in range(2):
                shards.world.pod(f"full-{pool}-{number}", spec={"nodeSelector": {"pool": pool}})
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 60)

        # when gangs wait in both, and only one shard gets room
        for number in range(6):
            shards.gang(f"g{number}", 1, run_for="1s")
        await shards.world.clock.sleep(20)
        assert len(shards.world.bound()) == 4
        shards.world.client.delete("pods", "default", "full-b-0")

        # then all of them run there, one after the other
        await shards.world.until(lambda: len(shards.world.running()) == 9, 300)
        assert {
            pod["spec"]["nodeName"][0]
            for pod in shards.world.bound()
            if not pod["metadata"]["name"].startswith("full")
        } == {"b"}

    sharded(story, "a", "b")


def test_a_gang_waits_where_there_are_gpus_of_its_type(sharded):
    async def story(shards):
        # given two shards with GPUs of a type each, of which one is full, and gangs that are to take its type alone
        await shards.start(nodes=0)
        for name, product in (("a", "A100"), ("b", "H100")):
            shards.world.node(f"{name}-0", 8, pool=name, **{"nvidia.com/gpu.product": product})
        for name in shards.names:
            shards.daemon(name)
        await shards.world.until(lambda: len(shards.holders()) == 2)
        shards.gang("full", 1, only="b", run_for="60s")
        await shards.world.until(lambda: shards.world.bound("full"), 60)
        names = (f"g{number}" for number in range(99))
        first = next(each for each in names if begins_in(each, "ab") == "a")
        h100 = {"speeds": {"H100": "1.0"}}
        shards.gang(first, 1, gpuTypes=h100)
        shards.gang("nowhere", 1, gpuTypes={"speeds": {"B200": "1.0"}})

        # when gangs of the full shard come later
        await shards.world.clock.sleep(5)
        for number in range(3):
            shards.gang(f"later{number}", 1, only="b", run_for="60s")
        await shards.world.clock.sleep(20)
        assert shards.world.condition(first)["message"].endswith("; in shard b")

        # then who came before them starts before them
        await shards.world.until(lambda: shards.world.bound(first), 120)
        assert not any(shards.world.bound(f"later{number}") for number in range(3))
        assert not shards.world.bound("nowhere")
        assert "no shard has room for it" in shards.world.condition("nowhere")["message"]

    sharded(story, "a", "b")


def test_a_gang_too_large_for_every_shard_stays_and_is_told_so(sharded):
    async def story(shards):
        # given two shards of two nodes
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")

        # when a gang needs three
        shards.gang("g", 3)
        await shards.world.until(lambda: shards.world.condition("g"), 60)
        await shards.world.clock.sleep(40)

        # then it waits, and is told which shard it is in and that gangs do not span shards
        assert shards.world.bound() == []
        told = shards.world.condition("g")["message"]
        assert "no shard has room for it: gangs do not span shards" in told

    sharded(story, "a", "b")


def test_a_gang_is_bound_by_one_daemon_alone(sharded):
    async def story(shards):
        # given two daemons, and gangs of which each takes one node of the two of a shard
        await shards.start(nodes=3)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        await shards.world.clock.sleep(10)

        # when gangs of several sizes come and go
        for number in range(12):
            shards.gang(f"g{number}", 1 + number % 3, run_for="20s")
        await shards.world.until(
            lambda: len(shards.world.running()) == len(shards.world.pods()) == 24, 600
        )

        # then each had all its members from one of them, and the other tried none
        for number in range(12):
            fences = {
                pod["metadata"]["annotations"]["gpusched.io/fence"]
                for pod in shards.world.pods(f"g{number}")
            }
            assert len(fences) == 1
        assert {status for each in shards.world.daemons for status in each.bindings} == {201}

    sharded(story, "a", "b", limit_s=2000)


def test_a_gang_that_cannot_be_where_it_begins_does_not_wait_for_its_queue_there(sharded):
    async def story(shards):
        # given a queue of which the shard of no gang has anything left
        await shards.start(nodes=2)
        shards.queue("team", capability=8)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        shards.gang("first", 1, queue="team", only="a")
        await shards.world.until(lambda: shards.world.bound("first"), 60)

        # when gangs come that can be in one shard alone, wherever they begin
        for number in range(6):
            shards.gang(f"g{number}", 1, queue="team", only="b")
        await shards.world.clock.sleep(10)

        # then they wait for the queue there
        told = [shards.world.condition(f"g{number}")["reason"] for number in range(6)]
        owners = shards.board()["owners"].values()
        assert set(told) == {"WaitingForQuota"}
        assert set(owners) == {"b"}

    sharded(story, "a", "b")


def named_for(shard, layout=("a", "b")):
    """A name for a gang that begins in this shard."""
    names = (f"claims-{number}" for number in range(100))
    return next(name for name in names if begins_in(name, layout) == shard)


def test_nobody_is_evicted_for_a_gang_for_which_another_shard_has_room(sharded):
    async def story(shards):
        # given a shard that one queue has all of, and an empty one
        await shards.start(nodes=1)
        shards.queue("borrows")
        shards.queue("owns", deserved={HOSTS: "8"})
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("runs", 1, queue="borrows", only="a")
        await shards.world.until(lambda: len(shards.world.running()) == 1, 60)

        # when a gang begins there whose queue is due what it has
        claims = named_for("a")
        shards.gang(claims, 1, queue="owns")

        # then it starts in the other, and nobody is evicted
        await shards.world.until(lambda: shards.shards_of(claims), 60)
        assert shards.shards_of(claims) == {"b"}
        assert shards.shards_of("runs") == {"a"}
        assert [write.path for write in shards.world.journal if "eviction" in write.path] == []

    sharded(story, "a", "b")


def test_who_is_due_room_takes_it_back_where_no_shard_has_any(sharded):
    async def story(shards):
        # given two shards that one queue has all of
        await shards.start(nodes=1)
        shards.queue("borrows")
        shards.queue("owns", deserved={HOSTS: "16"})
        shards.daemon("a")
        shards.daemon("b")
        for pool in ("a", "b"):
            shards.gang(f"runs-{pool}", 1, queue="borrows", only=pool)
        await shards.world.until(lambda: len(shards.world.running()) == 2, 60)
        await shards.world.clock.sleep(3)  # the board has both

        # when a gang begins in one of them whose queue is due all
        claims = named_for("a")
        shards.gang(claims, 1, queue="owns")

        # then it gets what it is due where it begins
        await shards.world.until(lambda: shards.shards_of(claims), 60)
        assert shards.shards_of(claims) == {"a"}

    sharded(story, "a", "b")
