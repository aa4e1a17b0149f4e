"""The simulator by itself: starts, waits, evictions, what comes back, and that nothing is given twice."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.engine.run_record import LifeEnd, RunRecord
from gpusched.engine.simulation import Arrival, Simulation, SimulationCase
from gpusched.lab.simulate.traces.model import TraceJob
from gpusched.lab.simulate.traces.workload import JobShape, job_arrivals, job_manifest
from tests.engine.engine_cases import QUICK, cluster, job, of, run

PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


def test_a_job_starts_at_once_where_there_is_room_and_ends_after_its_time() -> None:
    """Start, end and GPUs are the trace's; the start delay comes before the run."""
    # Given one node, when a job of two GPUs comes at 10 s and runs for 60 s
    record = run([job("one", 10, 60, 2)], cluster(1))
    # Then it is bound within the debounce and ends a second of start delay later than its time
    life = of(record, "one")
    assert life.created == 10
    assert life.started == pytest.approx(10, abs=0.05)
    assert life.ended == pytest.approx(71, abs=0.05)
    assert (life.end, life.gpus, life.klass) == (LifeEnd.SUCCEEDED, 2000, "2-4-GPUs")
    assert record.pods[0].slots == (0, 1)
    assert not record.broken


def test_a_pod_that_comes_alone_starts_at_once_and_two_are_waited_for() -> None:
    """As in the daemon: a pod is waited for by nobody, and more of them by a quarter of the debounce."""

    def bare(name: str) -> dict[str, object]:
        limits = {"nvidia.com/gpu": "1"}
        container = {"name": "main", "image": "i", "resources": {"limits": limits}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "trace"},
            "spec": {"schedulerName": "gpusched", "containers": [container]},
        }

    arrivals = [Arrival(50, (bare("alone"),)), Arrival(100, (bare("one"), bare("two")))]
    record = run([], cluster(1), more=arrivals)
    bound = {pod.name: pod.bound for pod in record.pods}
    assert bound == {"alone": 50, "one": 100.005, "two": 100.005}


def test_a_gang_waits_as_a_whole_and_says_why() -> None:
    """A gang of two nodes starts when both are free, in the moment the second becomes free."""
    # Given two nodes, one of which is taken for 100 s
    jobs = [job("first", 0, 100, 8), job("gang", 5, 50, 16)]
    # When a gang of sixteen GPUs comes
    record = run(jobs, cluster(2))
    # Then both its pods start together when the first job has ended
    gang = of(record, "gang")
    assert gang.size == gang.min_member == 2
    assert gang.started == pytest.approx(101, abs=0.1)
    bound = {pod.bound for pod in record.pods if pod.job == gang.key}
    assert len(bound) == 1
    assert gang.reasons[0].reason == "InsufficientResources"
    assert gang.reasons[-1].reason == ""
    assert gang.levels == (("host", 2),)


@pytest.mark.parametrize("suspend", [True, False])
def test_a_preempted_job_gives_way_comes_back_and_completes(suspend: bool) -> None:
    """Who is preempted loses its work, waits again, and runs its whole time later."""
    # Given a node that is full with a job that has run for 200 s
    objects = [PRIORITY, *cluster(1)]
    low = job("low", 0, 1000, 8)
    # When an urgent job comes
    urgent = run([job("high", 200, 100, 8)], objects, shape=JobShape(priority="urgent")).jobs[0]
    assert urgent.priority == 1000
    high = Arrival(
        200, (job_manifest(job("high", 200, 100, 8), JobShape(priority="urgent", suspend=suspend)),)
    )
    record = run([low], objects, shape=JobShape(suspend=suspend), more=[high])
    assert of(record, "high").priority == 1000
    # Then the first one is evicted once, with what it lost, and both complete
    (eviction,) = record.evictions
    assert eviction.job == "trace/low"
    assert eviction.why == "Preempted"
    assert eviction.lost == pytest.approx(199 * 8000, rel=0.01)
    assert of(record, "high").ended == pytest.approx(301, abs=0.5)
    assert of(record, "low").ended == pytest.approx(1302, abs=1)
    assert [pod.end for pod in record.pods if pod.job == "trace/low"] == [
        LifeEnd.EVICTED,
        LifeEnd.SUCCEEDED,
    ]
    assert not record.broken


