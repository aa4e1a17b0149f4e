"""The bound is what an ideal first-in-first-out scheduler of gangs does, job by job."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.engine.run_record import JobLife, LifeEnd, NodeLife, NodeSpan, PodLife, RunRecord
from gpusched.lab.report.statistics.ideal_fifo import (
    IdealGang,
    IdealJob,
    IdealUnknown,
    ideal_schedule,
    schedule_fifo,
)

Size = tuple[int, int, int]


def slowly(gangs: list[IdealGang], nodes: list[Size]) -> list[IdealJob]:
    """The same by trying every moment at which something ends, from all that was placed before."""
    placed: list[tuple[float, float, int, Size]] = []
    previous, found = 0.0, []
    for gang in gangs:
        since = max(previous, gang.arrives)
        moments = sorted({since, *(end for _, end, _, _ in placed if end > since)})
        for now in moments:
            left = [list(node) for node in nodes]
            for start, end, node, size in placed:
                if start <= now < end:
                    left[node] = [a - b for a, b in zip(left[node], size, strict=True)]
            mine = []
            for size, hold in sorted(gang.pods, key=lambda pod: pod[0], reverse=True):
                for node, room in enumerate(left):
                    if all(a >= b for a, b in zip(room, size, strict=True)):
                        left[node] = [a - b for a, b in zip(room, size, strict=True)]
                        mine.append((now, now + hold, node, size))
                        break
            if len(mine) == len(gang.pods):
                placed += mine
                previous = now
                end = max(each[1] for each in mine)
                found.append(IdealJob(key=gang.key, arrives=gang.arrives, start=now, end=end))
                break
    return found


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[IdealGang], list[Size]]:
    """Gangs in order of arrival that each fit into the empty cluster."""
    nodes = [(8, 16, 64)] * draw(st.integers(1, 4))
    gangs, arrives = [], 0.0
    for number in range(draw(st.integers(1, 12))):
        arrives += draw(st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0]))
        gpus = draw(st.sampled_from([0, 1, 2, 4, 8]))
        size = (gpus, draw(st.integers(1, 4)), 1)
        room = min(8 // gpus if gpus else 99, 16 // size[1]) * len(nodes)
        count = draw(st.integers(1, min(room, 12)))
        holds = draw(
            st.lists(st.sampled_from([1.0, 3.0, 4.5, 9.0]), min_size=count, max_size=count)
        )
        gangs.append(
            IdealGang(key=f"j{number}", arrives=arrives, pods=tuple((size, hold) for hold in holds))
        )
    return gangs, nodes


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_starts_are_those_of_a_slow_simulation(
    workload: tuple[list[IdealGang], list[Size]],
) -> None:
    """Trying every moment afresh gives the same starts and ends."""
    gangs, nodes = workload
    assert list(schedule_fifo(gangs, nodes)) == slowly(gangs, nodes)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 90)), min_size=1, max_size=60),
    st.integers(1, 5),
)
def test_whole_nodes_are_servers_of_a_queue(jobs: list[tuple[int, int]], servers: int) -> None:
    """Waits are those of the recursion of Kiefer and Wolfowitz for so many servers."""
    arrives, gangs, free, waits = 0.0, [], [0.0] * servers, []
    for number, (gap, service) in enumerate(jobs):
        arrives += gap
        gangs.append(
            IdealGang(key=f"{number}", arrives=arrives, pods=(((8, 1, 1), float(service)),))
        )
        start = max(arrives, heapq.heappop(free))
        heapq.heappush(free, start + service)
        waits.append(start - arrives)
    assert [job.wait for job in schedule_fifo(gangs, [(8, 9, 9)] * servers)] == waits


def test_nobody_passes_the_first_in_line() -> None:
    """A small job behind one that does not fit waits with it."""
    one = (((1, 1, 1), 10.0),)
    gangs = [
        IdealGang(key="a", arrives=0, pods=one),
        IdealGang(key="b", arrives=1, pods=(((8, 1, 1), 5.0),)),
        IdealGang(key="c", arrives=2, pods=one),
    ]
    assert [job.start for job in schedule_fifo(gangs, [(8, 9, 9)])] == [0, 10, 15]


def test_what_fits_nowhere_has_no_bound() -> None:
    """It is said which job it is."""
    with pytest.raises(IdealUnknown, match="job a does not fit even into the empty cluster"):
        schedule_fifo([IdealGang(key="a", arrives=0, pods=(((9, 1, 1), 1.0),))], [(8, 9, 9)])


def job(name: str, created: float, *, started: float | None) -> JobLife:
    return JobLife(
        key=f"default/{name}", kind="Job", uid=name, queue="q", klass="job", priority=0,
        size=1, min_member=1, gpus=8000, created=created, started=started,
        end=LifeEnd.SUCCEEDED if started is not None else LifeEnd.NONE,
    )  # fmt: skip


def pod(
    name: str, bound: float | None, ended: float | None, end: LifeEnd = LifeEnd.SUCCEEDED
) -> PodLife:
    return PodLife(
        name=f"{name}-{bound}", namespace="default", uid=f"{name}-{bound}",
        job=f"default/{name}", queue="q", gpus=8000, cpu=1000, memory=1, created=0.0,
        bound=bound, running=bound, ended=ended, node="n", end=end,
    )  # fmt: skip


NODE = NodeLife(
    name="n", labels={},
    spans=(NodeSpan(since=0, until=100, gpus=8000, cpu=9000, memory=99, usable=True),),
)  # fmt: skip


def test_a_run_is_repeated_with_its_own_durations() -> None:
    """What an eviction cut short does not count, what came at once goes as it was started."""
    record = RunRecord(
        name="a", ground="embedded", seed=1, seconds=100, epoch=0.0, nodes=(NODE,),
        jobs=(job("j-10", 0, started=40), job("j-9", 0, started=1)),
        pods=(
            pod("j-9", 1, 5, LifeEnd.EVICTED), pod("j-9", 20, 32), pod("j-10", 40, 55),
        ),
    )  # fmt: skip
    assert [(each.key, each.start, each.end) for each in ideal_schedule(record)] == [
        ("default/j-9", 0, 12), ("default/j-10", 12, 27),
    ]  # fmt: skip


def test_a_job_that_never_started_leaves_the_bound_unknown() -> None:
    """Nobody knows how long it would have run."""
    record = RunRecord(
        name="a", ground="embedded", seed=1, seconds=100, epoch=0.0, nodes=(NODE,),
        jobs=(job("j", 0, started=None),), pods=(pod("j", None, None, LifeEnd.NONE),),
    )  # fmt: skip
    with pytest.raises(IdealUnknown, match="job default/j never started"):
        ideal_schedule(record)
