"""Numbers that tell how a run went, by the names that scenarios use for them.

    statistic(record, "p95(wait)", of={"queue": "a"}).value

Definitions stand at each function and in docs/scenarios.md; all are functions of the record alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.engine.run_record import (
    EvictionRecord,
    JobLife,
    LifeEnd,
    RunRecord,
    StartRecord,
)
from gpusched.lab.report.statistics import over_time, told_starts
from gpusched.lab.report.statistics.ideal_fifo import (
    SERVICES,
    IdealJob,
    IdealUnknown,
    ideal_schedule,
)
from gpusched.lab.report.statistics.job_values import (
    VALUES,
    job_end,
    job_values,
    longest_partial_wait,
)
from gpusched.lab.report.statistics.over_time import THOUSAND
from gpusched.lab.report.statistics.repeated_evictions import GangEviction, gang_evictions
from gpusched.lab.report.statistics.steps import integral_share

_CALL: Final = re.compile(r"\s*(?P<function>[A-Za-z0-9]+)\s*\(\s*(?P<value>[A-Za-z]+)\s*\)\s*")
WRITING_S: Final = 1.0
"""The bindings of a gang are written one after another: so long it is not called bound in part."""
_SMALL: Final = 10.0
"""Below it seconds and hours are written with two places."""
OF: Final = ("queue", "class", "job", "kind")
"""By what jobs can be chosen."""


@frozen
class StatisticValue:
    """A number with its unit; ``str`` is how people write it: ``72.0 s``, ``98.7 %``.

    Attributes:
        value: None where it cannot be told.
        unit: ``s``, ``share`` (0 to 1, written in percent), ``GPU-s``, ``GPU-h``, ``x`` (so many
            times another) or empty for pieces and indexes.
        why: why it cannot be told.
    """

    value: float | None
    unit: str = ""
    why: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"not known: {self.why}" if self.why else "not known"
        if self.unit == "share":
            return f"{100 * self.value:.1f} %"
        if self.unit in ("s", "GPU-s", "GPU-h"):
            places = 2 if 0 < abs(self.value) < _SMALL else 1
            return f"{self.value:,.{places}f} {self.unit}"
        if self.unit == "x":
            return f"{self.value:.3f}"
        return f"{self.value:,.0f}" if float(self.value).is_integer() else f"{self.value:.3f}"


class UnknownStatistic(ValueError):
    """There is none of that name; ``str()`` says which there are."""


def check_name(name: str) -> None:
    """Whether there is a statistic of this name.

    Raises:
        NoStatistic: there is none.
    """
    if name in WHOLE:
        return
    match = _CALL.fullmatch(name)
    if match is None:
        if name in VALUES:
            raise UnknownStatistic(
                f"{name!r} is a value of each job: write for example mean({name})"
            )
        raise UnknownStatistic(f"there is no statistic {name!r}, only {', '.join(sorted(WHOLE))}")
    if match["function"] not in FUNCTIONS:
        known = ", ".join(FUNCTIONS)
        raise UnknownStatistic(f"there is no function {match['function']!r}, only {known}")
    if match["value"] not in VALUES:
        raise UnknownStatistic(f"jobs have no value {match['value']!r}, only {', '.join(VALUES)}")


def unit_of(name: str) -> str:
    """The unit of a statistic's figure, see ``Figure``."""
    match = _CALL.fullmatch(name)
    if match is None:
        return UNITS.get(name, "")
    if match["function"] == "count":
        return ""
    return "GPU-s" if match["value"] == "idle" else "s"


def known_statistics() -> tuple[str, ...]:
    """Every name that ``statistic`` takes."""
    calls = [f"{function}({value})" for value in VALUES for function in FUNCTIONS]
    return (*sorted(WHOLE), *calls)