def test_a_job_that_may_start_with_less_counts_as_started_and_breaks_nothing() -> None:
    """Two nodes wished for, one needed, one there: it starts with one pod, and runs the second after it."""
    # Given a suspended Job of two pods that may start with one, on one node
    elastic = job_manifest(job("elastic", 0, 60, 16), JobShape(suspend=True))
    elastic["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "1"
    # When it has been played to its end
    record = run([], cluster(1), more=[Arrival(0.0, (elastic,))])
    # Then it started at once, with less than it wished for, which is no gang in part
    life = of(record, "elastic")
    assert not record.broken
    assert (life.size, life.min_member) == (2, 1)
    assert life.started == pytest.approx(0, abs=1)
    assert (life.end, life.ended) == (LifeEnd.SUCCEEDED, pytest.approx(122, abs=2))


def test_borrowed_gpus_are_given_back_to_the_queue_that_deserves_them() -> None:
    """Reclaim works in simulated time: the owner of a share starts, the borrower waits and ends."""
    # Given two queues that deserve a node each, and one of them holding both
    objects = cluster(2, deserved={"a": 8, "b": 8})
    jobs = [job("a1", 0, 500, 8, "a"), job("a2", 1, 500, 8, "a"), job("b1", 100, 50, 8, "b")]
    # When the other one asks for its own
    record = run(jobs, objects)
    # Then it starts soon, and the borrower's job runs to its end later
    assert of(record, "b1").started == pytest.approx(100, abs=2)
    assert {each.why for each in record.evictions} == {"Reclaimed"}
    assert all(life.end is LifeEnd.SUCCEEDED for life in record.jobs)
    marks = {life.name: life.marks for life in record.queues}
    assert max(mark.allocated for mark in marks["a"]) == 16_000
    assert marks["a"][-1].allocated == 0


def test_work_that_was_saved_is_not_done_again() -> None:
    """A PodGroup with a checkpoint interval loses what it did since, and resumes from there."""
    # Given a group of one pod that saves its work every 100 s and is preempted after 250 s
    group = {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "saver", "namespace": "trace"},
        "spec": {"queue": "a", "minMember": 1, "disruption": {"checkpointInterval": "100s"}},
    }
    saver = job_manifest(job("saver", 0, 1000, 8), JobShape())
    saver["spec"]["template"]["metadata"]["labels"] = {"gpusched.io/pod-group": "saver"}
    high = job_manifest(job("high", 251, 100, 8), JobShape(priority="urgent"))
    record = run(
        [],
        [PRIORITY, *cluster(1)],
        more=[Arrival(0, (group, saver)), Arrival(251, (high,))],
    )
    # Then fifty seconds are lost, and 800 s are left to do
    (eviction,) = record.evictions
    assert eviction.lost == pytest.approx(50 * 8000, rel=0.02)
    last = max(pod.ended or 0 for pod in record.pods if pod.job == "trace/saver")
    assert last == pytest.approx(251 + 1 + 100 + 1 + 800, abs=2)
    assert of(record, "saver").end is LifeEnd.SUCCEEDED


def _many(count: int) -> list[TraceJob]:
    rng = random.Random(7)
    return [
        job(
            f"j{number:03d}",
            rng.randrange(400),
            rng.choice([60, 120, 240, 600]),
            rng.choice([1, 1, 1, 2, 4, 8, 16]),
            rng.choice(["a", "b"]),
        )
        for number in range(count)
    ]


def test_equal_cases_give_equal_records_and_nothing_is_given_twice() -> None:
    """Every slot, node and gang is looked at over the whole run; a second run is the same."""
    # Given a cluster that is too small for a while
    jobs = sorted(_many(24), key=lambda each: each.submit_s)
    objects = cluster(2, deserved={"a": 4, "b": 12})
    # When it is simulated twice
    first, second = run(jobs, objects), run(jobs, objects)
    # Then nothing is broken, everybody completes, and both are equal
    assert not first.broken
    assert all(each.end is LifeEnd.SUCCEEDED for each in first.jobs)
    assert any((each.started or 0) - each.created > 60 for each in first.jobs)
    assert first == second


