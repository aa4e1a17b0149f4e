"""What a snapshot would count at once is counted before it in parts, so that the event loop goes on in between."""

from __future__ import annotations

import asyncio
import random

import pytest

from gpusched.base import limits
from gpusched.cache.gangs.gang_builder import GangBuilder
from gpusched.io.cycle.snapshot_taker import count_ahead
from gpusched.testing.given import Given


def contents(snapshot):
    """What a snapshot shows, as values."""
    return (
        [
            (str(gang.key), gang.queue, gang.allocated, gang.active, gang.pending_requests)
            for gang in snapshot.gangs
        ],
        {str(key): gang.allocated for key, gang in snapshot.placed_gangs.items()},
        [node.name for node in snapshot.nodes.nodes],
        snapshot.nodes.used.tolist(),
        snapshot.nodes.foreign.tolist(),
        snapshot.nodes.free_slots,
        dict(snapshot.running_gangs),
        {name: node.allocated for name, node in snapshot.queues.queues.items()},
    )


def change(cluster, rng, number):
    """Something that a watch could tell."""
    match rng.randrange(5):
        case 0:
            cluster.node(f"more-{number}", gpus=4)
        case 1:
            cluster.gone(f"runs-{rng.randrange(40)}")
        case 2:
            cluster.pod(f"waits-{number}", gpus=1)
        case 3:
            cluster.pod(f"others-{number}", gpus=1, node=f"node-{rng.randrange(10)}", scheduler="x")
        case _:
            cluster.node(f"node-{rng.randrange(10)}", gpus=4, labels={"seen": str(number)})


def filled():
    cluster = Given().nodes(10, gpus=4)
    for number in range(40):
        cluster.pod(
            f"runs-{number}",
            gpus=1,
            node=f"node-{number % 10}",
            slots=1 << (number // 10),
            plan="p",
        )
    return cluster


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_shows_the_same_whether_or_not_it_was_counted_ahead(seed, monkeypatch):
    # given the same cluster twice, of which one is counted ahead in small parts
    monkeypatch.setattr(limits, "PODS_COUNTED_AT_ONCE", 3)
    monkeypatch.setattr(limits, "NODES_SUMMED_AT_ONCE", 2)
    ahead, plain = filled(), filled()
    rng, same = random.Random(seed), random.Random(seed)
    for look in range(6):
        # when things change before each part and after it
        parts = 0
        cache = ahead.cache
        for counting in (
            cache.rows.sum_ahead(cache.ledger),
            cache.families.count_ahead(1e9 + look),
        ):
            for _ in counting:
                parts += 1
                change(ahead, rng, f"{look}-{parts}")
                change(plain, same, f"{look}-{parts}")

        # then both show the same
        assert parts or look
        shown = [each.cache.take_snapshot(1e9 + look) for each in (ahead, plain)]
        assert contents(shown[0]) == contents(shown[1])
        for number in range(8):
            change(ahead, rng, f"{look}-{number}-later")
            change(plain, same, f"{look}-{number}-later")


def test_the_loop_goes_on_while_a_large_cluster_is_counted(monkeypatch):
    # given a leader that has just read more pods than are counted at once
    monkeypatch.setattr(limits, "PODS_COUNTED_AT_ONCE", 5)
    cluster = filled()
    counted = []
    build = GangBuilder.build_gangs
    monkeypatch.setattr(
        GangBuilder,
        "build_gangs",
        lambda self, *about: counted.append("gang") or build(self, *about),
    )

    async def renew():
        while True:
            counted.append("turn")
            await asyncio.sleep(0)

    async def story():
        others = asyncio.create_task(renew())
        await asyncio.sleep(0)
        await count_ahead(cluster.cache, 1e9)
        others.cancel()

    # when they are counted, then others have their turn after every five
    asyncio.run(story())
    between = "".join("g" if each == "gang" else " " for each in counted).split()
    assert max(map(len, between)) <= 5

    # and the snapshot counts none of them again
    once = counted.count("gang")
    cluster.cache.take_snapshot(1e9)
    assert counted.count("gang") == 40
    assert 40 - once < 5


def test_what_cannot_be_counted_ahead_is_left_to_the_snapshot(monkeypatch):
    # given a node whose sums raise
    monkeypatch.setattr(limits, "NODES_SUMMED_AT_ONCE", 2)
    cluster = filled()

    def broken(*_args):
        raise ZeroDivisionError("of a test")

    monkeypatch.setattr(cluster.cache.ledger, "sum_ahead", broken)

    # when it is counted ahead, then nothing is lost
    asyncio.run(count_ahead(cluster.cache, 1e9))
    assert contents(cluster.cache.take_snapshot(1e9)) == contents(filled().cache.take_snapshot(1e9))
