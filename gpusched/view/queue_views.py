"""Queues as people see them: what they hold and are due, and what waits in them."""

from __future__ import annotations

from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import format_time
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.api.queue.budget import BudgetRecord, format_gpu_hours
from gpusched.api.queue.start_errors import StartErrors
from gpusched.cache.queues.tree import QueueTree
from gpusched.session.state.plan import BudgetStatus, QueueStatus
from gpusched.view.model import (
    BudgetUserView,
    BudgetView,
    QueueGpus,
    QueueView,
    StartAccuracyView,
    ViewName,
)

_USERS_SHOWN: Final = 20
"""Users of a budget that are shown, those who used most."""


def queue_view(status: QueueStatus, tree: QueueTree) -> QueueView:
    """One queue.

    Args:
        status: as a session tells it.
        tree: with its specification; a queue that is not there has none.
    """
    node = tree.get(status.name)
    queue = node.queue if node is not None else None
    return QueueView(
        metadata=ViewName(name=status.name, uid=status.uid),
        parent=queue.parent if queue is not None else "",
        state=status.state,
        weight=queue.weight if queue is not None else 1,
        gpus=QueueGpus(
            allocated=_gpus(status.allocated) or "0",
            requested=_gpus(status.requested) or "0",
            borrowed=_gpus(status.borrowed) or "0",
            fair_share=_gpus(status.fair_share),
            deserved=_gpus(queue.deserved) if queue is not None else "",
            limit=_gpus(queue.capability) if queue is not None else "",
        ),
        pending=status.pending,
        inqueue=status.inqueue,
        running=status.running,
        ready=status.is_ready,
        message="" if status.is_ready else status.ready.message,
        ordering=queue.ordering if queue is not None else "",
        created=format_time(queue.created) if queue is not None and queue.created else "",
        warning=status.ready.message.partition("; ")[2] if status.is_ready else "",
        budget=_budget_of_status(status.budget),
        start_estimates=start_accuracy_views(status.start_errors),
    )


def start_accuracy_views(errors: StartErrors) -> tuple[StartAccuracyView, ...]:
    """How starts of a queue came beside what was told of them, by what that rested on."""
    return tuple(
        StartAccuracyView(
            known_by=tally.known_by,
            starts=tally.starts,
            as_told=tally.as_told,
            median_percent=tally.median_percent,
            ranged=tally.ranged,
            held=tally.held,
        )
        for tally in errors.tallies
    )


def _budget_of_status(budget: BudgetStatus | None) -> BudgetView | None:
    if budget is None:
        return None
    told = budget.told
    return budget_view(
        budget.record,
        budget.available,
        next_period=format_time(budget.next_period),
        told=(str(told.reason), told.message),
    )


def budget_view(
    record: BudgetRecord, available: int, *, next_period: str, told: tuple[str, str]
) -> BudgetView:
    """How a queue stands with its budget.

    Args:
        record: what was used.
        available: of it in the period, millionths of GPU-seconds.
        next_period: when the next one begins.
        told: reason and message of the condition ``WithinBudget``.
    """
    most = sorted(record.users, key=lambda each: (-each[1], each[0]))[:_USERS_SHOWN]
    return BudgetView(
        used=format_gpu_hours(record.used),
        available=format_gpu_hours(available),
        percent=record.used * 100 // available if available else 100,
        next_period=next_period,
        reason=told[0],
        message=told[1],
        users=tuple(BudgetUserView(name=name, used=format_gpu_hours(used)) for name, used in most),
    )


def _gpus(amounts: Resources | None) -> str:
    """GPUs of all resources together; empty where none is named."""
    if amounts is None:
        return ""
    names = gpu_resources().names
    named = [amounts.get(name) for name in names if any(name == key for key, _ in amounts.items)]
    return format_quantity(sum(named), resource=names[0]) if named else ""
