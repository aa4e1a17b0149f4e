"""Advice where so many gangs wait that a decision with all of them is dear."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.advice.carried_out import started_after
from benchmarks.advice.large_cluster import make_large_cluster
from benchmarks.advice.share_started import judge_advice, waiting_gangs
from benchmarks.advice.share_started import trial_of as trial_of_cluster
from gpusched.advice.advisor import advise_gang
from gpusched.advice.proposals.own_proposals import OwnProposals
from gpusched.advice.proposals.proposal import Family
from gpusched.advice.start_answer import StartKind, start_answer
from gpusched.advice.workload import find_workload
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import key_of, plural_of
from tests.advice.clusters import (
    A100,
    H100,
    gang,
    in_namespace,
    node,
    priority,
    queue,
    trial_of,
    waiting_gang,
)
from tests.advice.submission.manifests import job
from tests.populations import one_of

LINE = 70
small_line = partial(make_large_cluster, nodes=16, waiting=90)


def line_of(name, count=LINE, **spec):
    """Gangs of one pod that takes a whole node."""
    return [obj for number in range(count) for obj in gang(f"{name}-{number:02}", 1, 8, **spec)]


def test_an_end_that_moves_another_queue_forward_is_not_told():
    """Given two queues that hold as much, when a gang of ``b`` ends then 70 others of ``b`` come first.

    They came after the gang as long as ``b`` held as much as its own queue.
    """
    trial = trial_of(
        queue("a"), queue("b"), node("n0"), node("n1"),
        gang("ends-first", 1, 8, on=["n0"], queue="b"),
        gang("ends-second", 1, 8, on=["n1"]),
        gang("asked", 1, 8), line_of("other", queue="b"),
    )  # fmt: skip
    asked = waiting_gang(trial, "asked")
    line = trial.waiting_line()
    assert not line.is_whole
    assert line.decision.order.turns[0].gang == asked.key
    for each in advise_gang(trial, asked).suggestions:
        with trial.changed(each.proposal.edits):
            decided = start_answer(trial.decide(), asked.key)
        assert decided.starts, each.proposal.message
        assert each.proposal.message != "when team/ends-first has ended"


def test_a_gang_at_the_head_of_a_long_line_is_told_what_helps():
    """Given a node that it does not select, then it is told so, and the 70 behind it do not matter."""
    trial = trial_of(
        queue("a"), node("n0"), node("n1"), gang("run", 1, 8, on=["n0"]),
        gang("asked", 1, 8, selector={"kubernetes.io/hostname": "n0"}),
        line_of("other", selector={"kubernetes.io/hostname": "n0"}),
    )  # fmt: skip
    found = {
        each.proposal.family: each
        for each in advise_gang(trial, waiting_gang(trial, "asked")).suggestions
    }
    assert found[Family.NODE_LABEL].start.nodes == (("n1", 1),)
    assert found[Family.END_OF_OTHERS].proposal.message == "when team/run has ended"


@pytest.mark.early
def test_a_session_up_to_a_turn_gives_what_a_whole_one_gives():
    """Given a full cluster from which gangs end, then each start up to a turn is one of the whole session."""
    cluster = small_line(3)
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        trial = trial_of_cluster(cluster)
        running = sorted(trial.take_snapshot().placed_gangs)[:6]
        for obj in cluster.objects:
            if plural_of(obj) == "pods" and _gang_of(obj) in {key.name for key in running}:
                trial.objects.remove("pods", key_of(obj))
        whole = trial.decide(evict=False)
        started = 0
        for number, each in enumerate(waiting_gangs(trial)):
            # of those that do not start the fourth part is enough
            if number % 4 and not start_answer(whole, each.key).starts:
                continue
            answer = start_answer(trial.decide(until=each.key, evict=False), each.key)
            if answer.kind is StartKind.NOW:
                started += 1
                assert start_answer(whole, each.key) == answer
        assert started >= 2


@pytest.mark.early
def test_room_that_is_kept_for_the_next_one_is_looked_at():
    """Given a gang that needs no reservation any more, then that of the next in line may keep its room.

    A class was told there that did not start it: the next one had nothing without the change.
    """
    cluster = make_large_cluster(9, nodes=60, waiting=100)
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        trial = trial_of_cluster(cluster)
        asked = waiting_gang(trial, "g142")
        suggestions = advise_gang(trial, asked).suggestions
        assert suggestions
        for each in suggestions:
            with trial.changed(each.proposal.edits):
                assert start_answer(trial.decide(), asked.key).starts, each.proposal.message


@pytest.mark.early
def test_a_job_is_played_with_all_where_a_change_gives_others_something_as_well():
    """Given more that its queue deserves, then others of the queue take it before the pods of the Job are made."""
    cluster = make_large_cluster(0, nodes=60, waiting=100)
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        trial = trial_of_cluster(cluster)
        asked = trial.gang(GangKey("Job", "team", "g9"))
        suggestions = advise_gang(trial, asked).suggestions
    assert suggestions
    for each in suggestions:
        if each.proposal.family is Family.QUOTA:
            assert started_after(cluster, each.proposal.edits, asked.key) is not None


@pytest.mark.early
@pytest.mark.parametrize("seed", one_of(20, range(40)))
def test_what_is_advised_in_a_long_line_starts_the_gang(seed):
    """Given a full cluster with 80 to 90 gangs in line, then each suggestion, simulated, starts its gang."""
    judged = judge_advice([seed], gangs=3, make=small_line)
    assert judged.cpu_s
    assert [each.text for each in judged.failed] == []


def _gang_of(obj):
    return (obj["metadata"].get("labels") or {}).get(
        "gpusched.io/pod-group", obj["metadata"]["name"]
    )


def _behind_more_than_a_session_looks_at(late):
    """A gang that could use the free node if it tolerated its taint, behind 230 others; that change.

    Args:
        late: demands of a gang of a shorter queue.
    """
    pool = {
        **node("n1"),
        "spec": {"taints": [{"key": "pool", "value": "x", "effect": "NoSchedule"}]},
    }
    trial = trial_of(
        queue("a"), queue("b"), node("n0"), pool,
        gang("run", 8, 1, on=["n0"] * 8, queue="b", preemptible=False), late, gang("new", 1, 8),
        *(gang(f"early-{each:03}", 1, 1, selector={"pool": f"{each}"}) for each in range(230)),
    )  # fmt: skip
    asked = waiting_gang(trial, "new")
    own = OwnProposals(trial, asked, find_workload(trial, asked), trial.take_snapshot())
    (tolerates,) = own.tolerated_taints()
    return trial, asked, tolerates


def test_what_another_takes_before_its_turn_comes_is_not_told():
    """Given 230 gangs before it, more than a session looks at, then one of a shorter queue has the room by then.

    One session with all of them would give it to the gang, whose queue is served first.
    """
    late = gang("late", 1, 8, queue="b", preemptible=False)
    late[1]["spec"]["tolerations"] = [{"key": "pool", "operator": "Exists"}]
    trial, asked, tolerates = _behind_more_than_a_session_looks_at(late)
    with trial.changed(tolerates.edits):
        assert start_answer(trial.decide(), asked.key).kind is StartKind.NOW
    told = [each.proposal.message for each in advise_gang(trial, asked).suggestions]
    assert tolerates.message not in told


def test_what_is_left_when_its_turn_comes_is_told():
    """Given as many before it, of which none can use the room, then it is told, though sessions pass until then."""
    late = gang("late", 1, 8, queue="b", selector={"pool": "none"}, preemptible=False)
    trial, asked, tolerates = _behind_more_than_a_session_looks_at(late)
    advice = advise_gang(trial, asked)
    assert tolerates.message in [each.proposal.message for each in advice.suggestions]


@pytest.mark.parametrize(("ordering", "starts"), [("Priority", True), ("StrictFifo", None)])
def test_a_higher_class_gives_no_turn_in_a_strict_line(ordering, starts):
    """Given more before it than a session looks at, then a class moves it to the front, but where time alone counts."""
    trial = trial_of(
        priority("high", 9), queue("a", ordering=ordering), node("n0"), gang("new", 1, 8),
        *(gang(f"early-{each:03}", 1, 1, selector={"pool": f"{each}"}) for each in range(230)),
    )  # fmt: skip
    asked = waiting_gang(trial, "new")
    own = OwnProposals(trial, asked, find_workload(trial, asked), trial.take_snapshot())
    (higher,) = own.higher_classes()
    assert trial.turn_answer(asked.key, higher.edits, evict=True).starts is starts


def test_a_gang_behind_a_strict_line_is_told_what_is_in_the_way():
    """Given 70 gangs before it in its queue, which is served strictly, then that is said, and what they would take."""
    trial = trial_of(
        queue("a", ordering="StrictFifo"), queue("default", stopPolicy="Hold"), node("n0"),
        gang("run", 8, 1, on=["n0"] * 8, preemptible=False), line_of("early"), gang("new", 1, 8),
    )  # fmt: skip
    advice = advise_gang(trial, waiting_gang(trial, "new"))
    assert advice.suggestions == ()
    first, *others = advice.in_the_way
    assert first == (
        "70 gangs are before it in line, 70 of them of queue a, which is served StrictFifo: "
        "team/early-00, team/early-01, team/early-02, team/early-03 and 66 more"
    )
    assert (
        "when team/run has ended it would start alone, but team/early-00 would have the room"
    ) in others


def test_a_pair_is_told_where_hundreds_are_before_it_in_a_strict_line():
    """Given 160 gangs before it in its queue, then neither another order nor a higher class helps, but both do."""
    trial = trial_of(
        queue("a", ordering="StrictFifo"), queue("default", stopPolicy="Hold"), node("n0"),
        priority("low", 1), priority("high", 1000),
        gang("run", 8, 1, on=["n0"] * 8, priorityClassName="low"),
        line_of("early", 160, priorityClassName="low"), gang("new", 1, 8, priorityClassName="low"),
    )  # fmt: skip
    (told,) = advise_gang(trial, waiting_gang(trial, "new")).suggestions
    assert told.proposal.message == (
        "if queue a were ordered by Priority in place of StrictFifo and with priority class high "
        "(1000 in place of 1)"
    )
    assert [key.name for key in told.start.evicted] == ["run"]


def test_what_others_may_take_is_not_tried_where_hundreds_wait_and_two_changes_help():
    """Given a gang that starts on another node or with fewer members, then that is told, and that more may help."""
    h100 = {"nvidia.com/gpu.product": H100}
    trial = trial_of(
        queue("a"), node("n0"), node("n1", product=A100, gpus=4), gang("run", 7, 1, on=["n0"] * 7),
        line_of("other", 160, selector=h100), gang("new", 4, 1, selector=h100),
    )  # fmt: skip
    advice = advise_gang(trial, waiting_gang(trial, "new"))
    families = [each.proposal.family for each in advice.suggestions]
    assert families == [Family.NODE_LABEL, Family.MEMBERS]
    assert advice.is_cut


def test_a_job_starts_beside_others_that_have_gangs_evicted_before_its_pods_are_made():
    """Given a gang that preempts one of two running gangs, then the class by which a Job has the other one evicted."""
    classes = [priority("low", 1), priority("high", 1000)]
    trial = trial_of(
        queue("a"), classes, node("n0"), node("n1"),
        *(gang(f"run-{each}", 8, 1, on=[f"n{each}"] * 8, priorityClassName="low") for each in (0, 1)),
        gang("evicts", 1, 8, priorityClassName="high"), line_of("other", priorityClassName="low"),
        in_namespace(job(1, suspend=True)),
    )  # fmt: skip
    asked = trial.gang(GangKey("Job", "team", "new"))
    found = {each.proposal.family for each in advise_gang(trial, asked).suggestions}
    assert Family.PRIORITY in found
