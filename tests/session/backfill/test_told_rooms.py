"""Gangs that start take the room that was reserved for them: others were told their starts beside it."""

from __future__ import annotations

from gpusched.api.meta.identity import format_time
from gpusched.api.pod.pod import GangAnnotations

S = 10**9


def waits(c, name, pods, gpus, *, lasts, age, told_in=None):
    """A gang that waits and, where told, was told that it starts in so many seconds."""
    status = b"{}"
    if told_in is not None:
        status = b'{"estimatedStartTime":"%s"}' % format_time(c.now + told_in).encode()
    created = c.now - age
    c.group(name, min_member=pods, created=created, expected_duration_ns=lasts * S, status=status)
    c.pods(name, pods, group=name, gpus=gpus, created=created)


def rows(c):
    """Nodes of the members of each gang that starts."""
    return {
        gang.gang.name: sorted(int(bind.node.removeprefix("node-")) for bind in gang.binds)
        for gang in c.then.plan.binds
    }


def test_a_gang_starts_in_its_reserved_room_though_no_end_is_known_any_more(given):
    """Given that nothing else is known to end, when a gang starts as told, then it leaves the room that another was told to start in."""
    c = given.nodes(3, gpus=8)
    c.pod("endless", node="node-1", slots=3, gpus=2, plan="p", scheduled=c.now - 5)
    waits(c, "first", 4, 4, lasts=210, age=400, told_in=0)
    waits(c, "wide", 2, 8, lasts=170, age=300, told_in=210)
    waits(c, "longer", 1, 4, lasts=230, age=200, told_in=210)
    waits(c, "beside", 3, 2, lasts=210, age=100, told_in=0)
    c.when.one_session()
    assert rows(c) == {"first": [0, 0, 1, 2], "beside": [1, 2, 2]}


def test_nobody_moves_out_of_its_reserved_room_for_one_that_starts_later_as_told(given):
    """Given two gangs that were told to start now, then neither makes way for one that was told to start later."""
    c = given.nodes(2, gpus=8)
    c.pod(
        "ends", node="node-1", slots=0b1111, gpus=4, plan="p", scheduled=c.now - 80,
        hints=GangAnnotations(expected_duration_ns=100 * S),
    )  # fmt: skip
    waits(c, "first", 4, 1, lasts=230, age=400, told_in=0)
    waits(c, "whole", 1, 8, lasts=20, age=300, told_in=20)
    waits(c, "small", 1, 2, lasts=30, age=200, told_in=0)
    c.when.one_session()
    assert rows(c) == {"first": [0] * 4, "small": [0]}
