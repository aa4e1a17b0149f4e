"""How many pods at once find devices on a node: of one sort, or of several that compete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs

from gpusched.api.devices.dynamic.claims import AllocationMode
from gpusched.devices.allocator import STEPS_MAX, Allocation, AllocationOutcome, allocate
from gpusched.devices.inventory import DeviceInventory, NodeDevices
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.usage import DeviceUsage


@attrs.frozen(slots=True)
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
    beside: Sequence[ReadyClaim] = (),
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
        beside: claims of other pods that are served, too, with any devices.
        steps_max: devices that one search tries.
    """
    if not claims or most <= 0:
        return PodCount(max(0, most))

    def outcome(pods: int) -> Allocation:
        alike = [each + len(beside) if each >= 0 else -1 for each in _alike(len(claims), pods)]
        return allocate(
            inventory,
            usage,
            node,
            [*beside, *list(claims) * pods],
            alike=[*([-1] * len(beside)), *alike],
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


def most_by_devices(
    usage: DeviceUsage, node: NodeDevices, claims: Sequence[ReadyClaim], most: int
) -> int:
    """No more pods than this find devices: so many are free for requests that have no alternative.

    Args:
        usage: of all devices.
        node: its devices.
        claims: of one pod.
        most: pods that are asked about.
    """
    needed: Counter[tuple[str, ...]] = Counter()
    for claim in claims:
        for alternatives in claim.requests:
            request = alternatives[0].request
            if len(alternatives) == 1 and not request.admin:
                exact = request.mode is AllocationMode.EXACT
                needed[alternatives[0].selectors] += request.count if exact else 1
    for selectors, count in needed.items():
        free = 0
        for part in node.pools:
            for device in part.devices:
                if device.selected(selectors) is not False:
                    if device.device.shareable:
                        free = most * count
                        break
                    free += usage.holding(device.id) is None
        most = min(most, free // max(1, count))
    return most


def mixes(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    kinds: Sequence[Sequence[ReadyClaim]],
    *,
    most: Sequence[int],
    steps_max: int = STEPS_MAX,
) -> tuple[tuple[int, ...], ...]:
    """The maximal counts of several kinds of pods that find devices on a node together.

    Args:
        inventory: with the classes.
        usage: of all devices.
        node: its devices.
        kinds: claims of one pod of each kind.
        most: pods of each kind that are asked about.
        steps_max: devices that one search tries; what is not found within them counts as none.

    Returns:
        Counts by kind, none of them below another in every place, sorted. Every smaller count fits.
    """
    known: dict[tuple[int, ...], bool] = {}

    def fits(counts: tuple[int, ...]) -> bool:
        if counts not in known:
            claims: list[ReadyClaim] = []
            alike: list[int] = []
            for kind, pods in zip(kinds, counts, strict=True):
                alike += [
                    each + len(claims) if each >= 0 else -1 for each in _alike(len(kind), pods)
                ]
                claims += list(kind) * pods
            known[counts] = (
                allocate(
                    inventory, usage, node, claims, alike=alike, steps_max=steps_max, near=False
                ).outcome
                is AllocationOutcome.ALLOCATED
            )
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
    return tuple(sorted(_maximal(found)))


def _maximal(counts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [
        each
        for each in counts
        if not any(
            each != other and all(a <= b for a, b in zip(each, other, strict=True))
            for other in counts
        )
    ]


def _alike(claims: int, pods: int) -> list[int]:
    """For the first claim of each pod the first claim of the pod before it."""
    found = [-1] * (claims * pods)
    for pod in range(1, pods):
        found[pod * claims] = (pod - 1) * claims
    return found
