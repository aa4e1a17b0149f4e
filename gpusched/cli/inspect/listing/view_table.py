"""Gangs, nodes and queues of the view as lines of a table, as ``squeue`` and ``sinfo`` would print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.quantity import parse_quantity
from gpusched.cli.command import age, clean_cell
from gpusched.view.model import WAITING, GangView, NodeView, QueueView, StartAccuracyView

T = TypeVar("T")
Columns = list[tuple[str, Callable[[T], Any]]]
"""Titles, and the cell of a part under each."""
_NODES_NAMED_MAX: Final = 3
_LATEST: Final = "9999"
"""Sorts behind every time that is known."""


def _gpus(job: GangView) -> int:
    return parse_quantity(job.gpus, power=3) if job.gpus else 0


SORT_KEYS: Final[Mapping[str, Callable[[GangView], Any]]] = MappingProxyType(
    {
        "name": lambda job: (job.metadata.namespace, job.metadata.name),
        "queue": lambda job: (job.queue, job.position),
        "priority": lambda job: -job.priority,
        "age": lambda job: job.since,
        "gpus": lambda job: -_gpus(job),
        "start": lambda job: (job.estimated_start_time or _LATEST, job.queue, job.position),
    }
)
"""How gangs are sorted, by the word of the user; equal ones by namespace and name."""


def sorted_jobs(jobs: Sequence[GangView], by: str, *, waiting: bool = False) -> list[GangView]:
    """Gangs in an order; with ``waiting`` only those that wait, by when they may start unless said otherwise."""
    if waiting:
        jobs = [job for job in jobs if job.state == WAITING]
        by = "start" if by == "name" else by
    named = sorted(jobs, key=SORT_KEYS["name"])
    return sorted(named, key=SORT_KEYS[by])


def job_rows(
    jobs: Sequence[GangView], now: float, *, start: bool, wide: bool, everywhere: bool
) -> list[list[str]]:
    """A header and a line for each gang.

    Args:
        jobs: in their order.
        now: seconds since the epoch.
        start: whether positions and estimated starts are what is asked for.
        wide: with sentences and nodes, and with users where any is known.
        everywhere: with namespaces.
    """
    columns: Columns[GangView] = [
        ("NAMESPACE", lambda job: job.metadata.namespace),
        ("NAME", lambda job: job.metadata.name),
        ("KIND", lambda job: job.gang_kind),
        ("QUEUE", lambda job: job.queue),
        ("USER", lambda job: job.user),
        ("PRIORITY", lambda job: job.priority),
        ("STATE", lambda job: job.state),
        ("PODS", lambda job: f"{job.placed}/{job.placed + job.waiting}"),
        ("MIN", lambda job: job.min_member),
        ("GPUS", lambda job: job.gpus),
        ("SINCE", lambda job: age_text(job.since, now)),
        ("POSITION", lambda job: job.position if job.position and job.state == WAITING else None),
        ("START", lambda job: job.estimated_start_time if job.state == WAITING else None),
        ("EARLIEST", lambda job: job.estimated_start_earliest),
        ("LATEST", lambda job: job.estimated_start_latest),
        ("REASON", lambda job: job.reason),
        ("NODES", lambda job: _nodes(job.nodes)),
        ("MESSAGE", lambda job: job.message),
    ]
    left_out = {"NODES", "MESSAGE"} - ({"NODES", "MESSAGE"} if wide else set())
    left_out |= set() if everywhere else {"NAMESPACE"}
    left_out |= set() if wide and any(job.user for job in jobs) else {"USER"}
    if not any(job.estimated_start_latest for job in jobs):
        left_out |= {"EARLIEST", "LATEST"}
    hidden = {"POSITION", "START", "EARLIEST", "LATEST"}
    left_out |= {"STATE", "NODES"} if start else set() if wide else hidden
    return _rows([each for each in columns if each[0] not in left_out], jobs)


def node_rows(nodes: Sequence[NodeView], now: float, *, wide: bool) -> list[list[str]]:
    """A header and a line for each node; wide with free slots, CPU and memory, and the gangs' names."""
    columns: Columns[NodeView] = [
        ("NAME", lambda node: node.metadata.name),
        ("STATE", lambda node: node.state),
        ("TYPE", lambda node: node.gpu_type),
        ("GPUS", lambda node: node.gpus),
        ("FREE", lambda node: node.free_gpus),
        ("PODS", lambda node: node.pods),
        ("GANGS", lambda node: len(node.gangs)),
        ("AGE", lambda node: age_text(node.created, now)),
    ]
    if wide:
        columns += [
            ("SLOTS", lambda node: node.free_slots),
            ("CPU", lambda node: node.free.cpu),
            ("MEMORY", lambda node: node.free.memory),
            ("GANGNAMES", lambda node: ",".join(node.gangs)),
        ]
    return _rows(columns, nodes)


def queue_rows(queues: Sequence[QueueView], now: float, *, wide: bool) -> list[list[str]]:
    """A header and a line for each queue; figures are left empty where no daemon has looked at it yet."""

    def told(figure: Callable[[QueueView], Any]) -> Callable[[QueueView], Any]:
        return lambda queue: figure(queue) if queue.state else None

    columns: Columns[QueueView] = [
        ("NAME", lambda queue: queue.metadata.name),
        ("PARENT", lambda queue: queue.parent),
        ("STATE", lambda queue: queue.state),
        ("WEIGHT", lambda queue: queue.weight or None),
        ("RUNNING", told(lambda queue: queue.running)),
        ("INQUEUE", told(lambda queue: queue.inqueue)),
        ("PENDING", told(lambda queue: queue.pending)),
        ("GPUS", told(lambda queue: queue.gpus.allocated)),
        ("DESERVED", lambda queue: queue.gpus.deserved),
        ("AGE", lambda queue: age_text(queue.created, now)),
    ]
    if wide:
        columns += [
            ("FAIRSHARE", told(lambda queue: queue.gpus.fair_share)),
            ("BORROWED", told(lambda queue: queue.gpus.borrowed)),
            ("REQUESTED", told(lambda queue: queue.gpus.requested)),
            ("LIMIT", lambda queue: queue.gpus.limit),
            ("USED", lambda queue: queue.budget.used if queue.budget else None),
            ("BUDGET", lambda queue: queue.budget.available if queue.budget else None),
            ("STARTS", lambda queue: _accuracy_text(queue.start_estimates)),
            ("ORDERING", lambda queue: queue.ordering),
            ("READY", told(lambda queue: queue.ready)),
            ("MESSAGE", lambda queue: queue.message),
        ]
    return _rows(columns, queues)


def _accuracy_text(accuracy: Sequence[StartAccuracyView]) -> str:
    """``40, 31 as told``: starts that were compared with what was told of them; empty for none."""
    starts = sum(each.starts for each in accuracy)
    return f"{starts}, {sum(each.as_told for each in accuracy)} as told" if starts else ""


def age_text(since: str, now: float) -> str:
    """How long ago a time of the API was; ``<unknown>`` for none."""
    try:
        return age(now - parse_time(since)) if since else "<unknown>"
    except InvalidObject:
        return "<invalid>"


def _rows(columns: Columns[T], parts: Sequence[T]) -> list[list[str]]:
    rows = [[title for title, _ in columns]]
    return rows + [[clean_cell(cell(part)) for _, cell in columns] for part in parts]


def _nodes(names: Sequence[str]) -> str:
    more = len(names) - _NODES_NAMED_MAX
    return ",".join(names[:_NODES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
