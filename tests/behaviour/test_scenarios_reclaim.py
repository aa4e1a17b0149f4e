"""Scenarios 46 to 55: reclaim across queues, on the whole daemon."""

from __future__ import annotations

import pytest


def test_s46_the_lender_keeps_what_it_deserves(holds):
    """q2 runs four, deserves two, and keeps two when q1 asks two."""
    holds(
        """
        node n0 0g cpu=4000m
        queue q1 des=2c ; q2 des=2c
        gang v q2 1c @n0*4 min=2 -> 2
        gang p q1 1c x2 -> 2
        """
    )


def test_s46_nothing_goes_for_what_a_guarantee_forbids(holds):
    """q2's guarantee of two leaves two: a gang of four gets nobody evicted."""
    holds(
        """
        node n0 0g cpu=4000m
        queue q1 des=2c ; q2 des=2c guar=2c
        gang v q2 1c @n0*4 min=2 -> 4
        gang p q1 1c x4 -> 0
        """
    )


def test_s47_nobody_over_deserved_nobody_gives(holds):
    """Two queues hold what they deserve of a cluster promised thrice: the third waits."""
    holds(
        """
        node n0 0g cpu=4000m
        queue q1 des=2c ; q2 des=2c ; q3 des=2c
        gang v2 q2 1c @n0*2 min=1 -> 2
        gang v3 q3 1c @n0*2 min=1 -> 2
        gang p q1 1c x2 -> 0
        """
    )


def test_s48_every_level_up_to_the_common_one_must_be_over(holds):
    """The leaf and its parent are over, the grandparent is not: blocked there."""
    holds(
        """
        node n0 0g cpu=2000m
        queue ga des=2c ; pa under=ga des=2c ; qa under=pa des=2c
        queue gb des=3c ; pb under=gb des=1c ; qb under=pb des=1c
        gang v qb 1c @n0*2 min=1 -> 2
        gang p qa 2c -> 0
        """
    )


def test_s49_a_child_inside_its_share_is_safe_under_a_parent_that_is_not(holds):
    """p1 is over by a gang that may not be evicted; c1 is not over its own share."""
    holds(
        """
        node n0 2g
        queue p1 des=1g ; c1 under=p1 des=1g ; c1b under=p1 ; p2 des=1g ; c2 under=p2
        gang safe c1 1g @n0 -> 1
        gang firm c1b 1g hard @n0 -> 1
        gang p c2 1g -> 0
        """
    )


def test_s50_without_a_deserved_share_nothing_is_claimed(holds):
    """Qa deserves nothing and asks beyond its fair share."""
    holds(
        """
        node n0 0g cpu=2000m
        queue p des=4c ; qa under=p ; qb under=p
        gang v qb 1c @n0*2 min=1 -> 2
        gang p qa 2c -> 0
        """
    )


def test_s51_a_leaf_claims_with_its_parents_share(holds):
    """q11 states nothing and uses what q1 deserves."""
    holds(
        """
        node n0 4g
        queue q1 des=1g ; q11 under=q1 ; q2
        gang v q2 1g @n0*4 min=1 -> 3
        gang p q11 1g -> 1
        """
    )


def test_s52_only_the_dimensions_asked_for_count(holds):
    """q1 is over on CPU and memory and under on GPUs: it claims a GPU."""
    holds(
        """
        node n0 4g cpu=8000m mem=16G
        queue q1 des=2g+2c+2G ; q2 des=2g+2c+2G
        gang cpu q1 4c+6G @n0 -> 1
        gang v q2 1g @n0*4 min=1 -> 3
        gang p q1 1g -> 1
        """
    )


def test_s52_only_who_holds_what_is_missing_goes(holds):
    """Memory, CPU and GPU are held by one pod each; a GPU is missing: that pod goes."""
    holds(
        """
        node n0 1g cpu=8000m mem=16G
        queue q1 des=1g+4c ; q2 des=0g+0m+0G
        gang memory q2 4G @n0 -> 1
        gang cpu q2 4c @n0 -> 1
        gang gpu q2 1g @n0 -> 0
        gang p q1 1c+1g -> 1
        """
    )


def test_s53_the_victim_does_not_win_the_room_back(holds):
    """The pod of 4c goes, comes again, evicts nobody and is not bound before the claim."""
    holds(
        """
        node n0 0g cpu=5000m
        queue q1 des=3c ; q2 des=5c
        gang v q1 4c @n0 -> 0
        gang old q2 1c @n0 -> 1
        gang p q2 4c -> 1
        evictions = 1
        after 300s
        """
    )


def test_s54_a_victim_is_not_readmitted_while_the_claim_waits(holds):
    """One victim goes at once, the other a minute later: the first is not let in meanwhile."""
    holds(
        """
        node n0 2g
        queue q1 des=2g ; q2 des=0g
        gang slow q2 1g @n0:slow -> 0
        gang quick q2 1g @n0 -> 0
        gang p q1 2g -> 1
        by 40s quick = 0
        evictions = 2
        after 200s
        """
    )


def test_s55_victims_are_where_the_claim_fits(holds):
    """The claim is pinned to n2: victims are on n2."""
    holds(
        """
        node n1..n2 1g
        queue q1 des=1g ; q2 des=0g
        gang v1 q2 1g @n1 -> 1
        gang v2 q2 1g @n2 -> 0
        gang p q1 1g on=n2 -> 1 @n2
        """
    )


@pytest.mark.parametrize(
    ("queues", "pin"),
    [
        ("queue q1 des=1g ; q2 des=0g", "on=absent"),
        ("queue q1 des=1g stop=Hold ; q2 des=0g", ""),
        ("queue q1 des=1g ; q2 des=0g locked", ""),
    ],
    ids=["absent node", "closed claimant", "locked victim"],
)
def test_s55_nobody_goes_where_it_cannot_help(holds, queues, pin):
    """A node that is absent, a queue that is closed, a queue that gives nothing."""
    holds(
        f"""
        node n1 1g
        {queues}
        gang v q2 1g @n1 -> 1
        gang p q1 1g {pin} -> 0
        """
    )
