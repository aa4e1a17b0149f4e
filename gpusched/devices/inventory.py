"""Devices of the cluster by pool, and those that a node reaches: what drivers publish, made believable.

Of a pool only slices of its newest generation count, and only when all of them are there. Pools whose
slices contradict each other are named and not used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import attrs

from gpusched.api.affinity.selector import NodeTerm, Requirement
from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import DeviceClass
from gpusched.api.devices.dynamic.slices import (
    AttributeValue,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    NodeReach,
    ResourceSlice,
)
from gpusched.base.classes import define, frozen
from gpusched.devices.selector_verdicts import AttributeFrame, LookedAt, Mismatch, frame_of

REMEMBERED_MAX: Final = 64
"""Answers of one sort that a device remembers; what asks for more are texts of many tenants."""

_NODE_CONTENTS_MAX: Final = 1_000
_KINDS_MAX: Final = 200_000
"""Contents of devices and nodes that have a number; beyond, equal ones may get several."""


class PoolId(NamedTuple):
    """Driver and name of a pool."""

    driver: str
    pool: str


class DeviceId(NamedTuple):
    """Driver, pool and name of a device."""

    driver: str
    pool: str
    device: str


@define(slots=True, eq=False)
class PoolDevice:
    """A device with its place in a pool.

    Attributes:
        reach: nodes from which it can be used.
        taints: of the slice and of rules.
        kinds: numbers of what searches saw of it, see ``DeviceInventory.kind_number``.
        locality: where it is inside the node, once asked for; see ``nearness.locality_of``.
    """

    id: DeviceId
    device: Device
    reach: NodeReach
    taints: tuple[DeviceTaint, ...]
    kinds: dict[LookedAt, int] | None = None
    locality: tuple[str, ...] | None = None
    _frame: AttributeFrame | None = None

    @property
    def frame(self) -> AttributeFrame:
        """Names and types of its attributes."""
        if self._frame is None:
            self._frame = frame_of(self.device)
        return self._frame

    def compared_values(self, attribute: str) -> frozenset[object] | None:
        """Values of an attribute, a list's elements each; None where the device lacks it."""
        place = self.frame.places.get(attribute)
        return None if place is None else _compared_values(self.device.attributes[place][1])

    def matches_selectors(self, selectors: tuple[str, ...]) -> bool | Mismatch:
        """Whether all of these CEL expressions hold for it; the first that has no value ends it."""
        return self.frame.selector_verdict(selectors, self.device, self.id.driver)


def _compared_values(value: AttributeValue) -> frozenset[object]:
    if not isinstance(value, tuple):
        return frozenset(((type(value).__name__, value),))
    return frozenset((type(each).__name__, each) for each in value)


@frozen(slots=True, eq=False)
class Pool:
    """One pool of one driver, in its newest generation.

    Attributes:
        devices: in the order of the slices' names and of the API.
        counters: amounts in billionths by (set, counter).
        complete: whether all slices of the generation are there.
        fault: why it is not used, empty where it can be.
        slices: of the pool, those for other nodes and of older generations too.
        binding: whether any device has binding conditions; such pools are used last.
    """

    id: PoolId
    generation: int
    devices: tuple[PoolDevice, ...]
    counters: Mapping[tuple[str, str], int]
    complete: bool
    fault: str
    slices: tuple[ResourceSlice, ...]
    binding: bool

    @property
    def is_usable(self) -> bool:
        """Whether all of its slices are there and none contradicts another."""
        return self.complete and not self.fault


@frozen(slots=True)
class Selection:
    """What some selectors say of the devices that a node reaches, as numbers in ``NodeDevices.listed``.

    Attributes:
        chosen: devices for which all hold.
        unanswered: devices for which one has no value, each with why.
    """

    chosen: tuple[int, ...]
    unanswered: tuple[tuple[int, Mismatch], ...]


@define(slots=True, eq=False)
class ReachablePool:
    """Devices of one pool that a node reaches."""

    pool: Pool
    devices: tuple[PoolDevice, ...]
    _places: dict[str, int] | None = attrs.field(default=None, init=False)

    @property
    def places(self) -> Mapping[str, int]:
        """Numbers of the devices by name."""
        if self._places is None:
            self._places = {each.id.device: number for number, each in enumerate(self.devices)}
        return self._places


