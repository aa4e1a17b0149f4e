"""Sort keys of queues and gangs in one session, computed again when accounts have moved."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.session.framework.accounts.queue_accounts import QueueAccounts
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.sort_keys import SortKeyHook, parts_by_hook
from gpusched.session.state.equivalence import EquivalenceClasses
from gpusched.session.state.order.waiting_turns import WaitingOrder, WaitingTurn

_NOTHING_ALIKE: Final = SortKeyHook(lambda _gang: (), alike=True)
ServeAlike = Callable[[Gang, Callable[[Gang], bool], int], list[tuple[Gang, WaitingTurn]]]
"""Gangs that stand directly behind one, are alike, and are no more than a number, with their turns, which they have had then."""
_CachedKey = tuple[tuple[int, bool], Any]


class OrderKeys:
    """Sort keys of one session.

    Where a policy says that gangs of an equivalence class have the same key, it is computed once; one
    that cannot be computed is missing for its gang alone.

    Args:
        hooks: whose orders count.
        accounts: of the session; while their state is the same, so are all keys.
        kinds: equivalence classes of gangs.
        known_keys: keys by themselves, those of earlier sessions too.
    """

    def __init__(
        self,
        hooks: Hooks,
        accounts: QueueAccounts,
        kinds: EquivalenceClasses,
        known_keys: dict[Any, Any],
    ) -> None:
        self._hooks = hooks
        self._accounts = accounts
        self._kinds = kinds
        self._known_keys = known_keys
        self._gangs: dict[Hashable, _CachedKey] = {}
        self._queues: dict[Hashable, _CachedKey] = {}
        self._shared: dict[Hashable, _CachedKey] = {}
        self._failed: dict[Hashable, tuple[int, bool]] = {}
        """Gangs, alone or with their queue, without a key, and the accounts for which it failed."""
        self.serving: Callable[[Gang], WaitingTurn | None] | None = None
        """Tells the turn of the gang that is being served; None before the first."""
        self.serve_alike: ServeAlike | None = None
        """Serves those directly behind the gang that is being served; None before the first."""

    def waiting_order(self, turns: Sequence[WaitingTurn]) -> WaitingOrder:
        """Turns with the names of the policies that gave the parts of their keys."""
        return WaitingOrder(
            tuple(order.plugin for order in self._hooks.queue_orders),
            tuple(order.plugin for order in self._hooks.gang_orders),
            tuple(turns),
        )

    @cached_property
    def shared_by_class(self) -> bool:
        """Whether equal gangs have equal keys."""
        return all(order.alike for order in self._hooks.gang_orders)

    @cached_property
    def rests_on(self) -> tuple[Hashable, ...] | None:
        """All on which keys of gangs depend beside the gangs; None where some policy does not tell."""
        told = [order.rests_on and order.rests_on() for order in self._hooks.gang_orders]
        return None if None in told else tuple(told)

    @cached_property
    def queues_are_alike(self) -> bool:
        """Whether queues have equal keys with equal gangs."""
        return all(order.alike for order in self._hooks.queue_orders)

    def gang_key(self, gang: Gang) -> Any:
        """Key of a gang among those of its queue; None to leave it out of this session."""
        orders = self._hooks.gang_orders
        kind = self._kinds.class_of(gang)
        shared = kind is not None and self.shared_by_class
        item: Hashable = kind if shared else gang.key
        state = self._accounts.state_key()
        if self._failed and self._failed.get(gang.key) == state:
            return None
        known = self._gangs.get(item)
        if known is None or known[0] != state:
            key = (
                self._join_key(orders, kind, state, gang)
                if not shared
                else parts_by_hook(orders, gang)
            )
            if key is None:
                self._failed[gang.key] = state  # Others of its class are asked about.
                return None
            if shared:
                key = self._known_keys.setdefault(key, key)
            known = self._gangs[item] = (state, key)
        return known[1]

    def gang_keys(self, gangs: Iterable[Gang]) -> list[Any]:
        """Keys of gangs that are asked for together, each as ``gang_key`` gives it."""
        class_of, known = self._kinds.class_of, dict[Hashable, Any]()
        of_members = any(order.of_members for order in self._hooks.gang_orders)
        if self._failed or not self.shared_by_class:
            return [self.gang_key(gang) for gang in gangs]
        found = []
        for gang in gangs:
            kind = class_of(gang)
            about: Hashable | None = kind
            if kind is not None and kind.beside_members is not None and not of_members:
                about = kind.beside_members
            key = None if about is None else known.get(about)
            if key is None:
                key = self.gang_key(gang)
                if about is not None:
                    known[about] = key
            found.append(key)
        return found

    def queues_stay(self, gang: Gang, other: Gang, state: tuple[int, bool]) -> bool:
        """Whether keys of queues are the same with one gang and with another, and as they were in a state of the accounts."""
        kind = self._kinds.class_of(gang)
        return (
            kind is not None
            and kind is self._kinds.class_of(other)
            and not self._failed
            and self.queues_are_alike
            and state == self._accounts.state_key()
        )

    def queue_key(self, node: QueueNode, gang: Gang) -> Any:
        """Key of a queue among its siblings, given its next gang; None to leave it out."""
        orders = self._hooks.queue_orders
        kind = self._kinds.class_of(gang) if self.queues_are_alike else None
        item = (node.queue.name, gang.key if kind is None else kind)
        state = self._accounts.state_key()
        if self._failed and self._failed.get((node.queue.name, gang.key)) == state:
            return None
        known = self._queues.get(item)
        if known is None or known[0] != state:
            key = parts_by_hook(orders, node, gang)
            if key is None:
                self._failed[node.queue.name, gang.key] = state
                return None
            if kind is not None:
                key = self._known_keys.setdefault(key, key)
            known = self._queues[item] = (state, key)
        return known[1]

    def _join_key(
        self, orders: Sequence[SortKeyHook], kind: Hashable, state: tuple[int, bool], gang: Gang
    ) -> Any:
        """The key of one gang; parts that its class has in common are computed once."""
        if kind is None:
            return parts_by_hook(orders, gang)
        known = self._shared.get(kind)
        if known is None or known[0] != state:
            parts = parts_by_hook([each if each.alike else _NOTHING_ALIKE for each in orders], gang)
            if parts is None:
                return None
            known = self._shared[kind] = (state, parts)
        found: list[Any] = []
        for order, shared in zip(orders, known[1], strict=True):
            own = (shared,) if order.alike else parts_by_hook([order], gang)
            if own is None:
                return None
            found += own
        return tuple(found)
