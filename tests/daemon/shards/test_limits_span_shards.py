"""Limits of users and of node pools span shards as capabilities do: no shard alone keeps them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.populations import one_of


def users_of_gangs(shards):
    return {
        group["metadata"]["name"]: (group["metadata"].get("annotations") or {}).get(
            "gpusched.io/user", ""
        )
        for group in shards.world.groups()
    }


def holding(shards):
    """Pods that hold GPUs now: their gang, how many, and the node."""
    return [
        (
            pod["metadata"]["labels"]["gpusched.io/pod-group"],
            int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]),
            pod["spec"]["nodeName"],
        )
        for pod in shards.world.bound()
        if pod["status"].get("phase") not in {"Succeeded", "Failed"}
    ]


def watch_users(shards, *, gpus, gangs=10**6):
    """Note at every binding what a user has above a limit."""

    def watch():
        users, held, running = users_of_gangs(shards), {}, {}
        for gang, amount, _ in holding(shards):
            held[users[gang]] = held.get(users[gang], 0) + amount
            running.setdefault(users[gang], set()).add(gang)
        yield from (f"{user} holds {much} of {gpus}" for user, much in held.items() if much > gpus)
        for user, those in running.items():
            if len(those) > gangs:
                yield f"{user} runs {len(those)} of {gangs}"

    shards.watched.append(watch)


def in_pool(shards, pool="h100"):
    """GPUs that are held on the nodes with a label."""
    nodes = {
        node["metadata"]["name"]
        for node in shards.world.client.list("nodes")
        if node["metadata"]["labels"].get("gpu") == pool
    }
    return sum(amount for _, amount, node in holding(shards) if node in nodes)


def watch_pool(shards, most):
    """Note at every binding what is held in a node pool above a capability."""

    def watch():
        if (held := in_pool(shards)) > most:
            yield f"the pool has {held} of {most}"

    shards.watched.append(watch)


def h100(gpus):
    """A node pool with a capability."""
    return [
        {
            "name": "h100",
            "nodeSelector": {"gpu": "h100"},
            "capability": {"nvidia.com/gpu": str(gpus)},
        }
    ]


def test_gangs_of_a_user_with_a_limit_start_in_every_shard_and_stay_within_it(sharded):
    async def story(shards):
        # given two shards of two nodes, and a queue that gives each user three of these
        await shards.start(nodes=2)
        watch_users(shards, gpus=24)
        shards.queue("team", userLimits={"perUser": {"resources": {"nvidia.com/gpu": "24"}}})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when a user's gangs come that may be anywhere
        for number in range(6):
            shards.gang(f"g{number}", 1, queue="team", user="ann")

        # then three of them run, not all of them in one shard, and the others wait for the user's limit
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 90)
        await shards.world.clock.sleep(30)
        assert len(shards.world.bound()) == 3
        assert len({pod["spec"]["nodeName"][0] for pod in shards.world.bound()}) == 2
        assert shards.exceeded == []
        told = [
            shards.world.condition(f"g{number}")["message"]
            for number in range(6)
            if not shards.world.bound(f"g{number}")
        ]
        assert all("user ann holds 24 of at most 24 in queue team" in each for each in told), told

    sharded(story, "a", "b")


def test_gangs_that_a_user_may_run_are_counted_over_all_shards(sharded):
    async def story(shards):
        # given room for eight gangs in two shards, and a queue in which each user runs two at a time
        await shards.start(nodes=4)
        watch_users(shards, gpus=10**6, gangs=2)
        shards.queue("team", userLimits={"perUser": {"maxRunning": 2}})
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when two users submit more
        for number in range(5):
            for user in ("ann", "bob"):
                shards.gang(f"{user}-{number}", 1, queue="team", user=user, run_for="15s")

        # then all have run in the end, two of each user at a time
        await shards.world.until(lambda: len(shards.world.running()) == 10, 300)
        assert shards.exceeded == []

    sharded(story, "a", "b", limit_s=2000)


def test_a_capability_in_a_node_pool_is_shared_by_the_shards_that_have_its_nodes(sharded):
    async def story(shards):
        # given two shards with two H100 nodes each, of which a queue may use three
        await shards.start(nodes=2)
        for name in shards.names:
            for number in range(2):
                shards.world.node(f"{name}-{number + 2}", 8, pool=name, gpu="h100")
        shards.queue(
            "team",
            nodePools=h100(24),
        )
        watch_pool(shards, 24)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when gangs come that want such nodes, and others that take any
        for number in range(5):
            shards.gang(f"h{number}", 1, queue="team", where={"gpu": "h100"})
        await shards.world.until(lambda: in_pool(shards) == 24, 90)
        for number in range(6):
            shards.gang(f"any{number}", 1, queue="team")

        # then three are on these nodes, in both shards, and four of the others on the nodes of no pool
        await shards.world.until(lambda: len(shards.world.bound()) == 7, 120)
        await shards.world.clock.sleep(30)
        assert in_pool(shards) == 24
        assert len(shards.world.bound()) == 7
        pooled = [pod["spec"]["nodeName"] for pod in shards.world.bound()]
        assert {name[0] for name in pooled if int(name[2:]) >= 2} == {"a", "b"}
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_gangs_that_may_be_in_a_pool_ask_for_it_where_other_nodes_are_full(sharded):
    async def story(shards):
        # given shards of one plain node and one H100 node each, of which a queue may use one
        await shards.start(nodes=1)
        for name in shards.names:
            shards.world.node(f"{name}-1", 8, pool=name, gpu="h100")
        shards.queue(
            "team",
            nodePools=h100(8),
        )
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when more gangs come than there are plain nodes
        for number in range(4):
            shards.gang(f"g{number}", 1, queue="team")

        # then both plain nodes are used, and one of the pool
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 120)
        await shards.world.clock.sleep(30)
        assert in_pool(shards) == 8
        assert len(shards.world.bound()) == 3

    sharded(story, "a", "b")


def test_a_gang_that_waits_for_its_users_limit_keeps_no_capability_from_others(sharded):
    async def story(shards):
        # given a queue of 16 GPUs in which each user has 8, and a user who has used hers
        await shards.start(nodes=3)
        shards.queue(
            "team", capability=16, userLimits={"perUser": {"resources": {"nvidia.com/gpu": "8"}}}
        )
        shards.cap("team", 16)
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("ann-1", 1, queue="team", user="ann", only="a")
        await shards.world.until(lambda: shards.world.bound("ann-1"), 60)
        shards.gang("ann-2", 1, queue="team", user="ann", only="a")
        await shards.world.clock.sleep(10)

        # when a gang of another user comes in the other shard
        shards.gang("bob-1", 1, queue="team", user="bob", only="b")

        # then it starts, though one that waits for her limit is older
        await shards.world.until(lambda: shards.world.bound("bob-1"), 30)
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_a_full_queue_keeps_nothing_of_the_queue_above_from_others(sharded):
    async def story(shards):
        # given a department of 16 GPUs with a team that may have 8, and has them
        await shards.start(nodes=3)
        shards.queue("department", capability=16)
        shards.queue("one", capability=8, parent="department")
        shards.queue("two", parent="department")
        shards.cap("department", 16, "one", "two")
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("one-1", 1, queue="one", only="a")
        await shards.world.until(lambda: shards.world.bound("one-1"), 60)
        shards.gang("one-2", 1, queue="one", only="a")
        await shards.world.clock.sleep(10)

        # when a gang of the other team comes in another shard
        shards.gang("two-1", 1, queue="two", only="b")

        # then it gets the other half of the department
        await shards.world.until(lambda: shards.world.bound("two-1"), 30)
        assert shards.exceeded == []

    sharded(story, "a", "b")


@pytest.mark.parametrize("seed", one_of(2, range(3)))
def test_daemons_that_die_at_any_write_exceed_no_limit_of_users_or_pools(sharded, seed):
    dice = random.Random(seed)

    async def story(shards):
        # given three shards, limits of users and of a node pool, and daemons that care for each other's shards
        await shards.start(nodes=2)
        for name in shards.names:
            shards.world.node(f"{name}-2", 8, pool=name, gpu="h100")
        watch_users(shards, gpus=20, gangs=3)
        shards.queue(
            "team",
            userLimits={"perUser": {"resources": {"nvidia.com/gpu": "20"}, "maxRunning": 3}},
            nodePools=h100(12),
        )
        watch_pool(shards, 12)
        names = shards.names
        for number in range(3):
            shards.daemon(
                *(names[(number + step) % 3] for step in range(2)),
                kill_at=dice.randint(2, 25),
                answered=dice.random() < 0.5,
            )

        # when gangs come and end, daemons die, and others are started
        for number in range(16):
            shards.gang(
                f"g{number}", dice.choice((1, 1, 2)), gpus=dice.choice((4, 8)), queue="team",
                user=dice.choice(("ann", "bob", "")), run_for="40s",
                where=dice.choice(({}, {}, {"gpu": "h100"})),
            )  # fmt: skip
            await shards.world.clock.sleep(dice.random() * 4)
        for number in range(3):
            shards.daemon(*(names[(number + step) % 3] for step in range(2)))

        # then every gang that fits has run, and no limit was exceeded at any binding
        fits = [
            group["metadata"]["name"]
            for group in shards.world.groups()
            if fits_limits(shards, group["metadata"]["name"])
        ]
        await shards.world.until(
            lambda: all(
                len(shards.world.running(name)) == len(shards.world.pods(name)) for name in fits
            ),
            1500,
        )
        assert len(fits) > 10
        assert shards.exceeded == []

    sharded(story, "a", "b", "c", limit_s=4000)


def fits_limits(shards, name):
    """Whether a gang is within the capability of the pool that it is confined to."""
    pods = shards.world.pods(name)
    asked = sum(
        int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for pod in pods
    )
    return asked <= 12 or "gpu" not in pods[0]["spec"].get("nodeSelector", {})


def lasting(shards):
    """GPUs that are held by gangs that are not preemptible."""
    fixed = {
        group["metadata"]["name"]
        for group in shards.world.groups()
        if group["spec"].get("preemptible") is False
    }
    return sum(amount for gang, amount, _ in holding(shards) if gang in fixed)


@pytest.mark.parametrize("parent", ["root", "dept"])
def test_what_is_not_preemptible_stays_within_what_its_queue_deserves_over_all_shards(
    sharded, parent
):
    async def story(shards):
        # given two shards of four nodes, and a queue that deserves two of them, or is below one that does
        await shards.start(nodes=4)
        shards.watched.append(lambda: ["too much"] if lasting(shards) > 16 else [])
        deserved = {"deserved": {"nvidia.com/gpu": "16"}}
        if parent == "dept":
            shards.queue("dept", **deserved)
        shards.queue("team", parent=parent, capability=48, **({} if parent == "dept" else deserved))
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: len(shards.holders()) == 2)

        # when gangs that are not preemptible use all of it in the first, and others come in the second
        for number, run_for in enumerate(("150s", "10h")):
            shards.gang(f"a{number}", 1, queue="team", only="a", preemptible=False, run_for=run_for)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)
        for number in range(3):
            shards.gang(f"b{number}", 1, queue="team", only="b", preemptible=False)
            shards.gang(f"loan-{number}", 1, queue="team", only="b")
        await shards.world.clock.sleep(30)

        # then these wait, and what may be taken back borrows
        assert not [group for group in ("b0", "b1", "b2") if shards.world.bound(group)]
        assert len(shards.world.bound()) == 5
        assert shards.exceeded == []
        assert shards.world.condition("b0")["message"].startswith(
            "is not preemptible and needs 8 nvidia.com/gpu; queue "
            f"{'team' if parent == 'root' else 'dept'} deserves 16, of which 16 are held by others that are "
            "not preemptible"
        )

        # and one that can never start is told so
        shards.gang("never", 3, queue="team", only="b", preemptible=False)
        await shards.world.clock.sleep(20)
        assert (
            "and only what is preemptible may borrow" in shards.world.condition("never")["message"]
        )

        # when one in the first shard ends, one starts in the second
        await shards.world.until(lambda: lasting(shards) == 8, 150)
        await shards.world.until(lambda: shards.world.bound("b0"), 20)
        await shards.world.clock.sleep(20)
        assert lasting(shards) == 16
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_gangs_that_are_not_preemptible_borrow_where_the_configuration_lets_them(sharded):
    def lets_borrow(shards):
        quota = "tiers:\n- plugins:\n  - {name: quota, arguments: {nonPreemptibleWithinDeserved: false}}\n"
        config = Path(shards.config)
        config.write_text(config.read_text(encoding="utf-8") + quota, encoding="utf-8")

    async def story(shards):
        # given a configuration without that bound
        lets_borrow(shards)
        await shards.start(nodes=2)
        shards.queue("team", capability=24, deserved={"nvidia.com/gpu": "8"})
        shards.daemon("a")
        shards.daemon("b")

        # then the capability alone is kept
        for number in range(4):
            shards.gang(f"g{number}", 1, queue="team", preemptible=False)
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 90)
        await shards.world.clock.sleep(20)
        assert len(shards.world.bound()) == 3

    sharded(story, "a", "b")
