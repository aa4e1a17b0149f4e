r"""Which pod holds what on which node: bound pods, foreign ones too, and our own assumptions.

    (nothing) --assume--> assumed --confirm, or seen bound--> confirmed --gone--> (nothing)
                             \--forget--> (nothing)

An assumption never expires by time: it is confirmed, forgotten, or contradicted by the API,
which is then right. The ledger is a function of what the API shows and of what is assumed.

Slots that we gave are sure: what is assumed, and what carries our seal. Of slots that a pod only
says it has those count that are not sure ones of others, and it is charged for as many as it asks
for: the rest of them is taken from what is left. So where the key of our seal was lost, no forged
claim makes us give away a slot that a pod truly has, and none takes more than it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import attrs
import msgspec

from gpusched.api.devices.gpu_share import GpuShare, gpu_memory_of_labels, shared_resource
from gpusched.api.devices.slots import gpu_request, slot_mask, slot_ranges
from gpusched.api.meta.identity import UID, InvalidObject
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.units import DEVICE, unit_of
from gpusched.base.classes import frozen
from gpusched.base.limits import COLUMN_MAX

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
NO_RANGES: Final[Mapping[str, range]] = MappingProxyType({})


class HoldingState(Enum):
    """How sure a holding is."""

    ASSUMED = "assumed"
    CONFIRMED = "confirmed"


CONFIRMED: Final = HoldingState.CONFIRMED
"""Looked up for each pod, which is slow for members of an enumeration before Python 3.12."""


class Holding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one pod takes on one node.

    A struct for the reasons for which a pod is one: there are as many.

    Attributes:
        requests: None when it cannot be read: the node then counts as full.
        gpu, gpus: which kind of GPU and how many.
        slots: bitmask; 0 with ``gpus`` above 0 means that they are unknown.
        sealed: whether it is sure that we gave it these slots.
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
    hold: HoldingState
    leaving: bool = False
    ours: bool = False
    sealed: bool = False
    share: GpuShare | None = None

    @property
    def doubted(self) -> bool:
        """Whether it has slots by its own word alone."""
        return self.slots != 0 and not self.sealed


@frozen(slots=True)
class NodeHoldings:
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

    def with_whole_gpus(self, holding: Holding, allocatable: Resources) -> NodeHoldings | None:
        """The sums with one more pod that has free slots and stays; None where all has to be added up again.

        GPUs whose slots are unknown are taken from the top of what is left, where this pod takes none.
        """
        gpu, slots, requests = holding.gpu, holding.slots, holding.requests
        own = slot_mask(slot_ranges(allocatable).get(gpu, range(0)))
        if (
            requests is None
            or holding.doubted
            or holding.share is not None
            or holding.leaving
            or not slots
            or slots & ~(self.free_slots & own)
            or slots.bit_count() != holding.gpus
            or requests.get(gpu) != holding.gpus * unit_of(gpu)
        ):
            return None
        amounts, ours = dict(self.amounts), dict(self.ours)
        for name, amount in requests.items:
            for sums in (amounts, ours) if holding.ours else (amounts,):
                sums[name] = min(COLUMN_MAX, sums.get(name, 0) + amount)
        return attrs.evolve(self, amounts=amounts, ours=ours, free_slots=self.free_slots & ~slots)


def _counts_alike(one: Holding, other: Holding) -> bool:
    """Whether two holdings add the same to a node, and no word of their own is in it."""
    if one.doubted or other.doubted:
        return False
    return msgspec.structs.replace(one, hold=other.hold, sealed=other.sealed) == other


class Ledger:
    """All holdings by pod and by node. ``dirty`` collects nodes whose sums changed."""

    def __init__(self) -> None:
        self._holdings: dict[UID, Holding] = {}
        self._by_node: dict[str, dict[UID, Holding]] = {}
        self._doubted: dict[str, set[UID]] = {}
        self._counted: dict[str, dict[UID, int]] = {}
        """What ``slots_of`` found on a node since it changed last."""
        self.dirty: set[str] = set()
        self._ahead: dict[str, tuple[Resources, Mapping[str, str], NodeHoldings]] = {}
        """Sums of nodes that ``sum_holdings`` is to be asked for next, as they are now."""

    def get(self, uid: UID) -> Holding | None:
        """What a pod holds."""
        return self._holdings.get(uid)

    def hold_pod(self, holding: Holding) -> None:
        """Enter or replace what a pod holds."""
        known = self._holdings.get(holding.uid)
        if known == holding:
            return
        ahead = self._ahead.get(holding.node)
        if known is not None:
            self.release_pod(holding.uid)
        self._counted.pop(holding.node, None)
        self._holdings[holding.uid] = holding
        self._by_node.setdefault(holding.node, {})[holding.uid] = holding
        if holding.doubted:
            self._doubted.setdefault(holding.node, set()).add(holding.uid)
        self._mark_dirty(holding.node)
        if ahead is not None:
            self._sum_again(ahead, known, holding)

    def _sum_again(
        self,
        ahead: tuple[Resources, Mapping[str, str], NodeHoldings],
        known: Holding | None,
        holding: Holding,
    ) -> None:
        """Keep the sums of a node where what became of one pod on it is seen at a glance."""
        allocatable, labels, sums = ahead
        if known is None and holding.node not in self._doubted:
            new = sums.with_whole_gpus(holding, allocatable)
        else:
            new = sums if known is not None and _counts_alike(known, holding) else None
        if new is not None:
            self._ahead[holding.node] = allocatable, labels, new

    def release_pod(self, uid: UID) -> None:
        """A pod holds nothing any more; unknown pods never did."""
        holding = self._holdings.pop(uid, None)
        if holding is None:
            return
        self._counted.pop(holding.node, None)
        on_node = self._by_node[holding.node]
        del on_node[uid]
        if not on_node:
            del self._by_node[holding.node]
        if holding.doubted:
            doubted = self._doubted[holding.node]
            doubted.discard(uid)
            if not doubted:
                del self._doubted[holding.node]
        self._mark_dirty(holding.node)

    def _mark_dirty(self, node: str) -> None:
        self.dirty.add(node)
        self._ahead.pop(node, None)

    def clear_marks(self) -> None:
        """All nodes are as they were summed last."""
        self.dirty.clear()
        self._ahead.clear()

    def node_names(self) -> set[str]:
        """Names of all nodes on which something is held."""
        return set(self._by_node)

    def holdings_on(self, node: str) -> list[Holding]:
        """What is held on a node, sorted by UID."""
        return [holding for _, holding in sorted(self._by_node.get(node, {}).items())]

    def uids_on(self, node: str) -> Iterable[UID]:
        """UIDs of pods that hold anything on a node, in any order."""
        return self._by_node.get(node, {})

    def doubted_on(self, node: str) -> Iterable[UID]:
        """Pods whose slots on a node count only while no other pod has a better claim, in any order."""
        return self._doubted.get(node, ())

    def slots_of(self, holding: Holding) -> int:
        """The slots of one that is held here; 0 when not all of them count for it alone."""
        if not holding.doubted:
            return holding.slots
        node = holding.node
        if node not in self._counted:
            self._counted[node] = self._believed_slots(node)
        believed = self._counted[node].get(holding.uid, 0)
        return believed if believed == holding.slots else 0

    def _believed_slots(self, node: str, ranges: Mapping[str, range] = NO_RANGES) -> dict[UID, int]:
        """The slots of all on a node that have them by their own word, as far as they count.

        Args:
            node: its name.
            ranges: its slots by the resource that they are pieces of, as far as they are known.
        """
        doubted = self._doubted.get(node)
        if not doubted:
            return {}
        here = self._by_node[node]
        whole = shared = 0
        for held in here.values():
            if not held.doubted and held.share is None:
                whole |= held.slots
            elif not held.doubted:
                shared |= held.slots
        found: dict[UID, int] = {}
        shares: list[Holding] = []
        for uid in sorted(doubted):
            held = here[uid]
            slots = held.slots & ~_slots_of_others(held, ranges)
            if held.share is not None:
                shares.append(msgspec.structs.replace(held, slots=slots))
                continue
            found[uid] = slots & ~(whole | shared)
            whole |= found[uid]
        return found | _believed_shares(shares, whole, shared)

    def sum_ahead(self, node: str, allocatable: Resources, labels: Mapping[str, str]) -> None:
        """Work out what ``sum_holdings`` will be asked."""
        self.look_up_sums(node, allocatable, labels)

    def look_up_sums(
        self, node: str, allocatable: Resources, labels: Mapping[str, str]
    ) -> NodeHoldings:
        """As ``sum_holdings``, for who will ask again before the next snapshot."""
        sums = self.sum_holdings(node, allocatable, labels)
        self._ahead[node] = allocatable, labels, sums
        return sums

    def sum_holdings(
        self, node: str, allocatable: Resources, labels: Mapping[str, str] = NO_LABELS
    ) -> NodeHoldings:
        """The sums of a node that offers so much.

        GPUs whose slots are unknown are taken from the top, so that named slots, which we
        give from the bottom, meet them last. Where fewer slots are free than the count says
        (two pods claim one, or a claim lies outside), the missing ones count as used.

        Args:
            node: its name.
            allocatable: of the node.
            labels: of the node, which say how much memory its GPUs have.
        """
        known = self._ahead.pop(node, None)
        if known is not None and known[0] is allocatable and known[1] is labels:
            return known[2]
        return self._sum_holdings(node, allocatable, labels)

    def _sum_holdings(
        self, node: str, allocatable: Resources, labels: Mapping[str, str]
    ) -> NodeHoldings:
        sums = _NodeSums()
        ranges = slot_ranges(allocatable)
        believed = self._believed_slots(node, ranges)
        for uid, holding in self._by_node.get(node, {}).items():
            if holding.doubted and believed[uid] != holding.slots:
                sums.add_holding(msgspec.structs.replace(holding, slots=believed[uid]))
            else:
                sums.add_holding(holding)
        sums.add_up()
        amounts = sums.amounts
        if sums.full:
            return NodeHoldings({**amounts, **dict(allocatable.items)}, 0, ours=sums.ours)
        if sums.shares:
            sums.take_shared(ranges.get(shared_resource(), range(0)), gpu_memory_of_labels(labels))
        free = 0
        unknown = sums.unknown
        for gpu, numbers in ranges.items():
            left = slot_mask(numbers) & ~sums.taken
            for number in reversed(numbers):
                if unknown.get(gpu, 0) <= 0:
                    break
                if left >> number & 1:
                    left &= ~(1 << number)
                    unknown[gpu] -= 1
            free |= left
            gone = (len(numbers) - left.bit_count()) * unit_of(gpu)
            amounts[gpu] = max(amounts.get(gpu, 0), gone)
        return NodeHoldings(amounts, free, sums.leaving, sums.ours, sums.shared)


class _NodeSums:
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
        self._alike: dict[tuple[int, bool, bool, bool], tuple[Holding, int]] = {}
        """One for all that count alike, with the same requests, and how many they are."""

    def add_holding(self, holding: Holding) -> None:
        """Add one pod's holding, whose amounts count once ``add_up`` is called."""
        if holding.requests is None:
            self.full = True
            return
        shared = holding.share is not None
        about = (id(holding.requests), holding.leaving, holding.ours, shared)
        known = self._alike.get(about)
        self._alike[about] = (holding, 1) if known is None else (known[0], known[1] + 1)
        if shared:
            self.shares.append(holding)
        else:
            self.taken |= holding.slots
            unknown = holding.gpus - holding.slots.bit_count()
            if unknown > 0:
                self.unknown[holding.gpu] = self.unknown.get(holding.gpu, 0) + unknown

    def add_up(self) -> None:
        """Count the amounts of all holdings; called once, when there are no more."""
        for holding, count in self._alike.values():
            assert holding.requests is not None
            for name, amount in holding.requests.items:
                if name != shared_resource() or holding.share is None:
                    self._add(name, amount * count, leaving=holding.leaving, ours=holding.ours)

    def take_shared(self, numbers: range, gpu_memory: int) -> None:
        """Shares, which open the slots that they are on; called once, with the shared slots.

        Shares whose slots are unknown have as many GPUs as they ask for together, rounded up. A
        slot that is taken as a whole too has no room for another share.
        """
        ours: set[int] = set()
        lost: list[Holding] = []
        for holding in self.shares:
            slot = holding.slots.bit_length() - 1
            if holding.slots.bit_count() != 1 or slot not in numbers:
                self.taken |= holding.slots
                lost.append(holding)
                continue
            assert holding.share is not None
            part = holding.share.thousandths_of(gpu_memory) or (DEVICE if holding.sealed else 0)
            if not part:
                continue  # no GPU here could give it, and nobody of us put it here
            twice = DEVICE if self.taken >> slot & 1 else 0
            now, going = self.shared.get(slot, (twice, 0))
            self.shared[slot] = (now + part, going + part * holding.leaving)
            if holding.ours:
                ours.add(slot)
        self._take_lost(lost, gpu_memory)
        for slot, (now, going) in sorted(self.shared.items()):
            self._add(shared_resource(), DEVICE, leaving=now == going, ours=slot in ours)
        self.taken |= slot_mask(tuple(self.shared))

    def _take_lost(self, shares: list[Holding], gpu_memory: int) -> None:
        """Shares whose slots are not known, packed; with one of them that stays, its GPU stays."""
        filled = 0
        for holding in sorted(shares, key=lambda each: (each.leaving, not each.ours, each.uid)):
            assert holding.share is not None
            before = -(-filled // DEVICE)
            filled += holding.share.thousandths_of(gpu_memory) or (DEVICE if holding.sealed else 0)
            if -(-filled // DEVICE) > before:
                self.unknown[shared_resource()] = self.unknown.get(shared_resource(), 0) + 1
                self._add(shared_resource(), DEVICE, leaving=holding.leaving, ours=holding.ours)

    def _add(self, name: str, amount: int, *, leaving: bool, ours: bool) -> None:
        self.amounts[name] = min(COLUMN_MAX, self.amounts.get(name, 0) + amount)
        if leaving:
            self.leaving[name] = min(COLUMN_MAX, self.leaving.get(name, 0) + amount)
        if ours:
            self.ours[name] = min(COLUMN_MAX, self.ours.get(name, 0) + amount)


def _slots_of_others(holding: Holding, ranges: Mapping[str, range]) -> int:
    """Slots of resources that a pod does not ask for: no word of its own makes them its own."""
    own = holding.gpu if holding.share is None else shared_resource()
    others = 0
    for gpu, numbers in ranges.items():
        if gpu != own:
            others |= slot_mask(numbers)
    return others


def _believed_shares(shares: Iterable[Holding], whole: int, shared: int) -> dict[UID, int]:
    """Slots of shares that have them by their own word: 0 for those that do not count.

    Together they open as many GPUs as they need when they are packed, those first of which most
    is claimed: where shares of ours left, the others of ours may be spread wider than that, and
    only their seal shows it.

    Args:
        shares: with the slots that they claim.
        whole: slots that are taken as a whole.
        shared: slots that are open for shares of which we know that we put them there.
    """
    found: dict[UID, int] = {}
    parts: dict[UID, int] = {}
    claimed: dict[int, int] = {}
    for held in shares:
        found[held.uid] = held.slots if held.slots & shared and not held.slots & whole else 0
        if found[held.uid]:
            continue
        price = (held.requests or NOTHING).get(shared_resource()) or DEVICE
        parts[held.uid] = min(DEVICE, price)
        if held.slots and not held.slots & whole:
            claimed[held.slots] = claimed.get(held.slots, 0) + parts[held.uid]
    needed = _gpus_when_packed(parts.values(), most=len(claimed))
    opened = set(sorted(claimed, key=lambda slots: (-claimed[slots], slots))[:needed])
    return found | {
        held.uid: held.slots for held in shares if held.uid in parts and held.slots in opened
    }


def _gpus_when_packed(parts: Iterable[int], *, most: int) -> int:
    """GPUs that hold these shares, in thousandths, up to ``most`` of them.

    By first fit decreasing (Johnson, 1973).
    """
    rooms: list[int] = []
    for part in sorted(parts, reverse=True):
        if len(rooms) >= most:
            break
        fitting = next((n for n, room in enumerate(rooms) if room >= part), None)
        if fitting is None:
            rooms.append(DEVICE - part)
        else:
            rooms[fitting] -= part
    return len(rooms)


def gpus_of(requests: Resources | None) -> tuple[str, int]:
    """The GPUs of a pod that cannot be believed; two kinds at once stay amounts without slots."""
    try:
        return gpu_request(requests) if requests is not None else ("", 0)
    except InvalidObject:
        return "", 0
