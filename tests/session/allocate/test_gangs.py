"""Gangs start whole or not at all, and are told why they wait."""

from __future__ import annotations

import attrs

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.api.meta.identity import GangKey, ObjectKey, Owner, Rejected, ResourceVersion
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.testing import entities
from gpusched.testing.entities import NOW, uid


def test_a_gang_that_fits_starts_as_a_whole(given):
    """Two pods of eight GPUs take two nodes of eight, all slots named."""
    c = given.nodes(2, gpus=8).gang("g", pods=2, gpus=8)
    plan = c.when.bound()
    (gang,) = plan.binds
    assert (gang.min_member, gang.placed, len(gang.binds)) == (2, 0, 2)
    assert set(c.then.nodes().values()) == {"node-0", "node-1"}
    assert c.then.slots() == {"g-0": tuple(range(8)), "g-1": tuple(range(8))}


def test_a_gang_that_fits_only_in_part_holds_nothing(given):
    """Three nodes are needed, two are there: no bind, and a sentence with the numbers."""
    c = given.nodes(2, gpus=8, rack="r1").queue("a").gang("big", pods=3, gpus=8, queue="a")
    plan = c.when.one_session()
    assert plan.binds == ()
    assert c.then.reason("big") == "InsufficientResources"
    assert c.then.why("big") == (
        "needs 3 pods with 8 nvidia.com/gpu, 1 cpu, 1Gi memory; 2 fit now; on 2 nodes; "
        "even empty they have room for 2 only"
    )


def test_a_gang_starts_when_a_node_appears(given):
    """What did not fit is tried again with the new node."""
    c = given.nodes(2, gpus=8).gang("big", pods=3, gpus=8)
    assert c.when.one_session().binds == ()
    c.nodes(1, gpus=8)
    c.when.bound()
    assert c.then.started() == ["big"]
    c.when.one_session()
    assert c.then.status("big").phase == "Running"
    assert c.then.why("big") == "3 pods placed, 3 needed, no more compact place existed"


def test_a_gang_is_not_called_scheduled_before_its_bindings_were_accepted(given):
    """While it is on its way nothing is said about it."""
    c = given.nodes(1, gpus=8).gang("g", pods=2, gpus=4)
    plan = c.when.one_session()
    assert [status for status in plan.gangs if status.gang.name == "g"] == []
    pod = c.cache.pods[ObjectKey("default", "g-0")]
    c.cache.assume_binding(pod, "node-0", 0b1111)
    later = c.when.one_session()
    assert [status for status in later.gangs if status.gang.name == "g"] == []


def test_extras_start_only_after_the_minimum_of_all(given):
    """An elastic gang does not take with its extras what another gang needs to start."""
    c = given.nodes(2, gpus=8)
    c.gang("elastic", pods=4, min_member=1, gpus=4, created=NOW - 900)
    c.gang("rigid", pods=2, gpus=4, created=NOW - 300)
    c.when.bound()
    binds = {gang.gang.name: len(gang.binds) for gang in c.then.plan.binds}
    assert binds == {"elastic": 2, "rigid": 2}
    c.when.one_session()
    assert c.then.status("elastic").is_scheduled
    assert "needs 2 pods with 4 nvidia.com/gpu" in c.then.why("elastic")


def test_extras_join_a_running_gang_later(given):
    """A node that appears is used by the extras, and no minimum is asked again."""
    c = given.nodes(1, gpus=8).gang("g", pods=3, min_member=1, gpus=8)
    c.when.bound()
    c.nodes(1, gpus=8)
    (gang,) = c.when.bound().binds
    assert (gang.placed, len(gang.binds)) == (1, 1)


def test_roles_each_have_their_minimum(given):
    """One launcher and two workers are needed; workers alone do not start."""
    c = given.nodes(2, gpus=8).group("mpi", min_member=3, roles={"launcher": 1, "worker": 2})
    c.pods("w", 4, group="mpi", role="worker", gpus=4)
    assert c.when.one_session().binds == ()
    assert c.then.reason("mpi") == "NotEnoughMembers"
    assert c.then.why("mpi") == "needs 1 pod of role launcher; 0 can run"
    c.pod("l-0", group="mpi", role="launcher")
    c.when.bound()
    assert {"l-0", "w-0", "w-1"} <= set(c.then.nodes())