def statistic(
    record: RunRecord, name: str, *, of: Mapping[str, str] | None = None
) -> StatisticValue:
    """One number of a run.

    Args:
        record: the run, or the part of it so far.
        name: one of ``known_statistics``.
        of: which jobs count: ``queue``, ``class``, ``job`` (name, with namespace where it is not
            ``default``; may hold ``*``), ``kind``. Shares of use count the use of those alone,
            over the whole of what was there.

    Raises:
        NoStatistic: there is none of that name, or jobs cannot be chosen so.
    """
    check_name(name)
    jobs = chosen_jobs(record, of or {})
    if name in WHOLE:
        return WHOLE[name](record, jobs)
    match = _CALL.fullmatch(name)
    if match is None:
        raise UnknownStatistic(name)  # never: the name was checked
    amounts = [value for _, value in job_values(record, match["value"], jobs)]
    found = FUNCTIONS[match["function"]](amounts)
    return StatisticValue(found, unit_of(name), "" if found is not None else "no job has it")


def chosen_jobs(record: RunRecord, of: Mapping[str, str]) -> list[JobLife]:
    """Jobs that are meant, in the order of the record.

    Raises:
        NoStatistic: jobs cannot be chosen by that.
    """
    for key in of:
        if key not in OF:
            raise UnknownStatistic(f"jobs are not chosen by {key!r}, only by {', '.join(OF)}")
    return [job for job in record.jobs if _is_meant(job, of)]


def _is_meant(job: JobLife, of: Mapping[str, str]) -> bool:
    return (
        of.get("queue", job.queue) == job.queue
        and of.get("class", job.klass) == job.klass
        and of.get("kind", job.kind) == job.kind
        and ("job" not in of or _named(job.key, of["job"]))
    )


def _named(key: str, wanted: str) -> bool:
    names = [key, key.removeprefix("default/")]
    rule = re.compile(".*".join(re.escape(part) for part in wanted.split("*")))
    return any(rule.fullmatch(name) for name in names)


# -- functions over jobs -------------------------------------------------------------------------
def percentile(amounts: Sequence[float], percent: float) -> float | None:
    """The nearest rank: the smallest amount that so many percent of all are not above."""
    if not amounts:
        return None
    rank = max(1, math.ceil(percent / 100 * len(amounts)))
    return sorted(amounts)[rank - 1]


def _mean(amounts: Sequence[float]) -> float | None:
    return math.fsum(amounts) / len(amounts) if amounts else None


def _median(amounts: Sequence[float]) -> float | None:
    """Of an even number the mean of the two in the middle."""
    if not amounts:
        return None
    ordered, half = sorted(amounts), len(amounts) // 2
    return ordered[half] if len(amounts) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _percentile_of(percent: float) -> Callable[[Sequence[float]], float | None]:
    return lambda amounts: percentile(amounts, percent)


FUNCTIONS: Final[Mapping[str, Callable[[Sequence[float]], float | None]]] = {
    "mean": _mean,
    "median": _median,
    "p90": _percentile_of(90),
    "p95": _percentile_of(95),
    "p99": _percentile_of(99),
    "min": lambda amounts: min(amounts, default=None),
    "max": lambda amounts: max(amounts, default=None),
    "sum": math.fsum,
    "count": lambda amounts: float(len(amounts)),
}


# -- of the whole run ----------------------------------------------------------------------------
Jobs = Sequence[JobLife]


def observed_window(record: RunRecord, jobs: Jobs) -> tuple[float, float]:
    """From the first creation to the last end of jobs that can end; the run's for none.

    The end of the run counts for one that had not ended then.
    """
    able = [job for job in jobs if job.kind not in SERVICES]
    if not able:
        return 0.0, record.seconds
    return min(job.created for job in able), max(job_end(job, record) for job in able)


def _makespan(record: RunRecord, jobs: Jobs) -> StatisticValue:
    since, until = observed_window(record, jobs)
    return (
        StatisticValue(until - since, "s")
        if jobs
        else StatisticValue(None, "s", "there was no job")
    )


def _jobs(record: RunRecord, jobs: Jobs) -> StatisticValue:
    del record
    return StatisticValue(float(len(jobs)))


def _ended(record: RunRecord, jobs: Jobs, end: LifeEnd) -> StatisticValue:
    del record
    return StatisticValue(float(sum(job.end is end for job in jobs)))


def _evictions(record: RunRecord, jobs: Jobs) -> StatisticValue:
    return StatisticValue(float(len(_evicted(record, jobs))))


