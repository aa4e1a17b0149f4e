"""The tree of queues. A bad queue freezes its own subtree and says why; the rest goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from gpusched.api.meta.identity import UID, Rejected, ResourceVersion
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.queue.queue import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from gpusched.base.classes import frozen
from gpusched.base.limits import TEXT_MAX
from gpusched.cache.queues.checks import (
    inherited_limit,
    limits_error,
    overcommitted_guarantees,
    queue_path,
    queue_warnings,
    unmet_guarantees,
)
from gpusched.cache.queues.node_pool_names import conflicting_pools_message, node_pool_labels
from gpusched.cache.queues.queues_here import ALL_HERE, QueuesHere, lasting_account

BUILT_IN = Queue(
    name=DEFAULT_QUEUE, uid=UID(""), resource_version=ResourceVersion(""), generation=0, created=0.0
)
"""The queue of gangs that name none; an object of that name replaces it."""


NO_ACCOUNTS: Final[Mapping[str, Resources]] = MappingProxyType({})


@frozen(slots=True, eq=False)
class QueueNode:
    """A queue in its place.

    Attributes:
        queue: with what it deserves and is guaranteed here.
        path: names from the queue itself up to, and without, ``root``.
        error: why nothing may start in it, empty when all is well.
        allocated: requests of pods with a place, of the whole subtree.
        leaving: the part of it that belongs to pods being deleted.
        guarantee: what is kept free for it; nothing where that cannot be kept.
        limit: the smallest capability on its path, for each resource that one names.
        fault: what is wrong with it although nothing is frozen; empty for nothing.
        warning: what its owner should know; empty for nothing.
        rooted: whether its path leads to ``root``, so that it has a part in what there is.
        held_elsewhere: amounts that pods of the whole subtree hold on nodes of other daemons' shards.
        elsewhere: the part of its capability, as a whole and in node pools, that is not to be used here.
        used_elsewhere: what shards of other daemons say that they use, by account: of the capability, by the name of
            the queue, of what users and groups may have, and by ``lasting_account`` of what it deserves.
        deserved_in_all: what it deserves in all shards together; nothing where the cluster is not divided.
        lasting_here: what of that gangs which are not preemptible may have here; None where that is what it
            deserves here.
        users_here: what users and groups may have here, by account, those without an entry nothing; None where all
            that the queue gives them is given here.
    """

    queue: Queue
    path: tuple[str, ...]
    leaf: bool
    error: str
    allocated: Resources
    leaving: Resources = NOTHING
    guarantee: Resources = NOTHING
    limit: Resources = NOTHING
    fault: str = ""
    warning: str = ""
    rooted: bool = True
    elsewhere: Resources = NOTHING
    users_here: Mapping[str, Resources] | None = None
    held_elsewhere: Resources = NOTHING
    deserved_in_all: Resources = NOTHING
    lasting_here: Resources | None = None
    used_elsewhere: Mapping[str, Resources] = NO_ACCOUNTS

    @property
    def lasting_account(self) -> str:
        """See ``used_elsewhere``."""
        return lasting_account(self.queue.name)

    def of_others(self, account: str, name: str, most: int, here: int) -> tuple[int, int]:
        """What shards of other daemons use of an account, and the rest of it that is not to be used here.

        Args:
            account: see ``used_elsewhere``.
            name: of a resource or dimension.
            most: that all shards together may use.
            here: the part of it that may be used here.
        """
        not_here = max(0, most - here)
        used = min(not_here, self.used_elsewhere.get(account, NOTHING).get(name))
        return used, not_here - used


@frozen(slots=True, eq=False)
class QueueTree:
    """Every queue by name, sorted.

    Attributes:
        below: names of the children of each queue that has some, and of ``root``, sorted;
            only queues that hang together with ``root``.
        total_elsewhere: allocatable of the nodes of other daemons' shards.
        free_elsewhere: the part of it that no pod has; nothing while no queue has a guarantee.
        tells_cluster: whether what is said once of a queue is written here.
    """

    queues: Mapping[str, QueueNode]
    below: Mapping[str, tuple[str, ...]] = attrs.Factory(dict)
    total_elsewhere: Resources = NOTHING
    free_elsewhere: Resources = NOTHING
    tells_cluster: bool = True

    @property
    def is_part(self) -> bool:
        """Whether other daemons have nodes, so that amounts are those of some shards alone."""
        return bool(self.total_elsewhere)

    def get(self, name: str) -> QueueNode | None:
        """The queue of that name."""
        return self.queues.get(name)

    def path(self, name: str) -> tuple[str, ...]:
        """Names from a queue up to, and without, ``root``; none where there is no such queue."""
        node = self.queues.get(name)
        return node.path if node is not None else ()


def _accounts_to_show(
    accounts: Mapping[str, Mapping[str, Resources]], queue: str
) -> Mapping[str, Resources] | None:
    """Accounts of a queue, as plugins may read them."""
    return MappingProxyType(accounts[queue]) if queue in accounts else None


def build_tree(
    queues: Iterable[Queue],
    allocated: Mapping[str, Resources],
    rejected: Iterable[Rejected] = (),
    *,
    leaving: Mapping[str, Resources] | None = None,
    capacity: Resources = NOTHING,
    here: QueuesHere = ALL_HERE,
) -> QueueTree:
    """Put queues in their places.

    Whether a queue is in order is said of what its author wrote, and of the whole cluster: the same in every shard.

    Args:
        queues: as the API shows them, in any order.
        allocated: held by gangs that name the queue, by name.
        rejected: queues that cannot be believed; they keep their names, and nothing starts.
        leaving: the part of ``allocated`` that belongs to pods being deleted.
        capacity: allocatable of all nodes, for guarantees that exceed it.
        here: what this daemon has of them.
    """
    known = {queue.name: queue for queue in queues if queue.name != ROOT_QUEUE}
    bad = {each.key.name: each for each in rejected if each.key.name != ROOT_QUEUE}
    known.update((name, _stand_in(each)) for name, each in bad.items())
    known.setdefault(DEFAULT_QUEUE, BUILT_IN)
    paths = {name: queue_path(name, known) for name in sorted(known)}
    children: dict[str, list[Queue]] = {}
    for name, (_, astray) in paths.items():
        if not astray:
            children.setdefault(known[name].parent, []).append(known[name])
    void = unmet_guarantees(children.get(ROOT_QUEUE, ()), capacity.plus(here.total_elsewhere))
    refused, faults = _check_guarantees(known, children)
    errors = {name: _own_words(known[name], bad.get(name), refused) for name in paths}
    parents = {queue.parent for queue in known.values()}
    weightless = {name: _count_weightless(those) for name, those in children.items()}
    pools = node_pool_labels(known.values())
    held, going = (_up_the_tree(paths, each) for each in (allocated, leaving or {}))
    nodes: dict[str, QueueNode] = {}
    for name, (path, astray) in paths.items():
        queue = known[name]
        broken = next((errors[above] for above in path if errors[above]), "")
        limit = NOTHING if astray else _path_limit(path, known)
        odd = "" if astray else queue_warnings(
            queue, weightless=weightless[queue.parent], children=children.get(name, ()),
            held=held.get(name, NOTHING).plus(here.held_elsewhere.get(name, NOTHING)), limit=limit,
        )  # fmt: skip
        odd = "; ".join(told for told in (odd, conflicting_pools_message(queue, pools)) if told)
        share = queue if name in bad else here.shares.get(name, queue)
        nodes[name] = QueueNode(
            share, path, name not in parents, astray or broken,
            held.get(name, NOTHING), going.get(name, NOTHING),
            guarantee=NOTHING if astray or name in void or name in refused else share.guarantee,
            limit=limit, fault=(void.get(name) or faults.get(name, ""))[:TEXT_MAX],
            warning=odd[:TEXT_MAX], held_elsewhere=here.held_elsewhere.get(name, NOTHING),
            rooted=not astray, used_elsewhere=_accounts_to_show(here.used_elsewhere, name) or NO_ACCOUNTS,
            elsewhere=here.capped_elsewhere.get(name, NOTHING), users_here=_accounts_to_show(here.users, name),
            deserved_in_all=here.deserved_in_all(queue), lasting_here=here.lasting.get(name),
        )  # fmt: skip
    below = {name: tuple(each.name for each in those) for name, those in children.items()}
    return QueueTree(nodes, below, here.total_elsewhere, here.free_elsewhere, here.tells_cluster)


class QueueTrees:
    """Builds the tree of one snapshot after another: the same one, as long as it is made of the same."""

    def __init__(self) -> None:
        self._known: tuple[tuple[object, ...], QueueTree] | None = None

    def build(
        self,
        queues: Iterable[Queue],
        allocated: Mapping[str, Resources],
        rejected: Iterable[Rejected] = (),
        *,
        leaving: Mapping[str, Resources],
        capacity: Resources,
        here: QueuesHere,
    ) -> QueueTree:
        """The tree; see ``build_tree``."""
        made_of = ([*queues], allocated, [*rejected], leaving, capacity, here)
        if self._known is None or self._known[0] != made_of:
            tree = build_tree(
                made_of[0], allocated, made_of[2], leaving=leaving, capacity=capacity,
                here=here,
            )  # fmt: skip
            self._known = (made_of, tree)
        return self._known[1]


def _count_weightless(siblings: list[Queue]) -> int:
    """How many they are, if none of them has a weight."""
    return 0 if any(each.weight for each in siblings) else len(siblings)


def _stand_in(rejected: Rejected) -> Queue:
    return Queue(
        name=rejected.key.name,
        uid=rejected.uid,
        resource_version=rejected.resource_version,
        generation=rejected.generation,
        created=0.0,
    )


def _own_words(queue: Queue, rejected: Rejected | None, refused: Mapping[str, str]) -> str:
    """Why the queue and what is below it is frozen, for what is its own fault."""
    if rejected is not None:
        why = f"{rejected.field}: {rejected.why}"
        return f"queue {queue.name!r} cannot be used: {why}"[:TEXT_MAX]
    return (limits_error(queue) or refused.get(queue.name, ""))[:TEXT_MAX]


def _check_guarantees(
    known: Mapping[str, Queue], children: Mapping[str, list[Queue]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Queues frozen because their parent cannot guarantee it, and parents at fault for that."""
    refused: dict[str, str] = {}
    faults: dict[str, str] = {}
    for parent, those in sorted(children.items()):
        if parent == ROOT_QUEUE or not any(each.guarantee for each in those):
            continue
        out, told = overcommitted_guarantees(parent, known[parent].deserved, those)
        refused.update(out)
        if told:
            faults[parent] = told
    return refused, faults


def _up_the_tree(
    paths: Mapping[str, tuple[tuple[str, ...], str]], amounts: Mapping[str, Resources]
) -> dict[str, Resources]:
    sums: dict[str, Resources] = {}
    for name, (path, _) in paths.items():
        own = amounts.get(name)
        if own is None:
            continue
        for above in path:
            sums[above] = sums.get(above, NOTHING).plus(own)
    return sums


def _path_limit(path: tuple[str, ...], known: Mapping[str, Queue]) -> Resources:
    limit = NOTHING
    for name in reversed(path):
        limit = inherited_limit(known[name].capability, limit)
    return limit