def test_mixed_classes_start_together(given):
    """A parameter server without GPUs and workers with them are one gang."""
    c = given.nodes(1, gpus=8).group("mix", min_member=3)
    c.pod("ps", group="mix", cpu=8000).pods("w", 2, group="mix", gpus=4)
    c.when.bound()
    assert len(c.then.nodes()) == 3


def test_any_members_do_where_the_largest_do_not_fit(given):
    """Of a large and two small pods two are needed: the small ones start."""
    c = given.nodes(1, gpus=4).group("mix", min_member=2)
    c.pod("large", group="mix", gpus=8).pods("small", 2, group="mix", gpus=2)
    c.when.bound()
    assert set(c.then.nodes()) == {"small-0", "small-1"}


def test_an_indexed_job_is_a_gang(given):
    """All of its parallel pods start together or none does."""
    c = given.nodes(2, gpus=8).job("j", parallelism=3, completions=6, indexed=True, gpus=8)
    assert c.when.one_session().binds == ()
    assert "needs 3 pods with 8 nvidia.com/gpu" in c.then.why("j")
    c.nodes(1, gpus=8)
    (gang,) = c.when.bound().binds
    assert gang.gang == GangKey("Job", "default", "j")


def test_a_job_with_equal_parallelism_and_completions_is_a_gang(given):
    """As api.md section 4 says."""
    c = given.nodes(1, gpus=8).job("j", parallelism=2, completions=2, gpus=8)
    assert c.when.one_session().binds == ()


def test_pods_of_a_work_queue_job_start_one_by_one(given):
    """A Job without completions promises nothing about how many run at once."""
    c = given.nodes(1, gpus=8).job("j", parallelism=2, completions=None, gpus=8)
    (gang,) = c.when.bound().binds
    assert gang.gang.kind == "Pod"


def test_succeeded_members_of_a_job_need_no_place(given):
    """Of four indexes two are done: the two that are left start without them."""
    c = given.nodes(1, gpus=8)
    c.job("j", parallelism=4, completions=4, indexed=True, succeeded=2, gpus=4, pods=2)
    owner = Owner("Job", "j", uid("Job", "j", "default"))
    c.pods("done", 2, owner=owner, phase=PodPhase.SUCCEEDED, node="node-0", gpus=4)
    (gang,) = c.when.bound().binds
    assert len(gang.binds) == 2


def test_succeeded_members_of_a_group_count(given):
    """A PodGroup of three with one member done starts its other two."""
    c = given.nodes(1, gpus=8).gang("g", pods=2, min_member=3, gpus=4)
    c.pod("done", group="g", phase=PodPhase.SUCCEEDED, node="node-0", gpus=4)
    c.when.bound()
    assert set(c.then.nodes()) == {"g-0", "g-1"}


def test_a_lone_pod_is_a_gang_of_one(given):
    """It has its own place and its own sentence."""
    c = given.nodes(1, gpus=2).pod("one", gpus=2).pod("two", gpus=2)
    c.when.bound()
    assert list(c.then.nodes()) == ["one"]
    assert "needs 1 pod with 2 nvidia.com/gpu" in c.then.why("two")


def test_min_member_on_pods_makes_a_gang_of_their_controller(given):
    """Annotated pods of any controller start together."""
    owner = Owner("StatefulSet", "s", uid("StatefulSet", "s", "default"))
    c = given.nodes(1, gpus=8)
    c.pods("s", 2, owner=owner, hints=GangAnnotations(min_member=2), gpus=8)
    assert c.when.one_session().binds == ()
    c.nodes(1, gpus=8)
    (gang,) = c.when.bound().binds
    assert gang.gang.kind == "StatefulSet"


