"""M6: the fill of the openb trace, months of gang jobs under three configurations, and two mixes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Final

from benchmarks.experiments.charts import Series, plot, stepped
from benchmarks.experiments.mixes import mix_scenes, mix_tasks
from benchmarks.experiments.page import Cost, Part, Scene
from benchmarks.experiments.pictures import Picture, waits_of
from benchmarks.experiments.pool import Done, Task, Tell
from gpusched.engine.run_record import RunRecord
from gpusched.lab.experiments.m6 import FULL, PUBLISHED_NAMES, Months, configurations, gang_months
from gpusched.lab.experiments.openb_fill import POLICIES, FillResult, fill_hosts
from gpusched.lab.report.pages.svg_file import svg_document
from gpusched.lab.report.plots.svg import Plot, duration_text, number_text, percent_text
from gpusched.lab.report.run_report import JudgedExpectation
from gpusched.lab.report.statistics.job_values import job_values
from gpusched.lab.report.statistics.named import StatisticValue, statistic
from gpusched.lab.report.statistics.tables import FilledTable, TableCell
from gpusched.lab.simulate.traces.openb import PUBLISHED, read_hosts, read_requests

NAME: Final = "M6"
MONTHS: Final = Months(jobs=1200, days=30.0)
ORDERS: Final = (1,)
"""Seeds of the orders in which pods come."""
FILL_MAX_S: Final = 60.0
BAR: Final = "fragmentation"
"""The policy that has to reach the published one."""
RACKS: Final = "racks of a gang on several nodes, mean"
_ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = (_ROOT.parent / "shared" / "traces", _ROOT.parent / "traces")
_STATISTICS: Final = (
    ("mean(wait)", "wait, mean"), ("median(wait)", "median"), ("p95(wait)", "p95"),
    ("mean(completion)", "made to ended, mean"), ("makespan", "makespan"), ("gpuUseBusy", "GPU use while a job waits"),
    ("fragmentation", "fragmentation"),
)  # fmt: skip


def trace_folder() -> Path | None:
    """Where the openb files are: ``OPENB_TRACES``, or beside this repository; None for nowhere."""
    said = os.environ.get("OPENB_TRACES")
    folders = (Path(said),) if said else _FOLDERS
    return next((each for each in folders if (each / "openb_nodes.csv.gz").is_file()), None)


def tasks_of() -> list[Task]:
    """The months of each configuration, and each fill; nothing of fills without the trace."""
    tasks = [Task(name=f"months, {name}", work=play_months, arguments=(name,))
             for name in configurations()]  # fmt: skip
    tasks += mix_tasks()
    folder = trace_folder()
    if folder is not None:
        tasks += [
            Task(name=_fill(listed, policy, seed), work=play_fill,
                 arguments=(str(folder), listed, policy, seed))
            for listed in PUBLISHED for policy in POLICIES for seed in ORDERS
        ]  # fmt: skip
    return tasks


def _fill(listed: str, policy: str, seed: int) -> str:
    return f"openb {listed}, {policy}, order {seed}"


def play_fill(tell: Tell, folder: str, listed: str, policy: str, seed: int) -> FillResult:
    """One fill, in a process of its own."""
    del tell
    hosts = read_hosts(Path(folder) / "openb_nodes.csv.gz")
    requests = read_requests(Path(folder) / f"openb_pods_{listed}.csv.gz")
    return fill_hosts(hosts, requests, POLICIES[policy], seed=seed)


def play_months(tell: Tell, name: str) -> RunRecord:
    """The jobs under one configuration, in a process of its own."""
    return gang_months(MONTHS, names=[name], told=tell)[name]


def part_of(done: Mapping[str, Done]) -> tuple[Part, list[Cost]]:
    """The experiment of what was done."""
    mixes = {task.name for task in mix_tasks()}
    mine = {task.name: done[task.name] for task in tasks_of() if task.name not in mixes}
    records = {name: mine[f"months, {name}"].result for name in configurations()}
    costs = [
        Cost(name=name, cpu_s=each.cpu_s, memory=each.memory,
             simulated_s=each.result.seconds if isinstance(each.result, RunRecord) else None,
             limit_s=FILL_MAX_S if isinstance(each.result, FillResult) else None)
        for name, each in mine.items()
    ]  # fmt: skip
    scenes, pictures, missing = [_months_scene(records)], [], ""
    if trace_folder() is None:
        missing = (
            "the openb trace is not there: OPENB_TRACES names its folder, see docs/benchmarks.md"
        )
    else:
        fills = {
            (listed, policy): [mine[_fill(listed, policy, seed)].result for seed in ORDERS]
            for listed in PUBLISHED
            for policy in POLICIES
        }
        scenes.insert(0, fill_scene(fills))
        pictures.append(fill_picture(fills))
    alt = "M6: share of gang jobs by how long they waited, under three configurations"
    pictures.append(waits_of(records, name="m6-waits.svg", alt=alt))
    more, spent = mix_scenes(done)
    scenes, costs = [*scenes, *more], [*costs, *spent]
    part = Part(experiment=NAME, scenes=tuple(scenes), pictures=tuple(pictures), missing=missing)
    return part, costs


# -- fills --------------------------------------------------------------------------------------
Fills = Mapping[tuple[str, str], Sequence[FillResult]]


def fill_scene(fills: Fills) -> Scene:
    """Table and verdicts of fills by list and policy."""
    ours = list(dict.fromkeys(policy for _, policy in fills))
    lists = list(dict.fromkeys(listed for listed, _ in fills))
    rows, verdicts = [], []
    for listed in lists:
        published = dict(zip(PUBLISHED_NAMES, PUBLISHED[listed], strict=True))
        reached = {
            policy: [each.allocated[FULL] for each in fills[listed, policy]] for policy in ours
        }
        cells = [f"{each:.1f}" for each in published.values()]
        cells += [_mean(reached[policy]) for policy in ours]
        rows.append(tuple(TableCell(text=text) for text in (listed, *cells)))
        # Published with one digit: what rounds to it has reached it.
        best, bar = round(mean(reached[BAR]), 1), published["FGD"]
        verdicts.append(JudgedExpectation(
            sentence=f"{BAR} reaches the published FGD on {listed}, {bar:.1f} %", ok=best >= bar,
            seen=f"{best:.1f} %, {number_text(best - bar)} points",
        ))  # fmt: skip
    heads = ("list", *(f"{each} (published)" for each in PUBLISHED_NAMES),
             *(f"gpusched, {policy}" for policy in ours))  # fmt: skip
    count = len(next(iter(fills.values())))
    orders = "one order of the pods" if count == 1 else f"means over {count} orders of the pods"
    return Scene(
        name="the openb fill",
        command="gpusched simulate --openb openb_nodes.csv.gz openb_pods_default.csv.gz --fill",
        told=f"GPUs allocated in percent once {FULL} % of them are asked for; {orders}, seed {ORDERS[0]}{' and following' * (count > 1)}.",
        verdicts=tuple(verdicts),
        tables=(FilledTable(title="M6: the openb fill", heads=heads, rows=tuple(rows)),),
    )


def _mean(values: Sequence[float]) -> str:
    spread = f" (sd {pstdev(values):.2f})" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"


def fill_picture(fills: Fills) -> Picture:
    """A plot for each list: allocated over arrived, with what is published at the end."""
    x, y = stepped(80, 130, 10), stepped(75, 100, 5)
    panels: list[Plot] = []
    for listed in dict.fromkeys(listed for listed, _ in fills):
        published = dict(zip(PUBLISHED_NAMES, PUBLISHED[listed], strict=True))
        policies = [policy for of, policy in fills if of == listed]
        series = [
            Series(
                name=f"gpusched, {policy}", look=f"l{turn}", points=_curve(fills[listed, policy])
            )
            for turn, policy in enumerate(policies)
        ]
        series += [
            Series(
                name=f"{name} (published)", look=f"dots l{look}", points=[(FULL, published[name])]
            )
            for name, look in (("best fit", 5), ("FGD", 7))
        ]
        series.append(Series(name="all that arrived", look="ask", points=[(80, 80), (100, 100)]))
        panels.append(plot(series, x, y, title=listed, tall=190, y_name="% of GPUs allocated, by % asked for",
                           keys=not panels))  # fmt: skip
    alt = "M6: GPUs allocated by GPUs asked for on five lists, with the published best fit and FGD"
    return Picture(name="m6-openb.svg", alt=alt, svg=svg_document(panels, title=alt, columns=2))


def _curve(runs: Sequence[FillResult]) -> list[tuple[float, float]]:
    return [(float(at), mean(run.allocated[at] for run in runs)) for at in runs[0].allocated]


# -- months -------------------------------------------------------------------------------------
def _months_scene(records: Mapping[str, RunRecord]) -> Scene:
    rows = []
    for name, record in records.items():
        figures = [_hours(statistic(record, each)) for each, _ in _STATISTICS]
        figures.append(_racks(record))
        rows.append(tuple(TableCell(text=text) for text in (name, *figures)))
    classes = sorted({job.klass for record in records.values() for job in record.jobs})
    by_class = [
        tuple(TableCell(text=text) for text in (
            name, *(_hours(statistic(record, "mean(wait)", of={"class": each})) for each in classes)
        ))
        for name, record in records.items()
    ]  # fmt: skip
    some = next(iter(records.values()))
    gpus = sum(node.spans[0].gpus for node in some.nodes) // 1000
    span_s = MONTHS.days * 86_400
    asked = sum(
        job.gpus / 1000 * max(0.0, min(run, span_s - job.created))
        for job, run in job_values(some, "run", some.jobs)
    )
    told = (
        f"{len(some.jobs):,} generated jobs that come within {duration_text(span_s)} on {len(some.nodes):,} nodes, "
        f"{MONTHS.per_rack} to a rack, with {gpus:,} GPUs, which they would use to "
        f"{percent_text(asked / span_s / gpus)} if nobody waited; seed {MONTHS.seed}."
    )
    return Scene(
        name="months of gang jobs",
        command="python -m benchmarks.experiments --only M6",
        told=told,
        verdicts=tuple(_expected(records)),
        tables=(
            FilledTable(title="M6: months of gang jobs", rows=tuple(rows),
                        heads=("configuration", *(head for _, head in _STATISTICS), RACKS)),
            FilledTable(title="Mean wait by class of size", rows=tuple(by_class),
                        heads=("configuration", *classes)),
        ),
    )  # fmt: skip


def _hours(figure: StatisticValue) -> str:
    """Seconds as hours: waits of months are long."""
    if figure.unit != "s" or figure.value is None:
        return str(figure)
    return f"{figure.value / 3600:,.2f} h"


def _racks(record: RunRecord) -> str:
    """Of gangs of several nodes that started."""
    found = [dict(job.levels) for job in record.jobs]
    racks = [each["rack"] for each in found if each.get("host", 1) > 1 and "rack" in each]
    return f"{mean(racks):.2f}" if racks else "-"


def _expected(records: Mapping[str, RunRecord]) -> list[JudgedExpectation]:
    found = []
    for name, record in records.items():
        late = [job.key for job in record.jobs if job.started is None]
        wrong = [each.sentence for each in record.broken] + [record.unfinished] * bool(
            record.unfinished
        )
        found.append(
            JudgedExpectation(
                sentence=f"{name}: every job starts", ok=not late, seen=", ".join(late[:3])
            )
        )
        found.append(JudgedExpectation(
            sentence=f"{name}: no invariant is broken, nobody is evicted", ok=not wrong and not record.evictions,
            seen="; ".join(wrong[:3]),
        ))  # fmt: skip
    mine, theirs = (statistic(records[each], "mean(wait)") for each in ("solver", "fifo"))
    ok = mine.value is not None and theirs.value is not None and mine.value <= theirs.value
    said = "the mean wait is no longer than first in first out"
    found.append(
        JudgedExpectation(sentence=said, ok=ok, seen=f"{mine}, first in first out {theirs}")
    )
    return found
