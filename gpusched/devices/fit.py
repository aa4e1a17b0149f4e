"""How many pods at once find devices on a node: of one sort, or of several that compete.

Answers are remembered for all nodes that have the same to offer, see ``node_signature``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import AllocationMode
from gpusched.base.classes import frozen
from gpusched.devices.allocator import (
    STEPS_MAX,
    Allocation,
    AllocationOutcome,
    allocate,
)
from gpusched.devices.inventory import (
    DeviceInventory,
    NodeDevices,
    Pool,
    PoolDevice,
    PoolId,
    ReachablePool,
)
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.search.candidates import looked_at_by
from gpusched.devices.search.given_devices import make_allocation
from gpusched.devices.search.node_signature import NodeSignature, signature_by
from gpusched.devices.selector_verdicts import LookedAt
from gpusched.devices.usage import DeviceUsage

_MAY_FIT: Final = frozenset({AllocationOutcome.ALLOCATED, AllocationOutcome.BOUNDED})
_ANSWERS_MAX: Final = 50_000
_ASKED_MAX: Final = 10_000


@frozen(slots=True)
class PodCount:
    """How many pods fit.

    Attributes:
        most: that are proven to fit together.
        bounded: whether more might, as the search for them was not finished.
        fault: why the claims cannot be judged, empty where they can.
    """

    most: int
    bounded: bool = False
    fault: str = ""


def count_pods(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    claims: Sequence[ReadyClaim],
    *,
    most: int,
    beside: Sequence[Sequence[ReadyClaim]] = (),
    steps_max: int = STEPS_MAX,
) -> PodCount:
    """How many pods with claims like these find devices on a node at the same time.

    The claims of fewer pods can be served wherever those of more can, so the number is found by halving.

    Args:
        inventory: with the classes.
        usage: of all devices.
        node: its devices.
        claims: of one pod.
        most: pods that are asked about.
        beside: claims of each of other pods that are served, too, with any devices.
        steps_max: devices that one search tries.
    """
    if not claims or most <= 0:
        return PodCount(max(0, most))

    others = [claim for own in beside for claim in own]
    places = _equal_pods(beside)

    def outcome(pods: int) -> Allocation:
        alike = [
            each + len(others) if each >= 0 else -1 for each in _equal_claims(len(claims), pods)
        ]
        return allocate(
            inventory,
            usage,
            node,
            [*others, *list(claims) * pods],
            alike=[*places, *alike],
            steps_max=steps_max,
            near=False,
        )

    found = outcome(most)
    low, high = 0, most
    if found.outcome is AllocationOutcome.ALLOCATED:
        return PodCount(most)
    while high - low > 1:
        middle = (low + high) // 2
        tried = outcome(middle)
        if tried.outcome is AllocationOutcome.ALLOCATED:
            low = middle
        else:
            high, found = middle, tried
    fault = found.message if found.outcome is AllocationOutcome.ERROR else ""
    return PodCount(low, found.outcome is AllocationOutcome.BOUNDED, fault)


def allocate_together(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    pods: Sequence[tuple[NodeDevices, Sequence[ReadyClaim]]],
) -> Allocation:
    """Devices for pods on several nodes that share some, or a proof that there is no way.

    Args:
        inventory: with the classes.
        usage: of all devices.
        pods: the node of each and its claims; claims for all devices are not served.

    Returns:
        Allocations of the claims of all pods, in their order.
    """
    claims = [each for _, own in pods for each in own]
    nodes = [node for node, own in pods for _ in own]
    alike = _alike_pods([(node.node, own) for node, own in pods])
    return allocate(
        inventory, usage, _union_of_nodes(nodes), claims, alike=alike, near=False, nodes=nodes
    )


def allocate_on_node(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    pods: Sequence[Sequence[ReadyClaim]],
) -> Allocation:
    """Devices for pods that may be unlike on one node, or a proof that there is no way.

    A search that ends early is tried again with the pods the other way round, and with equal ones side by
    side: claims that are hard to serve may stand last.

    Args:
        inventory: with the classes.
        usage: of all devices.
        node: its devices.
        pods: the claims of each.

    Returns:
        Allocations of the claims of all pods, in their order.
    """
    order = list(range(len(pods)))
    groups: dict[Hashable, int] = {}
    for own in pods:
        groups.setdefault(tuple([each.sort for each in own]), len(groups))
    by_group = sorted(
        order, key=lambda at: groups[tuple([each.sort for each in pods[at]])], reverse=True
    )
    for tried in (order, order[::-1], by_group):
        turned = [pods[at] for at in tried]
        found = allocate(
            inventory,
            usage,
            node,
            [each for own in turned for each in own],
            alike=_alike_pods([("", own) for own in turned]),
        )
        if found.outcome is not AllocationOutcome.BOUNDED:
            break
    if found.outcome is not AllocationOutcome.ALLOCATED:
        return found
    left = iter(found.claims)
    by_pod = {at: [next(left) for _ in pods[at]] for at in tried}
    return attrs.evolve(found, claims=tuple(each for at in order for each in by_pod[at]), given=())


def _alike_pods(pods: Sequence[tuple[str, Sequence[ReadyClaim]]]) -> list[int]:
    """For each claim that begins a pod the last equal pod's first claim before it; else -1.

    Args:
        pods: a word that sets some apart, and the claims of each.
    """
    alike: list[int] = []
    last: dict[Hashable, int] = {}
    for place, own in pods:
        start = len(alike)
        alike += [-1] * len(own)
        if own:
            key = (place, tuple([each.sort for each in own]))
            alike[start] = last.get(key, -1)
            last[key] = start
    return alike


def _union_of_nodes(nodes: Sequence[NodeDevices]) -> NodeDevices:
    """All that some nodes reach, each device once."""
    pools: dict[PoolId, tuple[Pool, dict[str, PoolDevice]]] = {}
    for node in {each.node: each for each in nodes}.values():
        for part in node.pools:
            _, devices = pools.setdefault(part.pool.id, (part.pool, {}))
            for device in part.devices:
                devices.setdefault(device.id.device, device)
    parts = [
        ReachablePool(pool, tuple(devices.values())) for _, (pool, devices) in sorted(pools.items())
    ]
    parts.sort(key=lambda each: each.pool.binding)
    return NodeDevices("", tuple(parts))


def most_by_devices(
    usage: DeviceUsage,
    node: NodeDevices,
    claims: Sequence[ReadyClaim],
    most: int,
    *,
    beside: Sequence[Sequence[ReadyClaim]] = (),
) -> int:
    """No more pods than this find devices: so many are free for requests that have no alternative.

    Args:
        usage: of all devices.
        node: its devices.
        claims: of one pod.
        most: pods that are asked about.
        beside: claims of each of other pods that are served, too.
    """
    needed = _count_needed(claims)
    others = _count_needed([claim for own in beside for claim in own])
    for selectors, count in needed.items():
        free = -others[selectors]
        for part in node.pools:
            for device in part.devices:
                if device.matches_selectors(selectors) is not False:
                    if device.device.shareable:
                        free = most * count
                        break
                    free += usage.find_holding(device.id) is None
        most = min(most, max(0, free) // max(1, count))
    return most


def _count_needed(claims: Sequence[ReadyClaim]) -> Counter[tuple[str, ...]]:
    """Devices that requests without an alternative need at least, by their selectors."""
    needed: Counter[tuple[str, ...]] = Counter()
    for claim in claims:
        for alternatives in claim.requests:
            request = alternatives[0].request
            if len(alternatives) == 1 and not request.admin:
                exact = request.mode is AllocationMode.EXACT
                needed[alternatives[0].selectors] += request.count if exact else 1
    return needed


def maximal_counts(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    kinds: Sequence[Sequence[ReadyClaim]],
    *,
    most: Sequence[int],
    once: Sequence[Mapping[str, ReadyClaim]] = (),
    steps_max: int = STEPS_MAX,
) -> tuple[tuple[int, ...], ...]:
    """The maximal counts of several kinds of pods that find devices on a node together.

    Args:
        inventory: with the classes.
        usage: of all devices.
        node: its devices.
        kinds: claims of one pod of each kind.
        most: pods of each kind that are asked about.
        once: claims that all pods of a kind share, by what tells them apart: served once where any pod
            of any kind that has them is there. Empty for none at all.
        steps_max: devices that one search tries; what is not found within them counts as fitting, so that
            what the counts rule out is proven.

    Returns:
        Counts by kind, none of them below another in every place, sorted. Every smaller count fits.
    """
    known: dict[tuple[int, ...], bool] = {}

    def fits(counts: tuple[int, ...]) -> bool:
        if counts not in known:
            shared: dict[str, ReadyClaim] = {}
            for of_kind, pods in zip(once, counts, strict=False):
                shared.update(of_kind if pods else {})
            claims = list(shared.values())
            alike = [-1] * len(claims)
            for kind, pods in zip(kinds, counts, strict=True):
                alike += [
                    each + len(claims) if each >= 0 else -1
                    for each in _equal_claims(len(kind), pods)
                ]
                claims += list(kind) * pods
            tried = allocate(
                inventory, usage, node, claims, alike=alike, steps_max=steps_max, near=False
            )
            known[counts] = tried.outcome in _MAY_FIT
        return known[counts]

    found: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...]) -> None:
        place = len(prefix)
        rest = len(kinds) - place - 1
        if place == len(kinds):
            if not any(all(a <= b for a, b in zip(prefix, held, strict=True)) for held in found):
                found.append(prefix)
            return
        for count in range(most[place], -1, -1):
            counts = (*prefix, count)
            if fits((*counts, *([0] * rest))):
                extend(counts)

    extend(())
    return tuple(sorted(_keep_maximal(found)))


def _keep_maximal(counts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [
        each
        for each in counts
        if not any(
            each != other and all(a <= b for a, b in zip(each, other, strict=True))
            for other in counts
        )
    ]


def _equal_claims(claims: int, pods: int) -> list[int]:
    """For the first claim of each pod the first claim of the pod before it."""
    found = [-1] * (claims * pods)
    for pod in range(1, pods if claims else 0):
        found[pod * claims] = (pod - 1) * claims
    return found


def _equal_pods(pods: Sequence[Sequence[ReadyClaim]]) -> list[int]:
    """For the first claim of each pod the first claim of an earlier one with equal claims."""
    found: list[int] = []
    last: dict[Hashable, int] = {}
    for claims in pods:
        specs = tuple([each.sort for each in claims])
        start = len(found)
        found += [-1] * len(claims)
        if claims:
            found[start] = last.get(specs, -1)
            last[specs] = start
    return found


# -- answers that nodes share ------------------------------------------------------------------
@frozen(slots=True, eq=False)
class AskedClaims:
    """Claims of one pod.

    Attributes:
        looked_at: what they look at of devices.
        number: that equal ones share.
    """

    claims: tuple[ReadyClaim, ...]
    looked_at: LookedAt
    number: int


class DeviceAnswers:
    """What nodes were found to hold, for all nodes that have the same and of which the same is taken.

    Good for as long as the classes of devices are the same.
    """

    def __init__(self) -> None:
        self.counts: dict[Hashable, PodCount] = {}
        self.mixes: dict[Hashable, tuple[tuple[int, ...], ...]] = {}
        self._allocations: dict[Hashable, Allocation] = {}
        self._numbers: dict[Hashable, int] = {}
        self._together: dict[tuple[int, ...], LookedAt] = {}

    def clear(self) -> None:
        """Forget all answers."""
        for each in (self.counts, self.mixes, self._allocations, self._numbers, self._together):
            each.clear()

    def trim(self) -> None:
        """Forget all answers where they have become too many, with the numbers of what was asked."""
        answers = len(self.counts) + len(self.mixes) + len(self._allocations)
        if answers > _ANSWERS_MAX or len(self._numbers) > _ASKED_MAX:
            self.clear()

    def make_asked(self, claims: tuple[ReadyClaim, ...]) -> AskedClaims:
        """Claims of one pod, ready to be asked about; not across ``trim``."""
        specs = tuple([each.sort for each in claims])
        number = self._numbers.setdefault(specs, len(self._numbers))
        return AskedClaims(claims, looked_at_by(claims), number)

    def allocate(
        self, inventory: DeviceInventory, usage: DeviceUsage, node: NodeDevices, asked: AskedClaims
    ) -> Allocation:
        """Devices for one pod, see ``allocator.allocate``; errors are not remembered, as they name devices."""
        signature = signature_by(inventory, usage, node, asked.looked_at)
        key = (asked.number, signature)
        known = self._allocations.get(key)
        if known is None:
            found = allocate(inventory, usage, node, asked.claims)
            if found.outcome is not AllocationOutcome.ERROR:
                self._allocations[key] = found
            return found
        if known.outcome is not AllocationOutcome.ALLOCATED:
            return known
        return Allocation(
            outcome=known.outcome,
            claims=tuple(
                [
                    make_allocation(node, given, before.configs)
                    for given, before in zip(known.given, known.claims, strict=True)
                ]
            ),
            given=known.given,
            ranks=known.ranks,
            steps=known.steps,
        )

    def count(
        self,
        inventory: DeviceInventory,
        usage: DeviceUsage,
        node: NodeDevices,
        asked: AskedClaims,
        *,
        most: int,
        beside: Sequence[AskedClaims] = (),
    ) -> PodCount:
        """How many pods find devices, see ``count_pods``."""
        others = tuple([each.number for each in beside])
        looked_at = self._looked_at((asked, *beside)) if beside else asked.looked_at
        signature = signature_by(inventory, usage, node, looked_at)
        key = (asked.number, signature, most, others)
        known = self.counts.get(key)
        if known is None:
            others_claims = [each.claims for each in beside]
            bound = most_by_devices(usage, node, asked.claims, most, beside=others_claims)
            known = count_pods(
                inventory, usage, node, asked.claims, most=bound, beside=others_claims
            )
            self.counts[key] = known
        return known

    def known_signature(
        self, usage: DeviceUsage, node: NodeDevices, asked: AskedClaims
    ) -> NodeSignature | None:
        """What a node has for claims and what is taken of it; None where it was never asked about."""
        kind = node.kinds.get(asked.looked_at)
        if kind is None:
            return None
        taken = []
        for part in node.pools:
            used = usage.find_pool(part.pool.id)
            taken.append(None if used is None else used.state_key(part))
        return kind, tuple(taken)

    def known_count(
        self, asked: AskedClaims, signature: NodeSignature, *, most: int
    ) -> PodCount | None:
        """What is remembered of how many pods find devices on nodes of a signature; None for nothing."""
        return self.counts.get((asked.number, signature, most, ()))

    def _looked_at(self, asked: Sequence[AskedClaims]) -> LookedAt:
        numbers = tuple([each.number for each in asked])
        known = self._together.get(numbers)
        if known is None:
            every = [claim for each in asked for claim in each.claims]
            known = self._together[numbers] = looked_at_by(every)
        return known