def test_a_missing_pod_group_is_named(given):
    """Pods wait, and are told what to create."""
    c = given.nodes(1, gpus=8).pods("p", 2, group="nobody", gpus=1)
    assert c.when.one_session().binds == ()
    assert c.then.why("nobody") == (
        "PodGroup default/nobody does not exist; create it or remove the label that names it"
    )


def test_a_rejected_pod_group_is_told_with_its_field(given):
    """Pods of a group that cannot be believed wait for it."""
    c = given.nodes(1, gpus=8).pods("p", 2, group="bad", gpus=1)
    key = ObjectKey("default", "bad")
    c.cache.put_group(
        key,
        Rejected(
            kind="PodGroup",
            key=key,
            uid=uid("PodGroup", "bad", "default"),
            resource_version=ResourceVersion("1"),
            field="spec.minMember",
            why="must be at least 1",
        ),
    )
    assert c.when.one_session().binds == ()
    assert "spec.minMember: must be at least 1" in c.then.why("bad")


def test_a_group_that_is_being_deleted_starts_nothing(given):
    """Its pods wait; a decision that the last look must refuse is not made again and again."""
    c = given.nodes(1, gpus=8).gang("g", pods=2, gpus=1)
    group = c.cache.groups.items[ObjectKey("default", "g")]
    c.cache.put_group(group.key, attrs.evolve(group, deleting=True))
    assert c.when.one_session().binds == ()
    assert "is being deleted" in c.then.why("g")


def test_higher_priority_goes_first(given):
    """The younger gang of higher priority gets the room."""
    c = given.nodes(1, gpus=8)
    c.gang("old", pods=1, gpus=8, created=NOW - 900)
    c.gang("urgent", pods=1, gpus=8, created=NOW - 10, priority=100)
    c.when.one_session()
    assert c.then.started() == ["urgent"]


def test_the_priority_class_of_the_group_counts(given):
    """It wins over what the pods say; without the class the pods' number counts."""
    c = given.nodes(1, gpus=8).priority_class("high", 1000)
    c.gang("a", pods=1, gpus=8, priority=5)
    c.group("b", priority_class="high").pod("b-0", group="b", gpus=8)
    c.when.one_session()
    assert c.then.started() == ["b"]
    c.cache.drop_priority(ObjectKey("", "high"))
    c.when.one_session()
    assert c.then.started() == ["a"]


def test_age_decides_among_equals(given):
    """First come, first served, whatever the names."""
    c = given.nodes(1, gpus=8)
    c.gang("a", pods=1, gpus=8, created=NOW - 10).gang("z", pods=1, gpus=8, created=NOW - 99)
    c.when.one_session()
    assert c.then.started() == ["z"]


def test_a_gang_under_repair_goes_first(given):
    """One that holds GPUs and lost a member is completed before another starts."""
    c = given.nodes(2, gpus=8).gang("old", pods=1, gpus=8, created=NOW - 900)
    c.gang("hurt", pods=2, gpus=8, created=NOW - 60)
    c.pod("hurt-0", group="hurt", gpus=8, node="node-0", slots=255, plan="p", scheduled=NOW - 9)
    (gang,) = c.when.bound().binds
    assert (gang.gang.name, gang.placed, len(gang.binds)) == ("hurt", 1, 1)


def test_a_blocked_head_does_not_block_others(given):
    """What does not fit is passed by."""
    c = given.nodes(1, gpus=8).gang("huge", pods=2, gpus=8, created=NOW - 900)
    c.gang("small", pods=1, gpus=1)
    c.when.one_session()
    assert c.then.started() == ["small"]


def test_too_few_members_wait_with_numbers(given):
    """Gated and leaving members are counted apart."""
    c = given.nodes(1, gpus=8).group("g", min_member=4).pod("a", group="g")
    c.pod("b", group="g", gated=True).pod("c", group="g", deleting=True)
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "NotEnoughMembers"
    assert (
        c.then.why("g") == "needs 4 pods together; 1 pod can run, 1 held by a gate, 1 being deleted"
    )


