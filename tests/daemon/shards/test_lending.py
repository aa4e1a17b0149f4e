"""A gang that needs more nodes than its shard has gets idle ones of another shard, and gives them back."""

from __future__ import annotations

import random

import pytest

from gpusched.cli.inspect.listing.shard_list import read_shards
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from tests.daemon.shards.conftest import HOSTS, begins_in


@pytest.fixture
def lending(sharded, tmp_path):
    """Run a scenario on a cluster of which these shards lend nodes."""

    def run(scenario, *names, lend=None, **how):
        async def story(shards):
            file = tmp_path / "gpusched.yaml"
            text = file.read_text()
            for name in names if lend is None else lend:
                text = text.replace(f"name: {name},", f"name: {name}, idleNodes: lend,")
            file.write_text(text)
            await scenario(shards)

        return sharded(story, *names, **how)

    return run


def nodes_of(shards, gang):
    """Nodes on which a gang has members, sorted."""
    return sorted(pod["spec"]["nodeName"] for pod in shards.world.bound(gang))


async def read_listing(shards):
    """What ``gpusched get shards`` prints."""
    api = await ApiClient.connect(str(shards.world.kubeconfig), clock=shards.world.clock)
    try:
        return await read_shards(api, LeaderElectionConfig(), shards.world.clock.now())
    finally:
        await api.close()


def told(shards, gang):
    """Why a gang waits."""
    group = next(each for each in shards.world.groups() if each["metadata"]["name"] == gang)
    conditions = group.get("status", {}).get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "Scheduled"), "")


def test_what_is_guaranteed_elsewhere_keeps_no_gang_from_nodes_that_are_lent(lending):
    async def story(shards):
        # given two shards of two nodes, and a queue that asks for nothing of what is guaranteed to it
        await shards.start(nodes=2)
        shards.queue("quiet", guarantee={"resource": {"nvidia.com/gpu": "8"}})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when a gang comes that leaves just as much, but not in one shard
        shards.gang("large", 3)
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 3, 90)

        # then one that would take it waits, and one of the queue gets it
        await shards.world.clock.sleep(5)
        shards.gang("more", 1)
        await shards.world.clock.sleep(40)
        assert not nodes_of(shards, "more")
        shards.gang("own", 1, queue="quiet")
        await shards.world.until(lambda: nodes_of(shards, "own"), 60)

    lending(story, "a", "b")


def test_a_gang_larger_than_every_shard_starts_on_nodes_that_are_lent(lending):
    async def story(shards):
        # given two shards of two nodes, each with a daemon
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when a gang comes that needs three nodes, for a minute
        shards.gang("large", 3, run_for="60s")

        # then it starts, get shards tells of the lent node, and that goes back when the gang has ended
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 3, 90)
        await shards.world.clock.sleep(2)
        remarks = [line[-1] for line in (await read_listing(shards)).lines]
        assert sorted(remarks) == ["", "has a node of another shard"]
        assert len(set(nodes_of(shards, "large"))) == 3
        lent = shards.board()["nodes"]
        assert len(lent) == 1
        assert shards.board()["format"] == 2
        await shards.world.until(lambda: not shards.board()["nodes"], 300)
        assert shards.board()["format"] == 1

        # and the shard that lent it fills both its nodes again
        for number in range(4):
            shards.gang(f"small-{number}", 1)
        await shards.world.until(
            lambda: all(shards.world.bound(f"small-{number}") for number in range(4)), 120
        )
        assert len({nodes_of(shards, f"small-{number}")[0] for number in range(4)}) == 4

    lending(story, "a", "b", limit_s=2000)


def test_a_lent_node_is_used_by_one_shard_alone(lending):
    async def story(shards):
        # given a gang that runs on both nodes of one shard and one of the other
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("large", 3, run_for="120s")
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 3, 90)

        # when more gangs come than there is room for
        small = [f"small-{number}" for number in range(4)]
        for name in small:
            shards.gang(name, 1)
        await shards.world.clock.sleep(60)

        # then one of them runs, until the large one has ended
        assert sum(bool(nodes_of(shards, name)) for name in small) == 1
        await shards.world.until(lambda: all(nodes_of(shards, name) for name in small), 400)

    lending(story, "a", "b", limit_s=2000)


