"""ResourceSlices and DeviceTaintRules: the devices that drivers publish, and what keeps pods off them.

Amounts of capacities and counters are ints in ``AMOUNT_UNIT`` (billionths), the smallest part
that a quantity of the API can name, so that sums and comparisons are exact.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from gpusched.api.affinity.selector import NodeTerm
from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.base.classes import frozen

AMOUNT_UNIT: Final = 10**9
"""Parts that one base unit (a byte, a piece) is counted in."""

_SCHEMAS_MAX: Final = 4_096
"""Schemas that are remembered; beyond, equal ones may be several objects."""

AttributeValue: TypeAlias = "bool | int | str | Version | tuple[AttributeValue, ...]"
"""What an attribute of a device holds; a tuple for lists of them."""


@frozen(slots=True, order=False, cache_hash=True)
class Version:
    """A semantic version as an attribute holds it; its text, which CEL compares by parts."""

    text: str


@frozen(slots=True, kw_only=True, cache_hash=True)
class CapacityPolicy:
    """Amounts of a capacity that one share of a device may take (``requestPolicy``).

    Attributes:
        default: taken by a request that names no amount; None where the API has none.
        values: the only amounts that are given, ascending; empty for any.
        least, most, step: of a valid range, None where not said.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None


@frozen(slots=True, kw_only=True, cache_hash=True)
class DeviceCapacity:
    """One capacity of a device.

    Attributes:
        name: fully qualified, ``domain/name``; the driver's domain is filled in.
        amount: in billionths.
        policy: of its shares, None where there is none.
    """

    name: str
    amount: int
    policy: CapacityPolicy | None = None


@frozen(slots=True, cache_hash=True)
class CounterSet:
    """Counters that devices of one pool share.

    Attributes:
        name: inside the pool.
        counters: amounts in billionths by name, sorted.
    """

    name: str
    counters: tuple[tuple[str, int], ...]


@frozen(slots=True, kw_only=True, cache_hash=True)
class DeviceTaint:
    """A taint of a device.

    Attributes:
        effect: ``NoSchedule``, ``NoExecute`` or ``None`` (which keeps nothing away).
        added: seconds since the epoch, 0.0 where not said.
        rule: name of the DeviceTaintRule that it comes from, empty for the slice's own.
    """

    key: str
    value: str
    effect: str
    added: float = 0.0
    rule: str = ""


@frozen(slots=True, kw_only=True, cache_hash=True)
class NodeReach:
    """Nodes from which devices can be used.

    Attributes:
        node: the only one, empty where there is no single one.
        terms: of a node selector, ORed; None where there is none.
        everywhere: whether all nodes reach them.
    """

    node: str = ""
    terms: tuple[NodeTerm, ...] | None = None
    everywhere: bool = False


@frozen(slots=True, eq=False)
class AttributeSchema:
    """Names and types of the attributes that devices of one model have in common.

    Attributes:
        names: by place in ``Device.attributes``.
        types: of the values; of a list, a tuple of its elements' types.
    """

    names: tuple[str, ...]
    types: tuple[object, ...]


@lru_cache(maxsize=_SCHEMAS_MAX)
def _schema(names: tuple[str, ...], types: tuple[object, ...]) -> AttributeSchema:
    return AttributeSchema(names, types)


def _schema_of(attributes: tuple[tuple[str, AttributeValue], ...]) -> AttributeSchema:
    if not attributes:
        return _schema((), ())
    names, values = zip(*attributes, strict=True)
    types: tuple[object, ...] = tuple(map(type, values))
    if tuple in types:
        types = tuple([type(e) if type(e) is not tuple else _types(e) for e in values])
    return _schema(names, types)


def _types(value: AttributeValue) -> object:
    """The types inside of a list."""
    return tuple(map(_types, value)) if isinstance(value, tuple) else type(value)


@frozen(slots=True, kw_only=True)
class Device:
    """One device, or one partition of a device, that a driver publishes.

    Attributes:
        name: inside its pool.
        attributes: values by fully qualified name (``domain/name``), sorted by name.
        capacities: sorted by name.
        consumes: of each counter set, by name: amounts in billionths by counter, sorted.
        reach: of this device alone; None where the slice says it for all of its devices.
        taints: in the order of the API.
        shareable: whether several claims may hold shares of it (``allowMultipleAllocations``).
        binds_to_node: whether an allocation narrows the claim to the one node chosen.
        binding_conditions, failure_conditions: of the claim's status, awaited before binding.
        schema: of its attributes; devices of one model share it, so that what depends on it alone is
            worked out once for all of them.
    """

    name: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    capacities: tuple[DeviceCapacity, ...] = ()
    consumes: tuple[CounterSet, ...] = ()
    reach: NodeReach | None = None
    taints: tuple[DeviceTaint, ...] = ()
    shareable: bool = False
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    failure_conditions: tuple[str, ...] = ()
    schema: AttributeSchema = attrs.field(init=False, eq=False, repr=False)

    @schema.default
    def _find_schema(self) -> AttributeSchema:
        return _schema_of(self.attributes)


@frozen(slots=True, kw_only=True)
class ResourceSlice:
    """A part of what one driver publishes in one pool.

    Attributes:
        generation, slices: of the pool: only slices of its newest generation count, and the pool
            is complete when there are so many of them.
        reach: of all its devices; None where each device says its own.
        counters: sorted by name.
        devices: in the order of the API, which the API's allocators keep.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    driver: str
    pool: str
    generation: int
    slices: int
    reach: NodeReach | None
    counters: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()


@frozen(slots=True, kw_only=True)
class DeviceTaintRule:
    """A taint that an administrator puts on devices by what they are.

    Attributes:
        driver, pool, device, device_class: that devices must match; empty for any.
        selectors: CEL expressions, ANDed.
    """

    name: str
    uid: UID
    resource_version: ResourceVersion
    taint: DeviceTaint
    driver: str = ""
    pool: str = ""
    device: str = ""
    device_class: str = ""
    selectors: tuple[str, ...] = ()