def _lost_gpu_hours(record: RunRecord, jobs: Jobs) -> StatisticValue:
    lost = sum(each.lost for each in _evicted(record, jobs))
    return StatisticValue(lost / THOUSAND / 3600, "GPU-h")


def _over_gang_evictions(
    count: Callable[[Sequence[GangEviction]], int],
) -> Callable[[RunRecord, Jobs], StatisticValue]:
    def found(record: RunRecord, jobs: Jobs) -> StatisticValue:
        keys = {job.key for job in jobs}
        mine = [each for each in gang_evictions(record) if each.job in keys]
        return StatisticValue(float(count(mine)))

    return found


def _evicted(record: RunRecord, jobs: Jobs) -> list[EvictionRecord]:
    keys = {job.key for job in jobs}
    every = len(jobs) == len(record.jobs)
    return [each for each in record.evictions if every or each.job in keys]


def _use(resource: str, *, busy: bool) -> Callable[[RunRecord, Jobs], StatisticValue]:
    def rule(record: RunRecord, jobs: Jobs) -> StatisticValue:
        since, until = observed_window(record, jobs)
        keys = {job.key for job in jobs}
        mine = attrs.evolve(record, pods=tuple(pod for pod in record.pods if pod.job in keys))
        used = over_time.used_amounts(mine, resource).between(since, until)
        offered = over_time.offered_amounts(record, resource).between(since, until)
        when = over_time.waiting_jobs(record) if busy else None
        found = integral_share(used, offered, when=when)
        why = "nothing was offered" if not busy or offered.integral <= 0 else "no job ever waited"
        return StatisticValue(found, "share", "" if found is not None else why)

    return rule


def _fragmentation(record: RunRecord, jobs: Jobs) -> StatisticValue:
    del jobs
    useless, free = over_time.fragmentation_steps(record)
    found = integral_share(useless, free)
    return StatisticValue(found, "share", "" if found is not None else "no GPU was ever free")


def _fairness(record: RunRecord, jobs: Jobs) -> StatisticValue:
    del jobs
    index = over_time.jain_index(record)
    return StatisticValue(float(index.values[-1]))


def _partial(record: RunRecord, jobs: Jobs) -> StatisticValue:
    return StatisticValue(
        math.fsum(value for _, value in job_values(record, "idle", jobs)), "GPU-s"
    )


def _partial_gangs(record: RunRecord, jobs: Jobs) -> StatisticValue:
    pods = over_time.pods_of(record)
    lasted = (longest_partial_wait(job, pods.get(job.key, ()), record) for job in jobs)
    return StatisticValue(float(sum(each > WRITING_S for each in lasted)))


def _bound(record: RunRecord, jobs: Jobs) -> tuple[list[JobLife], list[IdealJob]]:
    """Jobs that can end, and what the ideal scheduler makes of them alone, in the same order."""
    found = {each.key: each for each in ideal_schedule(record, jobs=jobs)}
    able = [job for job in jobs if job.key in found]
    return able, [found[job.key] for job in able]


def wait_differences(record: RunRecord, jobs: Jobs) -> list[float]:
    """Job by job, by how many seconds it waited longer than under the ideal scheduler.

    Raises:
        Unknown: the bound cannot be told.
    """
    able, best = _bound(record, jobs)
    waited = [value for _, value in job_values(record, "wait", able)]
    return [mine - other.wait for mine, other in zip(waited, best, strict=True)]


def _over_fifo(
    rule: Callable[[Sequence[float]], float | None],
) -> Callable[[RunRecord, Jobs], StatisticValue]:
    def found(record: RunRecord, jobs: Jobs) -> StatisticValue:
        try:
            value = rule(wait_differences(record, jobs))
        except IdealUnknown as unknown:
            return StatisticValue(None, "s", str(unknown))
        return StatisticValue(value, "s", "" if value is not None else "there was no job")

    return found


def _ideal_wait(record: RunRecord, jobs: Jobs) -> StatisticValue:
    try:
        waited = [each.wait for each in _bound(record, jobs)[1]]
    except IdealUnknown as unknown:
        return StatisticValue(None, "s", str(unknown))
    return StatisticValue(_mean(waited), "s", "" if waited else "there was no job")