def test_a_gang_confined_to_a_shard_that_lent_nodes_is_not_told_that_it_fits_nowhere(lending):
    async def story(shards):
        # given a gang that runs on a node of another shard, too
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        shards.gang("large", 3, run_for="120s")
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 3, 90)
        ((lent, where),) = shards.board()["nodes"].items()

        # when a gang comes that needs all nodes of that one
        shards.gang("home", 2, only=lent[0])
        said = set()
        while not nodes_of(shards, "home"):
            said.add(told(shards, "home"))
            await shards.world.clock.sleep(1)

        # then it waits for them, and starts when they are free
        assert where != lent[0]
        assert any("in shard" in each for each in said)
        assert not any("no shard has room for it" in each for each in said)

    lending(story, "a", "b", limit_s=2000)


def test_without_lending_it_waits_and_says_so(lending):
    async def story(shards):
        # given shards that keep their idle nodes
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when a gang comes that needs three nodes
        shards.gang("large", 3)
        await shards.world.clock.sleep(120)

        # then it waits
        assert not nodes_of(shards, "large")
        assert "no shard has room for it: gangs do not span shards" in told(shards, "large")
        assert not shards.board()["nodes"]

    lending(story, "a", "b", lend=(), limit_s=2000)


def test_what_is_asked_for_is_told(lending):
    async def story(shards):
        # given shards that lend, and all of whose nodes are taken
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        for number in range(4):
            shards.gang(f"small-{number}", 1)
        await shards.world.until(lambda: len(shards.world.bound()) == 4, 60)

        # when a gang comes that needs three nodes
        shards.gang("large", 3)

        # then it says how many nodes it lacks, and nothing is lent
        await shards.world.until(lambda: "more nodes are asked" in told(shards, "large"), 90)
        assert "3 more nodes are asked of other shards" in told(shards, "large")
        remarks = [line[-1] for line in (await read_listing(shards)).lines]
        assert sorted(remarks) == ["", "asks other shards for 3 nodes more"]
        assert not shards.board()["nodes"]

    lending(story, "a", "b", limit_s=2000)


def test_nodes_that_do_not_suit_are_not_lent(lending):
    async def story(shards):
        # given a shard with GPUs and one without
        await shards.start(nodes=2)
        for number in range(2):
            name = f"b-{number}"
            node = shards.world.client.get("nodes", None, name)
            taints = [{"key": "only", "value": "inference", "effect": "NoSchedule"}]
            shards.world.client.patch(
                "nodes", None, name, {"spec": {**node["spec"], "taints": taints}}
            )
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when a gang comes that needs three nodes and tolerates no taint
        shards.gang("large", 3)
        await shards.world.clock.sleep(120)

        # then nothing is lent
        assert not nodes_of(shards, "large")
        assert not shards.board()["nodes"]

    lending(story, "a", "b", limit_s=2000)


def test_several_shards_lend_together_or_not_at_all(lending):
    async def story(shards):
        # given three shards of two nodes, one node of the third taken
        await shards.start(nodes=2)
        for name in ("a", "b", "c"):
            shards.daemon(name)
        await shards.world.until(lambda: len(shards.holders()) == 3)

        # when a gang comes that needs five nodes
        shards.gang("large", 5, run_for="60s")

        # then two shards lend to the third
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 5, 120)
        assert len(shards.board()["nodes"]) == 3

        # and when it has ended, one of seven nodes gets none of six
        await shards.world.until(lambda: not shards.board()["nodes"], 300)
        shards.gang("larger", 7)
        await shards.world.clock.sleep(120)
        assert not shards.board()["nodes"]

    lending(story, "a", "b", "c", limit_s=3000)


@pytest.mark.parametrize("seed", [1, 53, 54])
def test_daemons_that_die_at_any_write_use_no_node_twice(lending, seed):
    dice = random.Random(seed)

    async def story(shards):
        # given three shards of three nodes, and daemons that care for each other's shards
        await shards.start(nodes=3)
        names = shards.names
        for number in range(3):
            shards.daemon(
                *(names[(number + step) % 3] for step in range(2)),
                kill_at=dice.randint(2, 40),
                answered=dice.random() < 0.5,
            )

        # when small gangs and gangs larger than a shard come and end, daemons die, and others are started
        for number in range(10):
            pods = dice.choice((1, 1, 2, 4, 5))
            shards.gang(f"g{number}", pods, run_for="40s")
            await shards.world.clock.sleep(dice.random() * 8)
        for number in range(3):
            shards.daemon(*(names[(number + step) % 3] for step in range(2)))

        # then every gang has run, at no binding was a node overbooked, and all nodes go back
        await shards.world.until(
            lambda: len(shards.world.running()) == len(shards.world.pods()), 2500
        )
        await shards.world.until(lambda: not shards.board()["nodes"], 300)

    lending(story, "a", "b", "c", limit_s=6000)


