"""What lets a gang start whose user, group or budget has had all that its queue gives."""

from __future__ import annotations

import pytest

from gpusched.advice.advisor import advise_gang
from gpusched.advice.proposals.proposal import Family
from gpusched.advice.start_answer import start_answer
from tests.advice.clusters import GPU, gang, node, priority, queue, trial_of, waiting_gang

EIGHT = {"resources": {GPU: "8"}, "maxRunning": 1}


def by(user, objects, *, groups=""):
    """A gang as a user made it, with pods that say the same."""
    notes = {"gpusched.io/user": user, "gpusched.io/groups": groups}
    return [{**each, "metadata": {**each["metadata"], "annotations": notes}} for each in objects]


def used(gpu_seconds, **budget):
    """A queue that has used so much of its budget this month, all of it by ann."""
    counted = {
        "asOf": "2027-01-15T07:00:00Z", "periodStart": "2027-01-01T00:00:00Z",
        "rolledOverGpuSeconds": "0", "gpuSeconds": gpu_seconds,
        "users": [{"name": "ann", "gpuSeconds": gpu_seconds}],
    }  # fmt: skip
    return {**queue("a", budget={"period": "Month", **budget}), "status": {"budget": counted}}


def raised(trial):
    """The change of limits or budgets that is advised; decided with it, the gang starts."""
    asked = waiting_gang(trial, "new")
    (found,) = [
        each.proposal
        for each in advise_gang(trial, asked).suggestions
        if each.proposal.family is Family.QUOTA
    ]
    with trial.changed(found.edits):
        assert start_answer(trial.decide(), asked.key).starts
    return found


@pytest.mark.parametrize(
    ("limits", "user", "says", "patch"),
    [
        (
            {"perUser": EIGHT},
            "ann",
            (
                "with 12 nvidia.com/gpu for user ann in queue a in place of 8 nvidia.com/gpu "
                "and 2 running gangs for user ann in queue a in place of 1"
            ),
            '{"users":[{"maxRunning":2,"name":"ann","resources":{"nvidia.com/gpu":"12"}}]}',
        ),
        (
            {"perUser": EIGHT},
            "",
            (
                "with 12 nvidia.com/gpu for each user in queue a in place of 8 nvidia.com/gpu "
                "and 2 running gangs for each user in queue a in place of 1"
            ),
            '{"perUser":{"maxRunning":2,"resources":{"nvidia.com/gpu":"12"}}}',
        ),
        (
            {"users": [{"name": "bob", **EIGHT}, {"name": "ann", "maxRunning": 1}]},
            "ann",
            "with 2 running gangs for user ann in queue a in place of 1",
            (
                '{"users":[{"maxRunning":1,"name":"bob","resources":{"nvidia.com/gpu":"8"}},'
                '{"maxRunning":2,"name":"ann"}]}'
            ),
        ),
        (
            {"groups": [{"name": "interns", "resources": {GPU: "8"}}]},
            "ann",
            "with 12 nvidia.com/gpu for group interns in queue a in place of 8 nvidia.com/gpu",
            '{"groups":[{"name":"interns","resources":{"nvidia.com/gpu":"12"}}]}',
        ),
    ],
)
def test_limits_of_a_user_or_group_are_raised_to_what_is_held_and_needed(limits, user, says, patch):
    """Given a user who holds all that one may, then the entry of that user alone is raised, where it has a name."""
    trial = trial_of(
        queue("a", userLimits=limits), node("n0"), node("n1"),
        by(user, gang("runs", 1, 8, on=["n0"]), groups="interns"),
        by(user, gang("new", 1, 4), groups="interns"),
    )  # fmt: skip
    found = raised(trial)
    assert found.message == says
    told = f'{{"spec":{{"userLimits":{patch}}}}}'
    assert found.command == f"kubectl patch queue a --type merge -p '{told}'"


def test_a_limit_leaves_room_for_those_of_the_same_user_before_it():
    """Given another gang of the user in line, then so much more is advised that both may run."""
    limits = {"perUser": {"resources": {GPU: "8"}}}
    trial = trial_of(
        queue("a", userLimits=limits), node("n0"), node("n1"),
        by("ann", gang("runs", 1, 8, on=["n0"])), by("ann", gang("before", 1, 4)), by("ann", gang("new", 1, 4)),
    )  # fmt: skip
    assert raised(trial).message == (
        "with 16 nvidia.com/gpu for user ann in queue a in place of 8 nvidia.com/gpu, "
        "which 1 gang before it would use as well"
    )


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ({"gpuHours": "2"}, "with a budget of 6 GPU-hours for queue a in place of 2"),
        (
            {"gpuHours": "1k", "gpuHoursPerUser": "1"},
            "with a budget of 6 GPU-hours for each user in queue a in place of 1",
        ),
        (
            {"gpuHours": "4", "gpuHoursPerUser": "500m"},
            (
                "with a budget of 6 GPU-hours for queue a in place of 4 "
                "and a budget of 6 GPU-hours for each user in queue a in place of 0.5"
            ),
        ),
    ],
)
def test_a_used_budget_is_raised_to_whole_hours_of_which_one_is_left(budget, says):
    """Given 4.16 GPU-hours that were used, then that and an hour more are advised, in whole hours."""
    trial = trial_of(used("15000", **budget), node("n0"), by("ann", gang("new", 1, 4)))
    assert raised(trial).message == says


def test_two_queues_above_each_other_are_raised_together():
    """Given a limit of a queue and the budget of its parent, then one change raises both."""
    parent = {**used("15000", gpuHours="2"), "metadata": {"name": "top"}}
    trial = trial_of(
        parent, queue("a", parent="top", userLimits={"perUser": {"maxRunning": 0}}), node("n0"),
        by("ann", gang("new", 1, 4)),
    )  # fmt: skip
    found = raised(trial)
    assert found.message == (
        "with 1 running gang for user ann in queue a in place of 0 and a budget of 6 GPU-hours for queue top in place of 2"
    )
    assert found.command.count("kubectl patch queue") == 2


def test_a_limit_that_is_raised_is_not_told_to_allow_evictions():
    """Given a queue above what it deserves, then others of lower priority leave, and no rule is said to forbid it now."""
    trial = trial_of(
        queue("a", deserved={GPU: "8"}, userLimits={"perUser": {"resources": {GPU: "8"}}}), queue("b", deserved={GPU: "8"}),
        priority("low", 1), priority("high", 100), node("n0"), node("n1"),
        by("ann", gang("runs", 1, 8, on=["n0"], priorityClassName="high")),
        by("bob", gang("weak", 1, 8, on=["n1"], priorityClassName="low")),
        by("ann", gang("new", 1, 8, priorityClassName="high")),
    )  # fmt: skip
    found = raised(trial)
    assert (
        found.message
        == "with 16 nvidia.com/gpu for user ann in queue a in place of 8 nvidia.com/gpu"
    )
    assert found.forbidden_by == ()