def _ideal_makespan(record: RunRecord, jobs: Jobs) -> StatisticValue:
    try:
        best = _bound(record, jobs)[1]
    except IdealUnknown as unknown:
        return StatisticValue(None, "s", str(unknown))
    if not best:
        return StatisticValue(None, "s", "there was no job")
    return StatisticValue(max(each.end for each in best) - min(each.arrives for each in best), "s")


def _makespan_over(record: RunRecord, jobs: Jobs) -> StatisticValue:
    bound = _ideal_makespan(record, jobs)
    mine = _makespan(record, jobs)
    if bound.value is None or mine.value is None:
        return StatisticValue(None, "x", bound.why or mine.why)
    return StatisticValue(
        mine.value / bound.value if bound.value else None, "x", "the bound is 0 s"
    )


def _start_error(name: str) -> Callable[[RunRecord, Jobs], StatisticValue]:
    def measure(record: RunRecord, jobs: Jobs) -> StatisticValue:
        found = told_starts.median_error(told_starts.starts_of(record, jobs), name)
        return StatisticValue(found, "share", "" if found is not None else "nothing was told")

    return measure


def _ranges_held(record: RunRecord, jobs: Jobs) -> StatisticValue:
    found = told_starts.part_in_range(told_starts.starts_of(record, jobs))
    return StatisticValue(found, "share", "" if found is not None else "no range was told")


def _count_starts(
    count: Callable[[Sequence[StartRecord]], int],
) -> Callable[[RunRecord, Jobs], StatisticValue]:
    return lambda record, jobs: StatisticValue(float(count(told_starts.starts_of(record, jobs))))


WHOLE: Final[Mapping[str, Callable[[RunRecord, Jobs], StatisticValue]]] = {
    "makespan": _makespan,
    "jobs": _jobs,
    "completed": lambda record, jobs: _ended(record, jobs, LifeEnd.SUCCEEDED),
    "failed": lambda record, jobs: _ended(record, jobs, LifeEnd.FAILED),
    "evictions": _evictions,
    "lostGpuHours": _lost_gpu_hours,
    "repeatedEvictions": _over_gang_evictions(lambda found: sum(each.times > 1 for each in found)),
    "evictionCycles": _over_gang_evictions(
        lambda found: sum(each.chain.is_cycle for each in found)
    ),
    "longestEvictionChain": _over_gang_evictions(
        lambda found: max((each.chain.length for each in found), default=0)
    ),
    "gpuUse": _use("gpus", busy=False),
    "cpuUse": _use("cpu", busy=False),
    "gpuUseBusy": _use("gpus", busy=True),
    "cpuUseBusy": _use("cpu", busy=True),
    "fragmentation": _fragmentation,
    "fairness": _fairness,
    "partialGangs": _partial_gangs,
    "partialGangSeconds": _partial,
    "waitOverFifo": _over_fifo(_mean),
    "worstWaitOverFifo": _over_fifo(lambda amounts: max(amounts, default=None)),
    "makespanOverBound": _makespan_over,
    "waitBound": _ideal_wait,
    "makespanBound": _ideal_makespan,
    "startsCompared": _count_starts(len),
    "startsWithRange": _count_starts(told_starts.count_ranged),
    "startsInRange": _ranges_held,
    **{name: _start_error(name) for name in (*told_starts.ERROR_NAMES, *told_starts.KIND_NAMES)},
}
UNITS: Final[Mapping[str, str]] = {
    "makespan": "s",
    "makespanBound": "s",
    "waitBound": "s",
    "waitOverFifo": "s",
    "worstWaitOverFifo": "s",
    "makespanOverBound": "x",
    "lostGpuHours": "GPU-h",
    "partialGangSeconds": "GPU-s",
    "gpuUse": "share",
    "cpuUse": "share",
    "gpuUseBusy": "share",
    "cpuUseBusy": "share",
    "fragmentation": "share",
    "startsInRange": "share",
    **dict.fromkeys((*told_starts.ERROR_NAMES, *told_starts.KIND_NAMES), "share"),
}
"""Of statistics of the whole run that are no pieces and no indexes."""
