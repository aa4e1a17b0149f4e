"""Scenarios 1 to 21: gangs and elastic gangs on the whole daemon."""

from __future__ import annotations

import random

import pytest

ONE = "queue a\n"


def test_s01_a_gang_waits_whole_and_starts_whole(holds):
    """Two of three places are no start; the third starts all three."""
    holds(
        ONE
        + """
        node n1..n2 8g
        gang a a 8g x3 -> 3
        by 20s a = 0
        at 20s node n3 8g
        by 30s a = 3
        """
    )


def test_s01_the_shortfall_is_told(holds):
    """One pod of eight GPUs is missing, and the condition says what is needed."""
    seen = holds(
        ONE
        + """
        node n1..n2 8g
        gang a a 8g x3 -> 0
        reason a: InsufficientResources
        after 20s
        """
    )
    assert any("3 pods" in message for _, message in seen["a"].told), seen["a"].told


def test_s02_of_two_gangs_for_all_nodes_one_runs_whole(holds):
    """100 nodes, two gangs of 100: one runs whole and the other holds nothing."""
    holds(
        ONE
        + """
        node n0..n99 1g
        gang a a 1g x100 -> 0..100
        gang b a 1g x100 -> 0..100
        runs a b = 100
        after 20s
        """
    )


def test_s03_whatever_fits_starts_and_all_end(holds):
    """30 gangs of one to eight pods arrive every 15 s and last 30 s: each of them ends."""
    rng = random.Random(3)
    sizes = [rng.randint(1, 8) for _ in range(30)]
    gangs = "".join(
        f"gang g{n} a 1g x{size} at={1 + 15 * n}s for=30s -> 0\n" for n, size in enumerate(sizes)
    )
    done = f"done {' '.join(f'g{n}' for n in range(30))} = {sum(sizes)}\n"
    holds(ONE + "node n1..n2 8g\n" + gangs + done + "once\nafter 600s\n")


def test_s04_each_role_gets_its_minimum(holds):
    """Of two masters and two workers with one place each, one and one start."""
    holds(
        ONE
        + """
        node m 0g cpu=1000m kind=master ; w 0g cpu=1000m kind=worker
        gang a a 1c x2/master x2/worker min=2 roles=master:1,worker:1 -> 2
        """
    )


def test_s04_a_role_that_lacks_its_minimum_starts_nobody(holds):
    """Two masters are needed and there is one place for a master: no worker starts."""
    holds(
        ONE
        + """
        node m 0g cpu=1000m kind=master
        gang a a 1c x2/master x2/worker min=2 roles=master:2 -> 0
        after 20s
        """
    )


@pytest.mark.parametrize("order", ["x1:4c x2:3c", "x2:3c x1:4c", "x1:3c x1:4c x1:3c"])
def test_s05_pods_of_several_sizes_are_packed_whatever_their_order(holds, order):
    """4c+3c+3c fill nodes of 6c and 4c in the only way there is."""
    holds(
        ONE
        + f"""
        node n1 0g cpu=6000m ; n2 0g cpu=4000m
        gang a a 3c {order} -> 3 @n1*2+n2*1
        """
    )


def test_s06_members_that_shun_each_other_need_a_node_each(holds):
    """Three members with hostname anti-affinity do not start on two nodes."""
    holds(ONE + "node n1..n2 8g\ngang a a 1g x3 apart -> 0\nafter 20s\n")


def test_s06_members_that_shun_each_other_start_on_as_many_nodes(holds):
    """Members of one gang see each other's assumed places."""
    holds(ONE + "node n1..n3 8g\ngang a a 1g x3 apart -> 3 @n1*1+n2*1+n3*1\n")


def test_s08_a_raised_minimum_counts_from_then_on(holds):
    """MinMember goes from 4 to 6 before there is room: the gang starts with 6 or not at all."""
    holds(
        ONE
        + """
        node n1 3g
        gang a a 1g x6 min=4 -> 6
        at 10s min a 6
        at 20s node n2 2g
        by 30s a = 0
        at 30s node n3 1g
        """
    )


