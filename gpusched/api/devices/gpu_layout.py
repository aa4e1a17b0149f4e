"""Which GPUs of a node sit together, as a layout says it, and what makes one believable.

``[[0, 1, 2, 3], [4, 5, 6, 7]]`` are two islands; ``[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]`` are
two that are divided into pairs. Slots are numbered from 0 without gap, each in one island.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from gpusched.base.classes import frozen
from gpusched.base.limits import LAYOUT_LEVELS_MAX, SLOTS_PER_NODE_MAX

Island: TypeAlias = "tuple[int, ...] | tuple[Island, ...]"
"""Slots that are linked better with each other than with the rest: their numbers, or the
islands in it."""


@frozen(slots=True)
class GpuLayout:
    """What is known of a node's GPUs.

    Attributes:
        islands: best links inside; empty when nothing is known.
        numa: slot numbers by NUMA node, in the order of their ids; empty when not known.
    """

    islands: tuple[Island, ...] = ()
    numa: tuple[tuple[int, ...], ...] = ()

    @property
    def slots(self) -> int:
        """How many slots it names."""
        return sum(1 for _ in all_slots(self.islands))


FLAT: Final = GpuLayout()
"""Nothing is known: one island."""


@frozen(slots=True)
class GpuLayoutCatalog:
    """Layouts by product or by name, as ``conf/gpu-layouts.yaml`` has them."""

    layouts: Mapping[str, GpuLayout] = attrs.field(factory=lambda: MappingProxyType({}))

    def get(self, name: str) -> GpuLayout | None:
        """The layout of that name."""
        return self.layouts.get(name)


class GpuLayoutError(ValueError):
    """A layout that cannot be believed; the message is a sentence without its subject."""


def all_slots(islands: tuple[Island, ...]) -> Iterator[int]:
    """All slot numbers, in the order in which they are written."""
    for island in islands:
        for each in island:
            if isinstance(each, int):
                yield each
            else:
                yield from all_slots((each,))


def parse_islands(value: object) -> tuple[Island, ...]:
    """Islands as JSON or YAML has them.

    Raises:
        LayoutError: no lists of slot numbers, or slots that are named twice or not at all.
    """
    if not isinstance(value, list | tuple) or not value:
        raise GpuLayoutError("must be a list of islands such as [[0, 1], [2, 3]]")
    islands = tuple(_island(each, 1) for each in value)
    numbers = sorted(all_slots(islands))
    _check_once(numbers, "islands")
    if numbers != list(range(len(numbers))):
        raise GpuLayoutError(
            f"must number its slots from 0 without gap, but names {len(numbers)} slots up to "
            f"{numbers[-1]}"
        )
    return islands


def parse_numa_slots(value: object, islands: tuple[Island, ...]) -> tuple[tuple[int, ...], ...]:
    """Slots by NUMA node, of a layout with these islands.

    Raises:
        LayoutError: no lists of slot numbers, or not each slot in one of them.
    """
    if not isinstance(value, list | tuple) or not value:
        raise GpuLayoutError("must be a list of slots by NUMA node such as [[0, 1], [2, 3]]")
    cells = []
    for each in value:
        if not isinstance(each, list | tuple):
            raise GpuLayoutError("must be a list of slots by NUMA node such as [[0, 1], [2, 3]]")
        cells.append(tuple(_slot(number) for number in each))
    numbers = sorted(number for cell in cells for number in cell)
    _check_once(numbers, "NUMA nodes")
    if numbers != sorted(all_slots(islands)):
        raise GpuLayoutError("must name each slot of the islands")
    return tuple(cells)


def _island(value: object, level: int) -> Island:
    if not isinstance(value, list | tuple) or not value:
        raise GpuLayoutError("must have islands that are lists of slots, none of them empty")
    if level > LAYOUT_LEVELS_MAX:
        raise GpuLayoutError(f"must not be nested deeper than {LAYOUT_LEVELS_MAX} levels")
    divided = [isinstance(each, list | tuple) for each in value]
    if all(divided):
        return tuple(_island(each, level + 1) for each in value)
    if any(divided):
        raise GpuLayoutError("must not mix slots and islands in one list")
    return tuple(_slot(each) for each in value)


def _slot(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise GpuLayoutError("must have slots that are whole numbers")
    if not 0 <= value < SLOTS_PER_NODE_MAX:
        raise GpuLayoutError(f"must have slots from 0 to {SLOTS_PER_NODE_MAX - 1}")
    return value


def _check_once(numbers: Sequence[int], where: str) -> None:
    for first, second in pairwise(numbers):
        if first == second:
            raise GpuLayoutError(f"must not name slot {first} in two {where}")
