"""Queues that exist, are open and are leaves take gangs; the others say what is wrong."""

from __future__ import annotations

import attrs

from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.meta.identity import ObjectKey, Rejected, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import PodPhase
from gpusched.testing.entities import NOW, uid


def refused(c, gang):
    """Reason and sentence of a gang that must not start."""
    assert gang not in {each.gang.name for each in c.when.one_session().binds}
    return c.then.reason(gang), c.then.why(gang)


def test_a_queue_that_does_not_exist(given):
    """It is named, with those that exist."""
    c = given.nodes(1, gpus=8).queue("a").gang("g", pods=1, queue="b")
    assert refused(c, "g") == (
        "QueueNotFound",
        "queue 'b' does not exist; create it or name one of: a, default",
    )
    assert not c.then.status("g").is_admitted
    assert c.then.status("g").phase == "Pending"
    c.queue("b")
    c.when.one_session()
    assert c.then.started() == ["g"]


def test_queues_that_take_its_jobs_are_named_and_the_one_that_is_meant(given):
    """Given queues of others, with children and many more, then five that serve it and the nearest name."""
    c = given.nodes(1, gpus=8).queue("org")
    for number in range(6):
        c.queue(f"team-{number}", parent="org")
    c.queue("others", namespaces=Selector((Requirement("team", "In", ("b",)),)))
    c.gang("g", pods=1, queue="teem-3").gang("h", pods=1, queue="org")
    assert refused(c, "g")[1] == (
        "queue 'teem-3' does not exist; create it or name one of: default, team-0, team-1, team-2, team-3 and 2 more; "
        "did you mean team-3?"
    )
    assert refused(c, "h")[1] == (
        "queue 'org' has child queues; jobs go to leaves only: team-0, team-1, team-2, team-3, team-4 and 1 more"
    )


def test_jobs_go_to_leaves_only(given):
    """A queue with children takes none."""
    c = given.nodes(1, gpus=8).queue("org").queue("team", parent="org")
    c.gang("g", pods=1, queue="org").gang("h", pods=1, queue="team")
    assert refused(c, "g")[0] == "QueueNotLeaf"
    assert c.then.started() == ["h"]


def test_a_cycle_freezes_only_itself(given):
    """The ring is printed; other queues go on."""
    c = given.nodes(1, gpus=8).queue("a", parent="b").queue("b", parent="a").queue("c")
    c.gang("g", pods=1, queue="a").gang("h", pods=1, queue="c")
    reason, why = refused(c, "g")
    assert reason == "QueueStopped"
    assert "queues form a cycle: a -> b -> a" in why
    assert c.then.started() == ["h"]
    assert not c.then.queue("a").is_ready
    assert c.then.queue("c").is_ready


def test_a_missing_parent_freezes_the_subtree(given):
    """It says which queue to create."""
    c = given.nodes(1, gpus=8).queue("mid", parent="nowhere").queue("leaf", parent="mid")
    c.gang("g", pods=1, queue="leaf")
    assert "parent queue 'nowhere' of 'mid' does not exist; create it" in refused(c, "g")[1]


def test_a_tree_that_is_too_deep(given):
    """Depth is bounded."""
    c = given.nodes(1)
    for level in range(50):
        c.queue(f"q{level}", parent=f"q{level - 1}" if level else "root")
    c.gang("g", pods=1, queue="q49")
    assert "deeper than 8 levels" in refused(c, "g")[1]


def test_contradicting_limits_are_named(given):
    """Guarantee above capability stops the queue."""
    limits = {"guarantee": {"cpu": 5000}, "capability": {"cpu": 1000}}
    c = given.nodes(1).queue("a", limits=limits).gang("g", pods=1, queue="a")
    assert "queue 'a': guarantee of cpu is above capability" in refused(c, "g")[1]


def test_a_queue_that_cannot_be_believed(given):
    """It is there, so nobody is told to create it."""
    c = given.nodes(1).gang("g", pods=1, queue="a").queue("sub", parent="a")
    c.gang("h", pods=1, queue="sub")
    key = ObjectKey("", "a")
    c.cache.put_queue(
        key,
        Rejected(
            kind="Queue",
            key=key,
            uid=uid("Queue", "a"),
            resource_version=ResourceVersion("1"),
            field="spec.weight",
            why="-1 is below 0",
        ),
    )
    assert refused(c, "g") == (
        "QueueStopped",
        "queue 'a' cannot be used: spec.weight: -1 is below 0",
    )
    assert "queue 'a' cannot be used" in refused(c, "h")[1]


