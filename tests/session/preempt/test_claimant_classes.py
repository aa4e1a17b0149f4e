"""Gangs for which others may be evicted: what is found for one holds for equal ones alone."""

from __future__ import annotations

import pytest

from gpusched.api.affinity.pod_terms import PodTerm
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.gang.pod_group import NO_TOPOLOGY_REQUEST, SubGroup, TopologyRequest
from gpusched.session.framework.reasons import Reason
from gpusched.testing.given import Given
from tests.session.running import runs

MINUTE = 60
SECOND_NS = 10**9
HOST = "kubernetes.io/hostname"
NOT_BESIDE_NOISE = PodTerm(HOST, Selector((Requirement("noise", "In", ("much",)),)))


def claimed_for(c: Given) -> list[str]:
    """Names of the gangs for which the session evicts."""
    plan = c.when.one_session()
    return sorted({claim.gang.name for claim in plan.preemptions})


def test_sub_groups_without_a_level_claim_where_equal_pods_of_one_rack_cannot(given):
    """No rack holds eight pods; two racks do, for the gang that does not ask for one."""
    for number, rack in enumerate(("r1", "r2"), 1):
        given.node(f"n{number}", gpus=4, labels={"gpusched.io/rack": rack})
    runs(given, "low", "n1 n1 n1 n1 n2 n2 n2 n2")
    for name, topology in (
        ("a-in-one-rack", TopologyRequest(required="rack")),
        ("b-anywhere", NO_TOPOLOGY_REQUEST),
    ):
        given.group(
            name, min_member=8, sub_groups=(SubGroup("s", 8, topology),), min_sub_groups=1
        )  # fmt: skip
        given.pods(name, 8, group=name, sub_group="s", gpus=1, priority=9)
    assert claimed_for(given) == ["b-anywhere"]


def test_a_gang_with_more_small_pods_claims_where_one_with_more_large_ones_cannot(given):
    """Both need two pods of the same two classes; only one of them has two small ones."""
    given.node("n1", gpus=4)
    runs(given, "low", "n1 n1 n1 n1")
    for name, large, small in (("a-large", 2, 1), ("b-small", 1, 2)):
        given.group(name, min_member=2)
        given.pods(f"{name}-large", large, group=name, gpus=4, priority=9)
        given.pods(f"{name}-small", small, group=name, gpus=1, priority=9)
    assert claimed_for(given) == ["b-small"]


def test_a_gang_claims_where_another_is_refused_for_the_labels_of_its_pods(given):
    """The pod that stays on the node wants no noisy neighbour: that concerns one gang alone."""
    given.node("n1", gpus=4, labels={HOST: "n1"})
    runs(given, "low", "n1 n1 n1", slots={"n1": 1})
    runs(
        given, "quiet", "n1", slots={"n1": 0}, group={"preemptible": False},
        pod_anti_affinity=[NOT_BESIDE_NOISE],
    )  # fmt: skip
    for name, labels in (("a-noisy", {"noise": "much"}), ("b-silent", {})):
        given.gang(name, pods=1, gpus=3, priority=9, labels=labels)
    assert claimed_for(given) == ["b-silent"]


@pytest.mark.parametrize("suspended", [False, True])
def test_jobs_that_wait_suspended_share_refusals_as_pod_groups_do(given, suspended):
    """Expected pods of a Job are a size like pods that exist: the same gangs get the same answers.

    The claimants' queue is below its share and holds one node of four. The first of them would
    bring it above and is refused; the smaller one behind it is asked about in the same session.
    """
    given.nodes(4, prefix="n", gpus=8).queue("gold").queue("bronze")
    runs(given, "gold-large", "n-0 n-1 n-2", gpus=8, queue="gold")
    runs(given, "bronze-runs", "n-3", gpus=8, queue="bronze")
    for name, pods in (("a-large", 3), ("b-small", 1)):
        if suspended:
            given.job(
                name, parallelism=pods, completions=pods, indexed=True, suspended=True,
                queue="bronze", gpus=8,
            )  # fmt: skip
        else:
            given.gang(name, pods=pods, gpus=8, queue="bronze")
    plan = given.when.one_session()
    reasons = {each.gang.name: each.scheduled.reason for each in plan.gangs if not each.counts[0]}
    assert reasons == {
        "a-large": Reason.INSUFFICIENT_RESOURCES,
        "b-small": Reason.PREEMPTION_IN_PROGRESS,
    }


def test_a_short_gang_claims_where_a_long_one_would_break_a_reservation(given):
    """Both nodes are kept for the holder from the fifth minute on; it cannot evict the two."""
    given.node("n1", gpus=8).node("n2", gpus=8)
    for name, node, minutes, evictable in (("stays", "n1", 15, False), ("low", "n2", 14, True)):
        length_ns = minutes * MINUTE * SECOND_NS
        group = {"preemptible": evictable, "expected_duration_ns": length_ns}
        runs(given, name, node, gpus=8, group=group)
    given.gang("holder", pods=2, gpus=8, priority=10)
    for name, minutes in (("a-long", 0), ("b-short", 2)):
        length_ns = minutes * MINUTE * SECOND_NS
        given.group(name, min_member=1, preemptible=False, expected_duration_ns=length_ns)
        given.pods(name, 1, group=name, gpus=8, priority=9)
    assert claimed_for(given) == ["b-short"]
