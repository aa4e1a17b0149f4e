"""Where every queue stands after the actions: what it holds, requests, borrows and is due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import attrs

from gpusched.api.devices.slots import accelerator
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import format_time
from gpusched.api.meta.pool_resources import amounts_of_pool
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.queue.budget import (
    BUDGET_WARNING,
    WITHIN_BUDGET,
    BudgetRecord,
    format_gpu_hours,
)
from gpusched.api.queue.queue import Queue, QueueUsage
from gpusched.api.queue.start_errors import StartErrors
from gpusched.base import limits
from gpusched.base.errors import Fenced
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.framework.accounts.gang_lines import GangLine
from gpusched.session.framework.accounts.queue_accounts import BudgetUse
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.state.plan import BudgetStatus, PendingReason, PoolStatus, QueueStatus
from gpusched.session.state.session import Session

RECORD_PERIOD_S: Final = 60
"""How often what is used is written while GPUs are held."""
RECORD_SOON_S: Final = 10
"""After so many seconds it is written that GPUs are not held any more: a restart would not know of them."""
RECORD_OVERDUE_S: Final = 15
"""So much later a daemon writes it that leaves this to another one, whose shard nobody may hold."""
RECORD_UNKNOWN_S: Final = 45
"""So much later one writes it that does not know what ended since the record: it was started after that."""
USERS_RECORDED_MAX: Final = 1_000
"""Users of one queue in a record, those who used most."""
_STATES = {"None": "Open", "Hold": "Closed", "HoldAndDrain": "Draining"}
_STATES_BY_STRICTNESS = ("Open", "Closed", "Draining")


def queue_statuses(session: Session) -> tuple[QueueStatus, ...]:
    """The status of every queue, of the built-in one too; without an object it has an empty UID.

    A queue whose status cannot be made is left out, with the queues above it where its gangs cannot be counted: it
    is read for nothing that is decided.
    """
    pending: dict[str, int] = {}
    inqueue: dict[str, int] = {}
    parts: dict[str, list[Resources]] = {}
    untold: set[str] = set()
    looked_at = _looked_at_by_queue(session)
    for queue, lines in _waiting_lines(session):
        node = session.snapshot.queues.get(queue)
        try:
            counts = _count_admitted(session, lines, looked_at.get(queue, ()))
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - a report costs itself, no gang its turn
            session.outcomes.leave_untold(queue, error)
            untold.update(node.path if node else ())
            continue
        for name in node.path if node else ():
            parts.setdefault(name, []).extend(line.requested for line in lines)
            pending[name] = pending.get(name, 0) + counts[0]
            inqueue[name] = inqueue.get(name, 0) + counts[1]
    running = _count_running(session)
    gpus = (name for name, _ in session.view.total().items if accelerator(name))
    shown = {"cpu", "memory", *gpus}
    kept = session.cache.kept.get_or_make(_KeptStatuses, _KeptStatuses)
    found: list[QueueStatus] = []
    for name, node in sorted(session.snapshot.queues.queues.items()):
        if name in untold:
            continue
        try:
            allocated = node.allocated.plus(_weight_above_one(session, name))
            inputs = _StatusInputs(
                queue=node.queue,
                wrong=node.error or node.fault,
                warning=node.warning,
                allocated=allocated,
                requested=allocated.plus(total(parts.get(name, ()))),
                usage=_usage_to_publish(session, node),
                fair_share=_shown_share(session.view.fair_share(name), shown),
                counts=(pending.get(name, 0), inqueue.get(name, 0), running.get(name, 0)),
                state=_queue_state(session, node),
                node_pools=_pool_statuses(session, node),
                budget=budget_status(session, node),
                users_doubt=session.snapshot.users_doubt,
                start_errors=session.snapshot.start_errors.get(name, node.queue.start_errors),
            )
            status = kept.find_status(inputs)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            session.outcomes.leave_untold(name, error)
        else:
            found.append(status)
    return tuple(found)


def _count_running(session: Session) -> dict[str, int]:
    """How many gangs run, by queue with all below it."""
    running: dict[str, int] = {}
    for queue, count in sorted(session.snapshot.running_gangs.items()):
        node = session.snapshot.queues.get(queue)
        for name in node.path if node else ():
            running[name] = running.get(name, 0) + count
    return running


def _waiting_lines(session: Session) -> Iterator[tuple[str, list[GangLine]]]:
    """Lines with members that wait, by their queue."""
    for queue, lines in session.lines.by_queue.items():
        if waiting := [line for line in lines if line.waits]:
            yield queue, waiting


def _looked_at_by_queue(session: Session) -> dict[str, list[Gang]]:
    """Gangs with members that wait and that the session looked at, by their own queue."""
    found: dict[str, list[Gang]] = {}
    for gang in session.gangs:
        if gang.pod_sets and gang.missing_members:
            found.setdefault(gang.queue, []).append(gang)
    return found


def _count_admitted(
    session: Session, lines: Sequence[GangLine], looked_at: Sequence[Gang]
) -> tuple[int, int]:
    """How many gangs of a queue wait, not admitted and admitted: as they were told, where nobody looked at them.

    Args:
        session: whose outcomes count.
        lines: of the queue.
        looked_at: those of its gangs that the session looked at.
    """
    counts = [sum(line.told_counts[admitted] for line in lines) for admitted in (False, True)]
    for gang in looked_at:
        counts[gang.is_told_admitted] -= 1
        if not session.placements.assigned(gang):
            counts[session.outcomes.admission(gang) is None] += 1
    return counts[0], counts[1]


class _StatusInputs(NamedTuple):
    """All that the status of a queue is made from.

    Attributes:
        queue: as the snapshot has it.
        wrong: why it cannot be believed, empty where it can.
        warning: what else is to be said of its place in the tree.
        counts: gangs with it below it that wait, not admitted and admitted, and that run.
    """

    queue: Queue
    wrong: str
    warning: str
    allocated: Resources
    requested: Resources
    fair_share: Resources
    usage: QueueUsage | None
    counts: tuple[int, int, int]
    state: str
    node_pools: tuple[PoolStatus, ...]
    budget: BudgetStatus | None
    users_doubt: str
    start_errors: StartErrors


class _KeptStatuses:
    """The last status of each queue, which is the same object while it is made from the same."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[_StatusInputs, QueueStatus]] = {}

    def find_status(self, inputs: _StatusInputs) -> QueueStatus:
        """The status made from these, the last one of the queue where it is."""
        known = self._by_name.get(inputs.queue.name)
        if known is None or known[0] != inputs:
            known = self._by_name[inputs.queue.name] = (inputs, _queue_status(inputs))
        return known[1]


