r"""Who holds what on which node: bound pods, foreign ones too, and our own assumptions.

    (nothing) --assume--> assumed --confirm, or seen bound--> confirmed --gone--> (nothing)
                             \--forget--> (nothing)

An assumption never expires by time: it is confirmed, forgotten, or contradicted by the API,
which is then right. The ledger is a function of what the API shows and of what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import attrs

from gpusched.limits import COLUMN_MAX
from gpusched.objects.meta import UID, Disbelief
from gpusched.objects.resources import Resources
from gpusched.objects.share import SHARED, Share, gpu_memory
from gpusched.objects.slot import gpu_request, mask_of, slot_ranges
from gpusched.objects.units import DEVICE, unit_of

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


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
        share: the part that it has of its one slot, None when it has whole ones.
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
    share: Share | None = None


@attrs.frozen(slots=True)
class NodeUse:
    """Sums over one node: amounts by resource, the slots that are free, and what will be free.

    A GPU with any share on it counts as used, and is not free. ``ours`` is the part of the
    amounts that pods of our queues hold; ``shared`` has what is taken of each slot that is shared,
    and the part of that which will be free, in thousandths.
    """

    amounts: dict[str, int]
    free_slots: int
    leaving: dict[str, int] = attrs.Factory(dict)
    ours: dict[str, int] = attrs.Factory(dict)
    shared: dict[int, tuple[int, int]] = attrs.Factory(dict)


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

    def use(
        self, node: str, allocatable: Resources, labels: Mapping[str, str] = NO_LABELS
    ) -> NodeUse:
        """The sums of a node that offers so much.

        GPUs whose slots nobody knows are taken from the top, so that named slots, which we
        give from the bottom, meet them last. Where fewer slots are free than the count says
        (two pods claim one, or a claim lies outside), the missing ones count as used.

        Args:
            node: its name.
            allocatable: of the node.
            labels: of the node, which say how much memory its GPUs have.
        """
        sums = _Sums()
        for holding in self._by_node.get(node, {}).values():
            sums.take(holding)
        amounts = sums.amounts
        if sums.full:
            return NodeUse({**amounts, **dict(allocatable.items)}, 0, ours=sums.ours)
        ranges = slot_ranges(allocatable)
        if sums.shares:
            sums.take_shared(ranges.get(SHARED, range(0)), gpu_memory(labels))
        free = 0
        unknown = sums.unknown
        for gpu, numbers in ranges.items():
            left = mask_of(numbers) & ~sums.taken
            for number in reversed(numbers):
                if unknown.get(gpu, 0) <= 0:
                    break
                if left >> number & 1:
                    left &= ~(1 << number)
                    unknown[gpu] -= 1
            free |= left
            gone = (len(numbers) - left.bit_count()) * unit_of(gpu)
            amounts[gpu] = max(amounts.get(gpu, 0), gone)
        return NodeUse(amounts, free, sums.leaving, sums.ours, sums.shared)


class _Sums:
    """What is added up over the holdings of one node."""

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self.leaving: dict[str, int] = {}
        self.ours: dict[str, int] = {}
        self.taken = 0
        self.unknown: dict[str, int] = {}
        self.full = False
        self.shared: dict[int, tuple[int, int]] = {}
        self.shares: list[Holding] = []

    def take(self, holding: Holding) -> None:
        """One more pod."""
        if holding.requests is None:
            self.full = True
            return
        if holding.share is not None:
            self.shares.append(holding)
        amounts, leaving, ours = self.amounts, self.leaving, self.ours
        for name, amount in holding.requests.items:
            if name == SHARED and holding.share is not None:
                continue
            amounts[name] = min(COLUMN_MAX, amounts.get(name, 0) + amount)
            if holding.leaving:
                leaving[name] = min(COLUMN_MAX, leaving.get(name, 0) + amount)
            if holding.ours:
                ours[name] = min(COLUMN_MAX, ours.get(name, 0) + amount)
        if holding.share is None:
            self.taken |= holding.slots
            if holding.gpus and not holding.slots:
                self.unknown[holding.gpu] = self.unknown.get(holding.gpu, 0) + holding.gpus

    def take_shared(self, numbers: range, gpu_memory: int) -> None:
        """Shares, which open the slots that they are on; called once, with the shared slots.

        One whose slot nobody knows has a GPU for itself. A slot that is taken as a whole too has
        no room for another share.
        """
        ours: set[int] = set()
        for holding in self.shares:
            slot = holding.slots.bit_length() - 1
            if holding.slots.bit_count() != 1 or slot not in numbers:
                self.taken |= holding.slots
                self.unknown[SHARED] = self.unknown.get(SHARED, 0) + 1
                self._add(SHARED, DEVICE, leaving=holding.leaving, ours=holding.ours)
                continue
            assert holding.share is not None
            part = holding.share.of(gpu_memory) or DEVICE
            twice = DEVICE if self.taken >> slot & 1 else 0
            now, going = self.shared.get(slot, (twice, 0))
            self.shared[slot] = (now + part, going + part * holding.leaving)
            if holding.ours:
                ours.add(slot)
        for slot, (now, going) in sorted(self.shared.items()):
            self._add(SHARED, DEVICE, leaving=now == going, ours=slot in ours)
        self.taken |= mask_of(tuple(self.shared))

    def _add(self, name: str, amount: int, *, leaving: bool, ours: bool) -> None:
        self.amounts[name] = min(COLUMN_MAX, self.amounts.get(name, 0) + amount)
        if leaving:
            self.leaving[name] = min(COLUMN_MAX, self.leaving.get(name, 0) + amount)
        if ours:
            self.ours[name] = min(COLUMN_MAX, self.ours.get(name, 0) + amount)


def gpus_of(requests: Resources | None) -> tuple[str, int]:
    """The GPUs of a pod that cannot be believed; two kinds at once stay amounts without slots."""
    try:
        return gpu_request(requests) if requests is not None else ("", 0)
    except Disbelief:
        return "", 0