@define(slots=True, eq=False)
class NodeDevices:
    """All devices that one node reaches.

    Attributes:
        node: its name.
        pools: those without binding conditions first, then by driver and name.
        kinds: numbers of what claims see of them, see ``node_signature``.
        selections: what selectors say of them, see ``DeviceInventory.select_devices``.
        matching: those that requests match and tolerate, by what the requests look at.
        slots: of its whole GPUs by device, with the names of GPU resources that they depend on; None
            until they are asked for.
    """

    node: str
    pools: tuple[ReachablePool, ...]
    kinds: dict[LookedAt, int] = attrs.field(factory=dict, init=False)
    slots: tuple[object, Mapping[tuple[str, str, str], int]] | None = attrs.field(
        default=None, init=False
    )
    selections: dict[tuple[str, ...], Selection] = attrs.field(factory=dict, init=False)
    matching: dict[Hashable, frozenset[DeviceId]] = attrs.field(factory=dict, init=False)
    _listed: tuple[tuple[PoolDevice, Pool], ...] | None = attrs.field(default=None, init=False)
    _usable: tuple[tuple[PoolDevice, Pool], ...] | None = attrs.field(default=None, init=False)
    _here: tuple[NodeTerm, ...] = attrs.field(default=(), init=False)

    @property
    def here(self) -> tuple[NodeTerm, ...]:
        """Terms that mean this node alone."""
        if not self._here:
            self._here = (NodeTerm(fields=(Requirement("metadata.name", "In", (self.node,)),)),)
        return self._here

    @property
    def usable(self) -> tuple[tuple[PoolDevice, Pool], ...]:
        """Devices of pools that can be used, in the order of Kubernetes' own allocators."""
        if self._usable is None:
            if all(part.pool.is_usable for part in self.pools):
                self._usable = self.listed
            else:
                self._usable = tuple([each for each in self.listed if each[1].is_usable])
        return self._usable

    @property
    def listed(self) -> tuple[tuple[PoolDevice, Pool], ...]:
        """The same, with those of pools that cannot be used."""
        if self._listed is None:
            self._listed = tuple(
                [(device, part.pool) for part in self.pools for device in part.devices]
            )
        return self._listed

    def find_device(self, key: DeviceId) -> PoolDevice | None:
        """The device of this id, None where the node does not reach it."""
        for part in self.pools:
            if part.pool.id == key[:2]:
                place = part.places.get(key.device)
                return None if place is None else part.devices[place]
        return None

    def is_same(self, other: NodeDevices) -> bool:
        """Whether another one has the same devices in the same pools."""
        return len(self.pools) == len(other.pools) and all(
            mine.pool is theirs.pool and mine.devices == theirs.devices
            for mine, theirs in zip(self.pools, other.pools, strict=True)
        )