def test_a_shard_gets_back_what_it_lent_when_a_gang_waits_for_it(lending):
    async def story(shards):
        # given two shards of two nodes, of which one has lent a node for a gang that has ended since
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        for number in range(2):
            shards.gang(f"busy-{number}", 1, only="b", run_for="10s")
        shards.gang("large", 3, run_for="60s")
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 3, 120)
        (lent,) = shards.board()["nodes"]
        lender = lent.partition("-")[0]
        borrower = shards.board()["nodes"][lent]

        # when small gangs keep the other shard busy, and one comes that needs both nodes of the lender
        shards.gang("home", 2, only=lender, run_for="30s")
        names = (f"small-{number}" for number in range(1000))
        small = [name for name in names if begins_in(name, shards.names) == borrower]
        for number in range(60):
            shards.gang(small[number], 1, run_for="25s")
            await shards.world.clock.sleep(8)
            if nodes_of(shards, "home"):
                break

        # then it starts before they have all run
        assert len(nodes_of(shards, "home")) == 2

    lending(story, "a", "b", limit_s=4000)


def test_an_idle_node_that_was_lent_is_back_at_once_when_a_gang_waits_for_it(lending):
    async def story(shards):
        # given a node that was lent for a gang that has ended
        await shards.start(nodes=2)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        shards.gang("large", 3, run_for="10s")
        await shards.world.until(lambda: len(nodes_of(shards, "large")) == 3, 90)
        await shards.world.until(lambda: shards.used(["default"]) == 0, 60)
        (lent,) = shards.board()["nodes"]

        # when a gang comes that needs both nodes of the lender
        shards.gang("home", 2, only=lent.partition("-")[0])

        # then it starts as soon as the daemons have read that, and not after a minute
        await shards.world.until(lambda: len(nodes_of(shards, "home")) == 2, 8)

    lending(story, "a", "b", limit_s=4000)


def test_nobody_is_evicted_for_a_gang_to_which_nodes_can_be_lent(lending):
    async def story(shards):
        # given two shards of two nodes, of which a queue has one each that is due none
        await shards.start(nodes=2)
        shards.queue("borrows")
        shards.queue("owns", deserved={HOSTS: "32"})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        for pool in ("a", "b"):
            shards.gang(f"runs-{pool}", 1, queue="borrows", only=pool)
        await shards.world.until(lambda: len(shards.world.running()) == 2, 60)
        await shards.world.clock.sleep(3)  # the board has both

        # when a gang comes that needs two nodes, and whose queue is due all
        shards.gang("owner", 2, queue="owns")
        await shards.world.until(lambda: shards.world.condition("owner"), 10)
        told = shards.world.condition("owner")["message"]
        await shards.world.until(lambda: len(nodes_of(shards, "owner")) == 2, 60)

        # then it waits for the idle node of the other shard, and nobody has to go
        assert "waits for nodes of other shards before others are evicted for it" in told
        assert [write.path for write in shards.world.journal if "eviction" in write.path] == []

    lending(story, "a", "b", limit_s=4000)


def test_evictions_wait_no_longer_than_lent_nodes_take(lending):
    async def story(shards):
        # given two shards of two nodes, each with one that is held, and half of the other
        await shards.start(nodes=2)
        shards.queue("borrows")
        shards.queue("owns", deserved={HOSTS: "32"})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)
        for pool in ("a", "b"):
            shards.gang(f"runs-{pool}", 1, queue="borrows", only=pool)
            shards.gang(f"half-{pool}", 1, gpus=2, queue="borrows", only=pool)
        await shards.world.until(lambda: len(shards.world.running()) == 4, 60)
        await shards.world.clock.sleep(3)  # the board has all

        # when a gang comes that would have room if no node were used in part
        shards.gang("owner", 1, queue="owns")

        # then it takes back what its queue is due when no node was lent in time
        await shards.world.until(lambda: len(nodes_of(shards, "owner")) == 1, 90)
        assert [write.path for write in shards.world.journal if "eviction" in write.path] != []

    lending(story, "a", "b", limit_s=4000)
