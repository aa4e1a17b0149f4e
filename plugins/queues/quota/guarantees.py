"""Room that stays free for queues to which it is guaranteed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs

from gpusched.plugin import (
    ALLOW,
    Gang,
    Reason,
    Resources,
    Verdict,
    View,
    format_quantity,
    wait,
)

ROOT = "root"
Held = Callable[[str], Resources]


@attrs.frozen
class _QuotaCharge:
    """Amount of a resource charged to a path, on top of what its queues use."""

    resource: str
    need: int
    path: frozenset[str]
    held: Held
    devices: Callable[[], str] = str

    def holds(self, queue: str) -> int:
        """Amounts that a queue's subtree uses without the charge."""
        return self.held(queue).get(self.resource)


def _holds_nothing(_queue: str) -> Resources:
    return Resources()


class Guarantees:
    """Room that stays free for queues that use less than is guaranteed to them.

    Args:
        view: of the session.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._total = dict(view.total().items)
        self._names: dict[str, set[str]] = {}
        """By resource, queues with a guarantee of it and all queues above those."""
        for node in view.queues():
            for resource, amount in node.guarantee.items:
                if amount and not node.error:
                    self._names.setdefault(resource, set()).update(node.path)

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return bool(self._names)

    def keep(self, gang: Gang, asked: Resources, held: Held) -> Verdict:
        """Whether the gang leaves enough for every guarantee of another queue."""
        node = self._view.queue(gang.queue)
        if node is None or not node.rooted or not self._names:
            return ALLOW
        for resource, need in asked.items:
            if not need or resource not in self._names:
                continue
            devices = partial(self._view.devices_text, gang, resource)
            charge = _QuotaCharge(resource, need, frozenset(node.path), held, devices)
            verdict = self._room(charge, node.path)
            if verdict.refuses:
                return verdict
        return ALLOW

    def short(self, gang: Gang) -> Iterator[tuple[str, str, int]]:
        """Queues, resources, and how much must leave there so that the guarantees of others stand."""
        node = self._view.queue(gang.queue)
        asked = self._view.minimum(gang)
        for resource, need in asked.items if node is not None and node.rooted else ():
            if not need or resource not in self._names or node is None:
                continue
            charge = _QuotaCharge(resource, need, frozenset(node.path), self._view.staying)
            for name, missing in self._missing(charge, node.path):
                yield name, resource, missing

    def _missing(self, charge: _QuotaCharge, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        for name, used, limit in self._levels(charge, path):
            kept, _ = self._kept_free(name, charge)
            missing = used + charge.need + kept - limit
            own = self._kept_free(name, attrs.evolve(charge, need=0))[0]
            if kept and missing > 0 and charge.need + kept > own:
                yield name, missing

    def _levels(self, charge: _QuotaCharge, path: tuple[str, ...]) -> list[tuple[str, int, int]]:
        """Queues with a limit, the root first: what is used of it, and the limit."""
        resource, view = charge.resource, self._view
        top, total = sum(map(charge.holds, view.children(ROOT))), self._total.get(resource, 0)
        if charge.need + self._kept_free(ROOT, charge)[0] > total:
            # Not even were all nodes here free: what is guaranteed can be had in other shards, where there are some.
            total += view.free_in_other_shards().get(resource)
        levels = [(ROOT, top, total)]
        for name in path:
            node = self._view.queue(name)
            if node is not None and resource in node.queue.capability:
                levels.append((name, charge.holds(name), node.queue.capability.get(resource)))
        return levels

    def _room(self, charge: _QuotaCharge, path: tuple[str, ...]) -> Verdict:
        """Check at each level that what is used and what is guaranteed to others fit into what there is."""
        resource, need = charge.resource, charge.need
        for name, used, limit in self._levels(charge, path):
            kept, owner = self._kept_free(name, charge)
            if not kept or used + need + kept <= limit:
                continue
            if need + kept <= self._kept_free(name, attrs.evolve(charge, need=0))[0]:
                continue  # It takes nothing but what is kept for its own queues.
            empty = attrs.evolve(charge, held=_holds_nothing)
            kept_at_rest, owner_at_rest = self._kept_free(name, empty)
            own = self._kept_free(name, attrs.evolve(empty, need=0))[0]
            if need + kept_at_rest > max(limit, own):
                return wait(
                    Reason.QUOTA_EXCEEDED,
                    "needs {need} {resource}{devices}; of the {limit} of queue {name}, {kept} are guaranteed to "
                    "others, the most to queue {owner}",
                    need=format_quantity(need, resource=resource),
                    resource=resource,
                    devices=charge.devices(),
                    limit=format_quantity(limit, resource=resource),
                    name=name,
                    kept=format_quantity(kept_at_rest, resource=resource),
                    owner=owner_at_rest,
                )
            return wait(
                Reason.WAITING_FOR_QUOTA,
                "needs {need} {resource}{devices}; of the {limit} of queue {name}, {used} are held and "
                "{kept} are kept free, the most for the guarantee of queue {owner}",
                need=format_quantity(need, resource=resource),
                resource=resource,
                devices=charge.devices(),
                limit=format_quantity(limit, resource=resource),
                name=name,
                used=format_quantity(used, resource=resource),
                kept=format_quantity(kept, resource=resource),
                owner=owner,
            )
        return ALLOW

    def _kept_free(self, parent: str, charge: _QuotaCharge) -> tuple[int, str]:
        """Amount that stays free below a queue once the charge is made, and the queue with most of it."""
        total, most, owner = 0, 0, ""
        concerned = self._names[charge.resource]
        for name in self._view.children(parent):
            if name not in concerned:
                continue
            below, whose = self._kept_free(name, charge)
            node = self._view.queue(name)
            own = node.guarantee.get(charge.resource) if node is not None else 0
            missing = own - charge.holds(name) - (charge.need if name in charge.path else 0)
            if missing > below:
                below, whose = missing, name
            total += below
            if below > most:
                most, owner = below, whose
        return total, owner
