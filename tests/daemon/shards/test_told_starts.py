"""Starts that gangs in shards are told are those that their daemons come to: a gang may start in another shard than it waits in."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import parse_time
from gpusched.config.load import load_file
from gpusched.lab.scenario.play.start_plays import play_starts_of
from tests.daemon.shards.conftest import begins_in

FIRST_S = 480
SECOND_S = 2400


def test_a_gang_is_told_the_start_that_it_will_have_in_another_shard(sharded):
    """Given shards full for eight minutes and for forty, then a gang of the second one is told the first end, and starts so."""

    async def story(shards):
        world = shards.world
        await shards.start(nodes=2)
        shards.queue("team")
        config = load_file(shards.config)
        for name in ("a", "b"):
            shards.daemon(
                name, play_starts=lambda: play_starts_of(world.cluster, world.clock, config)
            )
        # given what runs in both, as long as it says
        for name, seconds in (("a", FIRST_S), ("b", SECOND_S)):
            shards.gang(
                f"in-{name}", 2, queue="team", only=name, run_for=f"{seconds}s",
                expectedDuration=f"{seconds}s",
            )  # fmt: skip
            await world.until(lambda name=name: len(world.running(f"in-{name}")) == 2, 120)
        began = world.clock.now()
        # when a gang waits that begins where it would take longest
        waits = next(f"g{n}" for n in range(20) if begins_in(f"g{n}", ("a", "b")) == "b")
        shards.gang(waits, 2, queue="team")
        await world.clock.sleep(120)
        (group,) = [each for each in world.groups() if each["metadata"]["name"] == waits]
        told = parse_time(group["status"]["estimatedStartTime"]) - began
        assert told == pytest.approx(FIRST_S, abs=60)
        # then it starts as it was told
        await world.until(lambda: len(world.running(waits)) == 2, FIRST_S)
        assert world.clock.now() - began == pytest.approx(told, abs=60)
        assert shards.shards_of(waits) == {"a"}

    sharded(story, "a", "b", limit_s=SECOND_S)
