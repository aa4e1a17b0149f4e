"""What is limited by a sum over all shards: of queues, of queues in node pools, and of users and groups in queues.

An *account* is a queue by its name, what a user or group has in one (``api.queue.user_limits.account_of``), or what gangs
that are not preemptible have of what one deserves (``lasting_account``). Each shard counts what its gangs hold of every account, and starts more only within what it is granted of it (``shards.grants``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

import attrs
import msgspec
import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.pool_resources import dimension, pool_of, resource_of
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import PodClass
from gpusched.api.queue.queue import Queue
from gpusched.api.queue.user_limits import NO_USER_LIMIT, RUNNING_GANGS, UserLimit
from gpusched.arrays.columns import Ints, NodeColumns
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.part import PlacedPods
from gpusched.cache.queues.node_pool_names import node_pool_labels
from gpusched.cache.queues.queues_here import lasting_account
from gpusched.cache.queues.tree import QueueTree
from gpusched.cache.snapshot import Snapshot
from gpusched.session.framework.accounts.node_pools import NodePoolCache
from gpusched.session.framework.accounts.queue_accounts import less, smallest_extras
from gpusched.shards.board import COUNTS_ALL_SHARDS, COUNTS_USERS_AND_POOLS, Amounts

Left = Callable[[str, str], int]
"""How much of a resource or dimension is left of a queue's limit, over all shards."""


def no_node(_name: str) -> Node | None:
    """Nobody knows a node."""
    return None


def limits_of_queue(queue: Queue) -> Amounts:
    """What a queue and all below it may hold, as a whole and by dimension."""
    return {**dict(queue.capability.items), **dict(queue.pool_capability.items)}


def limits_of_account(queue: Queue, account: str) -> Amounts:
    """What a user or group may have in a queue, by the name of its account."""
    kind, _, name = account.removeprefix(f"{queue.name}/").partition("/")
    limits = queue.user_limits
    found = (
        limits.users.get(name, limits.per_user)
        if kind == "user"
        else limits.groups.get(name, NO_USER_LIMIT)
    )
    return _limit_amounts(found)


def is_lasting_account(account: str) -> bool:
    """Whether it is one of these: users and groups have another ``/`` in their accounts."""
    return account.endswith("/lasting") and account.count("/") == 1


def _limit_amounts(limit: UserLimit) -> Amounts:
    amounts = dict(limit.resources.items)
    if limit.max_running is not None:
        amounts[RUNNING_GANGS] = limit.max_running
    return amounts


def names_counted(queue: Queue) -> frozenset[str]:
    """Resources and dimensions of which a queue has amounts that are divided between shards."""
    parts = (
        queue.capability, queue.deserved, queue.guarantee, queue.pool_capability,
        queue.pool_deserved,
    )  # fmt: skip
    return frozenset(name for each in parts for name, _ in each.items)


def users_counted(queue: Queue) -> str:
    """Stands for whom a queue limits in what, whatever the amounts; empty for nobody."""
    limits = queue.user_limits
    if not limits:
        return ""
    content = [
        sorted(_limit_amounts(limits.per_user)),
        *(
            [[name, sorted(_limit_amounts(each))] for name, each in sorted(those.items())]
            for those in (limits.users, limits.groups)
        ),
    ]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:8]


def is_kept_in_one_shard(queue: Queue, counts: int) -> bool:
    """Whether gangs of a queue start in the first shard alone, as its daemon is of a version that needs that.

    Args:
        queue: in question.
        counts: what the daemon of the first shard counts beside queues.
    """
    limits = queue.user_limits
    if counts < COUNTS_USERS_AND_POOLS and (limits or queue.pool_capability):
        return True
    return counts < COUNTS_ALL_SHARDS and (queue.budget is not None or limits.limits_lines)


def add_amounts(to: dict[str, Amounts], account: str, amounts: Amounts) -> None:
    """Add amounts to those of an account."""
    there = to.setdefault(account, {})
    for name, amount in amounts.items():
        there[name] = there.get(name, 0) + amount


