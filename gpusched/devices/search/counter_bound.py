"""Whether the counters of a node's devices can suffice at all: a bound that refuses without a search.

Devices that consume one counter set of one pool (the partitions of a GPU) are one part. For each part
the maximal numbers of devices of each kind that fit together are known exactly, by dynamic
programming over what is left of its counters; the parts are added up. Constraints, and requests for
all devices, are left out, so that the bound refuses only what can never be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from gpusched.api.devices.dynamic.claims import AllocationMode
from gpusched.base.classes import frozen
from gpusched.devices.inventory import Pool, PoolDevice
from gpusched.devices.requests import ReadyClaim
from gpusched.devices.selector_verdicts import Mismatch
from gpusched.devices.usage import DeviceUsage

_KINDS_MAX: Final = 4
_STATES_MAX: Final = 4_000
"""States of one part, and sums of parts, beyond which no bound is known."""
Counts = tuple[int, ...]
_Member = tuple[int, PoolDevice, Pool]
_Item = tuple[int, tuple[int, ...]]
"""A device: kinds that it can serve as bits, and what it takes of each counter."""


@frozen(slots=True)
class _Part:
    """Devices that share counters, in a form that equal parts have alike.

    Attributes:
        left: of each counter.
        items: the free devices, sorted.
    """

    left: tuple[int, ...]
    items: tuple[_Item, ...]


def counters_suffice(
    claims: Sequence[ReadyClaim],
    devices: Iterable[tuple[PoolDevice, Pool]],
    usage: DeviceUsage,
) -> bool:
    """False where no choice of devices serves all claims; True says nothing.

    Args:
        claims: that are to be served together.
        devices: that the node can use.
        usage: of all devices.
    """
    needed = _count_needed(claims)
    if not needed or len(needed) > _KINDS_MAX:
        return True
    kinds, caps = list(needed), tuple(needed.values())
    parts: dict[tuple[object, ...], list[_Member]] = {}
    single: Counter[int] = Counter()
    for device, pool in devices:
        serves = _served_kinds(device, kinds)
        if serves == 0:
            continue
        if serves is None:
            return True
        if device.device.shareable or len(device.device.consumes) > 1:
            return True
        if usage.find_holding(device.id) is not None:
            continue
        if device.device.consumes:
            key = (pool.id, device.device.consumes[0].name)
            parts.setdefault(key, []).append((serves, device, pool))
        else:
            single[serves] += 1
    if not parts:
        return True
    sums = _sums_of_single(single, caps)
    for members in parts.values():
        found = None if sums is None else _maximal_of_part(_build_part(members, usage), caps)
        if sums is None or found is None:
            return True
        sums = _add_counts(sums, found, caps)
    return sums is None or any(each == caps for each in sums)


def _served_kinds(device: PoolDevice, kinds: Sequence[tuple[tuple[str, ...], ...]]) -> int | None:
    """Kinds that a device can serve, as bits; None where a selector has no value for it."""
    serves = 0
    for number, alternatives in enumerate(kinds):
        for selectors in alternatives:
            answer = device.matches_selectors(selectors)
            if isinstance(answer, Mismatch):
                return None
            serves |= bool(answer) << number
    return serves


def _count_needed(claims: Sequence[ReadyClaim]) -> Counter[tuple[tuple[str, ...], ...]]:
    """Devices that are needed at least, by the selectors of all alternatives."""
    needed: Counter[tuple[tuple[str, ...], ...]] = Counter()
    for claim in claims:
        for alternatives in claim.requests:
            plain = all(
                each.request.mode is AllocationMode.EXACT and not each.request.admin
                for each in alternatives
            )
            if plain:
                kind = tuple(dict.fromkeys(each.selectors for each in alternatives))
                needed[kind] += min(each.request.count for each in alternatives)
    return needed


def _build_part(members: Sequence[_Member], usage: DeviceUsage) -> _Part:
    consumed = members[0][1].device.consumes[0].name
    names = sorted({
        name for _, device, _ in members for name, _ in device.device.consumes[0].counters
    })  # fmt: skip
    pool = members[0][2]
    left = tuple(
        pool.counters[consumed, name] - usage.consumed_counter(pool.id, consumed, name)
        for name in names
    )
    items = []
    for serves, device, _ in members:
        takes = dict(device.device.consumes[0].counters)
        items.append((serves, tuple(takes.get(name, 0) for name in names)))
    return _Part(left, tuple(sorted(items)))


@lru_cache(maxsize=2_000)
def _maximal_of_part(part: _Part, caps: Counts) -> tuple[Counts, ...] | None:
    """The maximal counts of the kinds that fit one part, none above ``caps``; None where it is too much."""
    states: dict[tuple[int, ...], set[Counts]] = {part.left: {(0,) * len(caps)}}
    for serves, takes in part.items:
        more: dict[tuple[int, ...], set[Counts]] = {}
        for left, found in states.items():
            rest = tuple(have - take for have, take in zip(left, takes, strict=True))
            if min(rest, default=0) < 0:
                continue
            more.setdefault(rest, set()).update(_raise_counts(found, serves, caps))
        for left, found in more.items():
            states.setdefault(left, set()).update(found)
        if sum(map(len, states.values())) > _STATES_MAX:
            return None
    return tuple(_keep_maximal(set().union(*states.values())))


def _raise_counts(counts: Iterable[Counts], serves: int, caps: Counts) -> Iterable[Counts]:
    """Each of the counts with one more of each kind that a device serves."""
    for each in counts:
        for number, cap in enumerate(caps):
            if serves >> number & 1 and each[number] < cap:
                yield (*each[:number], each[number] + 1, *each[number + 1 :])


def _sums_of_single(single: Counter[int], caps: Counts) -> list[Counts] | None:
    """Maximal counts of devices that share nothing."""
    sums: list[Counts] | None = [(0,) * len(caps)]
    for serves, count in single.items():
        for _ in range(min(count, sum(caps))):
            if sums is not None:
                sums = _add_counts(
                    sums, tuple(_raise_counts([(0,) * len(caps)], serves, caps)), caps
                )
    return sums


def _add_counts(
    sums: Sequence[Counts], more: Sequence[Counts], caps: Counts
) -> list[Counts] | None:
    if not more:
        return list(sums)
    found = {
        tuple(min(cap, a + b) for cap, a, b in zip(caps, one, other, strict=True))
        for one in sums
        for other in more
    }
    if len(found) > _STATES_MAX:
        return None
    return _keep_maximal(found)


def _keep_maximal(counts: Iterable[Counts]) -> list[Counts]:
    """Those that none other reaches in every place."""
    kept: list[Counts] = []
    for each in sorted(counts, reverse=True):
        if not any(all(a <= b for a, b in zip(each, other, strict=True)) for other in kept):
            kept.append(each)
    return kept
