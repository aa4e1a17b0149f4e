"""Which of equal devices lie together: best fit, level by level, as for GPU slots inside a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from gpusched.api.devices.dynamic.slices import AttributeSchema, Device
from gpusched.api.devices.published_devices import LINKS
from gpusched.devices.inventory import Pool, PoolDevice, PoolId
from gpusched.devices.usage import DeviceUsage

T = TypeVar("T")
Locality = tuple[str, ...]
"""Of a device, its value at each kind of link; empty where it has none."""


def locality_of(device: PoolDevice) -> Locality:
    """Values of the attributes that tell where a device is: NUMA node, socket, PCIe root, link domain."""
    if device.locality is None:
        device.locality = read_locality(device.device)
    return device.locality


def read_locality(device: Device) -> Locality:
    """The same of a device as its slice has it."""
    attributes = device.attributes
    found = []
    for place in link_places(device.schema):
        value = "" if place is None else attributes[place][1]
        found.append(str(value[0] if isinstance(value, tuple) and value else value))
    return tuple(found)


@lru_cache(maxsize=4096)
def link_places(schema: AttributeSchema) -> tuple[int | None, ...]:
    """For each kind of link the place of the attribute that tells it, None for none."""
    known = {name.rpartition("/")[2].lower(): place for place, name in enumerate(schema.names)}
    return tuple(next((known[name] for name in names if name in known), None) for names in LINKS)


def choose_near(
    items: Sequence[T],
    count: int,
    where: Callable[[T], Locality],
    *,
    beside: Collection[Locality] = (),
) -> list[T]:
    """So many of some items that lie together, in their order.

    At each level the group that has enough of them with the fewest narrower groups, of those the
    smallest; else whole groups, the largest first. Groups that are to be near come before others.

    Args:
        items: in the order in which they count where nothing else tells.
        count: of items to choose, no more than there are.
        where: locality of an item.
        beside: localities to be near to.
    """
    order = {id(item): number for number, item in enumerate(items)}
    chosen = _choose_items(list(items), count, where, 0, beside)
    return sorted(chosen, key=lambda item: order[id(item)])


def _choose_items(
    items: list[T],
    count: int,
    where: Callable[[T], Locality],
    level: int,
    beside: Collection[Locality],
) -> list[T]:
    if count >= len(items):
        return items
    if level == len(LINKS):
        return items[:count]
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(where(item)[level], []).append(item)
    if len(groups) == 1:
        return _choose_items(items, count, where, level + 1, beside)
    near = {each[level] for each in beside}
    listed = sorted(
        groups.items(), key=lambda group: group[0] not in near
    )  # stable: order of items
    enough = [(value, group) for value, group in listed if len(group) >= count]
    if enough:
        ways = [
            (value not in near, _count_spans(chosen, where), len(group), number, chosen)
            for number, (value, group) in enumerate(enough)
            for chosen in [_choose_items(group, count, where, level + 1, beside)]
        ]
        return min(ways)[-1]
    value, group = min(listed, key=lambda each: (each[0] not in near, -len(each[1])))
    rest = [item for other, each in groups.items() if other != value for item in each]
    return [*group, *_choose_items(rest, count - len(group), where, level, beside)]


def _count_spans(items: Sequence[T], where: Callable[[T], Locality]) -> int:
    """Groups of all levels that some items lie in."""
    return len({pair for item in items for pair in enumerate(where(item))})


class MovableDevice(Protocol):
    """A device that a search may exchange for another one; see ``candidates.Candidate``."""

    @property
    def number(self) -> int:
        """Place in the order of the search."""

    @property
    def kind(self) -> int:
        """What rules see of it; equal devices have equal ones."""

    @property
    def device(self) -> PoolDevice:
        """The device itself."""

    @property
    def pool(self) -> Pool:
        """The pool of the device."""


C = TypeVar("C", bound=MovableDevice)


class TakenDevice(Protocol, Generic[C]):
    """A device that a search has given to a claim, by the claim's number."""

    claim: int
    candidate: C


def move_together(
    taken: Sequence[TakenDevice[C]], candidates: Sequence[C], usage: DeviceUsage
) -> None:
    """Change what was given among equal whole devices so that those of a claim lie together.

    Devices of one kind and pool are the same to every rule of the search, so any of them serves
    whatever has one.

    Args:
        taken: by the search, in the order of the requests.
        candidates: of the search, in their order.
        usage: with what is taken; follows the changes.
    """
    of_sort: dict[tuple[int, PoolId], dict[int, list[TakenDevice[C]]]] = {}
    for each in taken:
        device = each.candidate.device.device
        if not (device.shareable or device.consumes):
            sort = (each.candidate.kind, each.candidate.pool.id)
            of_sort.setdefault(sort, {}).setdefault(each.claim, []).append(each)
    spare: dict[tuple[int, PoolId], list[C]] = {}
    for candidate in candidates if of_sort else ():
        sort = (candidate.kind, candidate.pool.id)
        if sort in of_sort and usage.find_holding(candidate.device.id) is None:
            spare.setdefault(sort, []).append(candidate)
    beside: dict[int, list[Locality]] = {}
    for sort, by_claim in of_sort.items():
        if sort in spare or len(by_claim) > 1:
            _move_sort(by_claim, spare.get(sort, []), beside, usage)
        for claim, entries in by_claim.items():
            near = beside.setdefault(claim, [])
            near += [locality_of(each.candidate.device) for each in entries]


def _move_sort(
    by_claim: dict[int, list[TakenDevice[C]]],
    spare: Sequence[C],
    beside: dict[int, list[Locality]],
    usage: DeviceUsage,
) -> None:
    """Choose devices of one sort anew, for the claims with most of them first."""
    every = [each for entries in by_claim.values() for each in entries]
    free = sorted([*spare, *(each.candidate for each in every)], key=lambda each: each.number)
    for each in every:
        usage.add_device(each.candidate.device.id, share=False, times=-1)
    for claim, entries in sorted(by_claim.items(), key=lambda each: (-len(each[1]), each[0])):
        chosen = choose_near(
            free,
            len(entries),
            lambda each: locality_of(each.device),
            beside=beside.get(claim, ()),
        )
        for entry, candidate in zip(entries, chosen, strict=True):
            entry.candidate = candidate
        left = {id(candidate) for candidate in chosen}
        free = [each for each in free if id(each) not in left]
    for each in every:
        usage.add_device(each.candidate.device.id, share=False)
