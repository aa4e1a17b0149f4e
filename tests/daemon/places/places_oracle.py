"""The most compact place of a gang by trying everything. Knows nothing of the product.

Hosts and gangs are small: at most ten racks, a dozen pods. Every set of racks is tried in the
order of (zones, blocks, racks) it has, and whether a gang fits into a set is decided exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, product

import attrs

LEVELS = ("zone", "block", "rack")


@attrs.frozen
class Host:
    """A node: its labels from the widest level on, empty where it has none, and what is free."""

    name: str
    path: tuple[str, str, str]
    gpus: int
    cpu: int

    def domain(self, level: str) -> tuple[str, ...]:
        """Two hosts share one only when they agree on every wider level too."""
        depth = LEVELS.index(level) + 1
        if all(self.path[:depth]):
            return self.path[:depth]
        return ("without", self.name)

    def labelled(self, level: str) -> bool:
        """Whether it is in any domain of the level."""
        return all(self.path[: LEVELS.index(level) + 1])


@attrs.frozen
class Ask:
    """Equal members: how many, and what each needs; of one sub-group, or of none."""

    count: int
    gpus: int
    cpu: int
    part: str = ""


@attrs.frozen
class Gang:
    """All of its members are needed.

    Attributes:
        required: level of which one domain must hold all; empty for none.
        part_required: the same for each sub-group.
        preferred: the level down to which domains are counted; empty for none.
    """

    asks: tuple[Ask, ...]
    required: str = ""
    preferred: str = ""
    part_required: str = ""


def used(hosts: Sequence[Host], preferred: str) -> tuple[int, ...]:
    """How many domains of each level these hosts are in, widest first, down to the preferred."""
    levels = LEVELS[: LEVELS.index(preferred) + 1] if preferred else ()
    return tuple(len({host.domain(level) for host in hosts}) for level in levels)


def best(hosts: Sequence[Host], gang: Gang) -> tuple[int, ...] | None:
    """The fewest domains, widest level first, that hold the gang; None when nothing does."""
    answers = [
        found
        for area in _areas(hosts, gang.required)
        if (found := _best_in(area, gang)) is not None
    ]
    return min(answers, default=None)


def _areas(hosts: Sequence[Host], level: str) -> Iterator[list[Host]]:
    if not level:
        yield list(hosts)
        return
    for domain in sorted({host.domain(level) for host in hosts if host.labelled(level)}):
        yield [host for host in hosts if host.domain(level) == domain]


def _best_in(hosts: Sequence[Host], gang: Gang) -> tuple[int, ...] | None:
    if not _fits(hosts, gang):
        return None
    if not gang.preferred:
        return ()
    groups: dict[tuple[str, ...], list[Host]] = {}
    for host in hosts:
        groups.setdefault(host.domain(gang.preferred), []).append(host)
    sets = [
        [groups[name] for name in names]
        for size in range(1, len(groups) + 1)
        for names in combinations(sorted(groups), size)
    ]
    sets.sort(key=lambda some: used([host for group in some for host in group], gang.preferred))
    for some in sets:
        inside = [host for group in some for host in group]
        if _fits(inside, gang):
            return used(inside, gang.preferred)
    raise AssertionError("it fits into all of them")


def _fits(hosts: Sequence[Host], gang: Gang) -> bool:
    if any(
        sum(getattr(host, of) for host in hosts)
        < sum(ask.count * getattr(ask, of) for ask in gang.asks)
        for of in ("gpus", "cpu")
    ):
        return False
    parts = sorted({ask.part for ask in gang.asks})
    if not gang.part_required:
        return _packs(_rooms(hosts), gang.asks)
    areas = list(_areas(hosts, gang.part_required))
    for choice in product(range(len(areas)), repeat=len(parts)):
        into: dict[int, list[Ask]] = {}
        for part, area in zip(parts, choice, strict=True):
            into.setdefault(area, []).extend(ask for ask in gang.asks if ask.part == part)
        if all(_packs(_rooms(areas[area]), tuple(asks)) for area, asks in into.items()):
            return True
    return False


def _rooms(hosts: Sequence[Host]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((host.gpus, host.cpu) for host in hosts))


@cache
def _packs(rooms: tuple[tuple[int, int], ...], asks: tuple[Ask, ...]) -> bool:
    """Whether all members fit on hosts with so many GPUs and cores: exact, host by host."""
    left = {tuple(ask.count for ask in asks)}
    for gpus, cpu in rooms:
        left = _undominated(
            {
                tuple(count - taken for count, taken in zip(counts, pattern, strict=True))
                for counts in left
                for pattern in _patterns(gpus, cpu, asks, counts)
            }
        )
        if any(not any(counts) for counts in left):
            return True
    return False


def _patterns(
    gpus: int, cpu: int, asks: tuple[Ask, ...], counts: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """What one host may take of what is left."""
    if not asks:
        yield ()
        return
    first, rest = asks[0], asks[1:]
    for taken in range(counts[0] + 1):
        left = gpus - taken * first.gpus, cpu - taken * first.cpu
        if min(left) < 0:
            return
        for more in _patterns(*left, rest, counts[1:]):
            yield (taken, *more)


def _undominated(states: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Without those of which another has no more left anywhere."""
    return {
        state
        for state in states
        if not any(
            other != state and all(a <= b for a, b in zip(other, state, strict=True))
            for other in states
        )
    }
