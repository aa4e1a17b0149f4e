"""A timeline unrolled: in order, as often as asked for, and the same for the same seed."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import mean, median
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.lab.scenario.expansion.moments import TimelineMoment, unroll_timeline
from gpusched.lab.scenario.model.scenario import (
    ApplyAct,
    ArrivalProcess,
    CordonAct,
    EntryTimes,
    Scenario,
    SourceLocation,
    SubmitAct,
    TimelineEntry,
)
from gpusched.lab.scenario.model.workload import (
    ChoiceDraw,
    LogNormalDraw,
    UniformDraw,
    WorkloadSpec,
)
from tests.lab.scenario.texts import scenario

HERE = SourceLocation("told.yaml", 1)
EMPTY = Scenario(name="a", teaches="a", folder=Path(), place=HERE)


def unrolled(*entries: TimelineEntry, seed: int = 1) -> tuple[TimelineMoment, ...]:
    """The moments of a timeline."""
    return unroll_timeline(attrs.evolve(EMPTY, seed=seed, timeline=entries))


def submits(when: EntryTimes, *, name: str = "job-{{ Index }}", **fields: Any) -> TimelineEntry:
    """An entry that submits."""
    return TimelineEntry(when, SubmitAct(WorkloadSpec(name=name, **fields)), HERE)


def jobs(found: tuple[TimelineMoment, ...]) -> list[dict[str, Any]]:
    """The Jobs that are made, in order."""
    acts = [moment.act for moment in found]
    return [each.obj for act in acts if isinstance(act, ApplyAct) for each in act.manifests]


WHENS = st.builds(
    EntryTimes,
    at_s=st.floats(0, 1000),
    every_s=st.floats(0.01, 100),
    count=st.integers(1, 60),
    until_s=st.one_of(st.none(), st.floats(0, 3000)),
    process=st.sampled_from(ArrivalProcess),
    seed=st.integers(0, 9),
    day=st.one_of(
        st.just(()),
        st.lists(st.floats(0.1, 5), min_size=24, max_size=24).map(tuple),
    ),
)


@settings(max_examples=60, deadline=None)
@given(whens=st.lists(WHENS, max_size=4), seed=st.integers(0, 2**31 - 1))
def test_moments_are_in_order_and_bounded(whens: list[EntryTimes], seed: int) -> None:
    """Sorted by time and place; none before its first or after its last; the same each time."""
    entries = [submits(when) for when in whens]
    found = unrolled(*entries, seed=seed)
    keys = [(moment.at_s, moment.number, moment.index) for moment in found]
    assert keys == sorted(keys)
    for number, when in enumerate(whens):
        times = [moment.at_s for moment in found if moment.number == number]
        assert len(times) <= (when.count or 0)
        assert [m.index for m in found if m.number == number] == list(range(len(times)))
        if when.until_s is None:
            assert len(times) == when.count
        assert all(when.at_s - 0.001 <= at for at in times)
        assert all(at <= when.until_s for at in times if when.until_s is not None)
        if times:
            assert times[0] == pytest.approx(when.at_s, abs=0.001)
    again = unrolled(*entries, seed=seed)
    assert [(m.at_s, m.act) for m in found] == [(m.at_s, m.act) for m in again]


@settings(max_examples=30, deadline=None)
@given(when=WHENS, other=WHENS)
def test_one_more_entry_shifts_nothing(when: EntryTimes, other: EntryTimes) -> None:
    """What is drawn for an entry does not hang by what stands before it."""
    entry = submits(when, pods=UniformDraw(1, 8), run_for_s=LogNormalDraw(60, 600))
    alone = [(m.at_s, m.act) for m in unrolled(entry)]
    beside = unrolled(submits(other, name="other-{{ Index }}", pods=UniformDraw(1, 8)), entry)
    assert [(m.at_s, m.act) for m in beside if m.number == 1] == alone


def test_seeds_make_other_arrivals_and_draws() -> None:
    """The scenario's and the entry's own both count; equal ones give equal histories."""
    when = EntryTimes(every_s=10, count=20, process=ArrivalProcess.POISSON)
    entry = submits(when, run_for_s=UniformDraw(1, 10_000))
    first = [(m.at_s, m.act) for m in unrolled(entry)]
    assert first == [(m.at_s, m.act) for m in unrolled(entry)]
    own = attrs.evolve(entry, when=attrs.evolve(when, seed=5))
    for other in (unrolled(entry, seed=2), unrolled(own)):
        assert first[0][0] == other[0].at_s
        assert not {at for at, _ in first[1:]} & {m.at_s for m in other[1:]}
        assert first[0][1] != other[0].act


def test_means_are_those_asked_for() -> None:
    """Gaps of all processes have their mean; draws have their shares, median and bounds."""
    for process in ArrivalProcess:
        found = unrolled(submits(EntryTimes(every_s=10, count=4000, process=process)))
        gaps = [b.at_s - a.at_s for a, b in itertools.pairwise(found)]
        assert mean(gaps) == pytest.approx(10, rel=0.05), process
        assert max(gaps) <= {"fixed": 10.001, "uniform": 20.001}.get(process.value, 1000)
    entry = submits(
        EntryTimes(count=3000),
        pods=ChoiceDraw((1, 2, 8), (70, 20, 10)),
        run_for_s=LogNormalDraw(600, 28_800),
        gpus=UniformDraw(1, 4),
    )
    made = jobs(unrolled(entry))
    sizes = [job["spec"]["completions"] for job in made]
    assert sizes.count(1) / len(sizes) == pytest.approx(0.7, abs=0.03)
    assert set(sizes) == {1, 2, 8}
    containers = [job["spec"]["template"]["spec"]["containers"][0] for job in made]
    runs = sorted(int(each["command"][1]) for each in containers)
    assert median(runs) == pytest.approx(600, rel=0.15)
    assert runs[int(0.95 * len(runs))] == pytest.approx(28_800, rel=0.25)
    gpus = {each["resources"]["limits"]["nvidia.com/gpu"] for each in containers}
    assert gpus == {"1", "2", "3", "4"}


def test_a_day_has_its_rhythm() -> None:
    """Twice as busy hours have twice the arrivals; idle ones have none; the mean stays."""
    day = (0.0,) * 8 + (2.0,) * 8 + (1.0,) * 8
    when = EntryTimes(
        every_s=60, count=2880, until_s=172_800, process=ArrivalProcess.FIXED, day=day
    )
    hours = [int(moment.at_s // 3600) % 24 for moment in unrolled(submits(when))][1:]
    assert len(hours) == pytest.approx(2880, abs=2)
    assert not [hour for hour in hours if hour < 8]
    busy, calm = (sum(low <= hour < low + 8 for hour in hours) for low in (8, 16))
    assert busy / calm == pytest.approx(2, rel=0.01)


def test_texts_are_rendered_for_each_repeat(tmp_path: Path) -> None:
    """Names, targets, objects and sentences know their number; Stages keep their own templates."""
    found = scenario(
        tmp_path,
        """
        nodes: [{count: 3}]
        timeline:
        - {every: 1s, count: 3, cordon: "node-{{ Index }}", say: "node {{ add1 Index }} rests"}
        - at: 5s
          every: 5s
          count: 2
          apply:
          - {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ printf "m-%02d" Index }}'}, data: {a: b}}
          - apiVersion: kwok.x-k8s.io/v1alpha1
            kind: Stage
            metadata: {name: s}
            spec: {next: {statusTemplate: "{{ Now }}"}}
        """,
    )
    made = unroll_timeline(found)
    assert [m.sentence for m in made[:3]] == ["node 1 rests", "node 2 rests", "node 3 rests"]
    acts = [moment.act for moment in made]
    assert [act.target.name for act in acts if isinstance(act, CordonAct)] == [
        "node-0",
        "node-1",
        "node-2",
    ]
    objects = jobs(made)
    assert [obj["metadata"]["name"] for obj in objects] == ["m-00", "s", "m-01", "s"]
    assert objects[1]["spec"]["next"]["statusTemplate"] == "{{ Now }}"