def test_s09_a_gated_member_does_not_count(holds):
    """With one of three gated nobody starts and the reason is NotEnoughMembers; then all do."""
    holds(
        ONE
        + """
        node n1 8g
        gang a a 1g x2 ~1 min=3 -> 3
        by 20s a = 0
        at 20s ungate a
        """
    )


def test_s09_the_reason_is_told(holds):
    """A gang that lacks members that may run says so."""
    holds(ONE + "node n1 8g\ngang a a 1g x2 ~1 min=3 -> 0\nreason a: NotEnoughMembers\nafter 20s\n")


def test_s10_pods_without_requests_count_toward_the_minimum(holds):
    """Two pods with GPUs and two that ask for nothing start as four."""
    holds(ONE + "node n1 2g\ngang a a 1g x2 x2:0 min=4 -> 4\n")


def test_s11_an_equal_gang_never_takes_what_runs(holds):
    """A fills the cluster; B of the same size and priority evicts nobody, ever."""
    holds(ONE + "node n1..n2 8g\ngang a a 8g @n1 @n2 -> 2\ngang b a 8g x2 -> 0\nafter 300s\n")


def test_s12_a_lost_member_is_replaced_first(holds):
    """The slot that comes back goes to the gang that lost a pod, not to an equal one."""
    holds(
        ONE
        + """
        node n0..n3 1g
        gang a a 1g @n0 @n1 @n2 @n3 -> 4
        gang b a 1g -> 0
        at 10s lose n3
        at 30s node n4 1g
        after 90s
        """
    )


# -- elastic -------------------------------------------------------------------------------
def test_s15_minima_first_then_in_turn(holds):
    """Two elastic gangs of eight share eight GPUs: four and four."""
    holds(ONE + "node n1 8g\ngang a a 1g x8 min=2 -> 4\ngang b a 1g x8 min=2 -> 4\n")


def test_s16_extras_evict_nobody(holds):
    """A gang of high priority that has its minimum waits for room for the rest."""
    holds(
        ONE
        + """
        node n1 8g
        gang a a 1g @n1*2 x2 min=2 p75 -> 2
        gang low a 1g @n1*6 min=1 -> 6
        """
    )


def test_s17_an_elastic_victim_gives_its_highest_ranks(holds):
    """A of eight ranks gives exactly three, ranks 7, 6 and 5, and runs on."""
    seen = holds(
        ONE
        + """
        node n1 8g
        gang a a 1g @n1*8 min=4 ranked -> 5
        gang b a 1g x3 p75 -> 3
        """
    )
    assert sorted(seen["a"].nodes) == [f"a-{n}" for n in range(5)]


def test_s18_a_role_at_its_minimum_gives_nobody(holds):
    """One worker goes and the parameter server stays."""
    seen = holds(
        ONE
        + """
        node n1 4g
        gang v a 1g @n1/ps @n1*3/worker min=3 roles=ps:1,worker:2 -> 3
        gang p a 1g p75 -> 1
        """
    )
    assert "v-0" in seen["v"].nodes


def test_s19_victims_come_from_one_sub_group(holds):
    """Of two partitions of which one suffices, one goes whole and the other stays whole."""
    seen = holds(
        ONE
        + """
        node n1 4g
        gang v a 1g @n1*2/p0 @n1*2/p1 min=2 sub=p0:2,p1:2 minsub=1 -> 2
        gang p a 1g x2 p75 -> 2
        """
    )
    assert sorted(seen["v"].nodes) in (["v-0", "v-1"], ["v-2", "v-3"])


def test_s21_a_gang_grows_in_its_own_domain_only(holds):
    """Rack r1 is full: the extra pod waits, though r2 is free, and is told why."""
    holds(
        ONE
        + """
        node n0 2g rack=r1 ; n1 2g rack=r2
        levels rack
        gang a a 1g @n0*2 x1 min=2 required=rack -> 2 @n0
        """
    )
