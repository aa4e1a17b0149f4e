"""Scenarios 56 to 65: topology on the whole daemon."""

from __future__ import annotations

import pytest

EIGHT = (
    "".join(f"node n{n} 0g cpu=8000m t1=s{n // 2} t2=s{4 + n // 4} t3=s6\n" for n in range(8))
    + "levels t3 t2 t1\nqueue q\n"
)
"""Eight nodes of 8c: pairs s0 to s3, fours s4 and s5, all of them s6."""


def test_s56_the_fullest_domain_that_fits(holds):
    """One CPU is used on n2 and n3: two pods of 2c go there, and empty domains stay empty."""
    holds(EIGHT + "gang u q 1c @n2 @n3 min=1 -> 2\ngang a q 2c x2 required=t1 -> 2 @n2,n3\n")


def test_s57_a_domain_is_judged_by_its_nodes(holds):
    """Three pods of 5c do not fit on two nodes of 8c though 15 is less than 16."""
    holds(EIGHT + "gang a q 5c x3 required=t1 -> 0\nafter 20s\n")


def test_s57_a_wider_level_works(holds):
    """The same three fit on four nodes, and stay under one domain."""
    holds(EIGHT + "gang a q 5c x3 required=t2 -> 3\n")


def test_s58_each_partition_in_a_domain_and_all_in_a_wider_one(holds):
    """Two partitions of two need s0 and s1, under s4."""
    holds(
        EIGHT
        + """
        gang u0 q 3c @n0 @n2 min=1 -> 2
        gang u1 q 6c @n4 @n5 @n6 @n7 min=1 -> 4
        gang a q 3c x2/p0 x2/p1 min=4 sub=p0:2,p1:2 subreq=t1 required=t2 -> 4 @n0..n3
        """
    )


def test_s59_partitions_that_fit_nowhere_wait(holds):
    """One pod of 4c fits in each pair, two never do."""
    holds(
        EIGHT
        + """
        gang u0 q 6c @n0 @n2 @n4 @n6 min=1 -> 4
        gang u1 q 2c @n1 @n3 @n5 @n7 min=1 -> 4
        gang a q 4c x2/p0 x2/p1 min=4 sub=p0:2,p1:2 subreq=t1 -> 0
        after 20s
        """
    )


@pytest.mark.parametrize("order", ["x2/x x1/y", "x1/y x2/x"])
def test_s60_sub_groups_are_placed_jointly(holds, order):
    """X needs both nodes of s0, so Y goes to s1, whatever the order."""
    holds(
        f"""
        node a 1g t1=s0 ; b 1g t1=s0 ; c 1g t1=s1
        levels t1
        queue q
        gang a q 1g {order} min=3 sub=x:2,y:1 subreq=t1 -> 3
        """
    )


def test_s61_no_half_sub_group(holds):
    """Of three pairs two are needed and there is room for five: four run."""
    holds(
        """
        node n0 5g
        queue q
        gang a q 1g x2/p0 x2/p1 x2/p2 min=4 sub=p0:2,p1:2,p2:2 minsub=2 -> 4
        """
    )


def test_s62_a_replacement_returns_to_the_old_domain(holds):
    """The other domain is emptier, and the replacement goes to the survivors."""
    holds(
        """
        node n0..n1 2g t1=s0
        node n2..n3 2g t1=s1
        levels t1
        queue q
        gang a q 1g @n0*2 @n1 required=t1 -> 3 @n0,n1
        at 20s kill a 1
        """
    )


def test_s62_a_full_domain_is_waited_for(holds):
    """The survivors' domain is full: the replacement waits."""
    holds(
        """
        node n0 2g t1=s0 ; n1 2g t1=s1
        levels t1
        queue q
        gang a q 1g @n0*2 required=t1 -> 1 evicted 0
        gang b q 1g p75 never on=n0 -> 1
        at 20s kill a 1
        by 25s a = 1
        after 40s
        """
    )


def test_s63_consecutive_ranks_share_a_domain(holds):
    """Ranks 0 to 3 in one rack and 4 to 7 in the other."""
    seen = holds(
        """
        node n0..n3 1g rack=r1
        node n4..n7 1g rack=r2
        levels rack
        queue q
        gang a q 1g x8 ranked -> 8
        """
    )
    racks = [int(seen["a"].nodes[f"a-{rank}"][1:]) // 4 for rank in range(8)]
    assert racks in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


def test_s64_preemption_keeps_the_required_topology(holds):
    """Rack A has a free node and one victim, rack B two victims: one goes, in A."""
    holds(
        """
        node a0..a1 8g rack=A
        node b0..b1 8g rack=B
        levels rack
        queue q
        gang va q 8g @a1 -> 0
        gang vb0 q 8g @b0 -> 1
        gang vb1 q 8g @b1 -> 1
        gang high q 8g x2 p75 required=rack -> 2 @a0*1+a1*1
        """
    )


RACKS = """
node a0..a3 1g rack=A
node b0..b3 1g rack=B
levels rack
queue q
gang ua q 1g @a0 {a}-> {left}
gang ub q 1g @b0 -> 1
gang job q 1g x4 preferred=rack maxwait=300s -> 4{where}
"""


def test_s65_a_preferred_domain_is_waited_for(holds):
    """Three and three are free; at 200 s one rack has four free: the job starts there."""
    holds(
        RACKS.format(a="for=200s ", left=0, where=" @a0..a3")
        + "by 150s job = 0\nonce\nafter 260s\n"
    )


def test_s65_after_the_time_it_starts_across(holds):
    """No rack gets four free: after 300 s the job starts across racks."""
    holds(RACKS.format(a="", left=1, where="") + "by 280s job = 0\nafter 340s\n")
