"""Scenarios 22 to 35: queues on the whole daemon."""

from __future__ import annotations

import pytest


def test_s22_fair_shares_from_deserved_and_weights(holds):
    """16 GPUs: a deserves 4 of weight 1, b 4 of weight 3, c asks 2: they get 6, 8 and 2."""
    holds(
        """
        node n0..n1 8g
        queue a des=4g w=1 ; b des=4g w=3 ; c des=4g w=1
        gang ga a 1g x16 min=1 -> 6
        gang gb b 1g x16 min=1 -> 8
        gang gc c 1g x2 min=1 -> 2
        """
    )


def test_s23_fair_shares_from_weights_alone(holds):
    """12 GPUs, weights 1, 2 and 3, c asks 2: they get 3, 7 and 2."""
    holds(
        """
        node n0 12g
        queue a w=1 ; b w=2 ; c w=3
        gang ga a 1g x12 min=1 -> 3
        gang gb b 1g x12 min=1 -> 7
        gang gc c 1g x2 min=1 -> 2
        """
    )


def test_s25_a_queue_within_its_deserved_share_gives_nothing(holds):
    """Six and six are deserved of eight: who runs six keeps them."""
    holds(
        """
        node n0 8g
        queue a des=6g ; b des=6g
        gang ga a 1g @n0*6 min=1 -> 6
        gang gb b 1g @n0*2 min=1 -> 2
        gang more b 1g -> 0
        """
    )


def test_s26_a_guarantee_is_kept_free(holds):
    """The whole cluster is guaranteed to q1, which is idle: q2's gang waits."""
    holds(
        """
        node n0 8g
        queue q1 guar=8g des=8g ; q2
        gang g q2 1g -> 0
        after 20s
        """
    )


def test_s27_only_requested_dimensions_are_checked(holds):
    """The queue is over its memory; a gang that asks for CPU alone is admitted."""
    holds(
        """
        node n0 0g cpu=8000m mem=16G
        queue q des=2c+2G cap=2c+2G
        gang old q 1c+3G @n0 -> 1
        gang new q 1c -> 1
        """
    )


def test_s28_the_parent_that_blocks_is_named(holds):
    """Two leaves without a cap under a parent of 2c: the second gang waits for the parent."""
    seen = holds(
        """
        node n0 0g cpu=16000m mem=64G
        queue team cap=2c+4Gi ; a under=team ; b under=team
        gang ga a 2c+4Gi -> 1
        gang gb b 2c+4Gi -> 0
        after 20s
        """
    )
    assert any("team" in message for _, message in seen["gb"].told), seen["gb"].told


def test_s29_a_gang_in_the_wrong_queue_is_alone_with_it(holds):
    """A gang in a parent queue and one in none are refused with reason; others go on."""
    holds(
        """
        node n0 8g
        queue team ; leaf under=team ; other
        gang lost team 1g -> 0
        gang stray nowhere 1g -> 0
        gang good other 1g -> 1
        reason lost: QueueNotLeaf
        reason stray: QueueNotFound
        after 20s
        """
    )


def test_s30_what_is_bound_is_charged_once(holds):
    """Three of four CPUs are being bound: a gang of one more is admitted."""
    holds(
        """
        node n0 0g cpu=8000m
        queue q cap=4c
        gang a q 1c x3 -> 3
        gang b q 1c -> 1
        """
    )


def test_s30_who_is_refused_charges_nothing(holds):
    """A is beyond the cap and holds no quota: B gets it."""
    holds(
        """
        node n0 0g cpu=8000m
        queue q cap=1c
        gang a q 2c -> 0
        gang b q 1c -> 1
        """
    )


def test_s31_a_full_pool_holds_up_no_other_pool(holds):
    """50 low gangs wait for pool x; one for pool y starts."""
    low = "".join(f"gang low{n} q 1g pool=x -> 0\n" for n in range(50))
    holds(
        "node x0 1g pool=x ; y0 1g pool=y\nqueue q\ngang runs q 1g p75 @x0 pool=x -> 1\n"
        + low
        + "gang high q 1g p75 pool=y -> 1 @y0\nafter 20s\n"
    )


def test_s32_a_blocked_queue_blocks_no_other_queue(holds):
    """The head of q1 does not fit; q2 binds."""
    holds(
        """
        node n0 0g cpu=2000m
        queue q1 ; q2
        gang big q1 3c -> 0
        gang small q2 1c -> 1
        """
    )


_BEHIND = """
node n0 0g cpu=2000m
queue q ordering={ordering}
gang big q 3c -> 0
gang small q 1c -> {runs}
"""


@pytest.mark.parametrize("ordering", ["Fifo", "Priority"])
def test_s32_behind_what_does_not_fit_the_others_go_on(holds, ordering):
    """The head of a queue does not fit: the next one starts."""
    holds(_BEHIND.format(ordering=ordering, runs=1))


def test_s32_strict_fifo_waits_for_its_head(holds):
    """The head of a queue does not fit: nobody overtakes it."""
    holds(_BEHIND.format(ordering="StrictFifo", runs=0))


def test_s33_the_queue_with_less_is_first(holds):
    """q1 holds one CPU: of 2c in q1 and 3c in q2, for which there is room once, q2 starts."""
    holds(
        """
        node n0 0g cpu=5000m
        queue q1 w=1 ; q2 w=1
        gang old q1 1c @n0 -> 1
        gang g1 q1 2c -> 0
        gang g2 q2 3c -> 1
        """
    )


def test_s34_dominant_shares_down_a_hierarchy(holds):
    """Sci and eng halve the cluster, dev and prod halve eng: five pods each."""
    holds(
        """
        node n0 0g cpu=10000m mem=10G
        queue sci w=50 ; eng w=50 ; dev under=eng w=50 ; prod under=eng w=50
        gang s sci 1c+1G x10 min=1 -> 5
        gang d dev 1c x10 min=1 -> 5
        gang p prod 1G x10 min=1 -> 5
        """
    )


def test_s35_a_held_parent_holds_its_children(holds):
    """Nothing new starts under a held parent, what runs goes on, and reopening ends it."""
    holds(
        """
        node n0 8g
        queue team ; a under=team ; b under=team stop=Hold
        gang old a 1g @n0 -> 1
        at 5s queue team stop=Hold
        gang new a 1g at=10s -> 1
        gang closed b 1g at=10s -> 0
        by 30s new = 0
        at 30s queue team stop=None
        """
    )


def test_s35_hold_and_drain_frees_what_runs(holds):
    """What runs in a drained queue is evicted, once, and its quota is free."""
    holds(
        """
        node n0 1g
        queue a ; b
        gang old a 1g @n0 -> 0
        gang new b 1g -> 1
        at 5s queue a stop=HoldAndDrain
        """
    )
