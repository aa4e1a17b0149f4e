"""What forbids evictions for a gang is named with its object, and the gang starts once it is taken away."""

from __future__ import annotations

import pytest

from gpusched.advice.advisor import advise_gang
from gpusched.advice.start_answer import StartKind, start_answer
from gpusched.api.meta.identity import ObjectKey
from tests.advice.clusters import (
    GPU,
    NOW,
    budget,
    gang,
    node,
    priority,
    queue,
    trial_of,
    waiting_gang,
)

CLASSES = [priority("low", 1), priority("high", 1000)]
LATER = NOW + 7200
"""Two hours after what runs began."""


def runs(name="run", *, at="n0", low=True, **spec):
    """A gang of eight pods that fills a node, of the lower class."""
    if low:
        spec = {"priorityClassName": "low", **spec}
    return gang(name, 8, 1, on=[at] * 8, **spec)


def waits(pods=1, **spec):
    """A gang that needs whole nodes, of the higher class."""
    return gang("new", pods, 8, **{"priorityClassName": "high", **spec})


def forbidden(trial):
    """What is told to forbid evictions, after a check that it does: all of it, and each part of it."""
    advice = advise_gang(trial, waiting_gang(trial, "new"))
    assert not advice.unchanged.starts
    told = [each for each in advice.suggestions if each.proposal.forbidden_by]
    for each in told:
        assert each.start.kind is StartKind.AFTER_EVICTIONS
        assert decided(trial, each.proposal.edits).evicted == each.start.evicted
    return told


def decided(trial, edits):
    """The start that the next session gives once the edits are made."""
    with trial.changed(edits):
        return start_answer(trial.decide(), waiting_gang(trial, "new").key)


def facts(suggestion):
    """Rule, kind and name of each obstacle, and the gangs that stay by it."""
    return [
        (by.rule, by.kind, by.key.name, [key.name for key in by.gangs])
        for by in suggestion.proposal.forbidden_by
    ]


def test_a_disruption_budget_is_named_with_the_gang_that_it_keeps():
    """Given a gang of lower priority under a budget that allows one eviction, then that budget and no other."""
    trial = trial_of(
        queue("a"), CLASSES, node("n0"), node("n1"), runs(), runs("other", at="n1", preemptible=False),
        budget("keeps-run", "run", allowed=1), budget("keeps-other", "other"), waits(),
    )  # fmt: skip
    (told,) = [
        each for each in forbidden(trial) if len(each.proposal.forbidden_by) == 1
        and each.proposal.forbidden_by[0].rule == "disruptionBudget"
    ]  # fmt: skip
    assert facts(told) == [("disruptionBudget", "PodDisruptionBudget", "keeps-run", ["run"])]
    (by,) = told.proposal.forbidden_by
    assert by.message == "PodDisruptionBudget team/keeps-run allows 1 eviction"
    assert told.proposal.message == "if PodDisruptionBudget team/keeps-run were gone"
    assert told.proposal.command == "kubectl delete pdb keeps-run -n team"


def test_either_of_two_budgets_over_the_same_pods_is_in_the_way():
    """Given two budgets that would allow all, then one of them: the API evicts no pod that two count."""
    trial = trial_of(
        queue("a"), CLASSES, node("n0"), runs(), budget("one", "run", allowed=8),
        budget("two", "run", allowed=8), waits(),
    )  # fmt: skip
    (told,) = forbidden(trial)
    assert facts(told) == [("disruptionBudget", "PodDisruptionBudget", "one", ["run"])]


def test_a_min_runtime_is_told_with_the_time_from_which_it_forbids_nothing():
    """Given a gang that started two hours ago with three, then in an hour; and it starts then."""
    objects = [queue("a"), CLASSES, node("n0"), runs(minRuntime="3h"), waits()]
    (told,) = forbidden(trial_of(*objects, now=LATER))
    assert facts(told) == [("minRuntime", "PodGroup", "run", ["run"])]
    (by,) = told.proposal.forbidden_by
    assert (by.until, told.proposal.at) == (NOW + 3 * 3600, NOW + 3 * 3600)
    assert by.message == (
        "team/run may not be evicted before 2027-01-15T11:00:00Z, as its minRuntime is 3h"
    )
    before, after = (trial_of(*objects, now=by.until + shift) for shift in (-1, 0))
    assert not decided(before, ()).starts
    assert decided(after, ()).kind is StartKind.AFTER_EVICTIONS


