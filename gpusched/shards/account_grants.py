"""What the shards of one daemon have of each account, and may have: counted, asked for, and granted on the board."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs
import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.pool_resources import pool_of
from gpusched.api.meta.resources import Resources, total
from gpusched.api.queue.queue import Queue
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.queues_here import lasting_account
from gpusched.cache.snapshot import Snapshot
from gpusched.shards.accounts import (
    SharedAccounts,
    add_amounts,
    is_lasting_account,
    limits_of_account,
    limits_of_queue,
    members_at_start,
    members_waiting,
    users_counted,
)
from gpusched.shards.board import (
    COUNTS_USERS_AND_POOLS,
    Amounts,
    Board,
    GrantRow,
    ShardEntry,
)
from gpusched.shards.grants import row_with_asked, settle_grants

ShardOf = Callable[[GangKey], str]
_NOBODY: Final = ShardEntry()


def granted_amount(boards: Iterable[Board], account: str, shard: str, name: str) -> int:
    """What a shard may use of an account by every board that may be the one in force."""
    return min(board.row(account, shard).granted.get(name, 0) for board in boards)


def granted_here(
    account: str, limits: Amounts, boards: Sequence[Board], held: Collection[str]
) -> Amounts:
    """What some shards together may use of an account; nothing where it was lowered below what all are granted.

    Args:
        account: by its name.
        limits: of the account.
        boards: the one that was read last, and those that may have been written since.
        held: shards.
    """
    rows = boards[0].grants.get(account, {}).values()
    return {
        name: 0
        if sum(row.granted.get(name, 0) for row in rows) > most
        else sum(granted_amount(boards, account, shard, name) for shard in held)
        for name, most in limits.items()
    }


def users_here(
    queues: Collection[Queue], boards: Sequence[Board], held: Collection[str]
) -> dict[str, Mapping[str, Resources]]:
    """What users and groups may have in some shards, by queue that limits them and by account."""
    found: dict[str, dict[str, Resources]] = {
        queue.name: {} for queue in queues if queue.user_limits
    }
    if not found:
        return {}
    by_name = {queue.name: queue for queue in queues}
    for account in boards[0].grants:
        name, mark, _ = account.partition("/")
        if mark and name in found and not is_lasting_account(account):
            limits = limits_of_account(by_name[name], account)
            found[name][account] = Resources.of(granted_here(account, limits, boards, held))
    return dict(found)


def used_elsewhere(board: Board, held: Collection[str]) -> dict[str, Mapping[str, Resources]]:
    """What shards that are not held say that they use, by queue and by account in it."""
    found: dict[str, dict[str, Resources]] = {}
    for account, rows in board.grants.items():
        used = total(Resources.of(row.used) for shard, row in rows.items() if shard not in held)
        if used:
            found.setdefault(account.partition("/")[0], {})[account] = used
    return dict(found)


def lasting_here(
    queues: Collection[Queue], boards: Sequence[Board], held: Collection[str]
) -> dict[str, Resources]:
    """What gangs that are not preemptible may have in some shards of what queues deserve, by name."""
    return {
        queue.name: Resources.of(
            granted_here(lasting_account(queue.name), dict(queue.deserved.items), boards, held)
        )
        for queue in queues
        if queue.deserved
    }


@frozen(kw_only=True)
class _Ask:
    """What a gang that waits needs of accounts.

    Attributes:
        gang: its key.
        shard: that it is in.
        since: when it was made.
        is_short: whether all shards together have too little left for it.
        least: what it starts with, by account that it asks for.
        everything: that its members need.
    """

    gang: GangKey
    shard: str
    since: float
    is_short: bool
    least: dict[str, Amounts]
    everything: dict[str, Amounts]


class _Limits(dict[str, Amounts]):
    """Limits of accounts, found once each."""

    def __init__(self, accounts: SharedAccounts) -> None:
        super().__init__()
        self._accounts = accounts

    def __missing__(self, account: str) -> Amounts:
        found = self[account] = self._accounts.limits_of(account)
        return found


@define(eq=False)
class AccountGrants:
    """See the module.

    Attributes:
        accounts: as the last snapshot shows them.
        rows: what is to stand on the board, by account and shard, but for the grants.
        used: of the shards, by account: what is bound, or is being bound.
    """

    accounts: SharedAccounts = attrs.Factory(SharedAccounts)
    rows: dict[str, dict[str, GrantRow]] = attrs.Factory(dict)
    used: dict[str, dict[str, Amounts]] = attrs.Factory(dict)
    _promised: dict[str, dict[str, Amounts]] = attrs.Factory(dict)

    def held_elsewhere(
        self, queue: Queue, boards: Sequence[Board], held: Collection[str]
    ) -> Resources:
        """The part of a queue's limits that some shards are not granted."""
        limits = limits_of_queue(queue)
        granted = granted_here(queue.name, limits, boards, held)
        return Resources.of({name: max(0, most - granted[name]) for name, most in limits.items()})

    def count_used(self, snapshot: Snapshot, held: Collection[str], shard_of: ShardOf) -> None:
        """Count what gangs hold in each shard.

        Args:
            snapshot: of this moment.
            held: shards.
            shard_of: tells the shard of a gang.
        """
        self.accounts.note_snapshot(snapshot)
        tree, counted = snapshot.queues.queues, self.accounts.counted
        used: dict[str, dict[str, Amounts]] = {shard: {} for shard in held}
        if len(held) == 1:
            (shard,) = held
            used[shard] = {
                queue: {name: tree[queue].allocated.get(name) for name in names}
                for queue, names in counted.items()
            }
        else:
            for gang in snapshot.placed_gangs.values():
                own = used.setdefault(shard_of(gang.key), {})
                for queue in snapshot.queues.path(gang.queue):
                    names = counted.get(queue, ())
                    add_amounts(own, queue, {name: gang.allocated.get(name) for name in names})
        beside = self.accounts.count_beside_queues(snapshot.placed_gangs.values())
        for gang, account, amounts in beside:
            add_amounts(used.setdefault(shard_of(gang.key), {}), account, amounts)
        self.used = used

    def start_error(
        self,
        charges: Mapping[str, Amounts],
        shard: str,
        boards: Sequence[Board],
        *,
        divides_lasting: bool,
    ) -> str:
        """Why the shard is not granted what is charged; empty where it is, and then it is counted.

        Args:
            charges: by account.
            shard: of the gang.
            boards: that may be in force.
            divides_lasting: whether accounts of gangs that are not preemptible count.
        """
        used = self.used.setdefault(shard, {})
        for account, amounts in charges.items():
            if is_lasting_account(account) and not divides_lasting:
                continue
            for name in self.accounts.limits_of(account):
                need = amounts.get(name, 0)
                has = used.get(account, {}).get(name, 0)
                if need and has + need > granted_amount(boards, account, shard, name):
                    what = "account" if "/" in account else "queue"
                    return f"{what} {account} is not granted so much of {name} in shard {shard}"
        for account, amounts in charges.items():
            add_amounts(used, account, amounts)
        return ""

    # -- what is asked for -----------------------------------------------------------------
    def note_needs(
        self,
        waiting: Collection[Gang],
        blocked: Mapping[GangKey, bool],
        held: Collection[str],
        shard_of: ShardOf,
        board: Board,
        *,
        promised: Collection[GangKey] = (),
    ) -> None:
        """What is to stand on the board of these shards.

        Args:
            waiting: gangs that wait.
            blocked: those of them that wait for what they may not use, and whether other nodes are full.
            held: shards.
            shard_of: tells the shard of a gang.
            board: as it was read last.
            promised: those that wait for which room is being made: what they start with stays granted.
        """
        self._count_promised(waiting, promised, shard_of, board)
        demand = self._demand(waiting, shard_of)
        self.rows = {}
        for name, names in self.accounts.counted.items():
            users = users_counted(self.accounts.tree.queues[name].queue)
            for shard in held if names or users else ():
                has = self.used.get(shard, {}).get(name, {})
                used = {each: has.get(each, 0) for each in names}
                more = demand.get((name, shard), {})
                asked = {each: amount + more.get(each, 0) for each, amount in used.items()}
                self.rows.setdefault(name, {})[shard] = GrantRow(
                    used=used, next=used, wanted=used, demand=asked, users=users,
                    lasting=tuple(self.accounts.limits_of(lasting_account(name))),
                )  # fmt: skip
        for shard in held:
            for account, used in self.used.get(shard, {}).items():
                if "/" in account and any(used.values()):
                    self.rows.setdefault(account, {})[shard] = GrantRow(used=used)
        asks = [
            ask
            for gang in waiting
            if (crowded := blocked.get(gang.key)) is not None
            and (ask := self._ask_of(gang, shard_of(gang.key), board, crowded=crowded))
        ]
        # What is granted to a gang for which too little is left is of no use to those behind it.
        for ask in sorted(asks, key=lambda each: (each.is_short, each.since, each.gang)):
            self._note_ask(ask)

    def _count_promised(
        self,
        waiting: Collection[Gang],
        promised: Collection[GangKey],
        shard_of: ShardOf,
        board: Board,
    ) -> None:
        """What gangs start with for which room is being made, by shard and account."""

        def left(account: str, name: str) -> int:
            return limits[account].get(name, 0) - self._used_in_all(board, account, name)

        limits, self._promised = _Limits(self.accounts), {}
        for gang in waiting:
            if gang.key in promised:
                there = self._promised.setdefault(shard_of(gang.key), {})
                asked = self.accounts.asked(gang, members_at_start(gang), left, crowded=False)
                for account, amounts in asked.items():
                    add_amounts(there, account, amounts)

    def _demand(
        self, waiting: Collection[Gang], shard_of: ShardOf
    ) -> dict[tuple[str, str], Amounts]:
        whole: dict[tuple[str, str], list[Resources]] = {}
        found: dict[tuple[str, str], Amounts] = {}
        for gang in waiting:
            shard = shard_of(gang.key)
            for name in self.accounts.path(gang.queue):
                whole.setdefault((name, shard), []).append(gang.pending_requests)
            for name, amounts in self.accounts.confined_to_pools(gang):
                there = found.setdefault((name, shard), {})
                for each, amount in amounts.items():
                    there[each] = there.get(each, 0) + amount
        for key, parts in whole.items():
            found[key] = {**found.get(key, {}), **dict(total(parts).items)}
        return found

    def _ask_of(self, gang: Gang, shard: str, board: Board, *, crowded: bool) -> _Ask | None:
        """What a gang needs; None where it can never have that.

        Where all shards together have too little left of an account, it asks for that one alone: what it cannot use
        before is not to be kept for it.
        """

        def left(account: str, name: str) -> int:
            return limits[account].get(name, 0) - self._used_in_all(board, account, name)

        limits = _Limits(self.accounts)
        least = self.accounts.asked(gang, members_at_start(gang), left, crowded=crowded)
        needs = [
            (account, name, need)
            for account, amounts in least.items()
            for name in limits[account]
            if (need := amounts.get(name, 0))
        ]
        if any(need > limits[account][name] for account, name, need in needs):
            return None
        short = {account for account, name, need in needs if need > left(account, name)}
        return _Ask(
            gang=gang.key,
            shard=shard,
            since=gang.created,
            is_short=bool(short),
            least={name: each for name, each in least.items() if not short or name in short},
            everything=self.accounts.asked(gang, members_waiting(gang), left, crowded=crowded),
        )

    def _note_ask(self, ask: _Ask) -> None:
        for account, least in ask.least.items():
            limits = self.accounts.limits_of(account)
            if not limits:
                continue
            used = self.used.get(ask.shard, {}).get(account, {})
            rows = self.rows.setdefault(account, {})
            row = rows.get(ask.shard) or GrantRow(used={name: used.get(name, 0) for name in limits})
            rows[ask.shard] = row_with_asked(
                row, least, ask.everything.get(account, least), limits, since=ask.since
            )

    def _used_in_all(self, board: Board, account: str, name: str) -> int:
        shards = {*board.grants.get(account, {}), *self.used}
        return sum(
            self.used[shard].get(account, {}).get(name, 0)
            if shard in self.used
            else board.row(account, shard).used.get(name, 0)
            for shard in shards
        )

    def lacks_pool(self, gang: Gang, shard: str, boards: Sequence[Board]) -> bool:
        """Whether members of a gang could be in node pools of which the shard is not granted enough for them."""

        def left(account: str, name: str) -> int:
            return limits[account].get(name, 0) - self._used_in_all(boards[0], account, name)

        limits = _Limits(self.accounts)
        used = self.used.get(shard, {})
        return any(
            need
            and name in limits[queue]
            and used.get(queue, {}).get(name, 0) + need > granted_amount(boards, queue, shard, name)
            for queue, amounts in self.accounts.asked_in_pools(
                gang, members_at_start(gang), left, crowded=True
            )
            for name, need in amounts.items()
        )

    # -- the board -------------------------------------------------------------------------
    def settled(
        self, boards: Sequence[Board], counted: Collection[str], shards: Sequence[str]
    ) -> dict[str, dict[str, GrantRow]]:
        """What should stand on the board of grants.

        Args:
            boards: the one that was read last, and those that may have been written since.
            counted: one's own shards.
            shards: all shards; nothing is raised unless all of them have counted what they use of it.
        """
        board = boards[0]
        grants = {
            account: {shard: row for shard, row in rows.items() if shard not in counted}
            for account, rows in board.grants.items()
        }
        for account, own in self.rows.items():
            rows = {**grants.get(account, {})}
            for shard, row in own.items():
                has = self.used.get(shard, {}).get(account, {})
                used = {name: max(amount, has.get(name, 0)) for name, amount in row.used.items()}
                granted = {name: granted_amount(boards, account, shard, name) for name in used}
                # What is promised stays where it is, and is not granted by that alone.
                more = self._promised.get(shard, {}).get(account, {})
                kept = {
                    name: max(amount, min(granted[name], amount + more.get(name, 0)))
                    for name, amount in used.items()
                }
                rows[shard] = msgspec.structs.replace(row, used=kept, granted=granted)
            limits = self.accounts.limits_of(account)
            new = settle_grants(
                limits, rows, own, may_raise=self._known_to_all(account, board, counted, shards)
            )
            grants[account] = rows | {
                shard: msgspec.structs.replace(
                    rows[shard], granted={name: new[shard].get(name, 0) for name in limits}
                )
                for shard in own
            }
        return {account: rows for account, rows in sorted(grants.items()) if rows}

    def _known_to_all(
        self, account: str, board: Board, counted: Collection[str], shards: Sequence[str]
    ) -> frozenset[str]:
        """What every shard has counted of an account: of nothing else anybody is granted more."""
        queue, is_users, _ = account.partition("/")
        limits = self.accounts.limits_of(account)
        entries = [board.shards.get(shard, _NOBODY) for shard in shards]
        if not all(entry.settled for entry in entries):
            return frozenset()
        others = [
            (board.row(queue, shard), entry.counts >= COUNTS_USERS_AND_POOLS)
            for shard, entry in zip(shards, entries, strict=True)
            if shard not in counted
        ]
        if is_lasting_account(account):
            return frozenset(
                name for name in limits if all(name in row.lasting for row, _ in others)
            )
        if is_users:
            node = self.accounts.tree.get(queue)
            users = users_counted(node.queue) if node is not None else ""
            known = all(not divides or row.users == users for row, divides in others)
            return frozenset(limits if known else ())
        return frozenset(
            name
            for name in limits
            if all(name in row.used or (pool_of(name) and not divides) for row, divides in others)
        )
