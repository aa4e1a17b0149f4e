"""What a change does: figures of both plays beside each other, gangs that start earlier or later, and sentences."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import numpy as np

from gpusched.base.classes import frozen
from gpusched.engine.run_record import JobLife, LifeEnd, RunRecord
from gpusched.engine.timed_changes import DRAINED, LOST
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.comparison import difference_text
from gpusched.lab.report.statistics.named import StatisticValue, statistic
from gpusched.lab.report.statistics.steps import StepFunction, combine_steps
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.session.framework.reasons import Reason

SAME_S: Final = 60.0
"""Starts and waits that differ by less are the same to people."""
_SHARE_MIN: Final = 0.05
"""Mean waits that differ by less than this part are not spoken of."""
_HOUR_S: Final = 3600.0
_NAMED_MAX: Final = 3
"""Gangs that a sentence names."""
_BY_HAND: Final = {
    DRAINED: "pods evicted by drains",
    Reason.RESERVED: "pods evicted for windows",
    LOST: "pods lost with their nodes",
}


@frozen(kw_only=True)
class OutcomeRow:
    """One figure of both plays.

    Attributes:
        difference: of the changed one to the other, as text.
    """

    name: str
    before: StatisticValue
    after: StatisticValue
    difference: str


@frozen(kw_only=True)
class MovedGang:
    """A gang that starts at another time.

    Attributes:
        before, after: seconds since the beginning; None where it does not start until the end.
        by_s: how much later, negative for earlier; where it does not start, up to the end.
    """

    key: str
    queue: str
    before: float | None
    after: float | None
    by_s: float


@frozen(kw_only=True)
class EvictedGang:
    """A gang of the changed cluster of which pods are evicted, and are not in the other one."""

    key: str
    queue: str
    pods: int
    why: str
    lost_gpu_hours: float


@frozen(kw_only=True)
class Outcome:
    """The difference that a change makes.

    Attributes:
        rows: of the whole cluster.
        waits: by queue and by class: median and 95 % of waits.
        moved: gangs that start at another time, most first.
        evicted: by GPU-hours lost, most first.
        sentences: what gets better or worse for whom.
    """

    rows: tuple[OutcomeRow, ...]
    waits: tuple[OutcomeRow, ...]
    moved: tuple[MovedGang, ...]
    evicted: tuple[EvictedGang, ...]
    sentences: tuple[str, ...]


def compare_outcomes(before: RunRecord, after: RunRecord) -> Outcome:
    """What differs between the cluster as it is and the changed one, both played for the same time."""
    pair = (before, after)
    asked = (without_running_jobs(before), without_running_jobs(after))
    moved = tuple(_moved_gangs(before, after))
    evicted = tuple(_evicted_gangs(before, after))
    rows = tuple(_rows(pair, asked))
    return Outcome(
        rows=rows,
        waits=tuple(_waits(asked)),
        moved=moved,
        evicted=evicted,
        sentences=tuple(_sentences(pair, asked, moved, evicted)),
    )


def without_running_jobs(record: RunRecord) -> RunRecord:
    """The run without the jobs that ran when it began: nobody waited for their start here."""
    return attrs.evolve(record, jobs=tuple(job for job in record.jobs if job.started != 0.0))


# -- figures -----------------------------------------------------------------------------------
_Pair = tuple[RunRecord, RunRecord]


def _row(name: str, before: StatisticValue, after: StatisticValue) -> OutcomeRow:
    return OutcomeRow(name=name, before=before, after=after, difference=_difference(before, after))


def _difference(before: StatisticValue, after: StatisticValue) -> str:
    if after.unit != "s" or before.value is None or after.value is None:
        return difference_text(after, before)
    by_s = round(after.value) - round(before.value)
    if not by_s:
        return "same"
    return f"{duration_text(abs(by_s))} {'longer' if by_s > 0 else 'shorter'}"


def _rows(pair: _Pair, asked: _Pair) -> Iterator[OutcomeRow]:
    def both(name: str, *values: float, unit: str = "") -> OutcomeRow:
        return _row(name, *(StatisticValue(float(value), unit) for value in values))

    yield both(
        "gangs that start", *(sum(job.started is not None for job in each.jobs) for each in asked)
    )
    yield both("gangs that wait at the end", *(len(_waiting_at_end(each)) for each in pair))
    for name, called in (
        ("median(wait)", "wait, median"), ("p95(wait)", "wait, 95 % no longer"),
        ("max(wait)", "wait, longest"),
    ):  # fmt: skip
        yield _row(called, *(statistic(each, name) for each in asked))
    yield _row("GPUs in use", *(_use(each) for each in pair))
    yield both("idle while a gang waits", *(_idle_gpu_hours(each) for each in pair), unit="GPU-h")
    yield _row("free GPUs of no use", *(statistic(each, "fragmentation") for each in pair))
    yield _row("Jain's index of fairness", *(statistic(each, "fairness") for each in pair))
    short = [_largest_shortfall(each) for each in pair]
    yield both(
        "most that a queue is short of its share", *(hours for _, hours in short), unit="GPU-h"
    )
    yield both("pods evicted by the scheduler", *(_evictions(each, "") for each in pair))
    for why, called in _BY_HAND.items():
        counts = [_evictions(each, why) for each in pair]
        if any(counts):
            yield both(called, *counts)
    yield _row("work lost by evictions", *(statistic(each, "lostGpuHours") for each in pair))


def _waiting_at_end(record: RunRecord) -> list[JobLife]:
    """Jobs that have not started when the play ends, or have lost their places and have no other ones."""
    pods = over_time.pods_of(record)
    spans = (over_time.wait_spans(job, pods.get(job.key, ()), record) for job in record.jobs)
    return [
        job
        for job, waits in zip(record.jobs, spans, strict=True)
        if job.ended is None and (job.started is None or (waits and waits[-1][1] == record.seconds))
    ]


def _evictions(record: RunRecord, why: str) -> int:
    """Pods evicted for this reason; an empty one means all reasons of the scheduler's own."""
    if why:
        return sum(each.why == why for each in record.evictions)
    return sum(each.why not in _BY_HAND for each in record.evictions)


