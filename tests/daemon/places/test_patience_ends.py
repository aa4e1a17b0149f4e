"""A gang that holds out for a level it prefers starts when its patience ends, not a cycle later."""

from __future__ import annotations

import pytest

RACK = "gpusched.io/rack"


@pytest.mark.parametrize("seconds", [3, 13])
def test_the_end_of_patience_is_acted_upon_at_once(play, seconds):
    """Nothing changes in the cluster; the gang takes two racks when maxWait is over."""

    async def scenario(world):
        await world.start(nodes=0)
        for rack in range(2):
            world.node(f"n{rack}", **{RACK: f"r{rack}"})
        world.daemon()
        await world.clock.sleep(1.0)
        begun = world.clock.now()
        wish = {"preferred": "rack", "maxWait": f"{seconds}s"}
        world.group("g", minMember=2, topology=wish)
        world.job("g", 2, group="g")
        await world.until(lambda: world.condition("g").get("reason") == "WaitingForTopology")
        await world.until(lambda: len(world.bound("g")) == 2)
        # Objects know when they were made by the second.
        assert seconds - 1 <= world.clock.now() - begun <= seconds + 1

    play(scenario)