class _Pools:
    """Node pools of one moment, and the nodes of these shards in each.

    Args:
        queues: of the cluster.
        nodes: of these shards.
        cache: from earlier snapshots.
        find_node: the node of a name, of any shard.
        before: of the last snapshot.
    """

    def __init__(
        self,
        queues: Iterable[Queue],
        nodes: NodeColumns,
        cache: NodePoolCache,
        find_node: Callable[[str], Node | None],
        before: _Pools | None,
    ) -> None:
        labels = {name: found for name, (found, _) in node_pool_labels(queues).items()}
        self._pools = tuple(sorted(labels.items()))
        self._nodes, self._cache, self._find_node = nodes, cache, find_node
        self._of_row = cache.of_row(self._pools, nodes)
        self._numbers: Ints = np.array(self._of_row, dtype=np.int64)
        self.is_as_before = before is not None and before._is_like(self)  # noqa: SLF001 - of its own class
        """Whether all nodes of these shards are in the same pools as before."""
        same = (
            self.is_as_before
            and before is not None
            and before._nodes.generation is nodes.generation  # noqa: SLF001 - of its own class
        )
        self._classes: dict[str, list[str]] = before._classes if same and before else {}  # noqa: SLF001

    def _is_like(self, other: _Pools) -> bool:
        return self._pools == other._pools and self._of_row is other._of_row

    def of_node(self, name: str) -> str:
        """The pool of a node of any shard; empty for none."""
        row = self._nodes.row.get(name)
        if row is not None:
            number = self._of_row[row]
            return self._pools[number][0] if number >= 0 else ""
        node = self._find_node(name)
        return next(
            (
                pool
                for pool, labels in self._pools
                if node is not None and all(node.labels.get(key) == value for key, value in labels)
            ),
            "",
        )

    def of_class(self, pod_class: PodClass) -> list[str]:
        """Pools of these shards on whose nodes pods of a class may be, sorted; an empty name for nodes of no pool."""
        known = self._classes.get(pod_class.digest)
        if known is None:
            rows = self._cache.candidate_rows(pod_class, self._nodes)
            found = np.unique(self._numbers if rows is None else self._numbers[rows]).tolist()
            known = [self._pools[number][0] if number >= 0 else "" for number in found]
            self._classes[pod_class.digest] = known
        return known

    def totals(self, rows: Sequence[int], names: Iterable[str]) -> Amounts:
        """What some rows have of dimensions."""
        amounts: Amounts = {}
        numbers = {pool: number for number, (pool, _) in enumerate(self._pools)}
        chosen = np.array(rows, dtype=np.int64)
        for name in names:
            column = self._nodes.columns.get(resource_of(name))
            number = numbers.get(pool_of(name))
            if column is not None and number is not None:
                of_pool = chosen[self._numbers[chosen] == number]
                amounts[name] = int(self._nodes.allocatable[of_pool, column].sum())
        return amounts


