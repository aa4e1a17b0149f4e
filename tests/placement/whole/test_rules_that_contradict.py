"""What cannot start says why, and stops nobody else."""

from __future__ import annotations

from gpusched.api.affinity.pod_terms import PodTerm, SpreadTerm
from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.testing.given import Given
from tests.placement.whole.clusters import HOST_LABEL, LABELS, OWN, OWN_PODS

RACK = LABELS[2]


def two_racks(c: Given) -> Given:
    """Four nodes in two racks."""
    for number in range(4):
        labels = {RACK: f"r{number // 2}", HOST_LABEL: f"n{number}"}
        c.node(f"n{number}", gpus=8, labels=labels)
    return c


def test_one_rack_and_one_pod_a_rack(given: Given) -> None:
    """The sentence names both, with numbers; the next gang starts."""
    c = two_racks(given)
    c.gang("g", pods=2, gpus=1, labels=OWN, topology=TopologyRequest(required="rack"),
           pod_anti_affinity=[PodTerm(RACK, OWN_PODS)])  # fmt: skip
    c.gang("h", pods=2, gpus=1)
    c.when.bound()
    assert c.then.started() == ["h"]
    assert c.then.reason("g") == "InvalidSpec"
    assert c.then.why("g") == (
        "needs 2 pods in one rack, as spec.topology requires, but rules between its pods "
        "allow 1 in each rack; remove one of the two"
    )


def test_near_and_apart_at_once(given: Given) -> None:
    """Affinity wants one rack, even spread over racks wants two."""
    c = two_racks(given)
    c.gang("g", pods=2, gpus=1, labels=OWN, pod_affinity=[PodTerm(RACK, OWN_PODS)],
           spread=[SpreadTerm(RACK, 1, OWN_PODS)])  # fmt: skip
    c.when.bound()
    assert c.then.reason("g") == "InvalidSpec"
    assert "in one rack, as its pod affinity requires" in c.then.why("g")


def test_one_rack_and_one_pod_a_host_is_no_contradiction(given: Given) -> None:
    """There are two hosts in a rack; three pods are only too many for these racks."""
    c = two_racks(given)
    for name, pods in (("g", 2), ("h", 3)):
        c.gang(name, pods=pods, gpus=1, labels=OWN, topology=TopologyRequest(required="rack"),
               pod_anti_affinity=[PodTerm(HOST_LABEL, OWN_PODS)], namespace=name)  # fmt: skip
    c.when.bound()
    assert c.then.started() == ["g"]


def test_a_minimum_above_the_pods(given: Given) -> None:
    """Two of four exist: it is told so, and the next gang starts."""
    c = two_racks(given).gang("g", pods=2, min_member=4, gpus=1).gang("h", pods=2, gpus=1)
    c.when.bound()
    assert c.then.started() == ["h"]
    assert c.then.reason("g") == "NotEnoughMembers"
    assert c.then.why("g") == "needs 4 pods together; 2 pods can run"


def test_a_label_that_is_no_level_claims_nothing(given: Given) -> None:
    """One pod a power domain: placed all the same, and nothing is proven."""
    for number in range(4):
        given.node(f"n{number}", gpus=8, labels={"power": f"p{number % 2}", RACK: "r"})
    c = given.gang("g", pods=2, gpus=1, labels=OWN, pod_anti_affinity=[PodTerm("power", OWN_PODS)])
    plan = c.when.bound()
    assert len(c.then.nodes()) == 2
    assert [bind.proof for bind in plan.binds] == [""]


def test_racks_of_one_name_in_two_blocks_are_one_to_a_rule(given: Given) -> None:
    """A label value that repeats is one domain of the rule, though two of the topology."""
    for number in range(4):
        labels = {LABELS[1]: f"b{number // 2}", RACK: f"r{number % 2}"}
        given.node(f"n{number}", gpus=8, labels=labels)
    c = given.gang("g", pods=3, gpus=1, labels=OWN, pod_anti_affinity=[PodTerm(RACK, OWN_PODS)])
    c.when.bound()
    assert c.then.nodes() == {}
    assert "break its pod anti-affinity" in c.then.why("g")
