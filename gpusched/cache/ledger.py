r"""Who holds what on which node: bound pods, foreign ones too, and our own assumptions.

    (nothing) --assume--> assumed --confirm, or seen bound--> confirmed --gone--> (nothing)
                             \--forget--> (nothing)

An assumption never expires by time: it is confirmed, forgotten, or contradicted by the API,
which is then right. The ledger is a function of what the API shows and of what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import attrs

from gpusched.limits import COLUMN_MAX
from gpusched.objects.meta import UID, Disbelief
from gpusched.objects.resources import Resources
from gpusched.objects.slot import gpu_request, mask_of, slot_ranges
from gpusched.objects.units import unit_of


class Hold(Enum):
    """How sure a holding is."""

    ASSUMED = "assumed"
    CONFIRMED = "confirmed"


@attrs.frozen(slots=True, kw_only=True)
class Holding:
    """What one pod takes on one node.

    Attributes:
        requests: None when it cannot be read: the node then counts as full.
        gpu, gpus: which kind of GPU and how many.
        slots: bitmask; 0 with ``gpus`` above 0 means that nobody knows which.
        leaving: whether the pod is being deleted, so that its room will be free.
        ours: whether a queue of ours is charged with it.
    """

    uid: UID
    node: str
    requests: Resources | None
    gpu: str
    gpus: int
    slots: int
    hold: Hold
    leaving: bool = False
    ours: bool = False


@attrs.frozen(slots=True)
class NodeUse:
    """Sums over one node: amounts by resource, the slots that are free, and what will be free.

    ``ours`` is the part of the amounts that queues of ours are charged with.
    """

    amounts: dict[str, int]
    free_slots: int
    leaving: dict[str, int] = attrs.Factory(dict)
    ours: dict[str, int] = attrs.Factory(dict)


class Ledger:
    """All holdings by pod and by node. ``dirty`` collects nodes whose sums changed."""

    def __init__(self) -> None:
        self._holdings: dict[UID, Holding] = {}
        self._by_node: dict[str, dict[UID, Holding]] = {}
        self.dirty: set[str] = set()

    def get(self, uid: UID) -> Holding | None:
        """What a pod holds."""
        return self._holdings.get(uid)

    def put(self, holding: Holding) -> None:
        """Enter or replace what a pod holds."""
        known = self._holdings.get(holding.uid)
        if known == holding:
            return
        if known is not None:
            self.drop(holding.uid)
        self._holdings[holding.uid] = holding
        self._by_node.setdefault(holding.node, {})[holding.uid] = holding
        self.dirty.add(holding.node)

    def drop(self, uid: UID) -> None:
        """A pod holds nothing any more; unknown pods never did."""
        holding = self._holdings.pop(uid, None)
        if holding is None:
            return
        on_node = self._by_node[holding.node]
        del on_node[uid]
        if not on_node:
            del self._by_node[holding.node]
        self.dirty.add(holding.node)

    def nodes(self) -> set[str]:
        """Names of all nodes on which something is held."""
        return set(self._by_node)

    def on(self, node: str) -> list[Holding]:
        """What is held on a node, sorted by UID."""
        return [holding for _, holding in sorted(self._by_node.get(node, {}).items())]

    def uids_on(self, node: str) -> Iterable[UID]:
        """Who holds anything on a node, in any order."""
        return self._by_node.get(node, {})

    def use(self, node: str, allocatable: Resources) -> NodeUse:
        """The sums of a node that offers so much.

        GPUs whose slots nobody knows are taken from the top, so that named slots, which we
        give from the bottom, meet them last. Where fewer slots are free than the count says
        (two pods claim one, or a claim lies outside), the missing ones count as used.
        """
        amounts: dict[str, int] = {}
        taken = 0
        unknown: dict[str, int] = {}
        full = False
        leaving: dict[str, int] = {}
        ours: dict[str, int] = {}
        for holding in self._by_node.get(node, {}).values():
            if holding.requests is None:
                full = True
                continue
            for name, amount in holding.requests.items:
                amounts[name] = min(COLUMN_MAX, amounts.get(name, 0) + amount)
                if holding.leaving:
                    leaving[name] = min(COLUMN_MAX, leaving.get(name, 0) + amount)
                if holding.ours:
                    ours[name] = min(COLUMN_MAX, ours.get(name, 0) + amount)
            taken |= holding.slots
            if holding.gpus and not holding.slots:
                unknown[holding.gpu] = unknown.get(holding.gpu, 0) + holding.gpus
        if full:
            return NodeUse({**amounts, **dict(allocatable.items)}, 0, ours=ours)
        free = 0
        for gpu, numbers in slot_ranges(allocatable).items():
            left = mask_of(numbers) & ~taken
            for number in reversed(numbers):
                if unknown.get(gpu, 0) <= 0:
                    break
                if left >> number & 1:
                    left &= ~(1 << number)
                    unknown[gpu] -= 1
            free |= left
            gone = (len(numbers) - left.bit_count()) * unit_of(gpu)
            amounts[gpu] = max(amounts.get(gpu, 0), gone)
        return NodeUse(amounts, free, leaving, ours)


def gpus_of(requests: Resources | None) -> tuple[str, int]:
    """The GPUs of a pod that cannot be believed; two kinds at once stay amounts without slots."""
    try:
        return gpu_request(requests) if requests is not None else ("", 0)
    except Disbelief:
        return "", 0
