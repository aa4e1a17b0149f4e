"""Devices of one session: how many pods of a class find theirs on a node, and which each pod gets.

Where devices are decided everything else is, too: a class's fit on a node counts them, a statement
that gives a place takes them, and one that is rolled back gives them back. Pods that were given
places on a node in this session may change devices among themselves, as nothing of it was sent yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import attrs

from gpusched.api.affinity.selector import NodeTerm
from gpusched.api.devices.dynamic.catalog import NO_DEVICES, DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    ClaimAllocation,
    PodClaim,
    ResourceClaim,
)
from gpusched.api.devices.dynamic.slices import Device
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.errors import InvariantBroken
from gpusched.devices.allocator import REPELS, AllocationOutcome, allocate
from gpusched.devices.fit import AskedClaims, DeviceAnswers, PodCount, mixes
from gpusched.devices.held_values import DeviceHold
from gpusched.devices.inventory import DeviceId, DeviceInventory, NodeDevices, PoolDevice, PoolId
from gpusched.devices.requests import ReadyClaim, ReadyRequest, make_ready
from gpusched.devices.search.node_signature import node_signature
from gpusched.devices.shortage.causes import (
    Holders,
    Relief,
    RequestShortage,
    describe_request,
    reliefs,
)
from gpusched.devices.usage import DeviceUsage
from gpusched.placement.model.class_fit import Caps
from gpusched.session.state.plan import ClaimBind

_PODS_MAX: Final = 64
"""Pods of one class on one node whose devices are counted at once."""
_MIXES_MAX: Final = 100
"""Counts of several classes on one node that are gone through."""


class DeviceCache:
    """What outlives a session: pools made of slices, and how many pods fit nodes that are alike."""

    def __init__(self) -> None:
        self._catalog = NO_DEVICES
        self._inventory: DeviceInventory | None = None
        self._claims: Mapping[ObjectKey, ResourceClaim] = NO_DEVICES.claims
        self._usage: DeviceUsage | None = None
        self.answers = DeviceAnswers()

    def inventory(self, catalog: DeviceCatalog) -> DeviceInventory:
        """The inventory of a catalog; the same object for the same slices, classes and rules."""
        known, before = self._inventory, self._catalog
        if (
            known is None
            or before.slices is not catalog.slices
            or before.classes is not catalog.classes
            or before.taint_rules is not catalog.taint_rules
        ):
            known = self._inventory = DeviceInventory(catalog, known)
            self._usage = None
            if before.classes is not catalog.classes:
                self.answers.clear()
        self.answers.trim()
        self._catalog = catalog
        return known

    def usage(self, catalog: DeviceCatalog) -> DeviceUsage:
        """What allocated claims hold of the devices, for one session to change."""
        inventory, claims = self.inventory(catalog), catalog.claims
        before = self._claims if self._usage is not None else NO_DEVICES.claims
        if self._usage is None:
            self._usage = DeviceUsage(inventory)
        if claims is not before:
            _follow_claims(self._usage, before, claims)
        self._claims = claims
        return self._usage.copy()


def _follow_claims(
    usage: DeviceUsage,
    before: Mapping[ObjectKey, ResourceClaim],
    now: Mapping[ObjectKey, ResourceClaim],
) -> None:
    """Take what claims were given since, and give back what they have no longer."""
    for key, claim in now.items():
        old = before.get(key)
        if old is not claim:
            if old is not None and old.allocation is not None:
                usage.add(old.allocation.devices, times=-1)
            if claim.allocation is not None:
                usage.add(claim.allocation.devices)
    for key in before.keys() - now.keys():
        allocation = before[key].allocation
        if allocation is not None:
            usage.add(allocation.devices, times=-1)


@attrs.frozen(slots=True, eq=False)
class ClassClaims:
    """Claims of the pods of one class.

    Attributes:
        own: that each pod gets allocated for itself, in the order of the spec.
        asked: the same, to be asked about; None where there are none.
        nodes: for each claim that has an allocation and limits the nodes, its terms.
        fault: why no pod of the class can be placed, empty where they can.
    """

    own: tuple[ReadyClaim, ...] = ()
    nodes: tuple[tuple[NodeTerm, ...], ...] = ()
    fault: str = ""
    asked: AskedClaims | None = None


@attrs.define(slots=True, eq=False)
class _Given:
    """What one pod was given in this session."""

    row: int
    claims: ClassClaims
    allocations: tuple[ClaimAllocation, ...]


class _GivenPods:
    """Pods that a session gave devices."""

    def __init__(self) -> None:
        self.by_uid: dict[UID, _Given] = {}
        self._by_row: dict[int, dict[UID, _Given]] = {}

    def put(self, uid: UID, given: _Given) -> None:
        """A pod was given these, instead of others where it had some."""
        self.pop(uid)
        self.by_uid[uid] = given
        if given.allocations:
            self._by_row.setdefault(given.row, {})[uid] = given

    def pop(self, uid: UID) -> _Given | None:
        """Drop a pod, and return what it was given."""
        given = self.by_uid.pop(uid, None)
        if given is not None:
            self._by_row.get(given.row, {}).pop(uid, None)
        return given

    def on_row(self, row: int) -> Mapping[UID, _Given]:
        """Pods on a row that have devices of their own."""
        return self._by_row.get(row, _NO_PODS)


_NO_PODS: Final[Mapping[UID, _Given]] = MappingProxyType({})


class DeviceRoom:
    """Free devices of a session, now and once the pods that leave are gone.

    Args:
        catalog: of the snapshot.
        node_usage: of the session, which says whether it looks at later.
        cache: kept from session to session.
        leaving: UIDs of pods that are being deleted, whose devices will be free.
    """

    def __init__(
        self,
        catalog: DeviceCatalog,
        node_usage: NodeUsage,
        cache: DeviceCache,
        leaving: Callable[[], Iterable[UID]] = tuple,
    ) -> None:
        self._catalog = catalog
        self._node_usage = node_usage
        self._cache = cache
        self.inventory = cache.inventory(catalog)
        self._first = cache.usage(catalog)
        """What was taken before the session gave anything; never changed."""
        self._now = self._first.copy()
        """What is taken or nominated: what a nomination holds is given to nobody else meanwhile."""
        self._leaving = leaving
        self._changed_later: DeviceUsage | None = None
        """Usage once the pods that leave are gone; None while nothing was asked about it."""
        self._held: dict[UID, list[ClaimAllocation]] | None = None
        self._classes: dict[tuple[str, DeviceHold | None], ClassClaims] = {}
        self.hold: DeviceHold | None = None
        """What devices that are given now are held to, see ``held_to``."""
        self._holds: dict[UID, DeviceHold] = {}
        """What devices of pods that were given any were held to."""
        self._claims_of: dict[UID, tuple[ResourceClaim | None, ...]] = {}
        self._given = _GivenPods()
        self._nominated = _GivenPods()
        self._uncertain: set[tuple[str, int]] = set()
        self._moves = 0
        self._found: tuple[object, dict[UID, _Given] | None] = (None, None)
        """The last answer of ``can_take``, with what was asked and after how many moves."""

    # -- classes -----------------------------------------------------------------------------
    def class_claims(self, pod_class: PodClass) -> ClassClaims:
        """Claims of a class, made ready for allocation once."""
        return self._class_claims(pod_class, self.hold)

    @contextmanager
    def held_to(self, hold: DeviceHold | None) -> Iterator[None]:
        """Inside, pods fit where they find devices that a hold allows, and are given such; None for any."""
        before, self.hold = self.hold, hold
        try:
            yield
        finally:
            self.hold = before

    def hold_of(self, pod: Pod) -> DeviceHold | None:
        """What devices that a pod was given in this session were held to, None for nothing."""
        return self._holds.get(pod.uid)

    def _class_claims(self, pod_class: PodClass, hold: DeviceHold | None) -> ClassClaims:
        key = (pod_class.digest, hold)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = self._read_claims(pod_class, hold)
        return known

    def _claims_to_give(self, pod: Pod) -> ClassClaims:
        """Claims of a pod, held as now or, where nothing is now, as those that it was given before."""
        return self._class_claims(pod.pod_class, self.hold or self._holds.get(pod.uid))

    def _read_claims(self, pod_class: PodClass, hold: DeviceHold | None) -> ClassClaims:
        if not self._catalog.served:
            return ClassClaims(
                fault="uses resource claims, and this API server serves no resource.k8s.io"
            )
        own: list[ReadyClaim] = []
        nodes: list[tuple[NodeTerm, ...]] = []
        for each in pod_class.claims:
            key = ObjectKey(pod_class.namespace, each.claim or each.template)
            if each.template:
                template = self._catalog.templates.get(key)
                if template is None:
                    return ClassClaims(
                        fault=f"names ResourceClaimTemplate {key.name}, which is not there"
                    )
                own.append(make_ready(each.name, template.spec, self.inventory.classes, hold))
                continue
            claim = self._catalog.claims.get(key)
            if claim is None or claim.deleting:
                how = "is being deleted" if claim is not None else "is not there"
                return ClassClaims(fault=f"names ResourceClaim {key.name}, which {how}")
            if claim.allocation is None:
                own.append(make_ready(each.name, claim.spec, self.inventory.classes, hold))
            elif claim.allocation.nodes is not None:
                nodes.append(claim.allocation.nodes)
        fault = next((each.fault for each in own if each.fault), "")
        return ClassClaims(
            tuple(own),
            tuple(nodes),
            fault and f"cannot be given devices: {fault}",
            self._cache.answers.make_asked(tuple(own)) if own else None,
        )

    def shared_claim(self, pod_class: PodClass) -> str:
        """Name of a claim without devices that all pods of a class would share; empty for none."""
        for each in pod_class.claims:
            claim = self._catalog.claims.get(ObjectKey(pod_class.namespace, each.claim))
            if each.claim and claim is not None and claim.allocation is None:
                return claim.name
        return ""

    def describe_shortage(
        self, pod_class: PodClass, rows: Sequence[tuple[int, bool]], holders: Holders
    ) -> list[RequestShortage]:
        """What keeps devices from the last alternative of each request of a class.

        Args:
            pod_class: with claims.
            rows: of nodes, with whether each has room for the pod beside devices.
            holders: of devices.
        """
        nodes = [(self._node_devices(row), has_room) for row, has_room in rows]
        return [
            describe_request(self._usage, nodes, claim, alternatives[-1], holders=holders)
            for claim in self.class_claims(pod_class).own
            for alternatives in claim.requests
        ]

    def reliefs(self, pod_class: PodClass, rows: Sequence[int], *, most: int) -> tuple[Relief, ...]:
        """Without which constraint or request more pods of a class would find devices on some rows."""
        return reliefs(
            self.inventory,
            self._usage,
            [self._node_devices(row) for row in rows],
            self.class_claims(pod_class).own,
            most=min(most, _PODS_MAX),
            counts=self._cache.answers.counts,
        )

    def devices_by_consumer(self) -> Iterator[tuple[UID, str, DeviceId]]:
        """Devices in use, each with UID and name of a pod that they are for, or the name of their claim."""
        for claim in self._catalog.claims.values():
            if claim.allocation is None:
                continue
            for device in _held_devices(claim.allocation):
                for each in claim.reserved_for:
                    yield each.uid, f"{claim.namespace}/{each.name}", device
                if not claim.reserved_for:
                    yield claim.uid, f"claim {claim.key}", device

    def given_devices(self) -> Iterator[tuple[UID, DeviceId]]:
        """Devices that this session gave or that are nominated, each with the pod's UID."""
        for uid, each in (*self._given.by_uid.items(), *self._nominated.by_uid.items()):
            for allocation in each.allocations:
                for device in _held_devices(allocation):
                    yield uid, device

    def selected_devices(
        self, classes: Sequence[PodClass], requests: Sequence[str]
    ) -> list[tuple[PoolDevice, bool]]:
        """Devices that some classes' requests select, each once with whether anything of it is free.

        Args:
            classes: whose claims count.
            requests: names of the requests that count, empty for all.
        """
        selectors = {
            each.selectors
            for pod_class in classes
            for claim in self._class_claims(pod_class, None).own
            for alternatives in claim.requests
            for each in alternatives
            if not requests or each.parent in requests or each.name in requests
        }
        found: dict[PoolId, dict[str, tuple[PoolDevice, bool]]] = {}
        usage = self._usage
        for row in range(len(self._node_usage.nodes)) if selectors else ():
            for device, pool in self._node_devices(row).usable:
                known = found.setdefault(pool.id, {})
                if device.id.device not in known and any(
                    device.selected(each) is True for each in selectors
                ):
                    held = usage.holding(device.id)
                    free = held is None or (device.device.shareable and not held.whole)
                    known[device.id.device] = (device, free)
        return [device for known in found.values() for device in known.values()]

    def devices_of(self, pod: Pod, requests: Sequence[str]) -> list[tuple[str, Device]]:
        """Drivers and devices that claims of a pod have, as they are published now.

        Args:
            pod: with a place, or with named claims that have devices.
            requests: names of the requests that count, empty for all.
        """
        found = []
        given = self._given.by_uid.get(pod.uid)
        allocations = () if given is None else given.allocations
        of_claims = [each.allocation for each in self.claims_of(pod) if each is not None]
        for allocation in (*allocations, *of_claims):
            for each in allocation.devices if allocation is not None else ():
                names = {each.request, each.request.partition("/")[0]}
                device = self.inventory.device(DeviceId(each.driver, each.pool, each.device))
                if device is not None and (not requests or names & set(requests)):
                    found.append((each.driver, device))
        return found

    def _node_devices(self, row: int) -> NodeDevices:
        node = self._node_usage.nodes.nodes[row]
        return self.inventory.node_devices(node.name, node.labels)

    def caps(self, pod_class: PodClass) -> Caps | None:
        """What lowers how many pods of a class fit some rows; None for classes without claims."""
        if not pod_class.claims:
            return None

        hold = self.hold

        def lower(rows: Sequence[int] | slice, fits: Ints) -> None:
            numbers = range(len(fits)) if isinstance(rows, slice) else rows
            with self.held_to(hold):
                for position, (row, most) in enumerate(zip(numbers, fits.tolist(), strict=True)):
                    if most:
                        fits[position] = self.count(pod_class, row, most=most)

        return lower

    def count(self, pod_class: PodClass, row: int, *, most: int) -> int:
        """How many more pods of a class find devices on a row, ``most`` at most."""
        claims = self.class_claims(pod_class)
        if claims.fault:
            return 0
        node = self._node_usage.nodes.nodes[row]
        if claims.nodes and not all(
            any(term.matches(node.labels, name=node.name) for term in terms)
            for terms in claims.nodes
        ):
            return 0
        if claims.asked is None:
            return most
        most = min(most, _PODS_MAX)
        devices = self.inventory.node_devices(node.name, node.labels)
        answers = self._cache.answers
        found = answers.count(self.inventory, self._usage, devices, claims.asked, most=most)
        if found.most < most:
            nominated = self._node_usage.later
            beside = (self._nominated if nominated else self._given).on_row(row)
            if beside:
                found = self._count_beside(claims.asked, devices, list(beside.values()), most=most)
        if found.bounded:
            self._uncertain.add((pod_class.digest, row))
        return found.most

    def _count_beside(
        self, asked: AskedClaims, devices: NodeDevices, beside: Sequence[_Given], *, most: int
    ) -> PodCount:
        """The same where pods were given places in this session, which may change their devices."""
        nominated = self._node_usage.later
        others = [each.claims.asked for each in beside if each.claims.asked is not None]
        answers = self._cache.answers
        if (
            not nominated
            and not self._nominated.by_uid
            and not self.inventory.shares_pools(devices.node)
        ):
            # On such a node these pods have all that was taken since the session began.
            return answers.count(
                self.inventory, self._first, devices, asked, most=most, beside=others
            )
        for each in beside:
            self._shift(each.allocations, nominated=nominated, times=-1)
        found = answers.count(self.inventory, self._usage, devices, asked, most=most, beside=others)
        for each in beside:
            self._shift(each.allocations, nominated=nominated, times=1)
        return found

    def count_together(
        self, classes: Sequence[PodClass], row: int, most: Sequence[int]
    ) -> tuple[tuple[int, ...], ...] | None:
        """Maximal counts of pods of several classes that find devices on a row together.

        Args:
            classes: with claims of their own.
            row: of the node.
            most: pods of each class that are asked about.

        Returns:
            Counts by class; None where there are too many to be gone through.
        """
        if math.prod(each + 1 for each in most) > _MIXES_MAX:
            return None
        node = self._node_usage.nodes.nodes[row]
        devices = self.inventory.node_devices(node.name, node.labels)
        kinds = [self.class_claims(each).own for each in classes]
        every = [claim for own in kinds for claim in own]
        signature = node_signature(self.inventory, self._usage, devices, every)
        key = (signature, tuple(tuple(e.sort for e in own) for own in kinds), tuple(most))
        known = self._cache.answers.mixes.get(key)
        if known is None:
            known = mixes(self.inventory, self._usage, devices, kinds, most=most)
            self._cache.answers.mixes[key] = known
        return known

    def is_bounded(self, pod_class: PodClass) -> bool:
        """Whether on some node more pods of the class might fit than were found in time."""
        return any(digest == pod_class.digest for digest, _ in self._uncertain)

    @property
    def moves(self) -> int:
        """A number that changes whenever devices change hands in this session."""
        return self._moves

    # -- places ------------------------------------------------------------------------------
    @property
    def _usage(self) -> DeviceUsage:
        return self._later if self._node_usage.later else self._now

    @property
    def _later(self) -> DeviceUsage:
        if self._changed_later is None:
            self._changed_later = self._now.copy()
            for uid in self._leaving():
                for each in self._held_by(uid):
                    self._changed_later.add(each.devices, times=-1)
        return self._changed_later

    def can_take(self, pod: Pod, row: int) -> bool:
        """Whether a pod finds devices on a row, now or later as the session looks at it."""
        nominated = self._node_usage.later
        found = self._find(pod, row, nominated=nominated)
        self._found = ((pod.uid, row, nominated, self._moves), found)
        return found is not None

    def take(self, pod: Pod, row: int, *, nominated: bool) -> None:
        """Give a pod its devices on a row; others that this session placed there may change theirs.

        Args:
            pod: that gets the place.
            row: of the node.
            nominated: whether the place is a nomination, whose devices are free later.

        Raises:
            InvariantBroken: there are none; the caller read another fit.
        """
        question, found = self._found
        if question != (pod.uid, row, nominated, self._moves):
            found = self._find(pod, row, nominated=nominated)
        if found is None:
            raise InvariantBroken(f"pod {pod.key} finds no devices on row {row}")
        if self.hold is not None:
            self._holds[pod.uid] = self.hold
        given = self._nominated if nominated else self._given
        for uid in found:
            before = given.pop(uid)
            if before is not None:
                self._move(before.allocations, nominated=nominated, times=-1)
        for uid, place in found.items():
            self._move(place.allocations, nominated=nominated, times=1)
            given.put(uid, place)
        self._touch(row)

    def give_back(self, pod: Pod, *, nominated: bool) -> None:
        """Undo ``take``; a nomination of an earlier session may have found none."""
        place = (self._nominated if nominated else self._given).pop(pod.uid)
        if place is not None:
            self._move(place.allocations, nominated=nominated, times=-1)
            self._touch(place.row)

    def take_again(self, pod: Pod, row: int, *, nominated: bool) -> None:
        """Undo ``give_back``; where a nomination of an earlier session had none, nothing happens."""
        if not nominated or self._find(pod, row, nominated=True) is not None:
            self.take(pod, row, nominated=nominated)

    def _touch(self, row: int) -> None:
        """Other nodes may reach what was taken on this one."""
        if self.inventory.shares_pools(self._node_usage.nodes.nodes[row].name):
            self._node_usage.touched_rows.extend(range(len(self._node_usage.nodes)))

    def _move(self, allocations: Sequence[ClaimAllocation], *, nominated: bool, times: int) -> None:
        self._moves += 1
        self._shift(allocations, nominated=nominated, times=times)

    def _shift(
        self, allocations: Sequence[ClaimAllocation], *, nominated: bool, times: int
    ) -> None:
        """The same where it is taken back before anything else is asked."""
        later = self._later if nominated else self._changed_later
        for each in allocations:
            if later is not None:
                later.add(each.devices, times=times)
            self._now.add(each.devices, times=times)

    def _find(self, pod: Pod, row: int, *, nominated: bool) -> dict[UID, _Given] | None:
        """Devices for the pod alone, else for all that this session placed on the row with it."""
        claims = self._claims_to_give(pod)
        if claims.asked is None:
            return {pod.uid: _Given(row, claims, ())}
        node = self._node_usage.nodes.nodes[row]
        devices = self.inventory.node_devices(node.name, node.labels)
        usage = self._later if nominated else self._now
        alone = self._cache.answers.allocate(self.inventory, usage, devices, claims.asked)
        if alone.outcome is AllocationOutcome.ALLOCATED:
            return {pod.uid: _Given(row, claims, alone.claims)}
        everyone = dict((self._nominated if nominated else self._given).on_row(row))
        if not everyone:
            return None
        for each in everyone.values():
            self._shift(each.allocations, nominated=nominated, times=-1)
        everyone[pod.uid] = _Given(row, claims, ())
        asked = [claim for each in everyone.values() for claim in each.claims.own]
        found = allocate(self.inventory, usage, devices, asked)
        everyone.pop(pod.uid)
        for each in everyone.values():
            self._shift(each.allocations, nominated=nominated, times=1)
        everyone[pod.uid] = _Given(row, claims, ())
        if found.outcome is not AllocationOutcome.ALLOCATED:
            return None
        left = iter(found.claims)
        return {
            uid: _Given(row, each.claims, tuple(next(left) for _ in each.claims.own))
            for uid, each in everyone.items()
        }

    # -- victims -----------------------------------------------------------------------------
    def leave(self, pod: Pod, *, times: int = 1) -> None:
        """A pod leaves its node: what is reserved for it alone is free later; -1 takes it back."""
        self._moves += 1
        for each in self._held_by(pod.uid):
            self._later.add(each.devices, times=-times)

    def matching(self, row: int, request: ReadyRequest) -> Iterator[PoolDevice]:
        """Devices that a row reaches and a request matches and tolerates, in use or not."""
        for device, _ in self._node_devices(row).usable:
            if device.selected(request.selectors) is True and all(
                taint.effect not in REPELS
                or any(each.tolerates(taint) for each in request.request.tolerations)
                for taint in device.taints
            ):
                yield device

    def reaches_shared_pools(self, row: int) -> bool:
        """Whether a row reaches devices that other nodes may reach too."""
        return self.inventory.shares_pools(self._node_usage.nodes.nodes[row].name)

    def is_free_later(self, device: DeviceId) -> bool:
        """Whether nobody has anything of a device once the pods that leave are gone."""
        return self._later.holding(device) is None

    def held_alone(self, pod: Pod) -> Iterator[DeviceId]:
        """Devices that are free once a pod leaves: of claims of its own, or given in this session."""
        given = self._given.by_uid.get(pod.uid)
        for each in (*self._held_by(pod.uid), *(() if given is None else given.allocations)):
            yield from _held_devices(each)

    def _held_by(self, uid: UID) -> Sequence[ClaimAllocation]:
        """Allocations that are reserved for one pod alone."""
        if self._held is None:
            self._held = _held_alone(self._catalog)
        return self._held.get(uid, ())

    # -- the plan ----------------------------------------------------------------------------
    def claims_of(self, pod: Pod) -> tuple[ResourceClaim | None, ...]:
        """The claims that a pod means, in the order of its spec; None for one that is not there yet."""
        known = self._claims_of.get(pod.uid)
        if known is None:
            known = self._claims_of[pod.uid] = tuple(
                [self._claim_of(pod, each) for each in pod.pod_class.claims]
            )
        return known

    def _claim_of(self, pod: Pod, named: PodClaim) -> ResourceClaim | None:
        name = named.claim
        if not name:
            name = next((made for own, made in pod.generated_claims if own == named.name), "")
        return self._catalog.claims.get(ObjectKey(pod.namespace, name)) if name else None

    def are_ready(self, pod: Pod) -> bool:
        """Whether all claims of a pod are there and none of them has devices yet."""
        claims = self.claims_of(pod)
        return all(claim is not None and claim.allocation is None for claim in claims)

    def missing_claim(self, pod: Pod) -> str:
        """The name that a pod has for a claim which is not made yet; empty where all are there."""
        for each, claim in zip(pod.pod_class.claims, self.claims_of(pod), strict=True):
            if claim is None and each.name not in _unneeded(pod):
                return each.name
        return ""

    def held_claim(self, pod: Pod) -> str:
        """The name of a claim made for a pod that has devices from an earlier attempt; else empty."""
        for each, claim in zip(pod.pod_class.claims, self.claims_of(pod), strict=True):
            if each.template and claim is not None and claim.allocation is not None:
                return claim.name
        return ""

    def allocation_of(self, bind: ClaimBind) -> ClaimAllocation | None:
        """What a claim of the plan gets, or has already."""
        claim = self._catalog.claims.get(bind.key)
        return bind.allocation or (claim.allocation if claim is not None else None)

    def twice_given(self, pod: Pod) -> tuple[str, str, str] | None:
        """A claim of a pod, its device that another claim has as well, and that claim; None for none."""
        for claim in self.claims_of(pod):
            held = () if claim is None or claim.allocation is None else claim.allocation.devices
            for device in held:
                key = DeviceId(device.driver, device.pool, device.device)
                taken = self._first.holding(key)
                if claim is not None and taken is not None and taken.whole > 1 and not device.admin:
                    other = min(self._holders(key) - {claim.key}, default=claim.key)
                    return claim.name, device.device, str(other)
        return None

    def _holders(self, device: DeviceId) -> set[ObjectKey]:
        return {
            claim.key
            for claim in self._catalog.claims.values()
            if claim.allocation is not None and device in _held_devices(claim.allocation)
        }

    def claim_binds(self, pod: Pod) -> tuple[ClaimBind, ...]:
        """What is written of a pod's claims before it is bound."""
        given = self._given.by_uid.get(pod.uid)
        left = iter(() if given is None else given.allocations)
        found = []
        for each, claim in zip(pod.pod_class.claims, self.claims_of(pod), strict=True):
            if claim is not None:
                allocation = next(left) if claim.allocation is None or each.template else None
                found.append(ClaimBind(claim.key, claim.uid, allocation))
        return tuple(found)


def _held_alone(catalog: DeviceCatalog) -> dict[UID, list[ClaimAllocation]]:
    """Allocations that are reserved for one pod alone, by its UID."""
    held: dict[UID, list[ClaimAllocation]] = {}
    for claim in catalog.claims.values():
        if claim.allocation is not None and len(claim.reserved_for) == 1:
            held.setdefault(claim.reserved_for[0].uid, []).append(claim.allocation)
    return held


def _held_devices(allocation: ClaimAllocation) -> Iterator[DeviceId]:
    """Devices of which an allocation takes something; those for administration are not taken."""
    for each in allocation.devices:
        if not each.admin:
            yield DeviceId(each.driver, each.pool, each.device)


def _unneeded(pod: Pod) -> frozenset[str]:
    """Names of claims that the API says the pod does not need."""
    return frozenset(name for name, claim in pod.generated_claims if not claim)
