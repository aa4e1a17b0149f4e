"""Scenarios 66 to 71: backfill, consolidation and the life of gangs, on the whole daemon."""

from __future__ import annotations

import pytest

FOUR = """
node n0..n3 8g
queue q
gang r q 8g hard @n0 @n1 @n2 min=1 walltime=100s for=110s -> 0
gang h q 8g x4 p60 -> 4
once
by 135s h = 4
after 140s
"""


def test_s66_what_ends_in_time_is_filled_in(holds):
    """S ends before H can start: it runs at once, and H starts when R ends."""
    holds(FOUR + "gang s q 8g walltime=60s for=60s -> 0\nby 15s s = 1\ndone s = 1\n")


@pytest.mark.parametrize("walltime", ["walltime=200s", ""])
def test_s66_what_would_delay_the_reservation_waits(holds, walltime):
    """A longer job, or one of unknown length, of equal standing does not start before H."""
    holds(FOUR + f"gang s q 8g p60 hard {walltime} -> 0\nby 90s s = 0\n")


def test_s66_what_may_be_evicted_is_lent_the_room(holds):
    """A lower gang that may be evicted runs until H is due, and is evicted then."""
    holds(FOUR + "gang s q 8g p40 walltime=500s -> 0 evicted 1\nby 30s s = 1\n")


def test_s67_from_its_maximum_wait_on_room_is_held(holds):
    """Endless small jobs fill four nodes; after its 200 s the nodes are held for H."""
    small = "".join(f"gang j{n} q 8g at={1 + 25 * n}s for=120s -> 0..1\n" for n in range(20))
    holds(
        "node n0..n3 8g\nqueue q maxwait=200s\ngang h q 8g x4 at=130s -> 4\n"
        + small
        + "by 300s h = 0\nonce\nafter 540s\n"
    )


def test_s69_a_stale_gang_is_stopped_as_a_whole(holds):
    """Three of four without a place for the fourth: after the repair time none run."""
    holds(
        """
        node n0..n3 1g
        queue q
        gang a q 1g @n0 @n1 @n2 @n3 -> 0 evicted 3
        at 10s lose n3
        by 60s a = 3
        by 80s a = 0
        after 150s
        """
    )


def test_s69_a_replacement_in_time_saves_the_gang(holds):
    """The slot comes back in time: nobody is evicted."""
    holds(
        """
        node n0..n3 1g
        queue q
        gang a q 1g @n0 @n1 @n2 @n3 -> 4
        at 10s lose n3
        at 50s node n4 1g
        after 300s
        """
    )


def test_s69_a_restart_does_not_reset_the_clock(holds):
    """The daemon restarts half-way: the gang is stopped at the time it would have been."""
    holds(
        """
        node n0..n3 1g
        queue q
        gang a q 1g @n0 @n1 @n2 @n3 -> 0 evicted 3
        at 10s lose n3
        at 40s restart
        by 60s a = 3
        by 85s a = 0
        after 150s
        """
    )


MOVABLE = """
node n0 8g ; n1 8g
queue q
gang a0 q 1g @n0 -> 1 evicted 0..1
gang a1 q 1g @n0 -> 1 evicted 0..1
gang a2 q 1g @n0*2 -> 2 evicted 0..2
gang b0 q 1g @n1*4 {keep} -> 4 evicted 0..4
gang big q 8g -> {big}
moves
"""


def test_s68_small_gangs_move_to_one_node(holds):
    """Four pods move to one node, the job runs on the other, and nobody is lost."""
    holds(MOVABLE.format(keep="", big=1) + "evictions a0 a1 a2 b0 = 4\n")


def test_s68_a_disruption_budget_keeps_them(holds):
    """With budgets that let nobody go there is no move."""
    text = MOVABLE.format(keep="keep=4", big=0)
    text = text.replace("1g @n0 ->", "1g @n0 keep=1 ->").replace("@n0*2 ->", "@n0*2 keep=2 ->")
    holds(text + "evictions a0 a1 a2 b0 = 0\n")