def test_hold_admits_nothing_new(given):
    """Also from above; what runs goes on, and a gang under repair is completed."""
    c = given.nodes(4, gpus=8).queue("org", stop_policy="Hold").queue("team", parent="org")
    c.gang("new", pods=1, queue="team")
    c.gang("runs", pods=1, queue="team", gpus=8)
    c.pod("runs-0", group="runs", gpus=8, node="node-0", slots=255, plan="p", scheduled=NOW)
    c.gang("hurt", pods=2, queue="team", gpus=8)
    c.pod("hurt-0", group="hurt", gpus=8, node="node-1", slots=255, plan="p", scheduled=NOW)
    reason, why = refused(c, "new")
    assert (reason, "'org' has stopPolicy Hold" in why) == ("QueueStopped", True)
    assert c.then.status("runs").phase == "Running"
    assert c.then.started() == ["hurt"]


def test_a_namespace_that_is_not_selected(given):
    """The selector is the queue's; the label is the namespace's."""
    only = Selector((Requirement("team", "In", ("a",)),))
    c = given.nodes(1).queue("a", namespaces=only).namespace("default", labels={"team": "b"})
    c.gang("g", pods=1, queue="a")
    assert refused(c, "g")[0] == "NamespaceNotAllowed"
    c.namespace("default", labels={"team": "a"})
    c.when.one_session()
    assert c.then.started() == ["g"]


def test_a_namespace_names_the_queue_of_its_lone_pods(given):
    """Until the label or the namespace goes."""
    c = given.nodes(1).queue("a").namespace("default", queue="a").pod("p", cpu=999_000)
    c.when.one_session()
    assert c.then.status("p").queue == "a"
    c.cache.drop_namespace(ObjectKey("", "default"))
    c.when.one_session()
    assert c.then.status("p").queue == "default"


def test_queues_take_turns(given):
    """Where nothing else decides, the second gang of one queue waits for the other's first."""
    c = given.nodes(1, gpus=8).queue("a").queue("b")
    c.gang("a1", pods=1, gpus=4, queue="a", created=NOW - 99)
    c.gang("a2", pods=1, gpus=4, queue="a", created=NOW - 98)
    c.gang("b1", pods=1, gpus=4, queue="b", created=NOW - 9)
    c.when.one_session()
    assert c.then.started() == ["a1", "b1"]


def test_a_queue_of_higher_priority_goes_first(given):
    """spec.priority of queues."""
    c = given.nodes(1, gpus=8).queue("a").queue("b", priority=5)
    c.gang("a1", pods=1, gpus=8, queue="a").gang("b1", pods=1, gpus=8, queue="b")
    c.when.one_session()
    assert c.then.started() == ["b1"]


def test_queues_count_what_is_held_up_the_tree(given):
    """Terminating members still hold; finished ones do not."""
    c = given.nodes(1, gpus=8).queue("org").queue("team", parent="org")
    c.gang("g", pods=3, gpus=2, queue="team")
    c.pod("g-0", group="g", gpus=2, node="node-0", slots=0b11, plan="p")
    c.pod("g-1", group="g", gpus=2, node="node-0", slots=0b1100, plan="p", deleting=True)
    c.pod("g-2", group="g", gpus=2, node="node-0", phase=PodPhase.SUCCEEDED)
    c.when.one_session()
    assert c.then.queue("org").allocated.get("nvidia.com/gpu") == 4 * DEVICE
    assert c.then.queue("team").allocated.get("nvidia.com/gpu") == 4 * DEVICE


def test_a_queue_may_be_given_a_part_of_a_gpu(given):
    """A cap of one and a half holds one whole GPU, and the sentence says the half."""
    c = given.nodes(1, gpus=4).queue("q")
    key = next(key for key in c.cache.queues.items if key.name == "q")
    half = Resources.of({"nvidia.com/gpu": 1500})
    c.cache.put_queue(key, attrs.evolve(c.cache.queues.items[key], capability=half))
    c.gang("one", pods=1, gpus=1, queue="q", created=1.0)
    c.gang("two", pods=1, gpus=1, queue="q", created=2.0)
    c.when.one_session()
    assert c.then.started() == ["one"]
    assert "queue q holds 1 of its capability of 1.5" in c.then.why("two")
