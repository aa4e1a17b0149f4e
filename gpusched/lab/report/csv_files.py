"""A run as CSV files: everything that its page draws, for people's own tools.

Units stand in the names of columns: ``_s`` seconds since the run began, ``_thousandths`` of a GPU
or a core, ``_mib``. An empty cell is a moment that never came, or a limit that is not set. Lines
end with a line feed. docs/report.md tells each column.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gpusched.engine.run_record import JobLife, RunRecord
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.job_values import job_values
from gpusched.lab.report.statistics.series import longest_reason

_FORMULA = ("=", "+", "@", "\t", "\r")
"""Texts that begin so are taken for formulas by spreadsheets; they get an apostrophe before them."""


def csv_files(record: RunRecord) -> Mapping[str, str]:
    """Name of each file to its text."""
    return {
        "jobs.csv": _jobs(record),
        "pods.csv": _pods(record),
        "queues.csv": _queues(record),
        "nodes.csv": _nodes(record),
        "evictions.csv": _evictions(record),
        "acts.csv": _acts(record),
        "use.csv": _use(record),
    }


def _text(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_cell(each) for each in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _jobs(record: RunRecord) -> str:
    waited = {job.key: value for job, value in job_values(record, "wait", record.jobs)}
    evicted: dict[str, int] = {}
    for each in record.evictions:
        evicted[each.job] = evicted.get(each.job, 0) + 1
    heads = [
        "namespace", "name", "kind", "uid", "queue", "class", "priority", "pods", "min_member",
        "gpu_thousandths", "created_s", "admitted_s", "started_s", "ready_s", "ended_s", "end",
        "wait_s", "evicted_pods", "longest_reason", "longest_reason_says", "placement",
    ]  # fmt: skip
    return _text(heads, (_job(record, job, waited, evicted) for job in record.jobs))


def _job(
    record: RunRecord, job: JobLife, waited: Mapping[str, float], evicted: Mapping[str, int]
) -> list[object]:
    namespace, _, name = job.key.partition("/")
    reason, sentence, _ = longest_reason(job, record.seconds)
    return [
        namespace, name, job.kind, job.uid, job.queue, job.klass, job.priority, job.size,
        job.min_member, job.gpus, job.created, job.admitted, job.started, job.ready, job.ended,
        job.end.value, waited[job.key], evicted.get(job.key, 0), reason, sentence,
        " ".join(f"{level}={domains}" for level, domains in job.levels),
    ]  # fmt: skip


def _pods(record: RunRecord) -> str:
    heads = [
        "namespace", "name", "uid", "job", "queue", "gpu_thousandths", "cpu_thousandths",
        "memory_mib", "created_s", "bound_s", "running_s", "told_s", "ended_s", "gone_s", "node",
        "slots", "end", "exit_code",
    ]  # fmt: skip
    rows = (
        [
            pod.namespace, pod.name, pod.uid, pod.job, pod.queue, pod.gpus, pod.cpu, pod.memory,
            pod.created, pod.bound, pod.running, pod.told, pod.ended, pod.gone, pod.node,
            " ".join(map(str, pod.slots)), pod.end.value, pod.exit_code,
        ]
        for pod in record.pods
    )  # fmt: skip
    return _text(heads, rows)


def _queues(record: RunRecord) -> str:
    heads = [
        "queue", "parent", "at_s", "weight", "deserved_thousandths", "capability_thousandths",
        "guarantee_thousandths", "allocated_thousandths", "fair_share_thousandths", "closed",
    ]  # fmt: skip
    rows = (
        [
            queue.name, queue.parent, mark.at, mark.weight, mark.deserved, mark.capability,
            mark.guarantee, mark.allocated, mark.fair_share, mark.closed,
        ]
        for queue in record.queues
        for mark in queue.marks
    )  # fmt: skip
    return _text(heads, rows)


def _nodes(record: RunRecord) -> str:
    heads = [
        "node", "since_s", "until_s", "gpu_thousandths", "cpu_thousandths", "memory_mib", "usable",
    ]  # fmt: skip
    rows = (
        [node.name, span.since, span.until, span.gpus, span.cpu, span.memory, span.usable]
        for node in record.nodes
        for span in node.spans
    )
    return _text(heads, rows)


def _evictions(record: RunRecord) -> str:
    heads = ["at_s", "pod", "job", "queue", "reason", "says", "lost_gpu_seconds_thousandths"]
    rows = (
        [each.at, each.pod, each.job, each.queue, each.why, each.sentence, each.lost]
        for each in record.evictions
    )
    return _text(heads, rows)


def _acts(record: RunRecord) -> str:
    rows = ([act.at, act.sentence, act.trouble] for act in record.acts)
    return _text(["at_s", "did", "trouble"], rows)


def _use(record: RunRecord) -> str:
    """Every step of what was held, there and waited: values hold until the next line."""
    by_queue = over_time.used_amounts_by_queue(record)
    useless, free = over_time.fragmentation_steps(record)
    columns = {
        "gpus_usable": over_time.offered_amounts(record),
        "gpus_held": over_time.used_amounts(record),
        "gpus_waited_for": over_time.pending_gpus(record),
        "gpus_free": free,
        "gpus_free_of_no_use": useless,
        "cores_usable": over_time.offered_amounts(record, "cpu"),
        "cores_held": over_time.used_amounts(record, "cpu"),
        "jobs_waiting": over_time.waiting_jobs(record),
        "evicted_pods_so_far": over_time.eviction_steps(record),
        "gpu_hours_lost_so_far": over_time.lost_gpu_hours(record),
        "jain_so_far": over_time.jain_index(record),
        **{f"gpus_held by {name}": part for name, part in by_queue.items()},
    }
    times = np.unique(np.concatenate([part.times for part in columns.values()]))
    rows = np.array([times, *(part.at(times) for part in columns.values())]).T.tolist()
    return _text(["at_s", *columns], ([round(value, 6) for value in row] for row in rows))