def _use(record: RunRecord) -> StatisticValue:
    offered = over_time.offered_amounts(record).integral
    if not offered:
        return StatisticValue(None, "share", "no node has GPUs")
    return StatisticValue(over_time.used_amounts(record).integral / offered, "share")


def _idle_gpu_hours(record: RunRecord) -> float:
    """GPUs that are free while a gang that asks for GPUs waits."""
    wanting = over_time.waiting_jobs(record, [job for job in record.jobs if job.gpus])
    idle = combine_steps(
        [over_time.offered_amounts(record), over_time.used_amounts(record), wanting],
        lambda offered, used, waits: np.where(waits > 0, np.maximum(offered - used, 0.0), 0.0),
    )
    return idle.integral / _HOUR_S


def _largest_shortfall(record: RunRecord) -> tuple[str, float]:
    """The queue that is short of its fair share by most GPU-hours while a gang of it waits."""
    short = {
        name: _shortfall(held, due) / _HOUR_S
        for name, (held, due) in over_time.held_and_due_of_waiting(record).items()
    }
    worst = max(sorted(short), key=lambda name: short[name], default="")
    return worst, short.get(worst, 0.0)


def _shortfall(held: StepFunction, due: StepFunction) -> float:
    return combine_steps([held, due], lambda has, owed: np.maximum(owed - has, 0.0)).integral


def _waits(asked: _Pair) -> Iterator[OutcomeRow]:
    for what, values in (
        ("queue", {job.queue for each in asked for job in each.jobs}),
        ("class", {job.klass for each in asked for job in each.jobs}),
    ):
        if what == "class" and len(values) < 2:
            continue
        for value in sorted(values):
            for name, called in (("median(wait)", "median"), ("p95(wait)", "95 %")):
                found = [statistic(each, name, of={what: value}) for each in asked]
                yield _row(f"{what} {value}, {called}", *found)


# -- gangs -------------------------------------------------------------------------------------
def _moved_gangs(before: RunRecord, after: RunRecord) -> list[MovedGang]:
    then = {(job.kind, job.key): job for job in before.jobs}
    moved = []
    for job in after.jobs:
        old = then.get((job.kind, job.key))
        if old is None or (old.started is None and job.started is None):
            continue
        ends = before.seconds
        by_s = (ends if job.started is None else job.started) - (
            ends if old.started is None else old.started
        )
        never = (old.started is None) != (job.started is None)
        if abs(by_s) >= SAME_S or never:
            moved.append(
                MovedGang(
                    key=job.key, queue=job.queue, before=old.started, after=job.started, by_s=by_s
                )
            )
    return sorted(moved, key=lambda gang: (-abs(gang.by_s), gang.key))


def _evicted_gangs(before: RunRecord, after: RunRecord) -> list[EvictedGang]:
    known = {each.job for each in before.evictions}
    lost: dict[tuple[str, str, str], int] = defaultdict(int)
    count: Counter[tuple[str, str, str]] = Counter()
    for each in after.evictions:
        if each.job not in known:
            lost[each.job, each.queue, each.why] += each.lost
            count[each.job, each.queue, each.why] += 1
    found = [
        EvictedGang(key=key, queue=queue, pods=pods, why=why,
                    lost_gpu_hours=lost[key, queue, why] / 1000 / _HOUR_S)
        for (key, queue, why), pods in count.items()
    ]  # fmt: skip
    return sorted(found, key=lambda gang: (-gang.lost_gpu_hours, gang.key, gang.why))


