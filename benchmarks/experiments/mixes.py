"""M6: gangs of several roles under three ways to search, and two types of GPUs under four policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean
from typing import Final

from benchmarks.experiments.page import Cost, Scene
from benchmarks.experiments.pool import Done, Task, Tell
from gpusched.engine.run_record import RunRecord
from gpusched.lab.experiments.mixes import (
    NODE_GPUS,
    ROLES_MIX,
    TYPES_MIX,
    Mix,
    mix_nodes,
    play_roles,
    play_types,
    role_configurations,
    type_policies,
)
from gpusched.lab.report.run_report import JudgedExpectation
from gpusched.lab.report.statistics.named import StatisticValue, statistic
from gpusched.lab.report.statistics.tables import FilledTable, TableCell

RACKS: Final = "racks of a gang on several nodes, mean"
MIXED: Final = "gangs on two types"
_STATISTICS: Final = (
    ("mean(wait)", "wait, mean"), ("p95(wait)", "p95"), ("mean(completion)", "made to ended, mean"),
    ("makespan", "makespan"), ("gpuUseBusy", "GPU use while a job waits"),
)  # fmt: skip


def mix_tasks() -> list[Task]:
    """Both mixes under each configuration."""
    return [
        *(Task(name=f"roles, {name}", work=work_roles, arguments=(name,))
          for name in role_configurations()),
        *(Task(name=f"types, {name}", work=work_types, arguments=(name,))
          for name in type_policies()),
    ]  # fmt: skip


def work_roles(tell: Tell, name: str) -> RunRecord:
    """The mix of roles under one configuration, in a process of its own."""
    tell("begins")
    return play_roles(name)


def work_types(tell: Tell, name: str) -> RunRecord:
    """The mix of types under one policy, in a process of its own."""
    tell("begins")
    return play_types(name)


def mix_scenes(done: Mapping[str, Done]) -> tuple[list[Scene], list[Cost]]:
    """Tables and verdicts of both mixes, with what they cost."""
    mine = {task.name: done[task.name] for task in mix_tasks()}
    costs = [
        Cost(name=name, cpu_s=each.cpu_s, memory=each.memory, simulated_s=each.result.seconds)
        for name, each in mine.items()
    ]
    roles = {name: mine[f"roles, {name}"].result for name in role_configurations()}
    types = {name: mine[f"types, {name}"].result for name in type_policies()}
    return [_roles_scene(roles), _types_scene(types)], costs


def _roles_scene(records: Mapping[str, RunRecord]) -> Scene:
    gangs = "Gangs of several roles, most of which need one rack or block"
    return Scene(
        name="several roles",
        command="python -m benchmarks.experiments --only M6",
        told=f"{gangs}: {_cluster(ROLES_MIX)}.",
        verdicts=tuple(_sound(records)),
        tables=(_table("M6: several roles", records, RACKS, _racks),),
    )


def _types_scene(records: Mapping[str, RunRecord]) -> Scene:
    gangs = "Gangs that run on A100 at 0.35 to 0.92 of their speed on H100, of which one half of the nodes is each"
    ended = {name: statistic(record, "mean(completion)") for name, record in records.items()}
    verdicts = _sound(records)
    best, base = ended["speeds, most gain"], ended["types unknown"]
    verdicts.append(
        JudgedExpectation(
            sentence="with speeds gangs are at their end no later than without, in the mean",
            ok=best.value is not None and base.value is not None and best.value <= base.value,
            seen=f"{best}, types unknown {base}",
        )
    )
    return Scene(
        name="two types of GPUs",
        command="python -m benchmarks.experiments --only M6",
        told=f"{gangs}: {_cluster(TYPES_MIX)}.",
        verdicts=tuple(verdicts),
        tables=(_table("M6: two types of GPUs", records, MIXED, _mixed),),
    )


def _cluster(mix: Mix) -> str:
    return (
        f"{mix.gangs:,} gangs on {mix.nodes} nodes, {mix.per_rack} to a rack and {mix.racks_per_block} "
        f"racks to a block, with {mix.nodes * NODE_GPUS} GPUs, which they would use to {mix.load:.0%} at speed 1 "
        f"if nobody waited; seed {mix.seed}"
    )


def _table(
    title: str, records: Mapping[str, RunRecord], last: str, figure: Callable[[RunRecord], str]
) -> FilledTable:
    rows = []
    for name, record in records.items():
        cells = [
            name,
            *(_hours(statistic(record, each)) for each, _ in _STATISTICS),
            figure(record),
        ]
        rows.append(tuple(TableCell(text=text) for text in cells))
    heads = ("configuration", *(head for _, head in _STATISTICS), last)
    return FilledTable(title=title, heads=heads, rows=tuple(rows))


def _hours(figure: StatisticValue) -> str:
    if figure.unit != "s" or figure.value is None:
        return str(figure)
    return f"{figure.value / 3600:,.2f} h"


def _racks(record: RunRecord) -> str:
    found = [dict(job.levels) for job in record.jobs]
    racks = [each["rack"] for each in found if each.get("host", 1) > 1 and "rack" in each]
    return f"{mean(racks):.2f}" if racks else "-"


def _mixed(record: RunRecord) -> str:
    """Gangs whose pods ran on nodes of both types, of those with several pods."""
    product = {
        obj["metadata"]["name"]: obj["metadata"]["labels"]["nvidia.com/gpu.product"]
        for obj in mix_nodes(TYPES_MIX)
    }
    used: dict[str, set[str]] = {}
    pods: dict[str, int] = {}
    for pod in record.pods:
        if pod.node:
            used.setdefault(pod.job, set()).add(product[pod.node])
            pods[pod.job] = pods.get(pod.job, 0) + 1
    several = [job for job, count in pods.items() if count > 1]
    return f"{sum(len(used[job]) > 1 for job in several)} of {len(several)}"


def _sound(records: Mapping[str, RunRecord]) -> list[JudgedExpectation]:
    found = []
    for name, record in records.items():
        late = [job.key for job in record.jobs if job.started is None]
        wrong = [each.sentence for each in record.broken] + [record.unfinished] * bool(
            record.unfinished
        )
        found.append(
            JudgedExpectation(
                sentence=f"{name}: every gang starts, nobody is evicted, no invariant is broken",
                ok=not late and not wrong and not record.evictions,
                seen="; ".join([*late[:3], *wrong[:3]]),
            )
        )
    return found
