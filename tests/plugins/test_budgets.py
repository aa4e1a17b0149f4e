"""Budgets of GPU-hours in sessions: what is charged, what they stop, and when they open."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, gpu_resources_in_force
from gpusched.api.meta.identity import Creator, ObjectKey
from gpusched.api.queue.budget import DAY, GPU_HOUR, Budget
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given

HOUR = 3_600
ANN, BOB = Creator("ann"), Creator("bob")


def cluster(*, gpu_hours: int = 16, name: str = "q", **of: Any) -> Given:
    """Four nodes of eight GPUs, and a queue with a budget by the day, which is known for a session."""
    budget = Budget(amount=gpu_hours * GPU_HOUR, period=of.pop("period", DAY), **of)
    c = Given().nodes(4, gpus=8, labels={"nvidia.com/gpu.product": "H100"})
    return session(c.queue(name, budget=budget))


def session(c: Given) -> Given:
    """One session, all of which is done, and what it says of budgets is what the API shows."""
    c.when.carried_out()
    for status in c.then.plan.queues:
        if status.budget is not None:
            key = ObjectKey("", status.name)
            known = c.cache.queues.items[key]
            record = status.budget.record
            c.cache.queues.items[key] = attrs.evolve(known, budget_record=record)
    return c


def after(c: Given, seconds: int) -> Given:
    c.now += seconds
    return session(c)


def submit(c: Given, name: str, creator: Creator = ANN, *, gpus: int = 8, **of: Any) -> Given:
    """A gang of one."""
    c.group(name, queue=of.pop("queue", "q"), creator=creator)
    return c.pods(name, 1, group=name, gpus=gpus, **of)


def used(c: Given, queue: str = "q") -> int:
    """Thousandths of GPU-hours that the status remembers."""
    return c.then.queue(queue).budget.record.used * 1000 // GPU_HOUR


def test_what_is_held_is_charged_until_it_is_gone():
    """Eight GPUs for an hour and a minute, and no more after they were freed."""
    c = session(submit(cluster(), "a"))
    after(c, HOUR)
    assert used(c) == 8_000
    after(c.gone("a-0"), 60)
    assert used(c) == 8_133
    after(c, HOUR)
    assert used(c) == 8_133


def test_a_used_budget_starts_nothing_and_says_when_it_opens():
    """What runs goes on, another queue is not concerned, and the next day the gang starts."""
    c = after(session(submit(cluster(), "a")), 2 * HOUR)
    submit(submit(c, "b", BOB), "elsewhere", BOB, queue="default")
    session(c)
    assert c.then.started() == ["elsewhere"]
    assert c.then.reason("b") == "BudgetExhausted"
    assert c.then.why("b") == (
        "queue q has used 16 of its budget of 16 GPU-hours; the next period begins "
        "2026-01-02T00:00:00Z"
    )
    assert c.then.status("b").estimated_start == NOW + 24 * HOUR
    told = c.then.queue("q").budget
    assert (told.is_within, told.told.reason) == (False, "BudgetExhausted")
    assert c.then.evicted() == []
    after(c, 22 * HOUR)
    assert c.then.started() == ["b"]


def test_a_warning_is_given_before_the_end():
    c = after(session(submit(cluster(), "a")), HOUR + 36 * 60)
    told = c.then.queue("q").budget.told
    assert told.reason == "BudgetWarning"
    assert told.message == (
        "queue q has used 12.8 of its budget of 16 GPU-hours, more than 80 percent; the next period "
        "begins 2026-01-02T00:00:00Z"
    )


def test_a_budget_below_what_is_used_says_both_and_evicts_nobody():
    c = after(session(submit(cluster(), "a")), HOUR)
    key = ObjectKey("", "q")
    lowered = attrs.evolve(c.cache.queues.items[key], budget=Budget(amount=GPU_HOUR, period=DAY))
    c.cache.queues.items[key] = lowered
    session(submit(c, "b"))
    assert "has used 8 of its budget of 1 GPU-hours" in c.then.why("b")
    assert c.then.evicted() == []


def test_draining_stops_what_runs():
    c = after(session(submit(cluster(on_exhausted="HoldAndDrain"), "a")), 2 * HOUR)
    assert c.then.evicted() == ["a-0"]
    (stop,) = c.then.plan.stops
    assert stop.evictions[0].reason == "BudgetExhausted"
    assert "what runs is stopped, as spec.budget.onExhausted is HoldAndDrain" in (
        stop.evictions[0].message
    )


def test_pods_without_gpus_use_no_budget():
    c = after(session(submit(cluster(), "a")), 2 * HOUR)
    session(submit(c, "cpu", gpus=0))
    assert c.then.started() == ["cpu"]


def test_a_gang_that_lost_a_member_gets_it_again():
    """Running goes on: that includes being whole."""
    c = cluster()
    c.group("a", queue="q", min_member=2, creator=ANN).pods("a", 2, group="a", gpus=8)
    after(session(c), 2 * HOUR)
    c.gone("a-1").pod("a-2", group="a", gpus=8)
    session(c)
    assert c.then.started() == ["a"]


def test_a_budget_of_each_user_stops_that_user_alone():
    c = cluster(gpu_hours=100, per_user=8 * GPU_HOUR)
    after(session(submit(c, "a")), HOUR)
    session(submit(submit(c, "a2"), "b", BOB))
    assert c.then.started() == ["b"]
    assert c.then.status("a2").estimated_start == NOW + 24 * HOUR
    assert c.then.why("a2").startswith(
        "user ann has used 8 of 8 GPU-hours that the budget of queue q gives to each user"
    )


def test_a_queue_above_is_charged_for_all_below_it():
    c = cluster(name="dept").queue("left", parent="dept").queue("right", parent="dept")
    submit(submit(c, "a", queue="left"), "b", queue="right")
    after(session(c), HOUR)
    assert used(c, "dept") == 16_000
    session(submit(c, "c", queue="left"))
    assert c.then.reason("c") == "BudgetExhausted"


def test_a_restart_goes_on_from_the_record_and_the_pods():
    """Another cache knows the API alone: what still runs is charged from the record on."""
    c = after(session(submit(cluster(), "a")), 90)
    recorded = used(c)
    other = Given(now=c.now + HOUR).nodes(4, gpus=8)
    key = ObjectKey("", "q")
    other.cache.put_queue(key, c.cache.queues.items[key])
    group, pod = (kind[ObjectKey("default", name)] for kind, name in (
        (c.cache.groups.items, "a"), (c.cache.pods, "a-0")))  # fmt: skip
    other.cache.put_group(group.key, group)
    other.cache.put_pod(pod)
    session(other)
    assert recorded == 200
    assert used(other) == 8_200


def test_a_record_is_written_once_a_minute_at_most_while_nothing_ends():
    c = session(submit(cluster(), "a"))
    first = c.then.queue("q").budget.record
    assert after(c, 59).then.queue("q").budget.record == first
    assert after(c, 1).then.queue("q").budget.record.as_of == NOW + 60


def test_the_end_of_a_gang_is_recorded_within_seconds():
    """As a restart would know nothing of it."""
    c = after(session(submit(cluster(), "a")), 5).gone("a-0")
    assert after(c, 5).then.queue("q").budget.record.as_of == NOW + 10


@pytest.mark.parametrize(("share", "hours"), [(250, 250), (1, 1), (999, 999)])
def test_a_share_is_charged_as_its_part(share, hours):
    c = submit(cluster(), "a", gpus=0, share=GpuShare(share))
    after(session(c), HOUR)
    assert used(c) == hours


def test_a_slice_is_charged_as_its_sevenths():
    """Two slices of a seventh each are 286 thousandths of a GPU, rounded up."""
    c = cluster()
    c.node("mig", gpus=7, gpu="nvidia.com/mig-1g.10gb")
    after(session(submit(c, "a", gpus=2, gpu="nvidia.com/mig-1g.10gb")), HOUR)
    assert used(c) == 286


def test_prices_of_types_multiply():
    """An hour of an H100 at 2.5 is two and a half GPU-hours."""
    resources = attrs.evolve(DEFAULT_GPU_RESOURCES, prices=(("h100", 2_500),), other_price=500)
    with gpu_resources_in_force(resources):
        c = after(session(submit(cluster(gpu_hours=100), "a")), HOUR)
        assert used(c) == 20_000


def test_a_queue_that_used_its_budget_is_due_no_more_than_it_holds():
    """What waits in it asks for nothing, so that nobody keeps room for it."""
    c = after(session(submit(cluster(), "a")), 2 * HOUR)
    session(submit(c, "b"))
    assert c.then.queue("q").fair_share.get("nvidia.com/gpu") == 8_000