class KindNumbers:
    """Numbers that equal contents share; of very many contents equal ones may get several."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self.same: dict[Hashable, int] = {}
        """Numbers by a content that tells more, but is quicker to make; several may have one."""
        self.selections: dict[tuple[int, tuple[str, ...]], Selection] = {}
        """What selectors say of nodes with a number, where it is a number of what these selectors say."""
        self.slot_orders: dict[Hashable, tuple[int, ...]] = {}
        """Places of devices in ``NodeDevices.usable`` by slot, by what the order depends on."""
        self._next = count()

    def note_selection(self, number: int, selectors: tuple[str, ...], selection: Selection) -> None:
        """Nodes with a number have this answer."""
        if len(self.selections) >= _NODE_CONTENTS_MAX:
            self.selections.clear()
        self.selections[number, selectors] = selection

    def note_same(self, content: Hashable, number: int) -> None:
        """A content that tells more has this number."""
        if len(self.same) >= _NODE_CONTENTS_MAX:
            self.same.clear()
        self.same[content] = number

    def number_content(self, content: Hashable) -> int:
        """The number of a content."""
        known = self._known.get(content)
        if known is None:
            if len(self._known) >= _KINDS_MAX:
                self._known.clear()
            known = self._known[content] = next(self._next)
        return known


class DeviceInventory:
    """Pools of one moment; those whose slices did not change are taken over from the last one.

    A pool is what a node sees of it: slices that are not for the node do not count, for its
    generation either, as in Kubernetes' own allocators.

    Args:
        catalog: of the snapshot.
        before: the inventory of an earlier snapshot, whose pools and answers are used again.
    """

    def __init__(self, catalog: DeviceCatalog, before: DeviceInventory | None = None) -> None:
        self.classes = catalog.classes
        self.rules = catalog.taint_rules
        reusable = (
            before is not None
            and before.rules == self.rules
            and not any(rule.device_class for rule in self.rules)
        )
        self._known = before.made_pools if before is not None and reusable else {}
        self.made_pools: dict[tuple[PoolId, tuple[str, ...]], Pool] = {}
        """Pools by the names of the slices that they are made of, too."""
        self._slices: dict[PoolId, list[ResourceSlice]] = {}
        self._local: dict[str, dict[PoolId, list[ResourceSlice]]] = {}
        self._wide: dict[PoolId, list[ResourceSlice]] = {}
        for each in catalog.slices:
            key = PoolId(each.driver, each.pool)
            self._slices.setdefault(key, []).append(each)
            if each.reach is not None and each.reach.node:
                self._local.setdefault(each.reach.node, {}).setdefault(key, []).append(each)
            else:
                self._wide.setdefault(key, []).append(each)
        self._of_node: dict[str, tuple[Mapping[str, str], NodeDevices]] = {}
        self._of_node_before = {} if before is None else before.asked_nodes()
        self._by_name: dict[tuple[str, str], dict[str, Device]] = {}
        self.kind_numbers: KindNumbers = KindNumbers() if before is None else before.kind_numbers
        """Shared by all inventories that follow each other, as are the devices with the numbers."""

    def node_devices(self, node: str, labels: Mapping[str, str]) -> NodeDevices:
        """Devices that a node reaches, worked out once for each node and its labels."""
        known = self._of_node.get(node)
        if known is not None and (known[0] is labels or not self._wide or known[0] == labels):
            return known[1]
        found = self._reachable_devices(node, labels)
        _, before = self._of_node_before.get(node, (labels, None))
        if before is not None and found.is_same(before):
            found = before  # with what was found out about it
        self._of_node[node] = (labels, found)
        return found

    def asked_nodes(self) -> dict[str, tuple[Mapping[str, str], NodeDevices]]:
        """Devices of nodes that were asked for, each with the labels that the node had."""
        return self._of_node

    def select_devices(self, node: NodeDevices, selectors: tuple[str, ...]) -> Selection:
        """What selectors say of a node's devices; asked once for nodes of which claims see the same."""
        known = node.selections.get(selectors)
        if known is None:
            if len(node.selections) >= REMEMBERED_MAX:
                node.selections.clear()
            known = node.selections[selectors] = self._ask_selectors(node, selectors)
        return known

    def _ask_selectors(self, node: NodeDevices, selectors: tuple[str, ...]) -> Selection:
        numbers = [number for looked_at, number in node.kinds.items() if selectors in looked_at[0]]
        for number in numbers:
            shared = self.kind_numbers.selections.get((number, selectors))
            if shared is not None:
                return shared
        verdicts = [device.matches_selectors(selectors) for device, _ in node.listed]
        made = Selection(
            tuple([place for place, each in enumerate(verdicts) if each is True]),
            tuple(
                [(place, each) for place, each in enumerate(verdicts) if isinstance(each, Mismatch)]
            ),
        )
        for number in numbers:
            self.kind_numbers.note_selection(number, selectors, made)
        return made

    def kind_number(self, device: PoolDevice, looked_at: LookedAt) -> int:
        """A number that devices share which are the same to claims, but for their names and pools."""
        if device.kinds is None or len(device.kinds) >= REMEMBERED_MAX:
            device.kinds = {}
        known = device.kinds.get(looked_at)
        if known is None:
            known = device.kinds[looked_at] = self.kind_numbers.number_content(
                device_content(device, looked_at)
            )
        return known

    def find_device(self, key: tuple[str, str, str]) -> Device | None:
        """The device as the newest slice has it; None where no slice has it."""
        devices = self._by_name.get(key[:2])
        if devices is None:
            pool = PoolId(key[0], key[1])
            slices = sorted(self._slices.get(pool, ()), key=lambda each: -each.generation)
            devices = self._by_name[pool] = {}
            for part in slices:
                for each in part.devices:
                    devices.setdefault(each.name, each)
        return devices.get(key[2])

    def _reachable_devices(self, node: str, labels: Mapping[str, str]) -> NodeDevices:
        of_pool = {key: list(slices) for key, slices in self._local.get(node, {}).items()}
        for key, slices in self._wide.items():
            for each in slices:
                if _slice_reaches(each, node, labels):
                    of_pool.setdefault(key, []).append(each)
        found = []
        for key in sorted(of_pool):
            pool = self._build_pool(key, of_pool[key])
            devices = tuple(
                each for each in pool.devices if node_is_reached(each.reach, node, labels)
            )
            found.append(ReachablePool(pool, devices))
        found.sort(key=lambda each: each.pool.binding)
        return NodeDevices(node, tuple(found))

    def _build_pool(self, key: PoolId, slices: Sequence[ResourceSlice]) -> Pool:
        names = (key, tuple(sorted(each.name for each in slices)))
        made = self.made_pools.get(names)
        if made is None:
            made = self._known.get(names)
            if made is None or not _same_slices(made.slices, self._slices[key]):
                made = _make_pool(
                    key, slices, self._slices[key], rules=self.rules, classes=self.classes
                )
            self.made_pools[names] = made
        return made

    def node_slices(self, node: str) -> Iterator[ResourceSlice]:
        """Slices that are for one node alone, older generations of their pools too."""
        for slices in self._local.get(node, {}).values():
            yield from slices

    def wide_reaches(self) -> list[NodeReach]:
        """Sorts of nodes that reach the same devices, in the order of the slices; those of one node are left out."""
        reaches = (
            part.reach or device.reach
            for slices in self._wide.values()
            for part in slices
            for device in part.devices
        )
        return list(dict.fromkeys(each for each in reaches if each is not None and not each.node))

    def shares_pools(self, node: str) -> bool:
        """Whether a node reaches devices that other nodes may reach too."""
        return bool(self._wide) or node not in self._local


