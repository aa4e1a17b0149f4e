"""Budgets over restarts: what the record has in the end, whenever daemons begin, look, write and are killed."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.gang.charge_record import ChargeRecord
from gpusched.api.meta.identity import TIME_MAX, Creator, ObjectKey
from gpusched.api.pod.pod import PodPhase
from gpusched.api.queue.budget import (
    DAY,
    GPU_HOUR,
    Budget,
    BudgetRecord,
    GpuHold,
    advance_record,
    period_start_at,
)
from gpusched.api.serializer.seal import Seal
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given

HOUR = 3_600
GPU = 10**6
QUEUE = ObjectKey("", "q")


class Run(NamedTuple):
    """A pod that is bound and ends, in seconds after the first record; ``stays`` when its object does."""

    user: str
    gpus: int
    start: int
    end: int
    stays: bool = True


class Look(NamedTuple):
    """A session: of a daemon that begins with it, or of the one before; its record may be written."""

    at: int
    begins: bool
    writes: bool


@st.composite
def runs(draw: st.DrawFn, *, stay: bool) -> list[Run]:
    """Pods of two users that end within six hours."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        start, length = draw(st.integers(0, 3 * HOUR)), draw(st.integers(0, 3 * HOUR))
        user, gpus = draw(st.sampled_from(["ann", "bob"])), draw(st.integers(1, 8))
        found.append(Run(user, gpus, start, start + length, stay))
    return found


looks = st.lists(
    st.builds(Look, st.integers(0, 6 * HOUR), st.booleans(), st.booleans()), max_size=6
)


def show(c: Given, all_runs: list[Run], at: int) -> None:
    """What the API has at a moment."""
    for number, run in enumerate(all_runs):
        name = f"g{number}"
        if at < run.start:
            continue
        if at >= run.end and not run.stays:
            if ObjectKey("default", f"{name}-0") in c.cache.pods:
                c.gone(f"{name}-0")
            continue
        over = at >= run.end
        c.group(name, queue="q", creator=Creator(run.user)).pod(
            f"{name}-0", group=name, gpus=run.gpus, node=f"node-{number}", scheduled=NOW + run.start,
            phase=PodPhase.SUCCEEDED if over else PodPhase.RUNNING,
        )  # fmt: skip
        if over:
            pod = c.cache.pods[ObjectKey("default", f"{name}-0")]
            c.cache.put_pod(structs.replace(pod, resource_version="e", ended=NOW + run.end))


def play(budget: Budget, all_runs: list[Run], all_looks: list[Look]) -> BudgetRecord:
    """The record after all looks, and one of a new daemon seven hours after the first record."""
    record = BudgetRecord(as_of=NOW, period_start=period_start_at(budget.period, NOW))
    c = None
    for look in [*sorted(all_looks), Look(7 * HOUR, begins=True, writes=True)]:
        if c is None or look.begins:
            c = Given().nodes(5, gpus=8).queue("q", budget=budget, budget_record=record)
        show(c, all_runs, look.at)
        holds = c.cache.take_snapshot(NOW + look.at).gpu_holds
        known = c.cache.queues.items[QUEUE]
        if look.writes:
            record = advance_record(budget, record, holds, NOW + look.at)
            c.cache.put_queue(QUEUE, attrs.evolve(known, budget_record=record))
    return record


@given(runs(stay=True), looks, st.sampled_from([HOUR, 2 * HOUR, DAY]))
def test_whenever_daemons_begin_what_was_used_is_charged_once(all_runs, all_looks, period):
    """Where the pods are there, the record is what one look at all of it would make."""
    budget = Budget(amount=100 * GPU_HOUR, period=period, rollover=50)
    first = BudgetRecord(as_of=NOW, period_start=period_start_at(period, NOW))
    holds = [GpuHold("q", r.user, r.gpus * GPU, NOW + r.start, NOW + r.end) for r in all_runs]
    told = play(budget, all_runs, all_looks)
    assert told == advance_record(budget, first, [h for h in holds if h.end > h.start], told.as_of)


@given(runs(stay=False), looks)
def test_a_pod_that_is_gone_is_charged_up_to_the_last_record_at_least(all_runs, all_looks):
    """And not beyond the first look after its end."""
    told = play(Budget(amount=GPU_HOUR, period=DAY), all_runs, all_looks)
    moments = sorted(all_looks)
    least = most = 0
    for run in all_runs:
        written = [look.at for look in moments if look.writes and run.start <= look.at < run.end]
        seen = [look.at for look in moments if look.at >= run.end]
        least += run.gpus * GPU * (max(written, default=run.start) - run.start)
        most += run.gpus * GPU * (min(seen, default=7 * HOUR) - run.start)
    assert least <= told.used <= most