def test_gated_pods_are_not_bound(given):
    """A gang behind gates says so."""
    c = given.nodes(1, gpus=8).group("g", min_member=2)
    c.pods("p", 2, group="g", gated=True)
    assert c.when.one_session().binds == ()
    assert (c.then.reason("g"), c.then.why("g")) == (
        "Gated",
        "2 pods of 2 needed are held by a gate",
    )


def test_pods_of_other_schedulers_are_only_charged(given):
    """They hold room and are never bound."""
    c = given.nodes(1, gpus=8).pod("foreign", scheduler="default-scheduler", gpus=4)
    c.pod("there", scheduler="default-scheduler", gpus=6, node="node-0")
    c.pod("ours", gpus=4)
    assert c.when.one_session().binds == ()
    assert "1 lacks free nvidia.com/gpu" in c.then.why("ours")


def test_a_rule_that_is_not_supported_is_named(given):
    """Better not placed than placed against the rule, whatever the topology wish."""
    c = given.nodes(1, gpus=8, rack="r").gang(
        "g",
        pods=1,
        unsupported="uses pod affinity",
        topology=TopologyRequest(required="rack"),
    )
    assert c.when.one_session().binds == ()
    assert c.then.reason("g") == "InvalidSpec"
    assert "uses pod affinity" in c.then.why("g")


def test_a_completed_gang_is_completed(given):
    """All members succeeded."""
    c = given.nodes(1, gpus=8).gang("g", pods=2, gpus=1)
    for name in ("g-0", "g-1"):
        c.pod(name, group="g", gpus=1, phase=PodPhase.SUCCEEDED, node="node-0")
    c.when.one_session()
    assert (c.then.status("g").phase, c.then.status("g").counts) == ("Completed", (0, 0, 2, 0))


def test_a_started_gang_that_lost_members_is_unknown(given):
    """Its phase says that it was whole once."""
    c = given.nodes(1, gpus=2).gang("g", pods=2, gpus=2)
    group = c.cache.groups.items[ObjectKey("default", "g")]
    c.cache.put_group(group.key, attrs.evolve(group, phase="Running"))
    c.pod("g-0", group="g", gpus=2, node="node-0", slots=3, plan="p", scheduled=NOW)
    c.when.one_session()
    assert c.then.status("g").phase == "Unknown"


def test_pods_of_an_earlier_job_of_the_same_name_do_not_count(given):
    """A Job made again is not complete because pods of its forerunner still run."""
    c = given.nodes(2, gpus=8)
    c.job("j", parallelism=2, completions=2, gpus=8)
    old = Owner("Job", "j", entities.uid("Job", "j", "before"))
    c.pod("old", owner=old, gpus=8, node="node-0", slots=255, plan="p", scheduled=NOW)
    assert c.when.one_session().binds == ()


def test_annotations_of_a_template_count_where_the_job_says_nothing(given):
    """Three of four pods of a work queue Job start together, in its own queue."""
    c = given.nodes(1, gpus=8).queue("a").queue("b").namespace("default", queue="b")
    c.job("j", parallelism=4, completions=None, hints=GangAnnotations(), pods=0)
    owner = Owner("Job", "j", uid("Job", "j", "default"))
    c.pods("j", 4, owner=owner, hints=GangAnnotations(min_member=3), queue="a", gpus=4)
    assert c.when.one_session().binds == ()
    assert c.then.status("j").queue == "a"
    assert "needs 3 pods with 4 nvidia.com/gpu" in c.then.why("j")


def test_an_unknown_priority_class_is_told_and_stops_nothing(given):
    """A PodGroup that names a PriorityClass nobody made runs at its pods' priority, and says so."""
    c = given.nodes(1, gpus=8).group("g", min_member=1, priority_class="gold")
    c.pod("a", group="g", gpus=16)
    c.when.one_session()
    admitted = c.then.status("g").admitted.message
    assert admitted == (
        "admitted to queue default; priorityClassName gold does not exist, "
        "its pods' priority counts"
    )