_NOWHERE = NodeReach()


def _same_slices(old: Sequence[ResourceSlice], new: Sequence[ResourceSlice]) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def _slice_reaches(part: ResourceSlice, node: str, labels: Mapping[str, str]) -> bool:
    if part.reach is not None:
        return node_is_reached(part.reach, node, labels)
    return not part.devices or any(
        node_is_reached(each.reach or _NOWHERE, node, labels) for each in part.devices
    )


def node_is_reached(reach: NodeReach, node: str, labels: Mapping[str, str]) -> bool:
    """Whether devices of this reach can be used from a node with these labels."""
    if reach.node:
        return reach.node == node
    if reach.everywhere:
        return True
    return any(term.matches(labels, name=node) for term in reach.terms or ())


def _make_pool(
    key: PoolId,
    slices: Sequence[ResourceSlice],
    everywhere: Sequence[ResourceSlice],
    *,
    rules: Sequence[DeviceTaintRule],
    classes: Mapping[str, DeviceClass],
) -> Pool:
    """A pool from the slices that a node reaches; those for other nodes count for completeness."""
    newest = max(each.generation for each in slices)
    current = sorted(
        (each for each in everywhere if each.generation == newest), key=lambda each: each.name
    )
    counters = {
        (counter_set.name, name): amount
        for part in current
        for counter_set in part.counters
        for name, amount in counter_set.counters
    }
    here = {id(each) for each in slices}
    devices = [
        PoolDevice(
            DeviceId(key.driver, key.pool, device.name),
            device,
            part.reach or device.reach or _NOWHERE,
            device.taints,
        )
        for part in current
        if id(part) in here
        for device in part.devices
    ]
    # Where slices contradict each other, Kubernetes believes the first with devices for the node.
    counts = {each.slices for each in current}
    told = next((each.slices for each in current if id(each) in here and each.devices), 0)
    complete = len(current) == (told or max(counts)) and (bool(told) or len(counts) == 1)
    # What is missing of a pool that is not complete may be what contradicts nothing.
    fault = _pool_error(current, counters) if complete else ""
    pool = Pool(
        id=key,
        generation=newest,
        devices=tuple(devices),
        counters=counters,
        complete=complete,
        fault=fault,
        slices=tuple(everywhere),
        binding=any(each.device.binding_conditions for each in devices),
    )
    if rules:
        for each in pool.devices:
            added = tuple(rule.taint for rule in rules if _rule_taints(rule, each, classes))
            each.taints = (*each.taints, *added)
    return pool


def device_content(device: PoolDevice, looked_at: LookedAt) -> Hashable:
    """What claims see of a device but its name and pool."""
    selectors, compared = looked_at
    content = device.device
    return (
        device.id.driver,
        tuple([device.matches_selectors(each) for each in selectors]),
        tuple([device.compared_values(name) for name in compared]),
        content.capacities,
        content.consumes,
        device.taints,
        content.shareable,
        content.binds_to_node,
        content.binding_conditions,
    )


def _pool_error(slices: Sequence[ResourceSlice], counters: Mapping[tuple[str, str], int]) -> str:
    """Why a complete pool cannot be used, empty where it can."""
    sets: set[str] = set()
    devices: set[str] = set()
    for part in slices:
        for counter_set in part.counters:
            if counter_set.name in sets:
                return f"has counter set {counter_set.name} twice"
            sets.add(counter_set.name)
        for device in part.devices:
            if device.name in devices:
                return f"has device {device.name} twice"
            devices.add(device.name)
            missing = _missing_counter(device, counters)
            if missing:
                return f"has device {device.name}, which consumes {missing} of no counter set"
    return ""


def _missing_counter(device: Device, counters: Mapping[tuple[str, str], int]) -> str:
    for part in device.consumes:
        for name, _ in part.counters:
            if (part.name, name) not in counters:
                return f"{part.name}/{name}"
    return ""


def _rule_taints(
    rule: DeviceTaintRule, device: PoolDevice, classes: Mapping[str, DeviceClass]
) -> bool:
    """Whether a rule taints a device; a selector without a value taints nothing."""
    driver, pool, name = device.id
    if (rule.driver or driver, rule.pool or pool, rule.device or name) != device.id:
        return False
    if rule.device_class:
        found = classes.get(rule.device_class)
        if found is None or device.matches_selectors(found.selectors) is not True:
            return False
    return not rule.selectors or device.matches_selectors(rule.selectors) is True
