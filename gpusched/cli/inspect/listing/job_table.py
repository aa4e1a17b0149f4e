"""Gangs as lines of a table, as ``squeue`` would print them, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import format_time
from gpusched.api.meta.quantity import parse_quantity
from gpusched.cli.command import age, clean_cell
from gpusched.cli.inspect.listing.job_list import WAITS, ListedJob

_NODES_NAMED_MAX: Final = 3
_LATEST: Final = "9999"
"""Sorts behind every start that is known."""


def _gpus(job: ListedJob) -> int:
    return parse_quantity(job.gpus, power=3) if job.gpus else 0


SORT_KEYS: Final[Mapping[str, Callable[[ListedJob], Any]]] = MappingProxyType(
    {
        "name": lambda job: (job.namespace, job.name),
        "queue": lambda job: (job.queue, job.position),
        "priority": lambda job: -job.priority,
        "age": lambda job: job.since,
        "gpus": lambda job: -_gpus(job),
        "start": lambda job: (job.start or _LATEST, job.queue, job.position),
    }
)
"""How gangs are sorted, by the word of the user; equal ones by namespace and name."""


def sorted_jobs(
    jobs: Sequence[ListedJob], by: str, *, waiting: bool = False
) -> tuple[ListedJob, ...]:
    """Gangs in an order; with ``waiting`` only those that wait, by when they may start unless said otherwise."""
    if waiting:
        jobs = [job for job in jobs if job.state == WAITS]
        by = "start" if by == "name" else by
    return tuple(sorted(jobs, key=SORT_KEYS[by]))


def job_rows(
    jobs: Sequence[ListedJob], now: float, *, start: bool, wide: bool, everywhere: bool
) -> list[list[str]]:
    """A header and a line for each gang.

    Args:
        jobs: in their order.
        now: seconds since the epoch.
        start: whether positions and estimated starts are what is asked for.
        wide: with sentences and nodes.
        everywhere: with namespaces.
    """
    columns: list[tuple[str, Callable[[ListedJob], Any]]] = [
        ("NAMESPACE", lambda job: job.namespace),
        ("NAME", lambda job: job.name),
        ("KIND", lambda job: job.kind),
        ("QUEUE", lambda job: job.queue),
        ("PRIORITY", lambda job: job.priority),
        ("STATE", lambda job: job.state),
        ("PODS", lambda job: f"{job.placed}/{job.placed + job.waiting}"),
        ("MIN", lambda job: job.least),
        ("GPUS", lambda job: job.gpus),
        ("SINCE", lambda job: age(now - job.since)),
        ("POSITION", lambda job: job.position if job.position and job.state == WAITS else None),
        ("START", lambda job: job.start if job.state == WAITS else None),
        ("REASON", lambda job: job.reason),
        ("NODES", lambda job: _nodes(job.nodes)),
        ("MESSAGE", lambda job: job.message),
    ]
    left_out = {"NODES", "MESSAGE"} - ({"NODES", "MESSAGE"} if wide else set())
    left_out |= set() if everywhere else {"NAMESPACE"}
    left_out |= {"STATE", "NODES"} if start else set() if wide else {"POSITION", "START"}
    chosen = [each for each in columns if each[0] not in left_out]
    rows = [[title for title, _ in chosen]]
    return rows + [[clean_cell(cell(job)) for _, cell in chosen] for job in jobs]


def jobs_as_json(job: ListedJob) -> dict[str, Any]:
    """One gang with the names of the table, in the style of the API."""
    known = attrs.asdict(job)
    since = format_time(job.since) if job.since else None
    return {
        "metadata": {"namespace": known.pop("namespace"), "name": known.pop("name")},
        "gangKind": known.pop("kind"),
        **{_camel(key): value for key, value in known.items() if key not in {"since", "nodes"}},
        "since": since,
        "nodes": list(job.nodes),
    }


def _camel(name: str) -> str:
    return {"least": "minMember", "start": "estimatedStartTime"}.get(name, name)


def _nodes(names: Sequence[str]) -> str:
    more = len(names) - _NODES_NAMED_MAX
    return ",".join(names[:_NODES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