def begun(**queue: Any) -> Given:
    """A daemon that begins an hour after the record, of a budget by the day."""
    budget = Budget(amount=GPU_HOUR, period=DAY, per_user=GPU_HOUR)
    record = BudgetRecord(as_of=NOW, period_start=period_start_at(DAY, NOW))
    c = Given(now=NOW + HOUR).nodes(2, gpus=8)
    return c.queue("q", budget=budget, budget_record=record, **queue)


def put_ended(c: Given, **of: Any) -> None:
    """A pod that held a GPU for the first ten minutes after the record, as found by a new daemon."""
    c.pod(
        "a", gpus=1, node="node-0", scheduled=NOW, phase=PodPhase.FAILED, group=of.pop("group", "")
    )
    found = c.cache.pods[ObjectKey("default", "a")]
    c.cache.put_pod(structs.replace(found, resource_version="e", **{"ended": NOW + 600, **of}))


def charged(c: Given) -> tuple[tuple[str, int], ...]:
    """GPU-seconds by user that are charged to the queue after its record."""
    holds = [each for each in c.cache.take_snapshot(c.now).gpu_holds if each.queue == "q"]
    return tuple((each.user, each.weight // GPU * (each.end - each.start)) for each in holds)


def test_a_pod_that_ended_pays_for_itself_where_no_object_is_left():
    """By its own label and annotation, or by what was written with its binding."""
    c = begun()
    put_ended(c, queue="q", creator=Creator("ann"))
    assert charged(c) == (("ann", 600),)
    c = begun()
    put_ended(c, group="gone", charge=ChargeRecord("q", Creator("ann")))
    assert charged(c) == (("ann", 600),)
    c = begun()
    c.cache.use_seal(Seal(key=b"k"))
    put_ended(c, group="gone", charge=ChargeRecord("q", Creator("ann"), "forged"))
    assert charged(c) == ()


def test_a_pod_that_nobody_let_in_is_not_charged_to_a_queue_that_does_not_serve_it():
    """A pod may preset its node, and name the queue of other people."""
    elsewhere = Selector((Requirement("team", "In", ("other",)),))
    c = begun(namespaces=elsewhere)
    put_ended(c, queue="q")
    assert charged(c) == (("", 600),)  # with a seal that is open, as in a simulation
    c = begun(namespaces=elsewhere)
    c.cache.use_seal(Seal(key=b"k"))
    put_ended(c, queue="q")
    assert charged(c) == ()


@pytest.mark.parametrize("ended", [0, 1, NOW - 1, NOW + 2 * HOUR, TIME_MAX])
def test_an_end_that_cannot_be_is_charged_as_it_was_seen(ended):
    """Before its begin, later than now, or none: nothing by who did not see it run, else until it was seen ended."""
    c = begun()
    put_ended(c, queue="q", ended=ended)
    assert charged(c) == ()
    c = begun().pod("a", gpus=1, queue="q", node="node-0", scheduled=NOW, phase=PodPhase.RUNNING)
    assert charged(c) == (("", -NOW),)
    c.now += 60
    for _ in range(2):
        put_ended(c, queue="q", ended=ended)
        assert charged(c) == (("", HOUR + 60),)
        c.now += 60


def test_what_is_in_the_record_is_not_charged_again_when_its_gang_is_counted_again():
    """Even where its end is told as later than the record, as that was seen."""
    c = begun().pod("a", gpus=1, queue="q", node="node-0", scheduled=NOW, phase=PodPhase.RUNNING)
    charged(c)
    put_ended(c, queue="q", ended=TIME_MAX)
    assert charged(c) == (("", HOUR),)
    key = ObjectKey("", "q")
    record = BudgetRecord(as_of=NOW + HOUR, period_start=NOW)
    c.cache.put_queue(key, attrs.evolve(c.cache.queues.items[key], budget_record=record))
    for ended in (TIME_MAX, NOW + HOUR + 30):
        c.now += 60
        put_ended(c, queue="q", ended=ended)
        assert charged(c) == ()
    c.gone("a")
    assert charged(c) == ()