@define(eq=False)
class SharedAccounts:
    """What gangs have and ask for, by account, as one snapshot shows them.

    Attributes:
        find_node: the node of a name, of any shard.
        limits: of queues, by name: those that limit something.
        counted: resources and dimensions that are counted for each queue, by name.
        tree: of queues.
        bounds_not_preemptible: whether gangs that are not preemptible stay within what queues deserve.
    """

    bounds_not_preemptible: bool = False
    find_node: Callable[[str], Node | None] = no_node
    limits: dict[str, Amounts] = attrs.Factory(dict)
    counted: dict[str, frozenset[str]] = attrs.Factory(dict)
    tree: QueueTree = attrs.Factory(lambda: QueueTree({}))
    _cache: NodePoolCache = attrs.Factory(NodePoolCache)
    _pools: _Pools | None = None
    _pooled: dict[str, frozenset[str]] = attrs.Factory(dict)
    """Dimensions that are counted for each queue that has some."""
    _in_pools: dict[Gang, Mapping[str, Amounts]] = attrs.Factory(dict)
    _waiting: dict[GangKey, Gang] = attrs.Factory(dict)
    _deserving: set[str] = attrs.Factory(set)
    """Queues that deserve something, where what is not preemptible stays within that."""

    def note_snapshot(self, snapshot: Snapshot) -> None:
        """Queues, node pools and gangs are those of a snapshot from now on."""
        self.tree = snapshot.queues
        queues = [node.queue for node in snapshot.queues.queues.values()]
        self.limits = {queue.name: limits for queue in queues if (limits := limits_of_queue(queue))}
        self.counted = {queue.name: names_counted(queue) for queue in queues}
        pooled, before = self._pooled, self._pools
        self._pooled = {
            name: found
            for name, names in self.counted.items()
            if (found := frozenset(each for each in names if pool_of(each)))
        }
        self._pools = None
        if self._pooled:
            self._pools = _Pools(queues, snapshot.nodes, self._cache, self.find_node, before)
            if pooled != self._pooled or not self._pools.is_as_before:
                self._in_pools = {}
        self._deserving = {
            name
            for name, node in self.tree.queues.items()
            if self.bounds_not_preemptible and node.deserved_in_all
        }
        limiting = self._pooled or self._deserving or any(queue.user_limits for queue in queues)
        self._waiting = {gang.key: gang for gang in snapshot.gangs} if limiting else {}

    def limits_of(self, account: str) -> Amounts:
        """What an account limits; nothing where it is not known."""
        name, mark, _ = account.partition("/")
        if not mark:
            return self.limits.get(account, {})
        node = self.tree.get(name)
        if node is not None and account == lasting_account(name):
            return dict(node.deserved_in_all.items) if name in self._deserving else {}
        return limits_of_account(node.queue, account) if node is not None else {}

    def path(self, queue: str) -> tuple[str, ...]:
        """Names from a queue up to, and without, ``root``."""
        return self.tree.path(queue)

    # -- what is held ----------------------------------------------------------------------
    def count_beside_queues(self, gangs: Collection[Gang]) -> Iterator[tuple[Gang, str, Amounts]]:
        """What gangs with a place hold in node pools and of the limits of their users, by account."""
        known, self._in_pools = self._in_pools, {}
        for gang in gangs:
            if self._pools is not None:
                held = known.get(gang)
                held = self._in_pools[gang] = self._held_in_pools(gang) if held is None else held
                for name, amounts in held.items():
                    yield gang, name, amounts
            for account in gang.accounts:
                amounts = self._of_user(account, gang.allocated, gangs=int(bool(gang.placed)))
                if amounts:
                    yield gang, account, amounts
            if not gang.terms.preemptible:
                yield from ((gang, *each) for each in self._lasting(gang, lasting_amounts(gang)))

    def _lasting(self, gang: Gang, held: Resources) -> Iterator[tuple[str, Amounts]]:
        """Amounts of a gang that is not preemptible, of what the queues on its path deserve."""
        for name in self.path(gang.queue) if held else ():
            if name in self._deserving:
                deserved = self.tree.queues[name].deserved_in_all
                yield lasting_account(name), {each: held.get(each) for each, _ in deserved.items}

    def _held_in_pools(self, gang: Gang) -> Mapping[str, Amounts]:
        path = [name for name in self.path(gang.queue) if name in self._pooled]
        if not path:
            return _NOTHING
        pods = [(each.pod.pod_class, each.node) for each in (*gang.placed, *gang.leaving_placed)]
        return {name: self._charge_pools(self._pooled[name], pods) for name in path}

    def _of_user(self, account: str, held: Resources, *, gangs: int) -> Amounts:
        limits = self.limits_of(account)
        return {name: gangs if name == RUNNING_GANGS else held.get(name) for name in limits}

    def _charge_pools(self, names: Collection[str], pods: PlacedPods) -> Amounts:
        assert self._pools is not None, "nothing is counted by pools where there are none"
        amounts = dict.fromkeys(names, 0)
        for pod_class, node in pods:
            pool = self._pools.of_node(node)
            _charge(amounts, pod_class, pool, 1)
        return amounts

    def totals(self, rows: Sequence[int]) -> Amounts:
        """What some rows have of all dimensions that are counted."""
        if self._pools is None:
            return {}
        return self._pools.totals(rows, sorted({*chain.from_iterable(self._pooled.values())}))

    # -- what is asked for -----------------------------------------------------------------
    def charges(
        self, gang: GangKey, path: Sequence[str], pods: PlacedPods
    ) -> Iterator[tuple[str, Amounts]]:
        """What pods of a gang will hold once they are bound, by account.

        Args:
            gang: of which they are.
            path: names of its queue and the queues above it.
            pods: with their nodes.
        """
        requests = total(pod_class.charged for pod_class, _ in pods)
        for name in path:
            amounts = {each: requests.get(each) for each in self.counted.get(name, ())}
            if name in self._pooled:
                amounts |= self._charge_pools(self._pooled[name], pods)
            yield name, amounts
        known = self._waiting.get(gang)
        if known is not None:
            for account in known.accounts:
                yield account, self._of_user(account, requests, gangs=int(not known.placed))
            if known.is_lasting:
                yield from self._lasting(known, requests)

    def asked(
        self, gang: Gang, members: Sequence[tuple[PodClass, int]], left: Left, *, crowded: bool
    ) -> dict[str, Amounts]:
        """What members of a gang that waits will hold, by account.

        Where they may be in several node pools they are counted in those of which most is left, as nobody knows
        yet where they will be; in none where they may be on nodes that no pool limits, unless those are full.

        Args:
            gang: of which they are.
            members: classes of pods, and how many of each.
            left: of limits, in all shards together.
            crowded: whether nodes that no pool limits are full.
        """
        requests = total_of(members)
        path = self.path(gang.queue)
        found = {
            name: {each: requests.get(each) for each in self.counted.get(name, ())} for name in path
        }
        for name, amounts in self.asked_in_pools(gang, members, left, crowded=crowded):
            found[name] |= amounts
        for account in gang.accounts:
            if amounts := self._of_user(account, requests, gangs=int(not gang.placed)):
                found[account] = amounts
        if gang.is_lasting:
            found.update(self._lasting(gang, requests))
        return found

    def asked_in_pools(
        self, gang: Gang, members: Sequence[tuple[PodClass, int]], left: Left, *, crowded: bool
    ) -> Iterator[tuple[str, Amounts]]:
        """The part of it in node pools, by queue."""
        queues = [name for name in self.path(gang.queue) if name in self._pooled]
        if not queues or self._pools is None:
            return
        asked = {name: dict.fromkeys(self._pooled[name], 0) for name in queues}
        for pod_class, count in members:
            for pool, part in self._by_pool(queues, pod_class, count, left, crowded=crowded):
                for amounts in asked.values():
                    _charge(amounts, pod_class, pool, part)
        yield from asked.items()

    def confined_to_pools(self, gang: Gang) -> Iterator[tuple[str, Amounts]]:
        """What members of a gang will hold that may be in one node pool each alone, by queue."""
        if self._pools is None:
            return
        for name in self.path(gang.queue):
            names = self._pooled.get(name)
            amounts = dict.fromkeys(names or (), 0)
            for pod_class, count in members_waiting(gang) if names else ():
                pools = self._pools.of_class(pod_class)
                _charge(amounts, pod_class, pools[0] if len(pools) == 1 else "", count)
            if amounts:
                yield name, amounts

    def _by_pool(
        self,
        queues: Sequence[str],
        pod_class: PodClass,
        count: int,
        left: Left,
        *,
        crowded: bool,
    ) -> list[tuple[str, int]]:
        """How many members of a class are counted in which node pool."""
        assert self._pools is not None, "nothing is counted by pools where there are none"
        rooms, unlimited = [], False
        for pool in self._pools.of_class(pod_class):
            fits = [
                max(0, left(queue, name)) // amount
                for queue in queues
                for resource, amount in pod_class.charged.items
                if amount and (name := dimension(resource, pool)) in self.limits.get(queue, {})
            ]
            unlimited = unlimited or not fits
            if fits:
                rooms.append((-min(fits), pool))
        if unlimited and not crowded:
            return []
        parts: dict[str, int] = {}
        for room, pool in sorted(rooms):
            part = parts[pool] = min(count, -room)
            count -= part
        if rooms and count and not unlimited:  # more than is left: they wait for the first one
            parts[min(rooms)[1]] += count
        return list(parts.items())


