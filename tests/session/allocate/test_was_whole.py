"""Whether a gang that is below its minimum once had it, by the members that it has."""

from __future__ import annotations

import pytest

from gpusched.api.foreign.kinds import KAI
from gpusched.api.gang.plan_suffix import plan_suffix
from gpusched.api.meta.identity import UID, Owner
from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.session.allocate.gang_repair import was_whole
from gpusched.testing import entities
from gpusched.testing.given import Given

BOUND = entities.BORN + 10
BEFORE, AFTER = BOUND - 5, BOUND + 5
MADE_BY = ("PodGroup", "KAI", "annotation")


def gang_of(made_by, *bound, waiting=(), phase="Inqueue"):
    """A gang of three or more, of bound members as (plan, time) and of others by their creation."""
    c = Given().nodes(8, gpus=8)
    fields = {}
    if made_by == "annotation":
        fields = {"owner": Owner("Trainer", "g", UID("t")), "hints": GangAnnotations(min_member=3)}
    else:
        c.group("g", min_member=3, phase=phase, source=KAI if made_by == "KAI" else "")
        fields = {"group": "g"}
    for number, (plan, at) in enumerate(bound):
        c.pod(
            f"b{number}", gpus=1, node=f"node-{number}", plan=plan, slots=1, scheduled=at,
            phase=PodPhase.RUNNING, **fields,
        )  # fmt: skip
    for number, created in enumerate(waiting):
        c.pod(f"w{number}", gpus=1, created=created, **fields)
    gangs = c.cache.take_snapshot(now=c.now).gangs
    return next(gang for gang in gangs if gang.key.name == "g")


@pytest.mark.parametrize("made_by", MADE_BY)
def test_members_left_out_show_that_it_never_was_whole(made_by):
    """Given one that waits since before the last of its siblings was bound."""
    gang = gang_of(made_by, ("p", BOUND - 8), ("p", BOUND), waiting=[BEFORE, AFTER])
    assert not was_whole(gang)


@pytest.mark.parametrize("made_by", MADE_BY)
def test_replacements_show_that_it_was_whole(made_by):
    """Given that all that wait were made after the last was bound; without any our status is believed."""
    assert was_whole(gang_of(made_by, ("p", BOUND), ("p", BOUND), waiting=[AFTER]))
    gang = gang_of(made_by, ("p", BOUND), ("p", BOUND))
    assert was_whole(gang) is (made_by != "PodGroup")


def test_the_status_of_our_pod_group_is_believed():
    """Given a phase that it has only after it was whole, whoever waits."""
    for phase in ("Running", "Unknown"):
        assert was_whole(gang_of("PodGroup", ("p", BOUND), waiting=[BEFORE], phase=phase))


@pytest.mark.parametrize("made_by", MADE_BY)
def test_members_that_others_bound_ran_before_our_time(made_by):
    """Given no plan on any of them: of a group that is whole; else their siblings tell."""
    gang = gang_of(made_by, ("", BOUND), ("", BOUND), waiting=[BEFORE])
    assert was_whole(gang) is (made_by != "annotation")


@pytest.mark.parametrize(("left", "waiting", "whole"), [(2, 2, True), (2, 3, False), (0, 1, False)])
def test_as_many_may_wait_as_the_plan_left_waiting(left, waiting, whole):
    """Given extras that there was no room for: one more waits, and one of the plan was not bound."""
    plan = "0123456789ab" + plan_suffix(left=left, grows=False)
    gang = gang_of("annotation", (plan, BOUND), ("p", BOUND), waiting=[BEFORE] * waiting)
    assert was_whole(gang) is whole


def test_members_that_a_gang_grew_by_show_that_it_was_whole_before():
    """Given only extras left, and others that wait since before them."""
    plan = "0123456789ab" + plan_suffix(left=0, grows=True)
    assert was_whole(gang_of("annotation", (plan, BOUND), waiting=[BEFORE]))


def test_a_second_loss_does_not_hide_the_first():
    """Given a replacement that was bound while another one waits: the first plan is what tells."""
    gang = gang_of("annotation", ("p", BOUND), ("q", BOUND + 50), waiting=[BOUND + 20])
    assert was_whole(gang)


def test_a_binding_that_no_watch_has_shown_tells_nothing():
    """Given members of which is not known when they were bound."""
    assert not was_whole(gang_of("annotation", ("p", 0.0), ("p", 0.0), waiting=[AFTER]))
