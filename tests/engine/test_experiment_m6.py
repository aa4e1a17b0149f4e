"""M6 in small: fills allocate what fits, and months of gangs run under three configurations."""

from __future__ import annotations

import pytest

from gpusched.lab.experiments.m6 import M6, Months, as_tables, experiment_m6, gang_months
from gpusched.lab.experiments.openb_fill import CHECKPOINTS, POLICIES, fill_hosts
from gpusched.lab.simulate.traces.generator import GeneratorOptions, generate_jobs
from gpusched.lab.simulate.traces.openb import PUBLISHED, TraceHost, TracePod
from gpusched.lab.simulate.traces.workload import nodes_for

HOSTS = [TraceHost(f"h-{number}", 64_000, 262_144, 4, "T4") for number in range(4)]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_fill_places_in_order_until_the_cluster_is_full(policy: str) -> None:
    """Pods of one GPU fill all of it; what comes after finds nothing; equal seeds are equal."""
    requests = [TracePod(1000, 1024, 1, 1000)]
    one = fill_hosts(HOSTS, requests, POLICIES[policy], seed=1)
    assert tuple(one.allocated) == CHECKPOINTS
    assert one.allocated[130] == pytest.approx(100)
    assert one.allocated[50] == pytest.approx(50)
    assert (one.placed, one.dropped) == (16, 5)
    assert one == fill_hosts(HOSTS, requests, POLICIES[policy], seed=1)


def test_pods_of_other_types_are_dropped() -> None:
    """A request that names a GPU type which no host has is counted and gets nothing."""
    requests = [TracePod(1000, 1024, 1, 1000, ("A10",))]
    assert fill_hosts(HOSTS, requests, POLICIES["fragmentation"], seed=1).placed == 0


def test_a_fill_looks_at_every_pod_however_many_fit_nowhere() -> None:
    """Given more unlike pods that fit nowhere than a session of the daemon looks at, then those behind them get their places."""
    hosts = [TraceHost(f"h-{number}", 64_000, 262_144, 1, "T4") for number in range(800)]
    large = [TracePod(1000 + number, 1024, 2, 1000) for number in range(518)]
    found = fill_hosts(hosts, [*large, TracePod(900, 1024, 1, 1000)], POLICIES["binpack (best fit)"], seed=2)  # fmt: skip
    assert found.placed == 1


def test_the_five_lists_have_their_published_figures() -> None:
    """Six policies each, from random to FGD."""
    assert len(PUBLISHED) == 5
    assert all(len(row) == 6 for row in PUBLISHED.values())


def test_months_of_gangs_are_run_in_line_greedily_and_with_the_solver() -> None:
    """The same jobs under each, all complete, nobody evicted; a line makes them wait longest."""
    records = gang_months(Months(jobs=12, days=0.02, load=1.5, gpus_max=16))
    assert list(records) == ["fifo", "greedy", "solver"]
    for record in records.values():
        assert len(record.jobs) == 12
        assert all(job.end == "Succeeded" for job in record.jobs)
        assert not record.evictions
        assert not record.broken
    waits = {
        name: sum((job.started or 0.0) - job.created for job in record.jobs)
        for name, record in records.items()
    }
    assert waits["fifo"] >= waits["greedy"]


def test_each_half_has_its_table() -> None:
    """Half an experiment has half the tables, with a row for each configuration."""
    assert as_tables(M6(fills=(), months=(), records={})) == []
    half = experiment_m6(None, months=Months(jobs=2, days=0.01, gpus_max=1))
    ((heads, rows),) = as_tables(half)
    assert [row[0] for row in rows] == ["fifo", "greedy", "solver"]
    assert {len(row) for row in rows} == {len(heads)}


def test_a_cluster_is_as_large_as_the_load_asks() -> None:
    """What long jobs do after the last one came does not count."""
    trace = generate_jobs(GeneratorOptions(jobs=300, days=5))
    count = nodes_for(trace.jobs, days=5, node_gpus=8, load=0.5)
    span = 5 * 86_400
    used = sum(job.gpus * min(job.duration_s, span - job.submit_s) for job in trace.jobs)
    largest = max(job.gpus for job in trace.jobs)
    assert count == pytest.approx(max(largest / 8, used / span / 8 / 0.5), abs=1)