def _queue_status(of: _StatusInputs) -> QueueStatus:
    queue = of.queue
    borrowed = {
        name: of.allocated.get(name) - amount
        for name, amount in queue.deserved.items
        if of.allocated.get(name) > amount
    }
    if of.wrong:
        ready = PendingReason(reason=Reason.INVALID_SPEC, message=of.wrong)
    else:
        text = "the queue takes jobs" if of.state == "Open" else f"the queue is {of.state.lower()}"
        doubt = of.users_doubt if queue.limits_users else ""
        told = "; ".join(each for each in (text, doubt, of.warning) if each)
        ready = PendingReason(reason="Ready", message=truncate_message(told))
    return QueueStatus(
        name=queue.name,
        uid=queue.uid,
        generation=queue.generation,
        state=of.state,
        allocated=of.allocated,
        requested=of.requested,
        borrowed=Resources.of(borrowed),
        fair_share=of.fair_share,
        usage=of.usage,
        node_pools=of.node_pools,
        budget=of.budget,
        start_errors=of.start_errors,
        pending=of.counts[0],
        inqueue=of.counts[1],
        running=of.counts[2],
        is_ready=not of.wrong,
        ready=ready,
    )


def _weight_above_one(session: Session, queue: str) -> Resources:
    """What the GPUs that a queue holds weigh above 1 each, where types weigh differently."""
    pools = session.queue_accounts.pools
    if pools is None or not pools.weighs_gpu_types:
        return NOTHING
    held = pools.held.get(queue, NOTHING)
    return Resources(tuple(each for each in held.items if each[0] in gpu_resources().whole))


def _queue_state(session: Session, node: QueueNode) -> str:
    """The strictest stop on its path: what a queue above stops is stopped here too.

    A queue that drains is Closed once nothing is left in it.
    """
    queues = session.snapshot.queues.queues
    states = [
        _STATES.get(queues[name].queue.stop_policy, "Open") for name in node.path if name in queues
    ]
    state = max(states, key=_STATES_BY_STRICTNESS.index, default="Open")
    holds = node.allocated or node.held_elsewhere
    return "Closed" if state == "Draining" and not holds else state


def _usage_to_publish(session: Session, node: QueueNode) -> QueueUsage | None:
    """What is remembered already, unless the share changed since and it is time again."""
    if not session.hooks.usages:
        return None
    known, now = node.queue.usage, session.view.usage(node.queue.name)
    if not known.as_of:
        return now if now.share else known
    before, after = dict(known.share), dict(now.share)
    moved = any(
        abs(before.get(name, 0) - after.get(name, 0)) >= limits.USAGE_STEP
        for name in before.keys() | after.keys()
    )
    again = session.snapshot.now - known.as_of >= limits.USAGE_PERIOD_S
    return now if moved and again else known