def test_a_run_is_over_although_somebody_waits_for_ever() -> None:
    """A job that fits nowhere does not keep the simulation going."""
    # Given one node of eight, when a job asks for sixteen in one pod
    record = run([job("small", 0, 60, 1), job("huge", 1, 60, 16)], cluster(1))
    # Then the other one completed, and this one is told to wait
    assert of(record, "small").end is LifeEnd.SUCCEEDED
    assert of(record, "huge").started is None
    assert of(record, "huge").reasons
    assert record.counters["waiting"] == 1
    assert record.seconds < 2 * 86_400


def test_sessions_follow_at_once_while_a_line_is_too_long_for_one() -> None:
    """As in the daemon: who is far behind in a long line is looked at in the next session, not minutes later."""
    # Given a line of unlike gangs for which there is no room, of which one session looks at a few
    config = attrs.evolve(QUICK, limits=attrs.evolve(QUICK.limits, session_work=4_000))
    jobs = [job(f"large-{number:02d}", number * 0.001, 60, 24 + number) for number in range(60)]
    # When one that fits comes last
    record = run([*jobs, job("small", 1, 60, 1)], cluster(2), config=config, until=600.0)
    # Then it starts within seconds
    assert of(record, "small").started == pytest.approx(1, abs=5)


def test_sessions_stop_when_all_of_several_long_lines_were_looked_at() -> None:
    """Lines of several lengths are not through at the same time, and nobody begins anew before the last is."""
    # Given two lines of unlike gangs for which there is no room, beside a job that runs for an hour
    config = attrs.evolve(QUICK, limits=attrs.evolve(QUICK.limits, session_work=4_000))
    jobs = [job("runs", 0, 3600, 8)]
    for queue, count in (("a", 31), ("b", 47)):
        jobs += [job(f"{queue}-{number:02d}", 1, 60, 24 + number, queue) for number in range(count)]
    # When it has run
    record = run(jobs, cluster(1, deserved={"a": 0, "b": 0}), config=config, until=3000.0)
    # Then sessions were those of a few rounds, and not one behind the other for all that time
    assert record.counters["sessions"] < 400


def test_a_job_that_was_started_keeps_its_room_from_who_is_looked_at_later() -> None:
    """Its pods are looked at in the very next session, and not after the round that goes on."""
    # Given a line of unlike gangs for which there is no room, of which one session looks at a few
    config = attrs.evolve(QUICK, limits=attrs.evolve(QUICK.limits, session_work=4_000))
    jobs = [job(f"large-{number:02d}", 0.001 * number, 60, 24 + number) for number in range(60)]
    # When a suspended Job is started that takes all of the node, before one that fits as well and came last
    whole = Arrival(0.0, (job_manifest(job("whole", 0, 60, 8), JobShape(suspend=True)),))
    record = run(
        [*jobs, job("small", 0.1, 60, 1)], cluster(1), config=config, until=600.0, more=[whole]
    )
    # Then the Job has the node, and the other one comes after it
    assert of(record, "whole").started == pytest.approx(0, abs=1)
    assert of(record, "small").started == pytest.approx(61, abs=5)


GROUP = {
    "apiVersion": "scheduling.gpusched.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "none", "namespace": "trace"},
    "spec": {"minMember": 1, "queue": "a"},
}


@pytest.mark.parametrize("reads", [False, True])
def test_starts_that_nobody_reads_are_not_worked_out(reads: bool) -> None:
    """When a gang is expected to start is left out where no one sees it, and a PodGroup's status cannot tell it."""

    def played(*, tells_starts: bool) -> tuple[RunRecord, int]:
        """The record, and the most starts that a session told."""
        told: list[int] = []

        def enough(_sessions: int) -> bool:
            told.append(len(simulation.cache.expected_starts.estimates))
            return False

        jobs = [job("first", 0, 100, 8), job("gang", 5, 50, 16)]
        case = SimulationCase(
            name="test",
            config=QUICK,
            objects=[*cluster(2), *([GROUP] if reads else [])],
            arrivals=job_arrivals(jobs, JobShape(told="truth")),
            enough=enough,
        )
        simulation = Simulation(case, tells_starts=tells_starts)
        return simulation.run(), max(told)

    # Given a job of a known end, for which a gang waits; with a PodGroup there, and without
    record, most = played(tells_starts=True)
    # When it is played so that nobody sees decisions
    unseen, most_unseen = played(tells_starts=False)
    # Then starts are told where they are read again alone, and everything happens in the same way
    assert (most, most_unseen) == (1, 1 if reads else 0)
    assert unseen == record
