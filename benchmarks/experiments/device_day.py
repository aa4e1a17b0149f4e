"""M7: a day on which whole, half and seventh GPUs meet, ours beside first fit."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Final

from benchmarks.experiments.charts import Series, from_zero, plot, stepped
from benchmarks.experiments.page import Cost, Part, Scene
from benchmarks.experiments.pictures import Picture
from benchmarks.experiments.pool import Done, Task, Tell
from gpusched.lab.experiments.device_day import (
    DAY_S,
    END_S,
    SCHEDULERS,
    DayResult,
    DeviceDay,
    day_gangs,
    percentile,
    play_day,
)
from gpusched.lab.report.pages.svg_file import svg_document
from gpusched.lab.report.plots.svg import Plot, percent_text
from gpusched.lab.report.run_report import JudgedExpectation
from gpusched.lab.report.statistics.tables import FilledTable, TableCell

NAME: Final = "M7"
DAY: Final = DeviceDay()
OURS: Final = "gpusched"
BASELINE: Final = "first fit, whole gangs"
CPU_MAX_S: Final = 120.0


def tasks_of() -> list[Task]:
    """The day under each way to give devices."""
    return [Task(name=f"devices, {name}", work=play, arguments=(name,)) for name in SCHEDULERS]


def play(tell: Tell, name: str) -> DayResult:
    """The day under one of them, in a process of its own."""
    tell("begins")
    return play_day(name, DAY)


def part_of(done: Mapping[str, Done]) -> tuple[Part, list[Cost]]:
    """The experiment of what was done."""
    found = {name: done[f"devices, {name}"] for name in SCHEDULERS}
    costs = [
        Cost(name=f"devices, {name}", cpu_s=each.cpu_s, memory=each.memory, simulated_s=END_S,
             limit_s=CPU_MAX_S)
        for name, each in found.items()
    ]  # fmt: skip
    results = {name: each.result for name, each in found.items()}
    part = Part(experiment=NAME, scenes=(_scene(results),), pictures=(_picture(results),))
    return part, costs


def _scene(results: Mapping[str, DayResult]) -> Scene:
    gangs = day_gangs(DAY)
    told = (
        f"{len(gangs)} gangs of {sum(len(each.shape.pods) for each in gangs):,} pods come within a day on "
        f"{DAY.nodes} nodes of {DAY.gpus} GPUs, which they would use to {percent_text(DAY.load)} if nobody waited; "
        f"seed {DAY.seed}. Use and fragmentation are means over the day."
    )
    heads = ("devices given by", "memory held", "by gangs that run", "fragmentation", "wait, mean", "p95",
             "p95 of gangs with whole GPUs", "never started")  # fmt: skip
    table = FilledTable(
        title="M7: whole, half and seventh GPUs over a day",
        heads=heads,
        rows=tuple(_row(name, each) for name, each in results.items()),
    )
    return Scene(
        name="a day of partitions",
        command="python -m benchmarks.experiments --only M7",
        told=told,
        verdicts=tuple(_verdicts(results[OURS], results[BASELINE])),
        tables=(table,),
    )


def _row(name: str, result: DayResult) -> tuple[TableCell, ...]:
    waits = list(result.waits.values())
    large = [
        result.waits[each.name]
        for each in day_gangs(DAY)
        if "whole" in each.shape.pods and each.name in result.waits
    ]
    texts = (
        name, percent_text(result.mean("held")), percent_text(result.mean("useful")),
        percent_text(result.mean("fragmentation")), _hours(mean(waits)), _hours(percentile(waits, 0.95)),
        _hours(percentile(large, 0.95)), str(len(result.never)),
    )  # fmt: skip
    return tuple(TableCell(text=text) for text in texts)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h"


def _verdicts(ours: DayResult, other: DayResult) -> list[JudgedExpectation]:
    mine, theirs = list(ours.waits.values()), list(other.waits.values())
    pairs = (
        ("the mean wait is no longer than under first fit of whole gangs", mean(mine), mean(theirs)),
        ("so is its 95th percentile", percentile(mine, 0.95), percentile(theirs, 0.95)),
    )  # fmt: skip
    found = [
        JudgedExpectation(sentence=said, ok=a <= b, seen=f"{_hours(a)}, first fit {_hours(b)}")
        for said, a, b in pairs
    ]
    a, b = ours.mean("useful"), other.mean("useful")
    found.append(
        JudgedExpectation(
            sentence="gangs that run hold no less of the GPUs", ok=a >= b,
            seen=f"{percent_text(a)}, first fit {percent_text(b)}",
        )
    )  # fmt: skip
    found.append(
        JudgedExpectation(
            sentence="every gang starts", ok=not ours.never, seen=", ".join(ours.never[:3])
        )
    )
    return found


def _picture(results: Mapping[str, DayResult]) -> Picture:
    """What gangs that run hold, and what is fragmented, over the day."""
    x = stepped(0, 24, 4)
    panels = list[Plot]()
    for part, title in (
        ("useful", "Memory of GPUs held by gangs that run"),
        ("fragmentation", "Free memory that the devices that are asked for find no room in"),
    ):
        series = [
            Series(name=name, look=f"l{turn}", points=_by_quarters(each, part))
            for turn, (name, each) in enumerate(results.items())
        ]
        panels.append(
            plot(series, x, from_zero(100), title=title, tall=170, y_name="percent, by hours",
                 keys=not panels)
        )  # fmt: skip
    alt = "M7: GPU memory in use and fragmentation over a day, ours beside first fit"
    return Picture(name="m7-devices.svg", alt=alt, svg=svg_document(panels, title=alt))


def _by_quarters(result: DayResult, part: str) -> list[tuple[float, float]]:
    """Percent at each quarter of an hour of the day."""
    found, turn = [], 0
    for quarter in range(int(DAY_S // 900) + 1):
        while turn + 1 < len(result.moments) and result.moments[turn + 1].at <= quarter * 900:
            turn += 1
        found.append((quarter / 4, 100 * float(getattr(result.moments[turn], part))))
    return found
