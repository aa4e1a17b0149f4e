"""Statistics mean what docs/scenarios.md says: worked by hand, and against sums over small steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.engine.run_record import (
    EvictionRecord,
    JobLife,
    LifeEnd,
    NodeLife,
    NodeSpan,
    PodLife,
    QueueLife,
    QueueMark,
    RunRecord,
)
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.job_values import VALUES
from gpusched.lab.report.statistics.named import (
    StatisticValue,
    UnknownStatistic,
    check_name,
    known_statistics,
    percentile,
    statistic,
    unit_of,
)
from gpusched.lab.report.statistics.steps import StepFunction, steps_from_spans, sum_steps


def pod(job: str, number: int, **more: Any) -> PodLife:
    base: dict[str, Any] = {
        "name": f"{job}-{number}", "namespace": "default", "uid": f"{job}-{number}",
        "job": f"default/{job}", "queue": "q", "gpus": 4000, "cpu": 1000, "memory": 1024,
        "created": 0.0, "node": "n0",
    }  # fmt: skip
    return PodLife(**{**base, **more})


def job(name: str, **more: Any) -> JobLife:
    base: dict[str, Any] = {
        "key": f"default/{name}", "kind": "Job", "uid": name, "queue": "q", "klass": "batch",
        "priority": 0, "size": 2, "min_member": 2, "gpus": 8000, "created": 0.0,
    }  # fmt: skip
    return JobLife(**{**base, **more})


def node(name: str, *, gpus: int = 8, until: float = 100.0) -> NodeLife:
    span = NodeSpan(since=0, until=until, gpus=gpus * 1000, cpu=8000, memory=8192, usable=True)
    return NodeLife(name=name, labels={}, spans=(span,))


BASE: dict[str, Any] = {
    "name": "a",
    "ground": "embedded",
    "seed": 1,
    "seconds": 100.0,
    "epoch": 0.0,
}


def run(**more: Any) -> RunRecord:
    return RunRecord(**{**BASE, **more})


def two() -> RunRecord:
    """One job runs from 10 to 60, its second pod bound at 12; the other never starts."""
    done: dict[str, Any] = {"running": 13.0, "ended": 60.0, "end": LifeEnd.SUCCEEDED}
    return run(
        nodes=(node("n0"),),
        jobs=(
            job("a", created=5.0, admitted=8.0, started=12.0, ready=13.0, ended=61.0,
                end=LifeEnd.SUCCEEDED),
            job("b", created=20.0, queue="r", klass="big"),
        ),
        pods=(
            pod("a", 0, created=8.0, bound=10.0, **done),
            pod("a", 1, created=8.5, bound=12.0, **done),
            pod("b", 0, created=20.0, queue="r"), pod("b", 1, created=20.0, queue="r"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sum(wait)", 7 + 80),  # b waits to the end of the run
        ("max(wait)", 80),
        ("sum(admission)", 3 + 80),
        ("sum(held)", 3 + 0),
        ("sum(latency)", 4 + 80),
        ("min(dispatch)", 5),
        ("mean(startup)", 1),
        ("mean(run)", 49),
        ("sum(completion)", 56 + 80),
        ("sum(service)", 53 + 80),
        ("sum(idle)", 2 * 4),  # one pod held 4 GPUs for 2 s alone
        ("partialGangSeconds", 8),
        ("partialGangs", 1),
        ("count(run)", 1),
        ("makespan", 95),
        ("jobs", 2),
        ("completed", 1),
        ("failed", 0),
        ("gpuUse", (2 * 4 + 48 * 8) / (95 * 8)),
        ("cpuUse", (2 * 1 + 48 * 2) / (95 * 8)),
        ("gpuUseBusy", (2 * 4 + 40 * 8) / (8 * (7 + 80))),  # from 5 to 12 and from 20 on
        ("fragmentation", 0),
    ],
)
def test_numbers_of_a_small_run(name: str, value: float) -> None:
    """What never happened is counted to the end, and not left out."""
    assert statistic(two(), name).value == pytest.approx(value)


def test_jobs_are_chosen() -> None:
    """By queue, class, kind and name."""
    record = two()
    for of in ({"queue": "r"}, {"class": "big"}, {"job": "b"}, {"job": "*b", "kind": "Job"}):
        assert statistic(record, "sum(wait)", of=of).value == 80
    assert statistic(record, "count(wait)", of={"job": "x"}).value == 0
    none = statistic(record, "mean(wait)", of={"job": "x"})
    assert (none.value, str(none)) == (None, "not known: no job has it")
    with pytest.raises(UnknownStatistic, match="not chosen by 'owner'"):
        statistic(record, "mean(wait)", of={"owner": "x"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wait", r"write for example mean\(wait\)"),
        ("p50(wait)", "no function 'p50', only mean, median"),
        ("mean(waits)", "no value 'waits', only wait"),
        ("gpuuse", "no statistic 'gpuuse', only"),
    ],
)
def test_names_that_are_none_say_which_there_are(name: str, says: str) -> None:
    """With the names that are known."""
    with pytest.raises(UnknownStatistic, match=says):
        check_name(name)


def test_every_known_statistic_can_be_asked_of_an_empty_run() -> None:
    """Nothing fails where nothing happened."""
    for name in known_statistics():
        assert statistic(run(), name).unit == unit_of(name)
        assert statistic(two(), name).unit == unit_of(name)


def test_every_statistic_is_documented() -> None:
    """Each name stands in docs/scenarios.md, in code quotes."""
    text = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text()
    quoted = set(re.findall(r"`([A-Za-z0-9]+)`", text))
    whole = {name for name in known_statistics() if "(" not in name}
    assert not (whole | set(VALUES)) - quoted


def test_percentiles_are_nearest_ranks() -> None:
    """The smallest value that so many percent are not above."""
    amounts = [float(number) for number in range(1, 21)]
    assert [percentile(amounts, share) for share in (90, 95, 99)] == [18, 19, 20]
    assert percentile([7.0], 90) == 7


def test_ends_of_a_gang_are_no_partial_start() -> None:
    """Pods that succeed one after the other leave a gang that had started; those told to go too."""
    record = run(
        jobs=(job("a", started=1.0, ended=40.0, end=LifeEnd.SUCCEEDED), job("b", started=1.0)),
        pods=(
            pod("a", 0, bound=1.0, ended=20.0, end=LifeEnd.SUCCEEDED),
            pod("a", 1, bound=1.0, ended=40.0, end=LifeEnd.SUCCEEDED),
            pod("b", 0, bound=1.0, told=30.0, ended=35.0, end=LifeEnd.EVICTED),
            pod("b", 1, bound=1.0, told=30.0, ended=50.0, end=LifeEnd.EVICTED),
        ),
    )
    assert statistic(record, "partialGangSeconds").value == 0
    assert statistic(record, "partialGangs").value == 0
    lost = attrs.evolve(record.pods[3], told=None, ended=50.0)
    record = attrs.evolve(record, pods=(*record.pods[:3], lost))
    assert statistic(record, "partialGangSeconds").value == 20 * 4


def test_evictions_and_their_cost() -> None:
    """Counted, and in GPU-hours."""
    evicted = [
        EvictionRecord(at=float(at), pod=f"default/a-{at}", job="default/a", queue="q", why="Preempted",
                 sentence="", lost=4000 * 1800)
        for at in (10, 20)
    ]  # fmt: skip
    record = run(jobs=(job("a"), job("b")), evictions=tuple(evicted))
    assert statistic(record, "evictions").value == 2
    assert statistic(record, "lostGpuHours").value == pytest.approx(4.0)
    assert statistic(record, "evictions", of={"job": "b"}).value == 0
    assert over_time.eviction_steps(record).at(np.array([9.0, 10.0, 50.0])).tolist() == [0, 1, 2]


def test_useless_gpus_are_those_the_usual_pod_cannot_have() -> None:
    """Half of the pods ask for one GPU, half for four: of three free ones half of three is lost."""
    record = run(
        nodes=(node("n0"), node("n1", gpus=3)),
        jobs=(job("a"),),
        pods=(pod("a", 0, gpus=1000), pod("a", 1, gpus=4000)),
    )
    useless, free = over_time.fragmentation_steps(record)
    assert (useless.values.tolist(), free.values.tolist()) == ([1.5], [11])
    assert statistic(record, "fragmentation").value == pytest.approx(1.5 / 11)


def fair(held: dict[str, int]) -> RunRecord:
    """Queues that are due 4 GPUs each, want more all the time, and hold so many."""
    mark = QueueMark(at=0, weight=1, deserved=None, capability=None, guarantee=None,
                     allocated=0, fair_share=4000)  # fmt: skip
    return run(
        queues=tuple(QueueLife(name=name, parent="root", marks=(mark,)) for name in held),
        jobs=tuple(job(f"w-{name}", queue=name) for name in held),
        pods=tuple(
            pod(f"r-{name}", 0, queue=name, gpus=1000 * count, bound=0.0)
            for name, count in held.items()
        ),
    )


@pytest.mark.parametrize(
    ("held", "index"),
    [({"a": 4, "b": 4}, 1.0), ({"a": 8, "b": 0}, 0.5), ({"a": 6, "b": 2}, 0.8), ({"a": 9}, 1.0)],
)
def test_fairness_is_the_index_of_jain(held: dict[str, int], index: float) -> None:
    """Of what was held over what was due; equal parts are 1, one of n is 1/n."""
    assert statistic(fair(held), "fairness").value == pytest.approx(index)


@pytest.mark.parametrize(("waited", "step", "index"), [(0.005, 0.0, 1.0), (20.0, 30.0, 1.0), (20.0, 0.0, 1 / 6)])  # fmt: skip
def test_who_starts_at_once_has_waited_for_nobody(waited: float, step: float, index: float) -> None:
    """Given one queue that waits for all of the run, then another counts only where it waited, too: 20 of 120 due."""
    at_once = job("w-a", queue="a", ended=waited)
    record = attrs.evolve(
        fair({"a": 4, "b": 0}), jobs=(at_once, job("w-b", queue="b")), step_s=step
    )
    assert statistic(record, "fairness").value == pytest.approx(index)


def test_who_wants_no_more_is_not_wronged() -> None:
    """A queue without waiting jobs does not count."""
    record = attrs.evolve(fair({"a": 8, "b": 0}), jobs=(job("w-a", queue="a"),))
    assert statistic(record, "fairness").value == pytest.approx(1.0)


PIECES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 25), st.integers(-3, 9)).map(
        lambda each: (float(each[0]), float(each[1]), float(each[2]))
    ),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(PIECES, PIECES)
def test_steps_are_sums_over_small_steps(
    one: list[tuple[float, float, float]], other: list[tuple[float, float, float]]
) -> None:
    """Values, integrals and combinations agree with counting second by second."""

    def slow(pieces: list[tuple[float, float, float]]) -> list[float]:
        return [sum(a for since, end, a in pieces if since <= t < end) for t in range(20)]

    left, right = steps_from_spans(one, 20.0), steps_from_spans(other, 20.0)
    moments = np.arange(20.0)
    assert left.at(moments).tolist() == slow(one)
    assert left.integral == pytest.approx(sum(slow(one)))
    assert left.between(3, 11).integral == pytest.approx(sum(slow(one)[3:11]))
    both = sum_steps([left, right], 20.0)
    assert both.at(moments).tolist() == [a + b for a, b in zip(slow(one), slow(other), strict=True)]
    assert isinstance(both, StepFunction)


def test_figures_are_written_with_their_units() -> None:
    """As people write them."""
    figures = [
        (StatisticValue(72.0, "s"), "72.0 s"), (StatisticValue(0.024, "s"), "0.02 s"), (StatisticValue(0.987, "share"), "98.7 %"), (StatisticValue(3.0), "3"),
        (StatisticValue(1.004, "x"), "1.004"), (StatisticValue(0.9512), "0.951"), (StatisticValue(1234.5, "s"), "1,234.5 s"),
    ]  # fmt: skip
    for figure, text in figures:
        assert str(figure) == text
