"""Pods of a Job that a session started are bound by one that ends there, as the daemon's does, while others wait."""

from __future__ import annotations

from gpusched.engine.simulation import Simulation, SimulationCase
from gpusched.lab.simulate.traces.workload import JobShape, job_arrivals
from gpusched.session.decide import Decision
from tests.engine.engine_cases import QUICK, cluster, job

JOBS = [job("runs", 0, 40, 8), job("next", 1, 20, 8), job("last", 2, 10, 8)]


def played(*names: str, told: list[Decision] | None = None) -> tuple[Simulation, list[float]]:
    """Play some of the jobs on one node, and when sessions knew of nothing but pods that were counted on."""
    foreseen: list[float] = []
    jobs = [each for each in JOBS if each.name in names]
    case = SimulationCase(
        name="foreseen",
        config=QUICK,
        objects=cluster(1),
        arrivals=job_arrivals(jobs, JobShape(suspend=True)),
        decided=told.append if told is not None else None,
        enough=lambda _sessions: note(),
    )

    def note() -> bool:
        if simulation.snapshot.foreseen and any(
            gang.pending and not gang.suspended for gang in simulation.snapshot.gangs
        ):
            foreseen.append(simulation.world.now)
        return False

    simulation = Simulation(case, tells_starts=told is not None)
    simulation.begin()
    simulation.go_on()
    return simulation, foreseen


def moments(simulation: Simulation) -> dict[str, tuple[float | None, float | None]]:
    """When each job started and ended, by name."""
    return {
        each.key.split("/")[-1]: (each.started, each.ended)
        for each in simulation.world.lives.job_lives()
    }


def test_pods_that_were_counted_on_are_bound_by_a_session_of_their_own() -> None:
    """Given Jobs that wait suspended for one node, when it is free, then pods of the next are bound as they come, and the last starts after them."""
    simulation, foreseen = played("runs", "next", "last")
    found = moments(simulation)
    assert found["next"][0] in foreseen
    assert found["last"][0] is not None
    assert found["next"][1] is not None
    assert 0.0 <= found["last"][0] - found["next"][1] < 1.0


def test_nothing_is_left_to_a_later_session_where_nobody_waits() -> None:
    """Given one Job, then no session ends before it is whole."""
    _, foreseen = played("runs")
    assert foreseen == []


def test_who_reads_decisions_is_told_whole_ones() -> None:
    """Given somebody who reads decisions, then each tells of everybody, and Jobs start at the same moments."""
    told: list[Decision] = []
    simulation, foreseen = played("runs", "next", "last", told=told)
    assert foreseen == []
    assert not any(each.ended_early for each in told)
    assert moments(simulation) == moments(played("runs", "next", "last")[0])
