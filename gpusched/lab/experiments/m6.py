"""M6: the openb fill beside published policies, and months of gang jobs under three configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.config.model import DEFAULT, Config
from gpusched.engine.objects import Obj
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.lab.experiments.openb_fill import POLICIES, fill_hosts
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.simulate.traces.generator import GeneratorOptions, generate_jobs
from gpusched.lab.simulate.traces.model import Trace
from gpusched.lab.simulate.traces.openb import PUBLISHED, read_hosts, read_requests
from gpusched.lab.simulate.traces.workload import (
    JobShape,
    equal_nodes,
    gpu_shares,
    job_arrivals,
    nodes_for,
    queue_manifests,
)
from gpusched.lab.simulate.variations import Variations, fifo_config, vary_arrivals, vary_objects

FULL: Final = 130
PUBLISHED_NAMES: Final = ("random", "dot product", "clustering", "packing", "best fit", "FGD")
STATISTICS: Final = (
    "mean(wait)", "median(wait)", "p95(wait)", "mean(completion)", "gpuUse", "gpuUseBusy",
    "fragmentation", "evictions", "lostGpuHours",
)  # fmt: skip


@frozen(kw_only=True)
class FillRow:
    """One policy on one list.

    Attributes:
        allocated: percent of the GPUs once 130 % of them are asked for, mean over seeds.
        spread: standard deviation of it over seeds.
        curve: percent allocated by percent arrived, means over seeds.
        published: percent at the same point, by the name of the published policy.
    """

    name: str
    policy: str
    allocated: float
    spread: float
    curve: Mapping[int, float]
    published: Mapping[str, float]


@frozen(kw_only=True)
class MonthsRow:
    """One configuration over months of gang jobs; ``statistics`` by name, None where not known.

    Attributes:
        waits: mean wait in seconds by class of size.
    """

    configuration: str
    jobs: int
    started: int
    statistics: Mapping[str, float | None]
    waits: Mapping[str, float | None]


@frozen(kw_only=True)
class Months:
    """What is simulated.

    Attributes:
        load: share of the GPUs that the jobs would use if none waited: it decides how many
            nodes of eight GPUs there are.
        per_rack: nodes of a rack.
    """

    jobs: int = 2000
    days: float = 14.0
    seed: int = 1
    load: float = 0.85
    gpus_max: int = 128
    per_rack: int = 4


@frozen(kw_only=True)
class M6:
    """Both halves; ``records`` of the months by configuration, for plots."""

    fills: tuple[FillRow, ...]
    months: tuple[MonthsRow, ...]
    records: Mapping[str, RunRecord]


def experiment_m6(
    folder: Path | None,
    *,
    lists: Sequence[str] = tuple(PUBLISHED),
    seeds: int = 1,
    months: Months | None = None,
    told: Callable[[str], None] = lambda _doing: None,
) -> M6:
    """Run the experiment.

    Args:
        folder: of the openb files; None to leave out the fills.
        lists: names of lists to fill with.
        seeds: fills of each kind.
        months: of gang jobs; None to leave them out.
        told: what is being done.

    Raises:
        ConfigError: a file of the trace cannot be read.
    """
    fills = fill_rows(folder, lists, seeds=seeds, told=told) if folder is not None else ()
    records = gang_months(months, told=told) if months is not None else {}
    rows = tuple(months_row(name, record) for name, record in records.items())
    return M6(fills=fills, months=rows, records=records)


def fill_rows(
    folder: Path, lists: Sequence[str], *, seeds: int, told: Callable[[str], None]
) -> tuple[FillRow, ...]:
    """Every policy of ours on every list.

    Raises:
        ConfigError: a file of the trace cannot be read.
    """
    hosts = read_hosts(folder / "openb_nodes.csv.gz")
    rows = []
    for name in lists:
        requests = read_requests(folder / f"openb_pods_{name}.csv.gz")
        for policy, arguments in POLICIES.items():
            runs = []
            for seed in range(seeds):
                told(f"openb {name}, {policy}, seed {seed}")
                runs.append(fill_hosts(hosts, requests, arguments, seed=seed).allocated)
            ends = [run[FULL] for run in runs]
            rows.append(
                FillRow(
                    name=name,
                    policy=policy,
                    allocated=mean(ends),
                    spread=pstdev(ends),
                    curve={at: mean(run[at] for run in runs) for at in runs[0]},
                    published=dict(zip(PUBLISHED_NAMES, PUBLISHED[name], strict=True)),
                )
            )
    return tuple(rows)


def configurations() -> dict[str, tuple[Config, Variations]]:
    """What months of jobs are simulated under, by name."""
    greedy = attrs.evolve(DEFAULT, placement=attrs.evolve(DEFAULT.placement, solver="greedy"))
    return {
        "fifo": (fifo_config(greedy), Variations(fifo=True)),
        "greedy": (greedy, Variations(told=True)),
        "solver": (DEFAULT, Variations(told=True)),
    }


def gang_months(
    months: Months,
    *,
    names: Sequence[str] | None = None,
    told: Callable[[str], None] = lambda _doing: None,
) -> dict[str, RunRecord]:
    """The same jobs first in, first out, with greedy placement, and with the solver.

    Jobs tell their true run times, but to the FIFO, which does not ask. No gang is evicted: queues
    have weights, nothing that they deserve, so that only the order and the places differ.

    Args:
        months: what is simulated.
        names: of configurations; None for all.
        told: what is being done.
    """
    trace = months_trace(months)
    made = months_objects(months, trace)
    records = {}
    for name, (config, changes) in configurations().items():
        if names is not None and name not in names:
            continue
        told(f"{trace.source}, {name}")
        without = tuple(each for each in config.actions if each not in ("preempt", "reclaim"))
        case = SimulationCase(
            name=name,
            config=attrs.evolve(config, actions=without, action_lines=()),
            objects=vary_objects(made, changes),
            arrivals=vary_arrivals(job_arrivals(trace.jobs, JobShape()), changes),
            seed=months.seed,
        )
        records[name] = run_simulation(case)
    return records


def months_trace(months: Months) -> Trace:
    """The jobs."""
    return generate_jobs(
        GeneratorOptions(
            jobs=months.jobs, days=months.days, seed=months.seed, gpus_max=months.gpus_max
        )
    )


def months_objects(months: Months, trace: Trace) -> list[Obj]:
    """Nodes of eight GPUs for the load, and queues with weights by use that deserve nothing."""
    count = nodes_for(trace.jobs, days=months.days, node_gpus=8, load=months.load)
    weights = gpu_shares(trace.jobs, 1000)
    made = [
        *equal_nodes(count, 8, per_rack=months.per_rack),
        *queue_manifests(dict.fromkeys(weights, 0)),
    ]
    for obj in made:
        if obj["kind"] == "Queue":
            obj["spec"]["weight"] = weights[obj["metadata"]["name"]]
    return made


def months_row(name: str, record: RunRecord) -> MonthsRow:
    """The numbers of one configuration."""
    classes = sorted({job.klass for job in record.jobs})
    return MonthsRow(
        configuration=name,
        jobs=len(record.jobs),
        started=sum(job.started is not None for job in record.jobs),
        statistics={each: statistic(record, each).value for each in STATISTICS},
        waits={
            klass: statistic(record, "mean(wait)", of={"class": klass}).value for klass in classes
        },
    )


def as_tables(result: M6) -> list[tuple[list[str], list[list[str]]]]:
    """Heads and rows of both halves, for printing."""
    tables: list[tuple[list[str], list[list[str]]]] = []
    if result.fills:
        heads = ["openb list", "policy", "allocated %", *(f"{each} (published)" for each in
                 ("random", "best fit", "FGD"))]  # fmt: skip
        tables.append((heads, [_fill_cells(row) for row in result.fills]))
    if result.months:
        heads = ["configuration", "started", *STATISTICS, *result.months[0].waits]
        tables.append((heads, [_month_cells(row) for row in result.months]))
    return tables


def _fill_cells(row: FillRow) -> list[str]:
    said = f"{row.allocated:.1f}" + (f" (sd {row.spread:.2f})" if row.spread else "")
    named = [f"{row.published[each]:.1f}" for each in ("random", "best fit", "FGD")]
    return [row.name, row.policy, said, *named]


def _month_cells(row: MonthsRow) -> list[str]:
    amounts: list[Any] = [*row.statistics.values(), *row.waits.values()]
    return [
        row.configuration,
        f"{row.started} of {row.jobs}",
        *("-" if each is None else f"{each:,.3g}" for each in amounts),
    ]