def test_a_min_runtime_of_its_queue_names_the_queue_and_changes_no_other_gang():
    trial = trial_of(queue("a", minRuntime="3h"), CLASSES, node("n0"), runs(), waits(), now=LATER)
    (told,) = forbidden(trial)
    (by,) = told.proposal.forbidden_by
    assert by.message.endswith("as minRuntime of queue a is 3h")
    assert [edit.plural for edit in told.proposal.edits] == ["podgroups"]
    assert told.proposal.command == (
        'kubectl patch podgroup run -n team --type merge -p \'{"spec":{"minRuntime":"1s"}}\''
    )


@pytest.mark.parametrize("terms", [{"preemptible": False}, {"disruption": {"mode": "Extras"}}])
def test_a_gang_that_may_not_be_evicted_is_named(terms):
    trial = trial_of(queue("a"), CLASSES, node("n0"), runs(**terms), waits())
    (told,) = forbidden(trial)
    assert facts(told) == [("preemptible", "PodGroup", "run", ["run"])]
    assert told.proposal.message == "if team/run were preemptible"


def test_two_rules_are_told_together_where_none_of_them_is_in_the_way_alone():
    """Given a gang that is not preemptible and under a budget, then both; and each of them is needed."""
    trial = trial_of(
        queue("a"), CLASSES, node("n0"), runs(preemptible=False), budget("keeps", "run"), waits()
    )
    (told,) = forbidden(trial)
    assert [rule for rule, *_ in facts(told)] == ["disruptionBudget", "preemptible"]
    for edit in told.proposal.edits:
        assert not decided(trial, [edit]).starts


def test_a_queue_that_gives_nothing_back_and_one_that_is_guaranteed_its_room_are_named():
    """Given a claimant within what it deserves, then the queue that keeps what it borrowed, and why."""
    claims = queue("a", deserved={GPU: "8"})
    kept = trial_of(
        claims, queue("b", deserved={GPU: "0"}, reclaimable=False), node("n0"),
        runs(queue="b", low=False), gang("new", 1, 8),
    )  # fmt: skip
    (told,) = forbidden(kept)
    assert facts(told) == [("reclaimable", "Queue", "b", ["run"])]
    guaranteed = trial_of(
        claims, queue("b", deserved={GPU: "4"}, guarantee={"resource": {GPU: "4"}}), node("n0"),
        gang("run", 1, 8, on=["n0"], queue="b"), gang("new", 1, 8),
    )  # fmt: skip
    (told,) = forbidden(guaranteed)
    assert facts(told) == [("guarantee", "Queue", "b", ["run"])]
    (by,) = told.proposal.forbidden_by
    assert by.message == f"queue b is guaranteed 4 {GPU} and holds 8 {GPU}"
    assert told.proposal.message == f"if queue b were guaranteed 0 {GPU} in place of 4 {GPU}"


def test_what_the_other_queue_deserves_is_named_and_lowered_no_further_than_needed():
    """Given a queue that holds the 16 that it deserves, then 8 for a gang of 8 that would take one node."""
    trial = trial_of(
        queue("a", deserved={GPU: "8"}), queue("b", deserved={GPU: "16"}), node("n0"), node("n1"),
        runs("one", queue="b", low=False), runs("two", at="n1", queue="b", low=False),
        gang("new", 1, 8),
    )  # fmt: skip
    (told,) = forbidden(trial)
    ((rule, kind, name, kept),) = facts(told)
    assert (rule, kind, name, len(kept)) == ("deserved", "Queue", "b", 1)
    assert told.proposal.forbidden_by[0].message == f"queue b deserves 16 {GPU} and holds 16 {GPU}"
    assert told.proposal.message == f"if queue b deserved 8 {GPU} in place of 16 {GPU}"


def test_what_its_own_queue_deserves_is_told_of_the_raise_that_helps():
    """Given a queue that is due nothing more, then the raised quota says that this is what forbids it."""
    trial = trial_of(
        queue("a", deserved={GPU: "4"}), queue("b", deserved={GPU: "0"}), node("n0"),
        runs(queue="b", low=False), gang("new", 1, 8),
    )  # fmt: skip
    (told,) = forbidden(trial)
    assert told.proposal.message == f"with deserved of queue a 8 {GPU} in place of 4 {GPU}"
    assert facts(told) == [("deserved", "Queue", "a", ["run"])]
    assert told.proposal.forbidden_by[0].message == (
        f"queue a would hold 8 {GPU} with it and deserves 4 {GPU}"
    )


