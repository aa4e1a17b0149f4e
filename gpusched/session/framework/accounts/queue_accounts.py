"""What queues hold, up the tree: now, and as it will be when the pods that leave are gone.

As with usage of nodes there are two views. ``now`` counts everything that is held, ``later``
leaves out pods that are being deleted or evicted and counts nominated ones. Seen now, a queue is
charged with the larger of the two: nominated room stays nominated, and a pod that leaves holds
its room until it is gone.

Resources are charged when statements are committed. Where queues limit node pools, what is held there is
charged beside them, by dimension and with every move, so that the members of one gang see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.pod.pod import Pod
from gpusched.api.queue.budget import (
    Budget,
    BudgetRecord,
    GpuHold,
    advance_record,
    period_end_at,
)
from gpusched.arrays.columns import exact_sums
from gpusched.arrays.node_facts import NodeFacts
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode, QueueTree
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.accounts.gang_lines import GangLines
from gpusched.session.framework.accounts.node_pools import NodePoolAccounts


class UserAccounts:
    """What users and groups have in the queues that limit them, as the session began.

    An account counts the gangs of one user, or of all users of a group, in one queue and below it. What
    is held is moved by the session as that of queues is: the account's name stands on the path of the
    gang's queues.

    Args:
        snapshot: of the session.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def amounts(self) -> Mapping[str, tuple[Resources, Resources]]:
        """Amounts by account: held, and the part of it that belongs to pods being deleted."""
        sums: dict[str, tuple[Resources, Resources]] = {}
        for gang in self._snapshot.placed_gangs.values():
            for account in gang.accounts:
                held, leaving = sums.get(account, (NOTHING, NOTHING))
                sums[account] = (
                    held.plus(gang.allocated),
                    leaving.plus(gang.leaving_allocated),
                )
        return sums

    @cached_property
    def running(self) -> Mapping[str, tuple[Gang, ...]]:
        """Gangs with a place by account, sorted by key."""
        return _gangs_by_account(
            gang for _, gang in sorted(self._snapshot.placed_gangs.items()) if gang.placed
        )

    @cached_property
    def waiting(self) -> Mapping[str, Mapping[GangKey, int]]:
        """How many gangs of the account wait for longer than each of its gangs that wait."""
        lines: dict[str, list[tuple[float, GangKey]]] = {}
        waits = [gang for gang in self._snapshot.gangs if gang.pod_sets and not gang.placed]
        here = [(gang.accounts, gang.waits_since, gang.key) for gang in waits]
        elsewhere = [
            (each.accounts, each.since, each.gang) for each in self._snapshot.waiting_elsewhere
        ]
        for accounts, since, key in (*here, *elsewhere):
            for account in accounts:
                lines.setdefault(account, []).append((since, key))
        return {
            account: {key: place for place, (_, key) in enumerate(sorted(line))}
            for account, line in lines.items()
        }


def _gangs_by_account(gangs: Iterable[Gang]) -> dict[str, tuple[Gang, ...]]:
    found: dict[str, list[Gang]] = {}
    for gang in gangs:
        for account in gang.accounts:
            found.setdefault(account, []).append(gang)
    return {account: tuple(those) for account, those in found.items()}


class _QueueAccount:
    """One queue with all below it; amounts are exact ints and may not be negative for long."""

    __slots__ = ("answers", "later", "now")

    def __init__(self, allocated: Resources, leaving: Resources) -> None:
        self.now: dict[str, int] = dict(allocated.items)
        self.later: dict[str, int] = dict(allocated.items)
        for name, amount in leaving.items:
            self.later[name] = self.later.get(name, 0) - amount
        self.answers: list[Resources | None] = [None, None]
        """The answers now and later, until something moves."""

    @property
    def differs(self) -> bool:
        """Whether the queue holds another amount later than now."""
        names = self.now.keys() | self.later.keys()
        return any(self.now.get(name, 0) != self.later.get(name, 0) for name in names)

    def amounts_at(self, *, later: bool) -> Resources:
        """Amounts that the queue is charged with, as seen now or later."""
        known = self.answers[later]
        if known is None:
            amounts = dict(self.later)
            if not later:
                for name, amount in self.now.items():
                    amounts[name] = max(amount, amounts.get(name, 0))
            known = Resources.of({name: max(0, amount) for name, amount in amounts.items()})
            self.answers[later] = known
        return known

    def amount_at(self, resource: str, *, later: bool) -> int:
        """The same of one resource, which costs less where amounts have just moved."""
        amount = self.later.get(resource, 0)
        return max(0, amount if later else max(amount, self.now.get(resource, amount)))