# -- sentences ---------------------------------------------------------------------------------
def _sentences(
    pair: _Pair, asked: _Pair, moved: Sequence[MovedGang], evicted: Sequence[EvictedGang]
) -> Iterator[str]:
    before, after = pair
    common = {(job.kind, job.key) for job in before.jobs} & {
        (job.kind, job.key) for job in after.jobs
    }
    yield from _starts_sentences(moved, len(common))
    more = [job for job in after.jobs if (job.kind, job.key) not in common]
    fewer = len(before.jobs) - len(common)
    if more:
        started = sum(job.started is not None for job in more)
        yield f"{len(more):,} gangs are there that are not there as it is: {started:,} of them start"
    if fewer:
        yield f"{fewer:,} gangs do not come"
    yield from _queue_sentences(asked)
    yield from _eviction_sentences(evicted)
    yield from _restart_sentences(pair)
    gone = sum(job.end is LifeEnd.EVICTED for job in after.jobs)
    gone -= sum(job.end is LifeEnd.EVICTED for job in before.jobs)
    if gone > 0:
        verb = "does" if gone == 1 else "do"
        yield (f"{gone:,} of the evicted gangs {verb} not come back: no controller makes pods anew")
    used = [_use(each) for each in pair]
    if all(each.value is not None for each in used) and str(used[0]) != str(used[1]):
        yield f"GPUs are in use for {used[1]} instead of {used[0]}"


def _starts_sentences(moved: Sequence[MovedGang], common: int) -> Iterator[str]:
    if not moved:
        yield f"each of the {common:,} gangs of both starts when it would anyway, within a minute"
        return
    for word, some in (
        ("earlier", [gang for gang in moved if gang.by_s < 0]),
        ("later", [gang for gang in moved if gang.by_s >= 0]),
    ):
        if some:
            middle = duration_text(round(statistics.median(abs(gang.by_s) for gang in some)))
            yield (
                f"1 of {common:,} gangs starts {word}, by {middle}"
                if len(some) == 1
                else f"{len(some):,} of {common:,} gangs start {word}, half of them by {middle} or more"
            )
    for lost, text in (
        ([gang for gang in moved if gang.after is None], "start no more before the end"),
        ([gang for gang in moved if gang.before is None], "start that would wait until the end"),
    ):
        if lost:
            yield f"of these, {len(lost):,} {text}"


def _queue_sentences(asked: _Pair) -> Iterator[str]:
    queues = sorted({job.queue for each in asked for job in each.jobs})
    for name in queues:
        then, now = (statistic(each, "mean(wait)", of={"queue": name}).value for each in asked)
        if then is None or now is None:
            continue
        if abs(now - then) < SAME_S or abs(now - then) < _SHARE_MIN * max(then, now):
            continue
        word = "better" if now < then else "worse"
        yield (
            f"{word} for queue {name}: its gangs wait {duration_text(round(now))} on average "
            f"instead of {duration_text(round(then))}"
        )


def _eviction_sentences(evicted: Sequence[EvictedGang]) -> Iterator[str]:
    by_queue: dict[str, list[EvictedGang]] = defaultdict(list)
    for gang in evicted:
        by_queue[gang.queue].append(gang)
    for queue, gangs in sorted(by_queue.items()):
        hours = sum(gang.lost_gpu_hours for gang in gangs)
        whose = sorted({gang.key for gang in gangs})
        pods = sum(gang.pods for gang in gangs)
        are = "pod is" if pods == 1 else "pods are"
        yield (
            f"worse for queue {queue}: {pods:,} {are} evicted of {len(whose):,} "
            f"{'gang' if len(whose) == 1 else 'gangs'} that nothing evicts as it is, {hours:,.1f} GPU-hours of work"
        )


def _restart_sentences(pair: _Pair) -> Iterator[str]:
    """Whose gangs lose their places and wait for new ones at the end, in one of the plays alone."""
    then, now = (
        {(job.queue, job.key) for job in _waiting_at_end(each) if job.started is not None}
        for each in pair
    )
    for word, found, what in (
        ("better", then - now, "no more wait at the end after they lost their places"),
        ("worse", now - then, "lose their places and still wait at the end"),
    ):
        for queue in sorted({queue for queue, _ in found}):
            keys = sorted(key for of, key in found if of == queue)
            more = f" and {len(keys) - _NAMED_MAX:,} more" if len(keys) > _NAMED_MAX else ""
            yield f"{word} for queue {queue}: gangs {what}: {', '.join(keys[:_NAMED_MAX])}{more}"