def test_its_priority_is_told_of_the_class_that_helps():
    trial = trial_of(queue("a"), CLASSES, node("n0"), runs(), waits(priorityClassName="low"))
    (told,) = forbidden(trial)
    assert facts(told) == [("priority", "PodGroup", "new", ["run"])]


def test_a_queue_that_is_served_in_line_is_named():
    trial = trial_of(queue("a", ordering="Fifo"), CLASSES, node("n0"), runs("early"), waits())
    (told,) = forbidden(trial)
    assert facts(told) == [("ordering", "Queue", "a", ["early"])]


def test_a_turn_that_was_waited_for_is_told_until_it_is_over():
    """Given a gang that waited for longer than maxWait, then it is safe for as long again."""
    late = runs()
    late[0]["metadata"]["creationTimestamp"] = "2027-01-15T01:00:00Z"
    objects = [queue("a", maxWait="4h"), CLASSES, node("n0"), late, waits()]
    (told,) = forbidden(trial_of(*objects))
    assert facts(told) == [("maxWait", "Queue", "a", ["run"])]
    (by,) = told.proposal.forbidden_by
    before, after = (trial_of(*objects, now=by.until + shift) for shift in (-1, 0))
    assert not decided(before, ()).starts
    assert decided(after, ()).starts


def test_nothing_is_told_to_forbid_evictions_that_would_not_help():
    """Given too few nodes, then no rule is blamed."""
    trial = trial_of(
        queue("a"), CLASSES, node("n0"), runs(preemptible=False), budget("keeps", "run"), waits(2)
    )
    assert forbidden(trial) == []


def test_a_rule_has_a_place_among_many_other_changes():
    """Given more suggestions than are told, then what forbids evictions is one of those told."""
    held = node("held")
    held["spec"] = {"taints": [{"key": "pool", "value": "x", "effect": "NoSchedule"}]}
    others = [queue(name, deserved={GPU: "0"}) for name in "bc"]
    trial = trial_of(
        queue("a", deserved={GPU: "16"}), others, CLASSES, node("n0"), node("n1"), held,
        runs(minRuntime="3h"), runs("half", at="n1", preemptible=False), node("free", product="other"),
        gang("new", 2, 8, selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
             priorityClassName="high", topology={"required": "rack"}),
    )  # fmt: skip
    assert forbidden(trial)


def test_removing_the_budget_leaves_the_copy_as_it_was():
    trial = trial_of(queue("a"), CLASSES, node("n0"), runs(), budget("keeps", "run"), waits())
    forbidden(trial)
    assert trial.objects.get("poddisruptionbudgets", ObjectKey("team", "keeps")) is not None
    assert not decided(trial, ()).starts


def test_a_priority_that_helps_by_its_turn_alone_is_not_told_to_forbid_evictions():
    """Given free room that an older gang takes first, then a higher class helps, and nobody is evicted for it."""
    trial = trial_of(
        queue("a"), CLASSES, node("n0"), gang("first", 1, 8, priorityClassName="low"),
        node("n1"), runs(at="n1"), waits(priorityClassName="low"),
    )  # fmt: skip
    told = advise_gang(trial, waiting_gang(trial, "new")).suggestions
    (higher,) = [each for each in told if "priority class high" in each.proposal.message]
    assert higher.start.kind is StartKind.NOW
    assert not higher.proposal.forbidden_by


def test_in_a_long_line_another_gang_may_have_evicted_what_a_rule_kept():
    """Given a gang before it that would take the same room, then only that gang is told of the rule."""
    objects = [
        queue("a"), CLASSES, node("n0"), runs(minRuntime="3h"),
        gang("first", 1, 8, priorityClassName="high"), waits(),
        *(gang(f"too-large-{each}", 1, 9) for each in range(70)),
    ]  # fmt: skip
    trial = trial_of(*objects)
    assert not trial.waiting_line().is_whole
    told = {
        name: [
            by.rule
            for each in advise_gang(trial, waiting_gang(trial, name)).suggestions
            for by in each.proposal.forbidden_by
        ]
        for name in ("first", "new")
    }
    assert told == {"first": ["minRuntime"], "new": []}
