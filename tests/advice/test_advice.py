"""What is advised lets the gang start, is no larger than needed, and what can never start is told as such."""

from __future__ import annotations

import pytest

from benchmarks.advice.random_clusters import make_cluster
from benchmarks.advice.share_started import judge_advice
from benchmarks.advice.smallest import judge_smallness
from gpusched.advice.advisor import advise_gang
from gpusched.advice.proposals.proposal import Family
from gpusched.advice.start_answer import StartKind
from gpusched.api.meta.identity import GangKey, format_time
from tests.advice.clusters import (
    A100,
    GPU,
    H100,
    NOW,
    gang,
    in_namespace,
    node,
    priority,
    queue,
    trial_of,
    waiting_gang,
)
from tests.advice.submission.device_manifests import (
    claim_template,
    claiming_job,
    device_class,
    slice_of,
)
from tests.advice.submission.manifests import job
from tests.populations import one_of


def advised(trial, name):
    """Advice about a gang."""
    return advise_gang(trial, waiting_gang(trial, name))


def messages(advice):
    """What is suggested, by family."""
    return {each.proposal.family: each.proposal.message for each in advice.suggestions}


def busy_nodes(count, *, product=H100, **spec):
    """Nodes, each full with a gang of eight pods of its own."""
    nodes = [node(f"n{each}", rack=f"r{each // 2}", product=product) for each in range(count)]
    runs = [gang(f"run-{each}", 8, 1, on=[f"n{each}"] * 8, **spec) for each in range(count)]
    return [*nodes, *(obj for made in runs for obj in made)]


def test_a_gang_that_fits_needs_no_change():
    trial = trial_of(queue("a"), node("n0"), gang("new", 2, 4))
    advice = advised(trial, "new")
    assert advice.unchanged.kind is StartKind.NOW
    assert advice.unchanged.nodes == (("n0", 2),)
    assert not advice.suggestions


def test_fewer_members_are_as_many_as_fit():
    """Given room for three pods of eight, then five are too many and the command says so."""
    trial = trial_of(queue("a"), node("n0"), gang("run", 2, 1, on=["n0"] * 2), gang("new", 8, 2))
    (fewer,) = [
        each for each in advised(trial, "new").suggestions
        if each.proposal.family is Family.MEMBERS
    ]  # fmt: skip
    assert fewer.proposal.message == "with minMember 3 in place of 8"
    assert fewer.proposal.command == (
        'kubectl patch podgroup new -n team --type merge -p \'{"spec":{"minMember":3}}\''
    )


def test_another_level_type_and_queue_are_found():
    """Given room in two racks, of another type and for another queue, then each is told."""
    split = trial_of(
        queue("a"), node("n0", rack="r0"), node("n1", rack="r1"),
        gang("new", 2, 8, topology={"required": "rack"}),
    )  # fmt: skip
    assert messages(advised(split, "new"))[Family.TOPOLOGY] == "without one rack for all its pods"
    other = trial_of(
        queue("a"), busy_nodes(1), node("free", product=A100),
        gang("new", 1, 8, selector={"nvidia.com/gpu.product": H100}),
    )  # fmt: skip
    assert messages(advised(other, "new"))[Family.NODE_LABEL] == (
        f"on nodes of nvidia.com/gpu.product={A100} in place of {H100}"
    )
    limited = trial_of(queue("a", capability={GPU: "4"}), queue("b"), node("n0"), gang("new", 1, 8))
    assert messages(advised(limited, "new"))[Family.QUEUE] == "in queue b in place of a"


def test_a_limit_is_raised_no_further_than_needed():
    """Given 4 GPUs held of 6, then 12 for a gang of 8."""
    trial = trial_of(
        queue("root-team", capability={GPU: "100"}),
        queue("a", parent="root-team", capability={GPU: "6"}),
        node("n0"), node("n1"), gang("run", 4, 1, on=["n0"] * 4), gang("new", 1, 8),
    )  # fmt: skip
    assert messages(advised(trial, "new"))[Family.QUOTA] == (
        f"with capability of queue a 12 {GPU} in place of 6 {GPU}"
    )


def test_nodes_are_as_few_as_needed_and_together():
    trial = trial_of(queue("a"), busy_nodes(2), gang("new", 3, 8, topology={"required": "rack"}))
    assert messages(advised(trial, "new"))[Family.NODES] == (
        f"with 3 more nodes like n0 ({H100}) in one new rack"
    )


def test_nodes_are_added_where_fewer_are_enough():
    """Given two idle nodes in one rack, then a gang of three needs one more there, not three in a new rack."""
    idle = [node("m0", rack="r9"), node("m1", rack="r9")]
    trial = trial_of(
        queue("a"), busy_nodes(2), *idle, gang("new", 3, 8, topology={"required": "rack"})
    )
    assert messages(advised(trial, "new"))[Family.NODES] == (
        f"with 1 more node like m0 ({H100}) in the same rack"
    )