class QueueAccounts:
    """What each queue of a session is charged with.

    Args:
        queues: as the snapshot has them.
        pools: in which queues limit something; None for none.
        users: what users and groups have whom queues limit; None for nobody.
    """

    def __init__(
        self,
        queues: QueueTree,
        pools: NodePoolAccounts | None = None,
        users: UserAccounts | None = None,
    ) -> None:
        self._queues = queues
        self.pools = pools
        self.users = users
        self._accounts: dict[str, _QueueAccount] = {}
        self._fixed: dict[str, Resources] = {}
        self.counts_after_evictions = False
        """Whether ``allocated`` answers as it will be later."""
        self._compared = (-1, False)
        """Whether now and later differed, and under which version that was found."""
        self.version = 0
        """Grows with every move: what was worked out under another version is stale."""
        self._supposing = False
        self.moved: list[str] = []
        """Each account whose amounts moved, in order, moves included that were assumed or taken back."""

    def state_key(self) -> tuple[int, bool]:
        """Answers are the same while this is: number of moves, and the view where the two differ."""
        if not self.counts_after_evictions:
            return (self.version, False)
        if not self._compared[1] and self._compared[0] != self.version:
            # Once they differ they are taken to: comparing again costs more than it saves.
            self._compared = (self.version, self._looks_differ())
        return (self.version, self._compared[1])

    def _looks_differ(self) -> bool:
        known = self._accounts
        return any(account.differs for account in known.values()) or any(
            node.leaving for name, node in self._queues.queues.items() if name not in known
        )

    def allocated(self, queue: str) -> Resources:
        """Amounts charged to the queue's subtree, or to an account, as the session looks at it: now or later."""
        account = self._find_account(queue)
        return account.amounts_at(later=self.counts_after_evictions) if account else NOTHING

    def amount_allocated(self, queue: str, resource: str) -> int:
        """Amount of one resource as in ``allocated``, in base units."""
        account = self._find_account(queue)
        later = self.counts_after_evictions
        return account.amount_at(resource, later=later) if account else 0

    def staying(self, queue: str) -> Resources:
        """Amounts charged to the queue's subtree once the pods that leave are gone."""
        account = self._accounts.get(queue) or self._find_account(queue)
        if account is None:
            return NOTHING
        known = account.answers[True]  # hundreds of times for each claim
        return account.amounts_at(later=True) if known is None else known

    def fixed(self, queue: str) -> Resources:
        """Amounts given in this session to gangs of the subtree that are not preemptible."""
        return self._fixed.get(queue, NOTHING)

    def charge_not_preemptible(
        self, path: Sequence[str], amounts: Resources, *, times: int = 1
    ) -> None:
        """Charge amounts, placed or nominated, of a gang that is not preemptible."""
        for name in path:
            self._fixed[name] = self._fixed.get(name, NOTHING).plus(amounts, times=times)

    def charge_placed(self, path: Sequence[str], amounts: Resources, *, times: int = 1) -> None:
        """Charge the queues of a path, from the leaf up, with amounts that are held from now on."""
        self._move_amounts(path, amounts, now=times, later=times)

    def charge_nominated(self, path: Sequence[str], amounts: Resources, *, times: int = 1) -> None:
        """Charge the queues of a path with amounts that will be held once the room is free."""
        self._move_amounts(path, amounts, now=0, later=times)

    def release_amounts(self, path: Sequence[str], amounts: Resources, *, times: int = 1) -> None:
        """Take amounts off the queues of a path, which will be free once their pods are gone."""
        self._move_amounts(path, amounts, now=0, later=-times)

    @contextmanager
    def assume_moves(self, moves: Sequence[tuple[Sequence[str], Resources, int]]) -> Iterator[None]:
        """Inside, so much more or less is nominated, and ``allocated`` answers as it will be.

        The version stays, as afterwards all is as it was: nothing that is worked out inside may
        be remembered by it.

        Args:
            moves: names of queues, amounts, and how many times more they are.
        """
        before = self.counts_after_evictions, self._supposing
        self.counts_after_evictions = self._supposing = True
        for path, amounts, times in moves:
            self.charge_nominated(path, amounts, times=times)
        try:
            yield
        finally:
            for path, amounts, times in moves:
                self.charge_nominated(path, amounts, times=-times)
            self.counts_after_evictions, self._supposing = before

    def change_count(
        self, pod: Pod, row: int, *, now: int, later: int, leaves: bool = False
    ) -> None:
        """Charge node pools with a pod on a row; see ``AssignmentListener``."""
        assert self.pools is not None, "accounts without pools follow no moves"
        amounts = self.pools.charge(pod.pod_class, row)
        if not amounts.items:
            return
        owner = self.pools.owner_of(pod.uid)
        self._move_amounts(owner.path, amounts, now=now, later=later)
        if owner.gang is not None and owner.gang.is_lasting and not leaves:
            self.charge_not_preemptible(owner.path, amounts, times=later)

    def _move_amounts(
        self, path: Sequence[str], amounts: Resources, *, now: int, later: int
    ) -> None:
        self.version += not self._supposing
        for name in path:
            account = self._find_account(name)
            if account is None:
                continue
            for resource, amount in amounts.items:
                if now:
                    account.now[resource] = account.now.get(resource, 0) + amount * now
                account.later[resource] = account.later.get(resource, 0) + amount * later
            account.answers = [None, None]
            self.moved.append(name)

    def _find_account(self, queue: str) -> _QueueAccount | None:
        known = self._accounts.get(queue)
        if known is None:
            node = self._queues.get(queue)
            if node is None:
                return self._open_user_account(queue)
            held, leaving = node.allocated, node.leaving
            if self.pools is not None:
                held = held.plus(self.pools.held.get(queue, NOTHING))
                leaving = leaving.plus(self.pools.leaving.get(queue, NOTHING))
            known = self._accounts[queue] = _QueueAccount(held, leaving)
        return known

    def _open_user_account(self, name: str) -> _QueueAccount | None:
        """The account of a user or group in a queue; None where the name is that of no account."""
        if self.users is None or "/" not in name:
            return None
        known = self._accounts[name] = _QueueAccount(
            *self.users.amounts.get(name, (NOTHING, NOTHING))
        )
        return known


