"""Scenarios 36 to 45: preemption inside one queue, on the whole daemon."""

from __future__ import annotations

ONE = "queue a\n"


def test_s36_the_own_queue_gives_and_the_other_is_untouched(holds):
    """High gets the half of its queue, low loses it, and q2 keeps its half."""
    holds(
        """
        node n0 8g
        queue q1 des=4g ; q2 des=4g
        gang low q1 1g @n0*4 min=1 -> 0
        gang other q2 1g @n0*4 min=1 -> 4
        gang high q1 1g x8 min=4 p75 -> 4
        """
    )


def test_s37_equals_keep_what_they_have(holds):
    """A gang of equal priority evicts nobody."""
    holds(ONE + "node n0 4g\ngang v a 1g @n0*4 -> 4\ngang p a 1g x4 -> 0\n")


def test_s37_nobody_goes_when_it_does_not_suffice(holds):
    """High and low hold two each; a medium gang of four could get two: nobody goes."""
    holds(
        ONE
        + """
        node n0 4g
        gang a a 1g @n0*2 p90 -> 2
        gang b a 1g @n0*2 p40 -> 2
        gang c a 1g x4 p60 -> 0
        """
    )


def test_s38_surplus_members_go_before_gangs_break(holds):
    """Two gangs of two with a minimum of one give one pod each."""
    holds(
        ONE
        + """
        node n0 4g
        gang a a 1g @n0*2 min=1 -> 1
        gang b a 1g @n0*2 min=1 -> 1
        gang c a 1g x2 p75 -> 2
        """
    )


def test_s38_exactly_one_gang_goes_whole(holds):
    """Two gangs of two with a minimum of two: one goes, the other is intact."""
    holds(
        ONE
        + """
        node n0 4g
        gang a a 1g @n0*2 -> 0..2
        gang b a 1g @n0*2 -> 0..2
        gang c a 1g x2 p75 -> 2
        evictions a b = 2
        runs a b = 2
        """
    )


def test_s39_free_nodes_are_used_beside_victims(holds):
    """A free node and one eviction place a gang of two."""
    holds(
        ONE
        + """
        node n0..n1 1g
        gang low a 1g @n1 -> 0
        gang high a 1g x2 p75 -> 2 @n0*1+n1*1
        """
    )


def test_s40_victims_that_free_no_whole_node_stay(holds):
    """Each node has six high and two low pods: a pod of eight GPUs evicts none of them."""
    nodes = "".join(
        f"gang h{n} a 1g @n{n}*6 p90 min=1 -> 6\ngang l{n} a 1g @n{n}*2 min=1 -> 1..2\n"
        for n in range(4)
    )
    holds(
        ONE
        + "node n0..n3 8g\n"
        + nodes
        + """
        gang wide a 8g p75 -> 0
        gang small a 1g p75 at=30s -> 1
        evictions = 1
        """
    )


def test_s41_exactly_as_much_as_is_needed_goes(holds):
    """Eleven pods of one CPU, one is needed: one goes."""
    holds(
        ONE + "node n0 0g cpu=11000m\ngang low a 1c @n0*11 min=1 -> 10\ngang high a 1c p75 -> 1\n"
    )


def test_s41_at_its_cap_a_queue_preempts_inside_itself(holds):
    """The node has room and the queue has not: low goes, high runs."""
    holds("node n0 8g\nqueue a cap=3g\ngang low a 2g @n0 -> 0\ngang high a 2g p75 -> 1\n")


def test_s42_who_may_not_be_evicted_stays(holds):
    """Two that may go do, the third stays, and five CPUs are there."""
    holds(
        ONE
        + """
        node n0 0g cpu=6000m
        gang s0 a 1c @n0 -> 0
        gang s1 a 1c @n0 -> 0
        gang firm a 1c hard @n0 -> 1
        gang high a 5c p75 -> 1
        """
    )


def test_s43_a_pod_that_never_preempts_gets_nothing_by_eviction(holds):
    """Both members are needed and one of them never preempts: nobody goes."""
    holds(
        ONE
        + """
        node n0..n1 1g
        gang low a 1g @n0 -> 1
        gang firm a 1g hard @n1 -> 1
        gang high a 1g x1:never x1 min=2 p75 -> 0
        """
    )


def test_s43_the_other_pod_may_preempt_for_itself(holds):
    """One member suffices: the soft pod goes for the one that may preempt."""
    holds(
        ONE
        + """
        node n0..n1 1g
        gang low a 1g @n0 -> 0
        gang firm a 1g hard @n1 -> 1
        gang high a 1g x1:never x1 min=1 p75 -> 1
        """
    )


def test_s44_a_disruption_budget_holds(holds):
    """The budget allows one of two evictions that are needed: there is none."""
    holds(ONE + "node n0 2g\ngang low a 1g @n0*2 min=1 keep=1 -> 2\ngang high a 2g p75 -> 0\n")


def test_s44_a_young_victim_is_safe_until_its_minimum_runtime(holds):
    """Nothing is evicted before the minimum runtime passed, and then it is."""
    holds(
        ONE
        + """
        node n0 1g
        gang low a 1g minrun=60s -> 0 evicted 1
        gang high a 1g p75 at=10s -> 1
        by 45s low = 1
        by 75s low = 0
        after 150s
        """
    )


def test_s45_a_gated_gang_evicts_nobody(holds):
    """While it is gated nobody goes for it; then somebody does."""
    holds(
        ONE
        + """
        node n0 1g
        gang low a 1g @n0 -> 0
        gang high a 1g ~1 p75 min=1 -> 1
        by 30s low = 1
        at 30s ungate high
        """
    )