def test_the_end_of_others_is_told_with_its_time_and_the_fewest_of_them():
    """Given two gangs with known ends, then the one that ends first is enough."""
    trial = trial_of(
        queue("a"), busy_nodes(1, expectedDuration="5h"), node("m"),
        gang("short", 8, 1, on=["m"] * 8, expectedDuration="2h"), gang("new", 1, 8),
    )  # fmt: skip
    (end,) = [
        each for each in advised(trial, "new").suggestions
        if each.proposal.family is Family.END_OF_OTHERS
    ]  # fmt: skip
    assert end.proposal.message == "when team/short has ended"
    assert end.proposal.at == NOW + 7200
    assert not end.proposal.command


def test_a_higher_class_and_a_permission_make_room():
    """Given a class above the one that runs, then the lowest of these; else that it could be evicted."""
    classes = [priority("low", 1), priority("mid", 50), priority("high", 1000)]
    trial = trial_of(
        queue("a"), classes, busy_nodes(1, priorityClassName="low"),
        gang("new", 1, 8, priorityClassName="low"),
    )  # fmt: skip
    (higher,) = [
        each for each in advised(trial, "new").suggestions
        if each.proposal.family is Family.PRIORITY
    ]  # fmt: skip
    assert higher.proposal.message == "with priority class mid (50 in place of 1)"
    assert higher.start.kind is StartKind.AFTER_EVICTIONS
    assert [each.name for each in higher.start.evicted] == ["run-0"]
    kept = trial_of(
        queue("a"), classes, busy_nodes(1, priorityClassName="low", preemptible=False),
        gang("new", 1, 8, priorityClassName="high"),
    )  # fmt: skip
    assert messages(advised(kept, "new"))[Family.PERMISSION] == "if team/run-0 were preemptible"


def test_whom_a_suspended_job_would_evict_is_told():
    """Given a Job that is submitted suspended, then a higher class is told with the gangs that leave for it."""
    trial = trial_of(
        queue("a"), priority("low", 1), priority("high", 1000),
        busy_nodes(1, priorityClassName="low"), in_namespace(job(1, suspend=True)),
    )  # fmt: skip
    waiting = trial.gang(GangKey("Job", "team", "new"))
    (higher,) = [
        each for each in advise_gang(trial, waiting).suggestions
        if each.proposal.family is Family.PRIORITY
    ]  # fmt: skip
    assert higher.start.kind is StartKind.AFTER_EVICTIONS
    assert [each.name for each in higher.start.evicted] == ["run-0"]


def test_a_taint_that_keeps_it_off_the_free_node_is_named():
    held = node("held")
    held["spec"] = {"taints": [{"key": "pool", "value": "x", "effect": "NoSchedule"}]}
    trial = trial_of(queue("a"), busy_nodes(1), held, gang("new", 1, 8))
    assert messages(advised(trial, "new"))[Family.TOLERATION] == (
        "if its pods tolerate the taint pool=x:NoSchedule"
    )


def test_two_changes_are_told_where_none_helps_alone():
    """Given a queue that is too small and no room, then another queue and a node together."""
    trial = trial_of(
        queue("a", capability={GPU: "4"}), queue("b"),
        busy_nodes(1, queue="b", preemptible=False), gang("new", 1, 8),
    )  # fmt: skip
    assert "in queue b in place of a and with 1 more node like n0 (NVIDIA-H100-80GB-HBM3)" in {
        each.proposal.message for each in advised(trial, "new").suggestions
    }


def test_what_others_would_use_as_well_is_said():
    """Given a gang before it that takes the first node which is added, then two nodes, and why."""
    trial = trial_of(
        queue("a"), busy_nodes(1, preemptible=False), gang("first", 1, 8, priorityClassName="high"),
        priority("high", 1000), gang("new", 1, 8),
    )  # fmt: skip
    assert messages(advised(trial, "new"))[Family.NODES] == (
        f"with 2 more nodes like n0 ({H100}) in one new rack, which 1 gang before it would use as well"
    )


def test_a_gang_behind_the_head_of_a_strict_line_starts_if_the_queue_is_ordered_otherwise():
    """Given a node that is free, and a head of the queue that needs two, then the ordering of the queue is named."""
    trial = trial_of(
        queue("a", ordering="StrictFifo"), busy_nodes(1, preemptible=False), node("n1"),
        gang("ahead", 2, 8), gang("new", 1, 8),
    )  # fmt: skip
    assert messages(advised(trial, "new"))[Family.PERMISSION] == (
        "if queue a were ordered by Priority in place of StrictFifo"
    )