@frozen(slots=True)
class BudgetUse:
    """How a queue stands with its budget now.

    Attributes:
        record: as of now, as it would be written.
    """

    budget: Budget
    record: BudgetRecord

    @property
    def available(self) -> int:
        """All that there is in this period, millionths of GPU-seconds."""
        return self.budget.amount + self.record.rolled_over

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left."""
        return self.record.used >= self.available

    def is_exhausted_for(self, user: str) -> bool:
        """Whether nothing is left of it, or of what it gives to this user."""
        own = self.budget.per_user
        return self.is_exhausted or (own is not None and self.used_by(user) >= own)

    @property
    def is_warned(self) -> bool:
        """Whether so much is used that a warning is given."""
        warn_at = self.budget.warn_at
        return bool(warn_at) and self.record.used * 100 >= self.available * warn_at

    @property
    def next_period(self) -> int:
        """When the next period begins, seconds since the epoch."""
        return period_end_at(self.budget.period, self.record.period_start)

    def used_by(self, user: str) -> int:
        """What a user has used in this period."""
        return dict(self.record.users).get(user, 0)


class BudgetAccounts:
    """What queues with budgets have used of them, as a session sees it.

    Args:
        snapshot: of the session.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def uses(self) -> Mapping[str, BudgetUse]:
        """By queue, sorted; of queues that have a budget."""
        queues = self._snapshot.queues
        holds: dict[str, list[GpuHold]] = {
            name: [] for name, node in queues.queues.items() if node.queue.budget is not None
        }
        if not holds:
            return {}
        for hold in self._snapshot.gpu_holds:
            node = queues.get(hold.queue)
            for name in node.path if node is not None else ():
                if name in holds:
                    holds[name].append(hold)
        now = int(self._snapshot.now)
        found: dict[str, BudgetUse] = {}
        for name, those in sorted(holds.items()):
            queue = queues.queues[name].queue
            if queue.budget is not None:
                record = advance_record(queue.budget, queue.budget_record, those, now)
                found[name] = BudgetUse(queue.budget, record)
        return found


