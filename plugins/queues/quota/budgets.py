"""Budgets of queues and of users in them: what has used its budget starts nothing that holds GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gpusched.plugin import (
    ALLOW,
    BudgetUse,
    Gang,
    QueueNode,
    Reason,
    Resources,
    Verdict,
    View,
    accelerator,
    deny,
    format_gpu_hours,
    format_time,
    shorten,
    wait,
)

DRAINS = "HoldAndDrain"


def check_budgets(gang: Gang, view: View) -> Verdict:
    """Whether every budget on the gang's path, and that of its user there, has something left.

    What runs goes on: a gang that has lost members gets them again. Gangs without GPUs use no budget.
    """
    if not view.budgets or (gang.placed and gang.missing_members):
        return ALLOW
    if not _holds_gpus(view.minimum(gang)):
        return ALLOW
    for name, use in _budgets_of(view.queue(gang.queue), view):
        exhausted = _exhausted_text(name, use, gang.creator.user)
        if exhausted:
            return wait(
                Reason.BUDGET_EXHAUSTED,
                "{exhausted}; the next period begins {opens}",
                exhausted=exhausted,
                opens=format_time(use.next_period),
            )
    return ALLOW


def drains_by_budget(node: QueueNode, view: View) -> bool:
    """Whether what runs in a queue is to be stopped as a budget on its path is used."""
    return any(
        use.budget.on_exhausted == DRAINS and (use.is_exhausted or use.budget.per_user is not None)
        for _, use in _budgets_of(node, view)
    )


def check_drained(gang: Gang, view: View) -> Verdict:
    """Whether a gang that runs may go on with the budgets on its path."""
    if not view.budgets or not _holds_gpus(gang.allocated):
        return ALLOW
    for name, use in _budgets_of(view.queue(gang.queue), view):
        exhausted = _exhausted_text(name, use, gang.creator.user)
        if exhausted and use.budget.on_exhausted == DRAINS:
            return deny(
                Reason.BUDGET_EXHAUSTED,
                "{exhausted}: what runs is stopped, as spec.budget.onExhausted is {policy}",
                exhausted=exhausted,
                policy=DRAINS,
            )
    return ALLOW


def _budgets_of(node: QueueNode | None, view: View) -> Iterator[tuple[str, BudgetUse]]:
    for name in node.path if node is not None else ():
        use = view.budgets.get(name)
        if use is not None:
            yield name, use


def _exhausted_text(queue: str, use: BudgetUse, user: str) -> str:
    """What is used of what; empty while both the queue and the user have something left."""
    if use.is_exhausted:
        return (
            f"queue {queue} has used {format_gpu_hours(use.record.used)} of its budget of "
            f"{format_gpu_hours(use.available)} GPU-hours"
        )
    own = use.budget.per_user
    if own is None or use.used_by(user) < own:
        return ""
    who = f"user {shorten(user)} has" if user else "users who are not known have together"
    return (
        f"{who} used {format_gpu_hours(use.used_by(user))} of {format_gpu_hours(own)} GPU-hours "
        f"that the budget of queue {queue} gives to each user"
    )


def _holds_gpus(amounts: Resources) -> bool:
    return any(amount and accelerator(name) for name, amount in amounts.items)
