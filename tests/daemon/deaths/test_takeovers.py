"""How long nobody schedules when a leader is killed, over many moments of its life."""

from __future__ import annotations

import random

import pytest

from gpusched.config.model import DEFAULT
from tests.populations import one_of

LEASE_S = DEFAULT.leader_election.lease_duration_s
MORE_S = 2.0
"""Of the takeover beyond the lease: a standby reads it every two seconds, and lists everything."""


@pytest.mark.parametrize("seed", one_of(3, range(12)))
def test_a_killed_leader_is_replaced_within_the_lease_and_two_seconds(play, seed):
    """Killed anywhere between two renewals: the standby's first binding is there in time."""
    draw = random.Random(seed)

    async def scenario(w):
        await w.start(nodes=4)
        w.check_journal = False
        first = w.daemon()
        await w.until(lambda: first.leading)
        second = w.daemon()
        await w.clock.sleep(5 + draw.uniform(0, 4))
        first.kill()
        killed = w.clock.monotonic()
        w.gang("a", 1)
        while not w.bound("a"):
            await w.clock.sleep(0.01)
        took = w.clock.monotonic() - killed
        assert second.leading
        assert LEASE_S - 4 < took <= LEASE_S + MORE_S, took

    play(scenario)