class QueueDemand:
    """What queues held and requested when the session began.

    Args:
        snapshot: of the session.
        lines: its gangs.
        pools: in which queues limit something; what is held and requested there is counted
            beside the rest, by dimension.
        budgets: of queues; None where they do not matter.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        lines: GangLines,
        pools: NodePoolAccounts | None = None,
        budgets: BudgetAccounts | None = None,
        *,
        facts: NodeFacts | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._facts = facts or NodeFacts(snapshot.nodes)
        self._lines = lines
        self._pools = pools
        self._budgets = budgets

    @cached_property
    def total(self) -> Resources:
        """Allocatable of ready, uncordoned nodes, and their devices, less what others' pods hold.

        Our own pods' use counts in: it is what is divided.
        """
        nodes, facts = self._snapshot.nodes, self._facts
        offered = facts.offered
        if nodes.foreign.any():
            others = exact_sums(nodes.foreign[facts.usable])
            offered = [max(0, all_of - held) for all_of, held in zip(offered, others, strict=True)]
        amounts = Resources.of({name: offered[column] for name, column in nodes.columns.items()})
        amounts = amounts.plus(self._snapshot.devices_on(facts.usable_nodes, several=True))
        if self._pools is None:
            return amounts
        return amounts.plus(self._pools.weight_of_total(facts.usable))

    @cached_property
    def requested(self) -> dict[str, Resources]:
        """Amounts held, without pods that leave, and waited for, by queue with all below it.

        A gang that cannot start whatever is free (its queue is frozen or stopped, takes no
        gangs, has used its budget, or does not exist) requests nothing.
        """
        parts: dict[str, list[Resources]] = {}
        for queue, lines in self._lines.by_queue.items():
            path = self._open_path(queue)
            asked = total(line.requested_without_errors for line in lines) if path else NOTHING
            if path and self._pools is not None:
                pooled = (
                    self._pools.requested_by(gang) for line in lines for gang in line.startable
                )
                asked = asked.plus(total(pooled))
            for name in path:
                parts.setdefault(name, []).append(asked)
        return {
            name: self._staying_amounts(name, node).plus(total(parts.get(name, ())))
            for name, node in self._snapshot.queues.queues.items()
        }

    @cached_property
    def fixed(self) -> dict[str, Resources]:
        """Amounts held by gangs that are not preemptible, without pods that leave, by queue."""
        sums: dict[str, Resources] = {}
        for gang in self._snapshot.placed_gangs.values():
            if gang.terms.preemptible or not gang.allocated:
                continue
            node = self._snapshot.queues.get(gang.queue)
            staying = self.held(gang)
            if gang.gives_extras:
                staying = less(staying, smallest_extras(gang))
            for name in node.path if node else ():
                sums[name] = sums.get(name, NOTHING).plus(staying)
        return sums

    def held(self, gang: Gang) -> Resources:
        """Amounts that a gang holds, without its members being deleted."""
        staying = less(gang.allocated, gang.leaving_allocated)
        return staying if self._pools is None else staying.plus(self._pools.held_by(gang))

    def _staying_amounts(self, name: str, node: QueueNode) -> Resources:
        staying = less(node.allocated, node.leaving)
        if self._pools is None:
            return staying
        held = self._pools.held.get(name, NOTHING)
        return staying.plus(less(held, self._pools.leaving.get(name, NOTHING)))

    def _open_path(self, queue: str) -> tuple[str, ...]:
        queues = self._snapshot.queues
        node = queues.get(queue)
        if node is None or node.error or not node.leaf:
            return ()
        if any(queues.queues[name].queue.stop_policy != "None" for name in node.path):
            return ()
        if any(name in self._exhausted for name in node.path):
            return ()
        return node.path

    @cached_property
    def _exhausted(self) -> frozenset[str]:
        """Queues that have used their budgets."""
        uses = self._budgets.uses if self._budgets is not None else {}
        return frozenset(name for name, use in uses.items() if use.is_exhausted)


def less(amounts: Resources, taken: Resources) -> Resources:
    """Amounts without what was taken of them, never below zero."""
    if not taken.items:
        return amounts
    gone = dict(taken.items)  # many times for each claim
    left = [(name, amount - gone.get(name, 0)) for name, amount in amounts.items]
    return Resources(tuple([each if each[1] > 0 else (each[0], 0) for each in left]))


def smallest_extras(gang: Gang) -> Resources:
    """Charges of as many members as a gang has above its minimum, those with the smallest."""
    charges = sorted((each.pod.pod_class.charged for each in gang.placed), key=lambda e: e.items)
    return total(charges[: max(0, gang.ready_members - gang.min_member)])