def _pool_statuses(session: Session, node: QueueNode) -> tuple[PoolStatus, ...]:
    """Amounts it held in its pools when the session began, as for ``allocated``."""
    queue, pools = node.queue, session.queue_accounts.pools
    if not queue.node_pools:
        return ()
    held = pools.held.get(queue.name, NOTHING) if pools else NOTHING
    due = session.view.fair_share(queue.name)
    return tuple(
        PoolStatus(pool.name, amounts_of_pool(held, pool.name), amounts_of_pool(due, pool.name))
        for pool in queue.node_pools
    )


def _shown_share(share: Resources, shown: set[str]) -> Resources:
    if not share.items:
        return NOTHING
    return Resources(tuple((name, amount) for name, amount in share.items if name in shown))


def budget_status(session: Session, node: QueueNode) -> BudgetStatus | None:
    """How a queue stands with its budget; None where it has none.

    What stands in the record already, unless it is time to write another.
    """
    use = session.view.budgets.get(node.queue.name)
    if use is None:
        return None
    known = node.queue.budget_record
    if known.as_of and not _must_write(session, node, use):
        use = attrs.evolve(use, record=known)
    else:
        use = attrs.evolve(use, record=_bounded_record(use.record))
    return BudgetStatus(
        record=use.record,
        available=use.available,
        next_period=use.next_period,
        is_within=not use.is_exhausted,
        told=_budget_message(node.queue.name, use),
    )


def _must_write(session: Session, node: QueueNode, use: BudgetUse) -> bool:
    known, now = node.queue.budget_record, use.record
    late_s = _record_delay_s(session, node)
    if late_s:
        turned_s = now.as_of - now.period_start if now.period_start != known.period_start else 0
        return turned_s >= late_s or _has_news(session, node, use, late_s=late_s)
    if now.period_start != known.period_start:
        return True
    before = attrs.evolve(use, record=known)
    if (before.is_exhausted, before.is_warned) != (use.is_exhausted, use.is_warned):
        return True
    return _has_news(session, node, use, late_s=0)


def _record_delay_s(session: Session, node: QueueNode) -> int:
    """Seconds for which the record of a budget is left to daemons of other shards, which may know more."""
    if not node.queue.own_row:
        return 0
    if node.queue.budget_record.as_of < session.snapshot.gpu_holds_since:
        return RECORD_UNKNOWN_S
    return 0 if session.snapshot.queues.tells_cluster else RECORD_OVERDUE_S


def _has_news(session: Session, node: QueueNode, use: BudgetUse, *, late_s: int) -> bool:
    """Whether so much was used, or ended, since the record was written that it is time to write another.

    Args:
        session: of the moment.
        node: the queue.
        use: of its budget.
        late_s: seconds for which it may be due.
    """
    known, now = node.queue.budget_record, use.record
    age = now.as_of - known.as_of - late_s
    if now.used == known.used or age < RECORD_SOON_S:
        return False
    if age >= RECORD_PERIOD_S:
        return True
    queues = session.snapshot.queues
    return any(
        hold.end > known.as_of
        and (owner := queues.get(hold.queue)) is not None
        and node.queue.name in owner.path
        for hold in session.snapshot.gpu_holds
    )


def _bounded_record(record: BudgetRecord) -> BudgetRecord:
    if len(record.users) <= USERS_RECORDED_MAX:
        return record
    most = sorted(record.users, key=lambda each: (-each[1], each[0]))[:USERS_RECORDED_MAX]
    return attrs.evolve(record, users=tuple(sorted(most)))


def _budget_message(queue: str, use: BudgetUse) -> PendingReason:
    used, there = format_gpu_hours(use.record.used), format_gpu_hours(use.available)
    opens = format_time(use.next_period)
    told = f"queue {queue} has used {used} of its budget of {there} GPU-hours"
    if use.is_exhausted:
        drained = use.budget.on_exhausted == "HoldAndDrain"
        goes_on = "what runs is stopped" if drained else "what runs goes on"
        return PendingReason(
            reason=Reason.BUDGET_EXHAUSTED,
            message=f"{told}: nothing with GPUs starts in it before the next period begins "
            f"{opens}, and {goes_on}",
        )
    if use.is_warned:
        return PendingReason(
            reason=BUDGET_WARNING,
            message=f"{told}, more than {use.budget.warn_at} percent; the next period begins {opens}",
        )
    return PendingReason(reason=WITHIN_BUDGET, message=f"{told}; the next period begins {opens}")