def test_nodes_that_are_added_have_the_devices_of_those_that_they_are_like():
    """Given a Job whose two pods claim a device each and a node with one, then one more node, with its devices."""
    trial = trial_of(
        queue("a"), node("n0", gpus=0), device_class(), slice_of("n0", 1),
        *map(in_namespace, (claim_template(), claiming_job(2, suspend=True))),
    )  # fmt: skip
    others = list(trial.objects.others())
    advice = advise_gang(trial, trial.gang(GangKey("Job", "team", "new")))
    assert messages(advice)[Family.NODES] == f"with 1 more node like n0 ({H100})"
    assert list(trial.objects.others()) == others


def test_room_that_leaving_pods_free_anyway_needs_no_change():
    """Given a gang whose pods are being deleted, then the one that waits starts when they have ended."""
    leaving = gang("run", 8, 1, on=["n0"] * 8)
    for pod in leaving[1:]:
        pod["metadata"]["deletionTimestamp"] = format_time(NOW - 1)
    trial = trial_of(queue("a"), node("n0"), leaving, gang("new", 1, 8))
    start = advised(trial, "new").unchanged
    assert (start.kind, start.evicted, start.nodes) == (StartKind.AFTER_EVICTIONS, (), (("n0", 1),))


def test_an_answer_whose_budget_is_spent_says_so():
    trial = trial_of(queue("a"), busy_nodes(2), gang("new", 3, 8, topology={"required": "rack"}))
    assert advise_gang(trial, waiting_gang(trial, "new"), budget=2).is_cut
    assert not advised(trial, "new").is_cut


@pytest.mark.early
@pytest.mark.parametrize(("seed", "gangs"), [(2, 2), (6001, 6)])
def test_nothing_smaller_than_what_is_advised_is_enough(seed, gangs):
    """Given small clusters, then all smaller changes of a suggestion's kind leave its gang waiting.

    In the second one fewer ends do beside the others that wait than alone.
    """
    checked, larger = judge_smallness([seed], gangs=gangs)
    assert checked
    assert larger == []


def test_what_contradicts_itself_is_told_with_no_part_too_many():
    """Given racks of two nodes, then a rack and three whole nodes cannot hold together; memory is no part of it."""
    trial = trial_of(
        queue("a", capability={GPU: "1000"}), busy_nodes(4),
        gang("new", 3, 8, topology={"required": "rack"}),
    )  # fmt: skip
    never = advised(trial, "new").contradiction
    assert never is not None
    assert never.sentence == (
        f"never, even on an empty cluster: 8 {GPU} in a container, one rack for all pods and "
        "3 pods at once cannot hold together"
    )
    limited = trial_of(queue("a", capability={GPU: "4"}), node("n0"), gang("new", 1, 8))
    told = advised(limited, "new").contradiction
    assert told is not None
    assert told.demands == (f"8 {GPU} in a container", f"the capability of queue a (4 {GPU})")


def test_a_gang_larger_than_what_its_user_may_ever_have_never_starts():
    """The limit stands on an empty cluster too; it was once left out of what may contradict."""
    limited = trial_of(
        queue("a", userLimits={"perUser": {"resources": {GPU: "4"}}}), node("n0"), gang("new", 1, 8)
    )
    told = advised(limited, "new").contradiction
    assert told is not None
    assert told.demands == (f"8 {GPU} in a container", "what queue a lets its users have")


@pytest.mark.early
def test_the_cluster_is_left_as_it_was():
    """Given advice of every family, then the same advice again, whatever was tried before."""
    cluster = make_cluster(1)
    trial = trial_of(list(cluster.objects), now=cluster.now)
    names = [
        each.key for each in trial.take_snapshot().gangs if each.pod_sets and each.missing_members
    ]
    names = names[1:4:2]  # six families between them
    assert len(names) == 2

    def said():
        return [
            [
                (each.proposal.message, each.start)
                for each in advise_gang(trial, trial.gang(key)).suggestions
            ]
            for key in names
        ]

    before = said()
    assert any(before)
    assert said() == before


@pytest.mark.early
@pytest.mark.parametrize("seed", one_of(65, range(130)))
def test_what_is_advised_starts_the_gang_when_it_is_carried_out(seed):
    """Given a random cluster after hours of work, then each suggestion, simulated from its objects, starts its gang.

    ``python -m benchmarks --only advice`` does so for a thousand of them and counts.
    """
    judged = judge_advice([seed], gangs=2)
    assert judged.judged
    assert [each.text for each in judged.failed] == []


def test_a_session_without_evictions_keeps_the_same_room_as_one_with_them():
    """Given a gang that may evict another in three hours, then room is kept from then on, not from its end."""
    trial = trial_of(
        queue("a"), priority("low", 1), priority("high", 1000),
        busy_nodes(1, priorityClassName="low", minRuntime="3h", expectedDuration="10h"),
        gang("first", 1, 8, priorityClassName="high"),
    )  # fmt: skip
    for evict in (True, False):
        (room,) = trial.decide(evict=evict).reserved
        assert (room.gang.name, room.begins) == ("first", NOW + 3 * 3600)
