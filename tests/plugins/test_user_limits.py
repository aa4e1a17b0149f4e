"""Limits of users and groups inside a queue."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import attrs

from gpusched.api.meta.identity import Creator, ObjectKey
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.queue.user_limits import UserLimit, UserLimits
from gpusched.testing.entities import BORN, GPU
from gpusched.testing.given import Given

ANN, BOB = Creator("ann", ("ml",)), Creator("bob", ("ml",))


def limit(gpus: int | None = None, **counts: int) -> UserLimit:
    resources = NOTHING if gpus is None else Resources.of({GPU: gpus * 1000})
    return UserLimit(resources=resources, **counts)


def cluster(*, nodes: int = 4, users: Any = None, groups: Any = None, **of: Any) -> Given:
    """Nodes of eight GPUs and a queue with limits of its users."""
    made = UserLimits(
        users=MappingProxyType(users or {}),
        groups=MappingProxyType(groups or {}),
        per_user=of.pop("per_user", UserLimit()),
    )
    return Given().nodes(nodes, gpus=8).queue("q", user_limits=made, **of)


def submit(c: Given, name: str, creator: Creator, *, gpus: int = 8, queue: str = "q", **of: Any):
    """A gang of two, made later than those before it."""
    made = BORN + len(c.cache.groups.items)
    c.group(name, queue=queue, min_member=2, creator=creator, created=made, **of)
    return c.pods(name, 2, group=name, gpus=gpus // 2, created=made)


def test_a_user_who_holds_as_much_as_allowed_waits_and_others_start():
    """Whoever comes after is not held back, and the sentence names what would free it."""
    c = cluster(per_user=limit(8))
    for name, creator in (("a1", ANN), ("a2", ANN), ("b1", BOB)):
        submit(c, name, creator)
    c.when.carried_out()
    assert c.then.started() == ["a1", "b1"]
    c.when.one_session()
    assert (c.then.reason("a2"), c.then.why("a2")) == (
        "UserLimit",
        f"needs 8 {GPU}; user ann holds 8 of at most 8 in queue q: default/a1 8",
    )


def test_when_the_users_gang_has_ended_the_next_one_starts():
    c = cluster(per_user=limit(8))
    submit(submit(c, "a1", ANN), "a2", ANN).when.carried_out()
    c.gone("a1-0").gone("a1-1").when.carried_out()
    assert c.then.started() == ["a2"]


def test_a_gang_larger_than_the_limit_is_told_that_it_never_starts():
    c = submit(cluster(per_user=limit(8)), "big", ANN, gpus=16)
    c.when.one_session()
    assert c.then.why("big") == (f"needs 16 {GPU}; user ann never holds more than 8 in queue q")


def test_leaving_the_user_out_frees_from_no_limit():
    """Gangs of users who are not known count together."""
    c = cluster(per_user=limit(8))
    for name in ("x1", "x2"):
        submit(c, name, Creator())
    c.when.carried_out()
    assert c.then.started() == ["x1"]
    c.when.one_session()
    assert "users who are not known together hold 8 of at most 8" in c.then.why("x2")


def test_a_named_user_has_a_limit_of_its_own():
    c = cluster(per_user=limit(0), users={"ann": limit(16)})
    for name, creator in (("a1", ANN), ("a2", ANN), ("b1", BOB)):
        submit(c, name, creator)
    c.when.carried_out()
    assert c.then.started() == ["a1", "a2"]


def test_a_group_shares_its_limit():
    """Two users of a group hold together what the group may."""
    c = cluster(groups={"ml": limit(8)})
    for name, creator in (("a1", ANN), ("b1", BOB), ("c1", Creator("cleo"))):
        submit(c, name, creator)
    c.when.carried_out()
    assert c.then.started() == ["a1", "c1"]
    c.when.one_session()
    assert "group ml holds 8 of at most 8 in queue q" in c.then.why("b1")


def test_limits_of_a_queue_above_count_all_below_it():
    c = cluster(per_user=limit(8)).queue("left", parent="q").queue("right", parent="q")
    submit(submit(c, "a1", ANN, queue="left"), "a2", ANN, queue="right")
    c.when.carried_out()
    assert c.then.started() == ["a1"]


def test_gangs_that_run_are_counted():
    c = cluster(per_user=limit(max_running=1))
    for name, creator in (("a1", ANN), ("a2", ANN), ("b1", BOB)):
        submit(c, name, creator)
    c.when.carried_out()
    assert c.then.started() == ["a1", "b1"]
    c.when.one_session()
    assert c.then.why("a2") == "user ann has 1 of at most 1 gangs running in queue q"


def test_only_so_many_of_a_user_stand_in_line():
    """The third of ann is not in line, though it would fit where the first two do not."""
    c = cluster(nodes=1, per_user=limit(max_pending=2))
    for name, gpus in (("a1", 16), ("a2", 16), ("a3", 8)):
        submit(c, name, ANN, gpus=gpus)
    submit(c, "b1", BOB, gpus=8)
    c.when.one_session()
    assert c.then.started() == ["b1"]
    assert c.then.why("a3") == (
        "user ann has 2 gangs waiting in queue q that came before it, and at most 2 stand in line"
    )


def test_a_strict_queue_goes_on_behind_a_user_at_the_limit():
    """The order of the queue keeps no room for a gang that its user's limit keeps waiting."""
    c = cluster(nodes=2, per_user=limit(8), ordering="StrictFifo")
    for name, creator in (("a1", ANN), ("a2", ANN), ("b1", BOB)):
        submit(c, name, creator)
    c.when.carried_out()
    assert c.then.started() == ["a1", "b1"]


def test_a_user_at_the_limit_takes_room_of_the_own_gangs_alone():
    """A higher priority evicts what the same user holds, and nothing of another user."""
    c = cluster(nodes=2, per_user=limit(8)).priority_class("high", 1000)
    submit(submit(c, "b1", BOB), "a1", ANN).when.carried_out()
    c.group("a2", queue="q", min_member=2, creator=ANN, priority_class="high")
    c.pods("a2", 2, group="a2", gpus=4, priority=1000)
    c.when.one_session()
    assert c.then.evicted() == ["a1-0", "a1-1"]


def test_without_limits_users_change_nothing():
    """The creator is known, and no account is kept."""
    c = Given().nodes(2, gpus=8).queue("q")
    submit(submit(c, "a1", ANN), "a2", ANN).when.carried_out()
    assert c.then.started() == ["a1", "a2"]
    assert [gang.accounts for gang in c.snapshot.gangs] == [(), ()]


def test_a_limit_that_is_set_later_counts_what_runs():
    c = Given().nodes(4, gpus=8).queue("q")
    submit(c, "a1", ANN).when.carried_out()
    key = ObjectKey("", "q")
    limited = attrs.evolve(
        c.cache.queues.items[key], generation=2, user_limits=UserLimits(per_user=limit(8))
    )
    c.cache.put_queue(key, limited)
    submit(c, "a2", ANN).when.one_session()
    assert c.then.reason("a2") == "UserLimit"