_NOTHING: Final[Mapping[str, Amounts]] = MappingProxyType({})


def _charge(amounts: Amounts, pod_class: PodClass, pool: str, count: int) -> None:
    """Add pods of a class in a pool to the dimensions that there are."""
    for resource, amount in pod_class.charged.items if pool else ():
        name = dimension(resource, pool)
        if name in amounts:
            amounts[name] += amount * count


def lasting_amounts(gang: Gang) -> Resources:
    """What a gang that is not preemptible holds, without what may be evicted of it and what leaves."""
    staying = less(gang.allocated, gang.leaving_allocated)
    return less(staying, smallest_extras(gang)) if gang.gives_extras else staying


def total_of(members: Sequence[tuple[PodClass, int]]) -> Resources:
    """What so many pods of each class request."""
    requests = NOTHING
    for pod_class, count in members:
        requests = requests.plus(pod_class.charged, times=count)
    return requests


def members_at_start(gang: Gang) -> list[tuple[PodClass, int]]:
    """Classes of the members that a gang starts with, those with most GPUs first, and how many of each."""
    left, found = gang.members_at_start, []
    for pod_set in sorted(gang.pod_sets, key=lambda each: each.pod_class.gpus, reverse=True):
        count = min(left, len(pod_set.pods))
        left -= count
        if count:
            found.append((pod_set.pod_class, count))
    return found


def members_waiting(gang: Gang) -> list[tuple[PodClass, int]]:
    """Classes of all members that wait, and how many of each."""
    return [(each.pod_class, len(each.pods)) for each in gang.pod_sets]
