"""Amounts by resource name: the currency of requests, capacities and quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpusched.api.meta.quantity import (
    QuantityError,
    canonical_quantity,
    format_quantity,
    parse_quantity,
)
from gpusched.api.meta.units import unit_exponent
from gpusched.base.classes import frozen
from gpusched.base.limits import COLUMN_MAX, FOREIGN_TEXT_MAX

PODS = "pods"
"""Every pod asks for one of these; a node offers as many as its kubelet takes."""
RESOURCE_KINDS_MAX = 64
"""Resource names in one list; a pod that names more is storing data in them."""


@frozen(slots=True)
class Resources:
    """Non-negative ints in base units (thousandths of a core or a GPU, bytes, pieces), sorted by name.

    Absent is zero for requests and capacities. A quota that is absent is unlimited: quotas
    therefore ask ``name in resources`` first.
    """

    items: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> Resources:
        """From a mapping in base units."""
        return cls(tuple(sorted(amounts.items())))

    @classmethod
    def parse(cls, quantities: Mapping[str, str | int | float] | None, *, field: str) -> Resources:
        """From a ResourceList as decoded from JSON.

        Raises:
            QuantityError: with the field path in front of the reason.
        """
        if not quantities:
            return NOTHING
        if len(quantities) > RESOURCE_KINDS_MAX:
            raise QuantityError(f"{field} names {len(quantities)} resources")
        amounts = {}
        for name, text in quantities.items():
            try:
                amounts[name] = parse_quantity(str(text), power=unit_exponent(name))
            except QuantityError as why:
                raise QuantityError(f"{field}[{name[:FOREIGN_TEXT_MAX]}]: {why}") from None
        return cls.of(amounts)

    def __contains__(self, name: str) -> bool:
        for own, _ in self.items:  # noqa: SIM110 - a generator costs more than the few names
            if own == name:
                return True
        return False

    def __bool__(self) -> bool:
        for _, amount in self.items:  # noqa: SIM110 - a generator costs more than the few names
            if amount:
                return True
        return False

    def get(self, name: str) -> int:
        """The amount of one resource, 0 when it is not named."""
        for own, amount in self.items:
            if own == name:
                return amount
        return 0

    def plus(self, other: Resources, *, times: int = 1) -> Resources:
        """The sum of this and so many of the other, saturating at ``COLUMN_MAX``."""
        if not other.items:
            return self
        if times == 1 and not self.items:
            return other
        amounts = dict(self.items)
        for name, amount in other.items:
            amounts[name] = min(COLUMN_MAX, amounts.get(name, 0) + amount * times)
        if len(amounts) == len(self.items):  # in order as they were
            return Resources(tuple(amounts.items()))
        return Resources.of(amounts)

    def maximum(self, other: Resources) -> Resources:
        """The larger of each resource."""
        amounts = dict(self.items)
        for name, amount in other.items:
            amounts[name] = max(amount, amounts.get(name, 0))
        return Resources.of(amounts)

    def replaced_by(self, other: Resources) -> Resources:
        """This, with the other's amounts where the other names a resource."""
        return Resources.of({**dict(self.items), **dict(other.items)})

    def quantities(self) -> dict[str, str]:
        """As a ResourceList for JSON."""
        return {name: canonical_quantity(amount, resource=name) for name, amount in self.items}

    def text(self) -> str:
        """For sentences: ``2 cpu, 8 nvidia.com/gpu``."""
        return ", ".join(
            f"{format_quantity(amount, resource=name)} {name}" for name, amount in self.items
        )


NOTHING = Resources()


def total(parts: Iterable[Resources]) -> Resources:
    """The sum of many, saturating at ``COLUMN_MAX``; the same object many times costs little."""
    all_parts = list(parts)
    if len(all_parts) < 2:  # most gangs are single pods
        return all_parts[0] if all_parts else NOTHING
    by_id = dict(zip(map(id, all_parts), all_parts, strict=True))
    amounts: dict[str, int] = {}
    for number, count in Counter(map(id, all_parts)).items():
        for name, amount in by_id[number].items:
            amounts[name] = min(COLUMN_MAX, amounts.get(name, 0) + amount * count)
    return Resources.of(amounts)
