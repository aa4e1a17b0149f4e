"""What the daemons of all shards could write: each value is of the whole cluster, and does not go back and forth."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpusched.api.meta.identity import parse_time
from gpusched.base.clock import EPOCH
from tests.behaviour.fuzz.foreign_kinds import install, make

QUEUES = "queues.scheduling.gpusched.io"
VOLCANO_QUEUES = "queues.scheduling.volcano.sh"
HOSTS = "nvidia.com/gpu"
SHIPPED = Path(__file__).parents[3] / "conf" / "gpusched.yaml"


def status(shards, name="team", resource=QUEUES):
    return shards.world.client.get(resource, None, name).get("status") or {}


def compared_starts(shards):
    """How many starts of the queue were compared with what was told of them."""
    told = status(shards).get("startEstimates", ())
    return sum(sum(each["startsByPercent"].values()) for each in told)


def known_length(shards, name, only):
    """A gang of queue team that runs for as long as it announces, in one shard."""
    shards.gang(name, 1, queue="team", only=only, run_for="150s", expectedDuration="150s")


def ready(shards, name):
    found = [each for each in status(shards, name)["conditions"] if each["type"] == "Ready"]
    return (found[0]["status"], found[0]["message"])


def add_plugin(shards, plugin):
    """Have all daemons run the shipped policy with one more plugin."""
    shipped = yaml.safe_load(SHIPPED.read_text())
    shipped["tiers"][-1]["plugins"].append(plugin)
    shipped["shards"] = yaml.safe_load(Path(shards.config).read_text())["shards"]
    Path(shards.config).write_text(yaml.safe_dump(shipped))


async def seen(shards, read, *, lasts):
    """What is read in the next seconds, without what repeats."""
    found = []
    for _ in range(lasts):
        value = read()
        if not found or found[-1] != value:
            found.append(value)
        await shards.world.clock.sleep(1)
    return found


def test_the_use_of_a_queue_is_a_part_of_the_whole_cluster(sharded):
    async def story(shards):
        # given a queue that holds half of one of two equal shards, and a policy that remembers use
        add_plugin(shards, {"name": "usage"})
        await shards.start(nodes=2)
        shards.queue("team")
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("one", 1, queue="team", only="b", run_for="1h")
        await shards.world.until(shards.world.bound, 60)
        await shards.world.clock.sleep(70)

        # then its use is a quarter of the cluster's GPUs, whoever writes, and stays so
        told = await seen(shards, lambda: status(shards)["usage"]["share"].get(HOSTS), lasts=200)
        assert told == [10**9 // 4]

    sharded(story, "a", "b")


def test_starts_of_a_queue_are_learned_in_all_shards(sharded):
    async def story(shards):
        # given a gang that runs in each shard, and another one that waits for its end there
        await shards.start(nodes=1)
        shards.queue("team")
        shards.daemon("a")
        shards.daemon("b")
        for name in shards.names:
            known_length(shards, f"first-{name}", name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        for name in shards.names:
            known_length(shards, f"second-{name}", name)

        # when both have started
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 300)
        await shards.world.clock.sleep(30)

        # then both are counted, and what was counted does not go away
        assert await seen(shards, lambda: compared_starts(shards), lasts=60) == [2]

    sharded(story, "a", "b")


def test_what_was_learned_stays_when_a_shard_is_taken_over_and_given_back(sharded):
    async def story(shards):
        # given a start that was compared in each of two shards
        await shards.start(nodes=1)
        shards.queue("team")
        shards.daemon("a", "b")
        second = shards.daemon("b", "a")
        await shards.world.until(lambda: shards.holders() == {"a": "d-0", "b": "d-1"}, 90)
        for turn in range(2):
            for name in shards.names:
                known_length(shards, f"g{turn}-{name}", name)
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 300)
        await shards.world.clock.sleep(10)

        assert compared_starts(shards) == 2

        # when one daemon is killed, the other has its shard for a while, and it comes back
        second.kill()
        await shards.world.until(lambda: shards.holders() == {"a": "d-0", "b": "d-0"}, 90)
        await shards.world.clock.sleep(30)
        assert compared_starts(shards) == 2
        for name in shards.names:
            shards.gang(
                f"g2-{name}", 1, queue="team", only=name, run_for="150s", expectedDuration="150s"
            )
        await shards.world.until(lambda: len(shards.world.bound()) == 6, 300)
        await shards.world.clock.sleep(10)
        shards.daemon("b", "a", identity="back")
        await shards.world.until(lambda: shards.holders() == {"a": "d-0", "b": "back"}, 90)
        await shards.world.clock.sleep(60)

        # then nothing is lost and nothing counted twice
        assert await seen(shards, lambda: compared_starts(shards), lasts=20) == [4]

    sharded(story, "a", "b", limit_s=3000)


def test_parts_of_what_queues_deserve_freeze_no_queue(sharded):
    async def story(shards):
        # given two teams whose guarantees are what their department deserves, no less
        await shards.start(nodes=4)
        shards.queue("department", deserved={HOSTS: "16"})
        for name in ("one", "two"):
            shards.queue(name, parent="department", guarantee={"resource": {HOSTS: "8"}})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when one asks for much in one shard, and the other for little in the other one
        for number in range(6):
            shards.gang(f"one-{number}", 1, queue="one", only="a")
        shards.gang("two-0", 1, gpus=4, queue="two", only="b")
        await shards.world.until(lambda: shards.world.bound("two-0"), 60)
        await shards.world.clock.sleep(5)
        shards.gang("two-1", 1, gpus=2, queue="two", only="b")

        # then it goes on there, and nothing is said to be wrong with any queue
        await shards.world.until(lambda: shards.world.bound("two-1"), 60)
        await shards.world.clock.sleep(10)
        for name in ("department", "one", "two"):
            assert await seen(shards, lambda name=name: ready(shards, name), lasts=10) == [
                ("True", "the queue takes jobs")
            ]

    sharded(story, "a", "b")


def test_a_guarantee_that_one_shard_alone_could_not_keep_is_kept(sharded):
    async def story(shards):
        # given a guarantee of all GPUs of two shards
        await shards.start(nodes=1)
        shards.queue("team", guarantee={"resource": {HOSTS: "16"}})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when all that it asks for waits in one
        for number in range(3):
            shards.gang(f"g{number}", 1, queue="team", only="a")
        await shards.world.clock.sleep(30)

        # then nobody says that the cluster has less
        assert await seen(shards, lambda: ready(shards, "team"), lasts=20) == [
            ("True", "the queue takes jobs")
        ]

    sharded(story, "a", "b")


def test_a_queue_drains_while_any_shard_has_something_of_it(sharded):
    async def story(shards):
        # given a gang in one shard of a queue that is drained, and may not be evicted at once
        await shards.start(nodes=1)
        shards.queue("team")
        shards.daemon("a")
        shards.daemon("b")
        shards.world.client.create(
            "poddisruptionbudgets.policy",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "stay", "namespace": "default"},
                "spec": {
                    "minAvailable": 1,
                    "selector": {"matchLabels": {"gpusched.io/pod-group": "one"}},
                },
            },
        )
        shards.gang("one", 1, queue="team", only="b")
        await shards.world.until(shards.world.running, 60)
        await shards.world.clock.sleep(10)
        shards.world.client.patch(QUEUES, None, "team", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await shards.world.clock.sleep(5)
        shards.gang("late", 1, queue="team", only="a")
        await shards.world.clock.sleep(15)

        # then it drains, and does not say now that it is closed and now that it is not
        told = await seen(
            shards, lambda: (status(shards)["state"], ready(shards, "team")[1]), lasts=30
        )
        assert told == [("Draining", "the queue is draining")]

    sharded(story, "a", "b")


def test_a_queue_above_its_lowered_limit_is_told_with_what_all_shards_hold(sharded):
    async def story(shards):
        # given a queue that holds 8 GPUs in each of two shards
        await shards.start(nodes=1)
        shards.queue("team", capability=16)
        shards.daemon("a")
        shards.daemon("b")
        for name in shards.names:
            shards.gang(f"in-{name}", 1, queue="team", only=name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)

        # when its capability is lowered to what neither shard alone exceeds
        shards.world.client.patch(QUEUES, None, "team", {"spec": {"capability": {HOSTS: "12"}}})
        await shards.world.clock.sleep(15)

        # then it says what it holds in all of them
        told = await seen(shards, lambda: ready(shards, "team")[1], lasts=20)
        assert len(told) == 1
        assert f"holds 16 {HOSTS}, above its limit of 12" in told[0]

    sharded(story, "a", "b")


def test_a_volcano_queue_shows_the_sum_of_its_shards(sharded):
    async def story(shards):
        # given a Volcano Queue with gangs in two shards
        await shards.start(nodes=1)
        await install(shards.world, VOLCANO_QUEUES)
        make(shards.world, VOLCANO_QUEUES, "team", {"weight": 1})
        shards.daemon("a")
        shards.daemon("b")
        for name in shards.names:
            shards.gang(f"in-{name}", 1, queue="team", only=name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        await shards.world.clock.sleep(15)

        # then its status is the sum, and stays so while things happen in both
        def told():
            found = status(shards, "team", VOLCANO_QUEUES)
            return found.get("allocated", {}).get(HOSTS), found.get("running")

        shards.gang("waits", 1, queue="team")
        assert await seen(shards, told, lasts=30) == [("16", 2)]

    sharded(story, "a", "b")


@pytest.mark.parametrize("case", ["used in both", "daemon away"])
def test_a_budget_is_charged_over_the_turn_of_its_period(sharded, case):
    async def story(shards):
        # given a queue with a budget by the hour that uses GPUs in one shard, or in both
        world = shards.world
        await shards.start(nodes=2)
        shards.queue("team", budget={"gpuHours": "20", "period": "1h", "rolloverPercent": 100})
        first = shards.daemon("a")
        shards.daemon("b")
        await world.clock.sleep(5)
        for name in shards.names[: 1 + (case == "used in both")]:
            shards.gang(f"in-{name}", 1, queue="team", only=name, run_for="30h")
        await world.until(lambda: len(world.bound()) == 1 + (case == "used in both"), 90)
        begun = [
            parse_time(each["lastTransitionTime"])
            for pod in world.bound()
            for each in pod["status"]["conditions"]
            if each["type"] == "PodScheduled"
        ]
        turn = (int(world.clock.now()) // 3600 + 1) * 3600

        # when the period turns, and the daemon that counts may be away just then
        if case == "daemon away":
            await world.clock.sleep(turn - world.clock.now() - 20)
            first.kill()
            await world.clock.sleep(45)
            shards.daemon("a")
        await world.clock.sleep(turn - world.clock.now() + 150)

        # then all of it is charged to the period in which it was used
        record = status(shards)["budget"]
        assert parse_time(record["periodStart"]) == turn
        used = float(record["gpuSeconds"])
        assert used == 8 * len(begun) * (parse_time(record["asOf"]) - turn)
        before = 20 * 3600 - float(record["rolledOverGpuSeconds"])
        assert before == sum(8 * (turn - each) for each in begun)

    sharded(story, "a", "b", epoch=EPOCH + 3600 - 300)  # five minutes before an hour is over


def test_what_ends_while_nobody_holds_the_first_shard_is_charged(sharded):
    async def story(shards):
        # given a queue with a budget whose gang runs in the second shard, and nobody in the first one
        world = shards.world
        await shards.start(nodes=2)
        shards.queue("team", budget={"gpuHours": "20"})
        first = shards.daemon("a")
        shards.daemon("b")
        await world.clock.sleep(5)
        shards.gang("one", 1, queue="team", only="b", run_for="100s")
        await world.until(lambda: world.running("one"), 60)
        await world.clock.sleep(30)
        first.kill()

        # when it ends there, and the daemon of the first shard comes back later
        await world.clock.sleep(150)
        shards.daemon("a")
        await world.clock.sleep(60)

        # then all of it is charged
        assert float(status(shards)["budget"]["gpuSeconds"]) == pytest.approx(8 * 100, abs=8 * 5)

    sharded(story, "a", "b")


def test_what_ends_while_no_daemon_runs_is_charged_whatever_shard_it_was_in(sharded):
    async def story(shards):
        # given a queue whose budget two gangs of two shards use up while all daemons are away
        world = shards.world
        await shards.start(nodes=2)
        shards.queue("team", budget={"gpuHours": "1"})
        daemons = [shards.daemon(name) for name in shards.names]
        await world.clock.sleep(5)
        for name in shards.names:
            shards.gang(f"in-{name}", 1, queue="team", only=name, run_for="300s")
        await world.until(lambda: len(world.bound()) == 2, 60)
        await world.clock.sleep(30)
        for each in daemons:
            each.kill()
        await world.clock.sleep(400)

        # when another comes for one shard, and one for the other after that
        for name in shards.names:
            shards.gang(f"late-{name}", 1, queue="team", only=name)
        shards.daemon("b")
        await world.clock.sleep(60)
        shards.daemon("a")
        await world.clock.sleep(120)

        # then nothing more starts, and the record has what was used by all of them
        assert len(world.bound()) == 2
        used = sum(
            8 * (parse_time(container["state"]["terminated"]["finishedAt"]) - parse_time(each["lastTransitionTime"]))
            for pod in world.bound()
            for container in pod["status"]["containerStatuses"]
            for each in pod["status"]["conditions"]
            if each["type"] == "PodScheduled"
        )  # fmt: skip
        assert used >= 2 * 8 * 300
        assert float(status(shards)["budget"]["gpuSeconds"]) == used

    sharded(story, "a", "b")


def test_gangs_of_a_queue_with_a_budget_start_in_every_shard_until_it_is_used(sharded):
    async def story(shards):
        # given a queue with a budget of which 8 GPUs use 1 in 7.5 minutes
        world = shards.world
        await shards.start(nodes=2)
        shards.queue("team", budget={"gpuHours": "1"})
        shards.daemon("a")
        shards.daemon("b")
        for name in shards.names:
            shards.gang(f"in-{name}", 1, queue="team", only=name)

        # then gangs start in both shards, and use is the sum of both
        await world.until(lambda: len(world.bound()) == 2, 60)
        await world.clock.sleep(120)
        used = float(status(shards)["budget"]["gpuSeconds"])
        assert used == pytest.approx(16 * 120, rel=0.6)

        # when it is used, nothing more starts in any
        await world.clock.sleep(150)
        for name in shards.names:
            shards.gang(f"late-{name}", 1, queue="team", only=name)
        await world.clock.sleep(30)
        assert len(world.bound()) == 2
        for name in shards.names:
            message = world.condition(f"late-{name}")["message"]
            assert "queue team has used 1." in message
            assert "of its budget of 1 GPU-hours; the next period begins" in message

    sharded(story, "a", "b")


def test_a_line_of_a_user_is_one_over_all_shards(sharded):
    async def story(shards):
        # given a user of whom two gangs may stand in line, and a node in each shard of which half is free
        world = shards.world
        await shards.start(nodes=1)
        shards.queue("team", userLimits={"perUser": {"maxPending": 2}})
        shards.daemon("a")
        shards.daemon("b")
        for name in shards.names:
            shards.gang(f"half-{name}", 1, gpus=4, only=name, run_for="60s")
        await world.until(lambda: len(world.bound()) == 2, 60)

        # when one of hers in each waits for the other half, and then small ones come that would fit
        for number, name in enumerate(("a", "b", "a", "b")):
            gpus = 8 if number < 2 else 2
            shards.gang(f"g{number}", 1, gpus=gpus, queue="team", user="ann", only=name)
            await world.clock.sleep(2)
        await world.clock.sleep(15)

        # then these are behind the two that stand in line, though in each shard one stands alone
        assert len(world.bound()) == 2
        for number in (2, 3):
            assert world.condition(f"g{number}")["message"] == (
                f"user ann has {number} gangs waiting in queue team that came before it, and at most 2 stand in line"
            )

        # when the halves are free, the first two start
        await world.until(lambda: len(world.bound()) == 4, 100)
        assert world.bound("g0")
        assert world.bound("g1")

    sharded(story, "a", "b")


def test_what_cannot_be_believed_is_told_once(sharded):
    async def story(shards):
        # given three daemons
        await shards.start(nodes=1)
        shards.daemon("a")
        shards.daemon("b")
        shards.daemon("c")
        await shards.world.until(lambda: len(shards.holders()) == 3)

        # when a queue and a PodGroup come that cannot be believed
        shards.queue("odd-queue", priority=2**62)
        shards.world.group("odd", minMember=1, minResources={HOSTS: "1e30"})
        shards.world.pod("of-odd", labels={"gpusched.io/pod-group": "odd"})
        await shards.world.clock.sleep(20)

        # then both say so, and one daemon has told it
        assert ready(shards, "odd-queue")[0] == "False"
        assert shards.world.condition("odd")["reason"] == "InvalidSpec"
        events = [
            each["involvedObject"]["name"]
            for each in shards.world.client.list("events")
            if each["reason"] == "InvalidSpec" and each["action"] == "Reading"
        ]
        assert sorted(events) == ["odd", "odd-queue"]

    sharded(story, "a", "b", "c")
