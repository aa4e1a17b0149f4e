"""Gangs whose members have rules about other pods, and what they are told."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.affinity.pod_terms import HostPort, PodTerm, SpreadTerm
from gpusched.api.affinity.selector import Requirement, Selector, Taint
from gpusched.api.meta.identity import ObjectKey
from gpusched.testing.given import Given

HOST, ZONE = "kubernetes.io/hostname", "zone"
PORT = HostPort("0.0.0.0", "TCP", 29500)
WORK = {"app": "work"}


def app(name: str) -> Selector:
    """Pods of an application."""
    return Selector((Requirement("app", "In", (name,)),))


def hosts(c: Given, count: int, *, zones: int = 1, **fields) -> Given:
    """Nodes h0 and on, in zones by turns."""
    for number in range(count):
        labels = {HOST: f"h{number}", ZONE: f"z{number % zones}"}
        c.node(f"h{number}", labels=labels, **fields)
    return c


APART = {"pod_anti_affinity": [PodTerm(HOST, app("work"))], "labels": WORK}
SPREAD = {"spread": [SpreadTerm(ZONE, 1, app("work"))], "labels": WORK}


def test_three_that_keep_apart_on_two_nodes(given):
    """Nobody starts, and the sentence says how far it goes and why no further."""
    c = hosts(given, 2).gang("g", pods=3, **APART)
    assert c.when.one_session().binds == ()
    assert "2 fit now" in c.then.why("g")
    assert "2 break its pod anti-affinity" in c.then.why("g")


def test_three_that_keep_apart_on_three_nodes(given):
    """Each sees where its siblings were put in the same session."""
    c = hosts(given, 3).gang("g", pods=3, **APART)
    c.when.bound()
    assert sorted(c.then.nodes().values()) == ["h0", "h1", "h2"]


def test_a_gang_that_failed_is_not_in_the_way(given):
    """What was tried for one gang is forgotten before the next is looked at."""
    c = hosts(given, 2).gang("a", pods=3, priority=5, **APART).gang("b", pods=2, **APART)
    c.when.bound()
    assert c.then.started() == ["b"]


def test_members_spread_over_zones(given):
    """However full or empty nodes are, numbers differ by one at most."""
    c = hosts(given, 6, zones=3).gang("g", pods=7, cpu=1000, **SPREAD)
    c.when.bound()
    nodes = c.then.nodes().values()
    zones = sorted(sum(int(n[1:]) % 3 == z for n in nodes) for z in range(3))
    assert zones == [2, 2, 3]


def test_members_that_cannot_spread(given):
    """One zone is full: the others may not get more than one more."""
    c = hosts(given, 2, zones=2, cpu=8000).pod("r", node="h0", cpu=8000, scheduler="theirs")
    c.gang("g", pods=2, cpu=1000, **SPREAD)
    assert c.when.one_session().binds == ()
    assert "1 fits now" in c.then.why("g")
    assert "1 breaks its topology spread constraints" in c.then.why("g")


def test_ports_of_the_host_within_a_gang(given):
    """One member a node, as many as there are nodes."""
    c = hosts(given, 2).gang("g", pods=3, ports=[PORT])
    assert c.when.one_session().binds == ()
    assert "2 have no free host port for it" in c.then.why("g")
    hosts(c, 3)
    c.when.bound()
    assert sorted(c.then.nodes().values()) == ["h0", "h1", "h2"]


def test_ports_differ_by_protocol_and_address(given):
    """Only what is really the same is in the way."""
    c = hosts(given, 1)
    c.pod("r", node="h0", ports=[HostPort("10.0.0.1", "TCP", 80)], scheduler="theirs")
    c.gang("other", pods=1, ports=[HostPort("10.0.0.2", "TCP", 80)])
    c.gang("udp", pods=1, ports=[HostPort("10.0.0.1", "UDP", 80)])
    c.gang("any", pods=1, ports=[HostPort("0.0.0.0", "TCP", 80)])
    c.when.bound()
    assert c.then.started() == ["other", "udp"]


def test_workers_follow_a_leader_of_their_own_gang(given):
    """A member that must be near another waits for it inside the same attempt."""
    c = hosts(given, 4, zones=2, cpu=4000)
    c.group("g", min_member=3)
    near = {"pod_affinity": [PodTerm(ZONE, app("leader"))]}
    c.pods("worker", 2, group="g", cpu=3000, labels=WORK, **near)
    c.pod("leader", group="g", cpu=1000, labels={"app": "leader"})
    c.when.bound()
    assert len({int(node[1:]) % 2 for node in c.then.nodes().values()}) == 1


def test_a_gang_near_itself_takes_the_zone_with_room(given):
    """The best node for the first member alone is in a zone where the others find none."""
    c = hosts(given, 4, zones=2, cpu=4000)
    c.pod("a", node="h0", cpu=2000, scheduler="theirs")
    c.pod("b", node="h2", cpu=4000, scheduler="theirs")
    c.gang("g", pods=3, cpu=2000, pod_affinity=[PodTerm(ZONE, app("work"))], labels=WORK)
    c.when.bound()
    assert {int(node[1:]) % 2 for node in c.then.nodes().values()} == {1}


def test_pods_of_others_keep_ours_away(given):
    """The anti-affinity of a pod that another scheduler placed holds for us too."""
    c = hosts(given, 2)
    c.pod("r", node="h0", scheduler="theirs", pod_anti_affinity=[PodTerm(HOST, app("work"))])
    c.gang("g", pods=2, labels=WORK).gang("free", pods=2)
    c.when.bound()
    assert set(c.then.nodes().values()) == {"h0", "h1"}
    assert {node for pod, node in c.then.nodes().items() if pod.startswith("g")} == {"h1"}


def test_labels_within_one_class_are_told_apart(given):
    """Pods of one template whose labels differ are not taken for each other."""
    c = hosts(given, 2)
    c.pod("r", node="h0", scheduler="theirs", pod_anti_affinity=[PodTerm(HOST, app("work"))])
    c.group("g", min_member=4)
    c.pods("w", 2, group="g", labels=WORK)
    c.pods("v", 2, group="g", labels={"app": "view"})
    c.when.bound()
    placed = c.then.nodes()
    assert {placed["w-0"], placed["w-1"]} == {"h1"}


def test_a_change_of_labels_is_seen(given):
    """A resident that gets or loses a label counts so in the next session."""
    c = hosts(given, 1).pod("r", node="h0", scheduler="theirs", labels=WORK)
    c.gang("g", pods=1, pod_anti_affinity=[PodTerm(HOST, app("work"))])
    assert c.when.one_session().binds == ()
    c.pod("r", node="h0", scheduler="theirs", labels={"app": "rest"})
    c.when.bound()
    assert c.then.started() == ["g"]


def test_leaving_pods_count_for_distance_and_not_for_spread(given):
    """As in kube-scheduler: a pod being deleted is still there, and no longer counted."""
    c = hosts(given, 1).pod("r", node="h0", labels=WORK, deleting=True, scheduler="theirs")
    c.gang("even", pods=1, spread=[SpreadTerm(ZONE, 1, app("work"), min_domains=2)], labels=WORK)
    c.when.bound()
    assert c.then.started() == ["even"]
    c.gone("even-0").gang("apart", pods=1, pod_anti_affinity=[PodTerm(HOST, app("work"))])
    c.when.bound()
    assert c.then.started() == []


def test_a_promise_is_not_broken_by_who_comes_meanwhile(given):
    """Who is promised the place of one that leaves keeps others away already."""
    c = hosts(given, 1, cpu=4000)
    c.pod("r", node="h0", labels=WORK, deleting=True)
    c.gang("apart", pods=1, pod_anti_affinity=[PodTerm(HOST, app("work"))])
    c.gang("late", pods=1, labels=WORK)
    assert c.when.one_session().binds == ()
    assert [claim.gang.name for claim in c.then.plan.preemptions] == ["apart"]


@pytest.mark.parametrize(("priority", "started"), [(9, ["g"]), (5, []), (1, [])])
def test_nominated_pods_of_others_hold_their_room(given, priority, started):
    """Against pods of the same or a lower priority."""
    c = hosts(given, 1, cpu=4000)
    c.pod("r", nominated="h0", cpu=3000, scheduler="theirs", priority=5)
    c.gang("g", pods=1, cpu=2000, priority=priority)
    c.when.bound()
    assert c.then.started() == started
    if not started:
        assert "keep room for pods of other schedulers" in c.then.why("g")


def test_a_nomination_that_ends_gives_its_room_back(given):
    """The pod was bound elsewhere, or is gone."""
    c = hosts(given, 2, cpu=4000).pod("r", nominated="h0", cpu=3000, scheduler="theirs")
    c.gang("g", pods=2, cpu=3000)
    assert c.when.one_session().binds == ()
    c.gone("r")
    c.when.bound()
    assert c.then.started() == ["g"]


def test_preferred_company(given):
    """Among equal nodes the one near those it likes, and away from those it does not."""
    c = hosts(given, 3)
    c.pod("r", node="h1", cpu=0, memory=0, labels={"app": "cache"}, scheduler="theirs")
    c.pod("s", node="h2", cpu=0, memory=0, labels={"app": "noise"}, scheduler="theirs")
    c.gang("like", pods=1, preferred_pod_affinity=[(10, PodTerm(HOST, app("cache")))])
    c.gang("avoid", pods=1, preferred_pod_anti_affinity=[(10, PodTerm(HOST, app("noise")))])
    c.when.bound()
    assert c.then.nodes()["like-0"] == "h1"
    assert c.then.nodes()["avoid-0"] != "h2"


def test_preferred_evenness(given):
    """Room allowing, members go where there are fewest."""
    c = hosts(given, 2, zones=2)
    spread = [SpreadTerm(ZONE, 1, app("work"))]
    c.gang("g", pods=4, soft_spread=spread, labels=WORK)
    c.when.bound()
    places = list(c.then.nodes().values())
    assert (places.count("h0"), places.count("h1")) == (2, 2)


def test_extras_keep_the_rules(given):
    """Members above the minimum are placed one by one under the same rules."""
    c = hosts(given, 2).gang("g", pods=3, min_member=1, **APART)
    c.when.bound()
    assert sorted(c.then.nodes().values()) == ["h0", "h1"]


def test_assumed_pods_are_residents(given):
    """A binding that the API has not shown yet keeps others away like one that it has."""
    c = hosts(given, 2).gang("a", pods=1, **APART)
    (bind,) = c.when.one_session().binds[0].binds
    pod = c.cache.pods[ObjectKey("default", "a-0")]
    c.cache.assume_binding(pod, bind.node, 0)
    c.gang("b", pods=1, **APART)
    plan = c.when.one_session()
    assert {each.node for gang in plan.binds for each in gang.binds} == {"h0", "h1"} - {bind.node}
    c.cache.put_pod(msgspec.structs.replace(pod, node=bind.node, resource_version="99"))
    assert c.then.started() == ["b"]


def test_a_soft_taint_makes_a_node_worse(given):
    """It is taken last, unless the pod tolerates the taint."""
    taint = Taint("spot", "yes", "PreferNoSchedule")
    c = given.node("a", cpu=2000, soft_taints=[taint]).node("b", cpu=2000)
    c.gang("g", pods=3, cpu=1000)
    c.when.bound()
    assert sorted(c.then.nodes().values()) == ["a", "b", "b"]
