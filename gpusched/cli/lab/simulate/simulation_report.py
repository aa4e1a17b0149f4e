"""What is said of simulations: a table of statistics side by side, and what differs job by job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.cli.command import table
from gpusched.cli.lab.simulate.inputs import SimulationInput
from gpusched.engine.run_record import JobLife, RunRecord
from gpusched.lab.report.statistics.comparison import changed_jobs, compare_runs
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.report.statistics.series import unit_of
from gpusched.lab.scenario.judge.messages import duration_text

BOUND_JOBS_MAX: Final = 2000
"""With more jobs the ideal schedule, which looks at all nodes for each, takes minutes."""
_BOUND: Final = (
    ("waitBound", "wait of an ideal FIFO, mean"),
    ("waitOverFifo", "wait over the ideal FIFO, mean"),
)
_BROKEN_SHOWN: Final = 5


def comparison_lines(
    given: SimulationInput, records: Sequence[RunRecord], *, top: int
) -> Iterator[str]:
    """The answer for people."""
    yield given.source
    yield ""
    yield table([["", *(each.name for each in records)], *_statistics(records)])
    waits = [*_by(records, "class"), *_by(records, "queue")]
    if waits:
        yield ""
        yield table([["mean wait of", *(each.name for each in records)], *waits])
    if given.snapshot:
        for record in records:
            yield from _what_happens(record, top)
    if len(records) > 1 and top:
        changed = changed_jobs(records, most=top)
        if changed:
            yield ""
            yield f"whose wait differs most ({len(changed)} jobs)"
            rows = [
                [each.name, each.queue, *(_wait(wait) for wait in each.waits)] for each in changed
            ]
            yield table([["job", "queue", *(each.name for each in records)], *rows], indent="  ")
    yield from trouble_lines(records)


def trouble_lines(records: Sequence[RunRecord]) -> Iterator[str]:
    """What did not hold in a play, and objects that the daemon would not believe."""
    most = max(records, key=lambda record: record.counters["rejected"])
    if count := int(most.counters["rejected"]):
        more = count - len(most.rejected)
        said = "; ".join(most.rejected) + (f"; and {more:,} more" if more else "")
        what = "1 object" if count == 1 else f"{count:,} objects"
        yield f"{what} cannot be believed, the daemon would do without: {said}"
    for record in records:
        for each in record.broken[:_BROKEN_SHOWN]:
            yield f"{record.name}: {each.invariant} did not hold: {each.sentence}"
        if record.unfinished:
            yield f"{record.name}: {record.unfinished}"


def _statistics(records: Sequence[RunRecord]) -> list[list[str]]:
    rows = []
    for row in compare_runs(records, unit_of(records)):
        cells = [f"{cell.text} ({cell.change})" if cell.change else cell.text for cell in row.cells]
        rows.append([row.name, *cells])
    rows.append(["jobs that never started", *(f"{_never_started(each):,}" for each in records)])
    if max(len(each.jobs) for each in records) <= BOUND_JOBS_MAX:
        for name, called in _BOUND:
            figures = [statistic(each, name) for each in records]
            if any(figure.value is not None for figure in figures):
                rows.append([called, *(str(figure) for figure in figures)])
    return rows


def _never_started(record: RunRecord) -> int:
    return sum(job.started is None for job in record.jobs)


def _by(records: Sequence[RunRecord], what: str) -> list[list[str]]:
    """Mean waits of each class or queue, where there are several."""
    jobs = [job for record in records for job in record.jobs]
    names = sorted({job.klass if what == "class" else job.queue for job in jobs})
    if len(names) < 2:
        return []
    rows = []
    for name in names:
        figures = [statistic(each, "mean(wait)", of={what: name}) for each in records]
        cells = ["-" if figure.value is None else str(figure) for figure in figures]
        rows.append([f"{what} {name}", *cells])
    return rows


def _what_happens(record: RunRecord, top: int) -> Iterator[str]:
    """Of a recorded cluster: gangs that start, that wait and why, and that are evicted."""
    started = [job for job in record.jobs if job.started is not None and job.started > 0]
    waiting = [job for job in record.jobs if job.started is None and job.ended is None]
    evicted = Counter((each.job, each.why) for each in record.evictions)
    yield ""
    yield (
        f"{record.name}: in {duration_text(round(record.seconds))} {len(started):,} jobs start, "
        f"{len(waiting):,} wait at the end, {len(record.evictions):,} pods are evicted"
    )
    started.sort(key=lambda job: (job.started or 0.0, job.key))
    yield from _listed("starts", [[job.key, f"after {_wait(job.started)}"] for job in started], top)
    yield from _listed("waits", [[job.key, _last_reason(job)] for job in waiting], top)
    yield from _listed(
        "evicted", [[key, f"{count} pods, {why}"] for (key, why), count in evicted.items()], top
    )


def _listed(word: str, rows: list[list[str]], top: int) -> Iterator[str]:
    if rows and top:
        yield table([[word, *row] for row in rows[:top]], indent="  ")
        if len(rows) > top:
            yield f"  {word}  and {len(rows) - top:,} more"


def _last_reason(job: JobLife) -> str:
    last = next((each for each in reversed(job.reasons) if each.reason), None)
    return f"{last.reason}: {last.sentence}" if last is not None else "nobody has told why yet"


def _wait(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(round(seconds))


# -- JSON --------------------------------------------------------------------------------------
def comparison_json(
    given: SimulationInput, records: Sequence[RunRecord], *, top: int
) -> dict[str, Any]:
    """The same for programs; waits in seconds."""
    return {
        "source": given.source,
        "passedOver": dict(given.counts),
        "remarks": list(given.remarks),
        "statistics": [
            {
                "name": row.name,
                "values": {
                    record.name: cell.value for record, cell in zip(records, row.cells, strict=True)
                },
            }
            for row in compare_runs(records, unit_of(records))
        ],
        "configurations": [_record(each) for each in records],
        "changedJobs": [
            {
                "job": each.name,
                "queue": each.queue,
                "waits": dict(zip([one.name for one in records], each.waits, strict=True)),
            }
            for each in (changed_jobs(records, most=top) if len(records) > 1 else ())
        ],
    }


def _record(record: RunRecord) -> dict[str, Any]:
    classes = sorted({job.klass for job in record.jobs})
    queues = sorted({job.queue for job in record.jobs})
    return {
        "name": record.name,
        "seconds": record.seconds,
        "jobs": len(record.jobs),
        "neverStarted": _never_started(record),
        "evictions": len(record.evictions),
        "sessions": record.counters["sessions"],
        "rejectedObjects": record.counters["rejected"],
        "broken": [each.sentence for each in record.broken],
        "unfinished": record.unfinished,
        "meanWaitByClass": {
            name: statistic(record, "mean(wait)", of={"class": name}).value for name in classes
        },
        "meanWaitByQueue": {
            name: statistic(record, "mean(wait)", of={"queue": name}).value for name in queues
        },
    }
