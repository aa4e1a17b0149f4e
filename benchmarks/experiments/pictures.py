"""What each experiment is drawn as: SVG texts by the name of their file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from benchmarks.experiments.charts import Series, bars, from_zero, plot, stepped
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.pages.svg_file import svg_document
from gpusched.lab.report.plots.svg import Plot, time_axis
from gpusched.lab.report.plots.utilization import line_plot, utilization_plot
from gpusched.lab.report.plots.waiting_times import (
    box_plot,
    share_plot,
    wait_summary,
    waits_by_class,
)
from gpusched.lab.report.run_report import RunReport
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.ideal_fifo import ideal_schedule
from gpusched.lab.report.statistics.job_values import job_values
from gpusched.lab.report.statistics.named import statistic, wait_differences
from gpusched.lab.report.statistics.series import colour_numbers, queues_in_order, unit_of
from gpusched.lab.report.statistics.tables import FilledTable

Records = Mapping[str, RunRecord]


@attrs.frozen(kw_only=True)
class Picture:
    """One file of docs/experiments/."""

    name: str
    alt: str
    svg: str


def _drawn(name: str, alt: str, panels: Sequence[Plot], *, columns: int = 1) -> Picture:
    return Picture(name=name, alt=alt, svg=svg_document(panels, title=alt, columns=columns))


# -- M1 and M2 ----------------------------------------------------------------------------------
def _fifo(record: RunRecord) -> list[Picture]:
    jobs = len(record.jobs)
    best = ideal_schedule(record)
    order = {each.key: turn + 1 for turn, each in enumerate(best)}
    waited = [(float(order[job.key]), v) for job, v in job_values(record, "wait", record.jobs)]
    bound = [(turn + 1.0, each.wait) for turn, each in enumerate(best)]
    over = wait_differences(record, record.jobs)
    late = [(float(order[job.key]), v) for job, v in zip(record.jobs, over, strict=True)]
    x = stepped(0, max(10, -(-jobs // 10) * 10), 10)
    top = max(1.0, *(value for _, value in [*waited, *bound]))
    both = [
        Series(name="FIFO queue, the bound", look="ask", points=bound),
        Series(name="gpusched", look="dots l0", points=sorted(waited)),
    ]
    panels = [
        plot(
            both, x, from_zero(top), title="How long each Job waited", y_name="seconds",
            note="Jobs in the order in which they came.",
        )
    ]  # fmt: skip
    if any(value for _, value in bound):
        y = from_zero(max(1.0, *(value for _, value in late)))
        more = [Series(name="gpusched", look="dots l1", points=sorted(late))]
        title = "... and how much longer than the bound"
        panels.append(plot(more, x, y, title=title, y_name="seconds", tall=90, keys=False))
    alt = f"Waits of the {jobs} Jobs of {record.name} beside those of an ideal FIFO queue"
    return [_drawn(f"{record.name}.svg", alt, panels)]


# -- M3 -----------------------------------------------------------------------------------------
def gangs(runs: Sequence[RunReport]) -> list[Picture]:
    """All shapes in one picture, beside what is published in their tables."""
    rows: dict[str, tuple[float, float, float]] = {}
    for row, cells in _published(runs[0].tables):
        held, latency, whole = (
            cells.get(name, 0.0) for name in ("dispatch", "scheduling latency", "completion")
        )
        rows[row] = (held, latency, whole - latency)
    for run in runs:
        name = run.record.name.removeprefix("m3-gangs-").replace("x", " x ")
        held, latency, whole, wait = (
            statistic(run.record, each).value or 0.0
            for each in ("mean(held)", "mean(latency)", "mean(service)", "waitBound")
        )
        rows[f"gpusched, {name}"] = (held, latency, whole - latency)
        rows[f"bound, {name}"] = (wait, 0.0, whole - latency)
    parts = [
        ("held back, no pod there", "f8"),
        ("pods there and not all bound", "f5"),
        ("all bound, to the end", "f0"),
    ]
    title = "Where the time of a gang went, means over 50 gangs"
    note = (
        "The published runs do not tell how often gangs came, so that their time held back says "
        "little; orange is what a scheduler of gangs should not need."
    )
    alt = "M3: time held back, waiting with pods and running, of published systems and gpusched"
    return [_drawn("m3-gangs.svg", alt, [bars(rows, parts, title=title, note=note)])]


def _published(tables: Sequence[FilledTable]) -> Iterator[tuple[str, dict[str, float]]]:
    """Rows that others published, with their seconds by the head of the column."""
    for table in tables:
        for name, *cells in table.rows:
            if name.text.endswith("(published)"):
                pairs = zip(table.heads[1:], cells, strict=True)
                told = {head: cell.text for head, cell in pairs if cell.text.endswith(" s")}
                yield name.text, {head: float(text[:-2]) for head, text in told.items()}


# -- M4 -----------------------------------------------------------------------------------------
def _thousand(record: RunRecord) -> list[Picture]:
    axis, unit = time_axis(record.seconds), unit_of([record])
    colour = colour_numbers(queues_in_order([record], unit))
    waiting = over_time.waiting_jobs(record)
    top = float(waiting.values.max(initial=1.0))
    panels = [
        attrs.evolve(utilization_plot(record, unit, axis, colour), title="Cores in use"),
        line_plot({"jobs": waiting}, axis, ident="waiting", title="Jobs that wait", note="",
                  unit="Jobs", top=top, marks=("l1",)),
    ]  # fmt: skip
    return [_drawn(f"{record.name}.svg", "M4: cores in use and Jobs that wait over time", panels)]


# -- M5 -----------------------------------------------------------------------------------------
def _day(record: RunRecord) -> list[Picture]:
    axis, unit = time_axis(record.seconds), unit_of([record])
    colour = colour_numbers(queues_in_order([record], unit))
    classes = waits_by_class(record)
    marks = {each.name: turn for turn, each in enumerate(classes)}
    use = utilization_plot(record, unit, axis, colour)
    jain = line_plot(
        {"Jain's index": over_time.jain_index(record)}, axis, ident="jain",
        title="Jain's index of what queues got over what they were due, so far", note="",
        unit="", top=1.0,
    )  # fmt: skip
    boxes = box_plot(classes, marks, ident="waits", by="class")
    name = record.name
    return [
        _drawn(f"{name}.svg", "M5: GPUs in use by queue over the day, and fairness", [use, jain]),
        _drawn(f"{name}-waits.svg", "M5: waits by class", [boxes]),
    ]


# -- any ----------------------------------------------------------------------------------------
def _any(record: RunRecord) -> list[Picture]:
    """Of a scenario that nobody has thought of yet."""
    axis, unit = time_axis(record.seconds), unit_of([record])
    use = utilization_plot(record, unit, axis, colour_numbers(queues_in_order([record], unit)))
    return [_drawn(f"{record.name}.svg", f"{record.name}: {unit} in use over time", [use])]


DRAWN: Final[Mapping[str, Callable[[RunRecord], list[Picture]]]] = {
    "M1": _fifo, "M2": _fifo, "M4": _thousand, "M5": _day,
}  # fmt: skip


def pictures(experiment: str, runs: Sequence[RunReport]) -> list[Picture]:
    """Of the scenarios of one experiment, at least one; ``experiment`` is ``M1`` ..."""
    if experiment == "M3":
        return gangs(runs)
    draw = DRAWN.get(experiment, _any)
    return [each for run in runs for each in draw(run.record)]


def waits_of(records: Mapping[str, RunRecord], *, name: str, alt: str) -> Picture:
    """Shares of jobs by how long they waited, of several configurations."""
    several = [wait_summary(name, record, record.jobs) for name, record in records.items()]
    marks = {each.name: turn for turn, each in enumerate(several)}
    return _drawn(name, alt, [share_plot(several, marks, ident="share", by="configuration")])
