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

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import (
    ClaimAllocation,
    ExtendedRequest,
)
from gpusched.api.devices.dynamic.slices import Device
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools, Ints
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.errors import InvariantBroken
from gpusched.devices.allocator import REPELS, Allocation, AllocationOutcome
from gpusched.devices.extended_resources import extended_claim_name
from gpusched.devices.fit import (
    AskedClaims,
    PodCount,
    allocate_on_node,
    allocate_together,
    mixes,
)
from gpusched.devices.inventory import REMEMBERED_MAX, DeviceId, NodeDevices, PoolDevice, PoolId
from gpusched.devices.requests import DeviceHold, ReadyClaim, ReadyRequest
from gpusched.devices.search.node_signature import NodeSignature, node_signature
from gpusched.devices.shortage.causes import (
    Holders,
    Relief,
    RequestShortage,
    describe_request,
    reliefs,
)
from gpusched.devices.usage import DeviceUsage
from gpusched.placement.model.class_fit import Caps
from gpusched.session.state.nodes.device_cache import DeviceCache
from gpusched.session.state.nodes.device_reaches import DeviceReaches
from gpusched.session.state.nodes.pod_claims import (
    ClassClaims,
    GivenClaims,
    GivenPods,
    PodClaims,
    SharedClaim,
    held_devices,
    read_class_claims,
)
from gpusched.session.state.plan import ClaimBind

_PODS_MAX: Final = 64
"""Pods of one class on one node whose devices are counted at once."""
_NOTHING_CHOSEN: Final[Mapping[UID, Bools]] = MappingProxyType({})
_JOINT_PODS_MAX: Final = 32
"""Pods on nodes that share devices whose devices are chosen anew together."""
_MIXES_MAX: Final = 100
"""Counts of several classes on one node that are gone through."""


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
        self.pod_claims = PodClaims(catalog)
        self.reaches = DeviceReaches(self.inventory, node_usage.nodes.nodes)
        self._first = cache.usage(catalog)
        """What was taken before the session gave anything; never changed."""
        self._now = self._first.copy()
        """What is taken or nominated: what a nomination holds is given to nobody else meanwhile."""
        self._devices_of_row: dict[int, NodeDevices] = {}
        self._sharing: dict[int, bool] = {}
        """Whether a row reaches devices that other nodes may reach too."""
        self._signatures: dict[
            tuple[int, bool], tuple[dict[int, NodeSignature], dict[NodeSignature, NodeSignature]]
        ] = {}
        """By what is asked, now or later, signatures of rows; each stands for all that are equal."""
        self._signatures_at = 0
        """Moves after which these were made."""
        self._leaving = leaving
        self._changed_later: DeviceUsage | None = None
        """Usage once the pods that leave are gone; None while nothing was asked about it."""
        self._held: dict[UID, list[ClaimAllocation]] | None = None
        self._classes: dict[tuple[str, DeviceHold | None, tuple[str, ...]], ClassClaims] = {}
        self.hold: DeviceHold | None = None
        """What devices that are given now are held to, see ``held_to``."""
        self._holds: dict[UID, DeviceHold] = {}
        """What devices of pods that were given any were held to."""
        self._given = GivenPods()
        self._nominated = GivenPods()
        self._uncertain: set[tuple[str, int]] = set()
        self._given_up: dict[tuple[str, int], int] = {}
        """Pods with places by class and row beside which the search for devices of one more ended early."""
        self._chosen: Mapping[UID, Bools] = _NOTHING_CHOSEN
        """Rows of nodes that are to reach the devices of shared claims, by UID."""
        self._wide: tuple[object, object, list[ClaimAllocation] | None] = (None, None, None)
        """The last answer of ``_allocate_wide``, with what was asked and which nodes were chosen."""
        self._moves = 0
        self._found: tuple[object, dict[UID, GivenClaims] | None] = (None, None)
        """The last answer of ``can_take``, with what was asked and after how many moves."""

    # -- classes -----------------------------------------------------------------------------
    def class_claims(self, pod_class: PodClass) -> ClassClaims:
        """Claims of a class, made ready for allocation once, where devices serve its extended resources."""
        return self._class_claims(pod_class, self.hold)

    def claims_on(self, pod_class: PodClass, row: int) -> ClassClaims:
        """Claims of a class on a row, which may have some of its extended resources itself."""
        return self._class_claims(pod_class, self.hold, self.published(pod_class, row))

    def published(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        """Extended resources of a class's last claim that a row has itself, not as devices."""
        extended = pod_class.claims[-1].extended if pod_class.claims else ()
        if not extended:
            return ()
        node = self._node_usage.nodes.nodes[row]
        names = dict.fromkeys(each.resource for each in extended)
        return tuple(
            name for name in names if name not in node.devices_only and node.allocatable.get(name)
        )

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

    def _class_claims(
        self, pod_class: PodClass, hold: DeviceHold | None, published: tuple[str, ...] = ()
    ) -> ClassClaims:
        key = (pod_class.digest, hold, published)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = read_class_claims(
                pod_class, self._catalog, self._cache.answers.make_asked, hold, published
            )
        return known

    def _claims_to_give(self, pod: Pod, row: int) -> ClassClaims:
        """Claims of a pod on a row, held as now or, where nothing is now, as those that it was given before."""
        hold = self.hold or self._holds.get(pod.uid)
        return self._class_claims(pod.pod_class, hold, self.published(pod.pod_class, row))

    def describe_shortage(
        self, pod_class: PodClass, rows: Sequence[tuple[int, bool]], holders: Holders
    ) -> list[RequestShortage]:
        """What keeps devices from the last alternative of each request of a class.

        Args:
            pod_class: with claims.
            rows: of nodes, with whether each has room for the pod beside devices.
            holders: of devices.
        """
        nodes = [
            (self._node_devices(row), has_room)
            for row, has_room in rows
            if not self.published(pod_class, row)
        ]
        return [
            describe_request(
                self.inventory, self._usage, nodes, claim, alternatives[-1], holders=holders
            )
            for claim in self.class_claims(pod_class).without_devices
            for alternatives in claim.requests
        ]

    def reliefs(self, pod_class: PodClass, rows: Sequence[int], *, most: int) -> tuple[Relief, ...]:
        """Without which constraint or request more pods of a class would find devices on some rows."""
        return reliefs(
            self.inventory,
            self._usage,
            [self._node_devices(row) for row in rows if not self.published(pod_class, row)],
            self.class_claims(pod_class).own,
            most=min(most, _PODS_MAX),
            counts=self._cache.answers.counts,
        )

    def devices_by_consumer(self) -> Iterator[tuple[UID, str, DeviceId]]:
        """Devices in use, each with UID and name of a pod that they are for, or the name of their claim."""
        for claim in self._catalog.claims.values():
            if claim.allocation is None:
                continue
            for device in held_devices(claim.allocation):
                for each in claim.reserved_for:
                    yield each.uid, f"{claim.namespace}/{each.name}", device
                if not claim.reserved_for:
                    yield claim.uid, f"claim {claim.key}", device

    def given_devices(self) -> Iterator[tuple[UID, DeviceId]]:
        """Devices that this session gave or that are nominated, each with the pod's UID."""
        for uid, each in (*self._given.by_uid.items(), *self._nominated.by_uid.items()):
            for allocation in each.allocations:
                for device in held_devices(allocation):
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
            for claim in self._class_claims(pod_class, None).without_devices
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
        made = [each for each in self.pod_claims.claims_of(pod) if each is not None]
        given = map(self._given.by_uid.get, (pod.uid, *(each.uid for each in made)))
        allocations = [held for each in given if each is not None for held in each.allocations]
        of_claims = [each.allocation for each in made]
        for allocation in (*allocations, *of_claims):
            for each in allocation.devices if allocation is not None else ():
                names = {each.request, each.request.partition("/")[0]}
                device = self.inventory.device(DeviceId(each.driver, each.pool, each.device))
                if device is not None and (not requests or names & set(requests)):
                    found.append((each.driver, device))
        return found

    def _node_devices(self, row: int) -> NodeDevices:
        known = self._devices_of_row.get(row)
        if known is None:
            node = self._node_usage.nodes.nodes[row]
            known = self.inventory.node_devices(node.name, node.labels)
            self._devices_of_row[row] = known
        return known

    def caps(self, pod_class: PodClass) -> Caps | None:
        """What lowers how many pods of a class fit some rows; None for classes without claims."""
        if not pod_class.claims:
            return None

        hold = self.hold

        def lower(rows: Sequence[int] | slice, fits: Ints) -> None:
            numbers = range(len(fits)) if isinstance(rows, slice) else rows
            with self.held_to(hold):
                asked = [
                    (position, row, most)
                    for position, (row, most) in enumerate(zip(numbers, fits.tolist(), strict=True))
                    if most
                ]
                for position, row, most in self._lower_by_known(pod_class, asked, fits):
                    fits[position] = self.count(pod_class, row, most=most)

        return lower

    def _lower_by_known(
        self, pod_class: PodClass, asked: Sequence[tuple[int, int, int]], fits: Ints
    ) -> list[tuple[int, int, int]]:
        """Lower fits by what is remembered of equal nodes; what is left to be counted is returned.

        Args:
            pod_class: of the pods.
            asked: places in ``fits``, each with its row and the pods that are asked about.
            fits: of the rows, changed in place.
        """
        claims = self.class_claims(pod_class)
        if claims.fault or claims.nodes or claims.shared or claims.asked is None or self._given_up:
            return list(asked)
        if claims.extended:
            left = [each for each in asked if self.published(pod_class, each[1])]
            if left:
                served = [each for each in asked if not self.published(pod_class, each[1])]
                return [*left, *self._lower_by_known(pod_class, served, fits)]
        signatures = self._known_signatures(claims.asked, [row for _, row, _ in asked])
        given = self._nominated if self._node_usage.later else self._given
        counts: dict[tuple[int, int], PodCount | None] = {}
        left = []
        for position, row, most in asked:
            signature, pods = signatures.get(row), min(most, _PODS_MAX)
            count = None
            if signature is not None:
                key = (id(signature), pods)
                if key not in counts:
                    counts[key] = self._cache.answers.known_count(
                        claims.asked, signature, most=pods
                    )
                count = counts[key]
            if count is None or count.bounded:
                left.append((position, row, most))
            elif count.most == pods or not (given.on_row(row) or self._shares_pools(row)):
                fits[position] = count.most
            else:  # pods that were given places may change their devices
                left.append((position, row, most))
        return left

    def _known_signatures(
        self, asked: AskedClaims, rows: Sequence[int]
    ) -> Mapping[int, NodeSignature]:
        """Signatures of rows as they are now, equal ones one object; without rows that have none yet."""
        if self._signatures_at != self._moves:
            self._signatures_at = self._moves
            self._signatures.clear()
        found, same = self._signatures.setdefault((asked.number, self._node_usage.later), ({}, {}))
        for row in rows:
            if row not in found:
                signature = self._cache.answers.known_signature(
                    self._usage, self._node_devices(row), asked
                )
                if signature is not None:
                    found[row] = same.setdefault(signature, signature)
        return found

    def count(self, pod_class: PodClass, row: int, *, most: int) -> int:
        """How many more pods of a class find devices on a row, ``most`` at most."""
        most = self._found_in_time(pod_class, row, most)
        if most <= 0:
            return 0
        claims = self.claims_on(pod_class, row)
        if claims.fault:
            return 0
        node = self._node_usage.nodes.nodes[row]
        if claims.nodes and not all(
            any(term.matches(node.labels, name=node.name) for term in terms)
            for terms in claims.nodes
        ):
            return 0
        unserved = self._unserved(claims, row)
        if unserved is None:
            return 0
        if not claims.shared:
            return self._count_served(pod_class, unserved, row, most=most)
        nominated = self._node_usage.later
        wide = self._find_wide(claims, row, nominated=nominated)
        if wide is None:
            return 0
        for each in wide.values():
            self._shift(each.allocations, nominated=nominated, times=1)
        found = self._count_served(pod_class, unserved, row, most=most)
        for each in wide.values():
            self._shift(each.allocations, nominated=nominated, times=-1)
        return found

    def _found_in_time(self, pod_class: PodClass, row: int, most: int) -> int:
        """Of so many pods of a class those for which no search on a row ended early, beside those with places there."""
        known = self._given_up.get((pod_class.digest, row))
        if known is None:
            return most
        return min(most, known - len(self._places(nominated=self._node_usage.later).on_row(row)))

    def _places(self, *, nominated: bool) -> GivenPods:
        return self._nominated if nominated else self._given

    def _count_served(
        self, pod_class: PodClass, unserved: Sequence[SharedClaim], row: int, *, most: int
    ) -> int:
        """How many pods find devices of their own on a row, with shared claims that are served there."""
        asked = self.claims_on(pod_class, row).asked
        beside = [each.asked for each in unserved]
        if asked is not None:
            return self._count_own(pod_class, asked, row, most=min(most, _PODS_MAX), beside=beside)
        if not beside:
            return most
        together = self._ask_for([each.ready for each in unserved])
        return most if self._count_own(pod_class, together, row, most=1, beside=()) else 0

    def _ask_for(self, claims: Sequence[ReadyClaim]) -> AskedClaims:
        return self._cache.answers.make_asked(tuple(claims))

    def _count_own(
        self,
        pod_class: PodClass,
        asked: AskedClaims,
        row: int,
        *,
        most: int,
        beside: Sequence[AskedClaims],
    ) -> int:
        """How often some claims are served on a row, with others that are served once."""
        devices, answers = self._node_devices(row), self._cache.answers
        found = answers.count(self.inventory, self._usage, devices, asked, most=most, beside=beside)
        if found.most < most:
            nominated = self._node_usage.later
            given = (self._nominated if nominated else self._given).on_row(row)
            if given:
                found = self._count_beside(
                    asked, devices, list(given.values()), most=most, more=beside
                )
        if found.most < most and not beside and self._shares_pools(row):
            found = self._count_jointly(asked, row, found, most=most)
        if found.bounded:
            self._uncertain.add((pod_class.digest, row))
        return found.most

    def _shares_pools(self, row: int) -> bool:
        known = self._sharing.get(row)
        if known is None:
            known = self._sharing[row] = self.reaches_shared_pools(row)
        return known

    def _count_jointly(
        self, asked: AskedClaims, row: int, known: PodCount, *, most: int
    ) -> PodCount:
        """The same where pods on other nodes may change the devices that both reach."""
        nominated = self._node_usage.later
        beside = self._sharing_pods(nominated=nominated)
        if all(each.row == row for each in beside.values()):
            return known
        if len(beside) >= _JOINT_PODS_MAX:
            return attrs.evolve(known, bounded=True)
        one = GivenClaims(row, ClassClaims(own=asked.claims, asked=asked), ())
        while known.most < most:
            pods = [*beside.values(), *[one] * (known.most + 1)]
            found = self._allocate_jointly(pods, beside, nominated=nominated)
            if found.outcome is not AllocationOutcome.ALLOCATED:
                bounded = found.outcome is AllocationOutcome.BOUNDED
                return attrs.evolve(known, bounded=known.bounded or bounded)
            known = PodCount(known.most + 1)
        return known

    def _sharing_pods(self, *, nominated: bool) -> dict[UID, GivenClaims]:
        """What this session gave on nodes that share pools with others, and may change."""
        given = self._nominated if nominated else self._given
        return {
            uid: each
            for uid, each in given.by_uid.items()
            if each.allocations and each.nodes is None and self._shares_pools(each.row)
        }

    def _allocate_jointly(
        self, pods: Sequence[GivenClaims], given: Mapping[UID, GivenClaims], *, nominated: bool
    ) -> Allocation:
        """Devices for pods on several nodes, as if some of them had none yet."""
        for each in given.values():
            self._shift(each.allocations, nominated=nominated, times=-1)
        usage = self._later if nominated else self._now
        found = allocate_together(
            self.inventory,
            usage,
            [(self._node_devices(each.row), each.claims.own) for each in pods],
        )
        for each in given.values():
            self._shift(each.allocations, nominated=nominated, times=1)
        return found

    def _count_beside(
        self,
        asked: AskedClaims,
        devices: NodeDevices,
        beside: Sequence[GivenClaims],
        *,
        most: int,
        more: Sequence[AskedClaims],
    ) -> PodCount:
        """The same where pods were given places in this session, which may change their devices."""
        nominated = self._node_usage.later
        others = [each.claims.asked for each in beside if each.claims.asked is not None]
        others += more
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
        kinds = [self.claims_on(each, row).own for each in classes]
        once = [
            {str(each.uid): each.ready for each in self._unserved(self.class_claims(of), row) or ()}
            for of in classes
        ]
        every = [claim for own in kinds for claim in own]
        every += [claim for shared in once for claim in shared.values()]
        signature = node_signature(self.inventory, self._usage, devices, every)
        sorts = tuple(tuple(e.sort for e in own) for own in kinds)
        shared_sorts = tuple(tuple((uid, e.sort) for uid, e in each.items()) for each in once)
        key = (signature, sorts, shared_sorts, tuple(most))
        known = self._cache.answers.mixes.get(key)
        if known is None:
            known = mixes(self.inventory, self._usage, devices, kinds, most=most, once=once)
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
        """Whether a pod finds devices on a row, now or later as the session looks at it.

        Where it finds none although some were counted, a search ended early: no more pods of its class are counted there.
        """
        nominated = self._node_usage.later
        found = self._find(pod, row, nominated=nominated)
        self._found = ((pod.uid, row, nominated, self._moves), found)
        if found is None:
            key = (pod.pod_class.digest, row)
            self._given_up[key] = len(self._places(nominated=nominated).on_row(row))
            self._uncertain.add(key)
            self._node_usage.touched_rows.append(row)
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
        shared = len(given.by_uid.keys() & found.keys()) + 1 < len(found)
        for uid in found:
            before = given.pop(uid)
            if before is not None:
                self._move(before.allocations, nominated=nominated, times=-1)
        for uid, place in found.items():
            self._move(place.allocations, nominated=nominated, times=1)
            given.put(uid, place)
        given.use(pod.uid, self.class_claims(pod.pod_class))
        self._touch(row, all_rows=shared)

    def give_back(self, pod: Pod, *, nominated: bool) -> None:
        """Undo ``take``; a nomination of an earlier session may have found none."""
        given = self._nominated if nominated else self._given
        place = given.pop(pod.uid)
        if place is None:
            return
        unused = given.unused_without(pod.uid, place.claims)
        for each in (place, *filter(None, map(given.pop, unused))):
            self._move(each.allocations, nominated=nominated, times=-1)
        self._touch(place.row, all_rows=bool(unused))

    def take_again(self, pod: Pod, row: int, *, nominated: bool) -> None:
        """Undo ``give_back``; where a nomination of an earlier session had none, nothing happens."""
        if not nominated or self._find(pod, row, nominated=True) is not None:
            self.take(pod, row, nominated=nominated)

    def _touch(self, row: int, *, all_rows: bool) -> None:
        """Other nodes may reach what was taken on this one, or be open to users of a shared claim."""
        if all_rows or self.inventory.shares_pools(self._node_usage.nodes.nodes[row].name):
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

    def _find(self, pod: Pod, row: int, *, nominated: bool) -> dict[UID, GivenClaims] | None:
        """Devices for the pod alone, else for all that this session placed on the row with it."""
        claims = self._claims_to_give(pod, row)
        unserved = self._unserved(claims, row)
        if unserved is None:
            return None
        wide = self._find_wide(claims, row, nominated=nominated)
        if wide is None:
            return None
        for each in wide.values():
            self._shift(each.allocations, nominated=nominated, times=1)
        found = self._find_local(pod, claims, unserved, row, nominated=nominated)
        for each in wide.values():
            self._shift(each.allocations, nominated=nominated, times=-1)
        return None if found is None else {**wide, **found}

    def _find_local(
        self,
        pod: Pod,
        claims: ClassClaims,
        unserved: Sequence[SharedClaim],
        row: int,
        *,
        nominated: bool,
    ) -> dict[UID, GivenClaims] | None:
        """The same for the pod's own claims, and those shared ones that are served on this node."""
        asked = claims.asked
        if unserved:
            asked = self._ask_for([*(each.ready for each in unserved), *claims.own])
        if asked is None:
            return {pod.uid: GivenClaims(row, claims, ())}
        devices = self._node_devices(row)
        usage = self._later if nominated else self._now
        new = {each.uid: GivenClaims(row, _alone(each), ()) for each in unserved}
        new[pod.uid] = GivenClaims(row, claims, ())
        alone = self._cache.answers.allocate(self.inventory, usage, devices, asked)
        if alone.outcome is AllocationOutcome.ALLOCATED:
            return self._with_allocations(new, alone.claims)
        everyone = dict((self._nominated if nominated else self._given).on_row(row))
        if not everyone:
            return self._find_jointly(new, row, nominated=nominated)
        for each in everyone.values():
            self._shift(each.allocations, nominated=nominated, times=-1)
        places = (*everyone.values(), *new.values())
        found = allocate_on_node(
            self.inventory, usage, devices, [each.claims.own for each in places]
        )
        for each in everyone.values():
            self._shift(each.allocations, nominated=nominated, times=1)
        if found.outcome is not AllocationOutcome.ALLOCATED:
            return self._find_jointly(new, row, nominated=nominated)
        return self._with_allocations({**everyone, **new}, found.claims)

    def _find_jointly(
        self, new: Mapping[UID, GivenClaims], row: int, *, nominated: bool
    ) -> dict[UID, GivenClaims] | None:
        """Devices for what is new on a row and for all that this session gave on nodes that share devices."""
        if not self._shares_pools(row):
            return None
        given = self._sharing_pods(nominated=nominated)
        if len(given) >= _JOINT_PODS_MAX or all(each.row == row for each in given.values()):
            return None
        everyone = {**given, **new}
        found = self._allocate_jointly(list(everyone.values()), given, nominated=nominated)
        if found.outcome is not AllocationOutcome.ALLOCATED:
            return None
        return self._with_allocations(everyone, found.claims)

    def _with_allocations(
        self, places: Mapping[UID, GivenClaims], allocations: Sequence[ClaimAllocation]
    ) -> dict[UID, GivenClaims]:
        """The same places, each with as many allocations as it has claims of its own."""
        left = iter(allocations)
        return {
            uid: GivenClaims(
                each.row, each.claims, tuple([next(left) for _ in each.claims.own]), each.nodes
            )
            for uid, each in places.items()
        }

    # -- claims that pods share --------------------------------------------------------------
    @contextmanager
    def choosing(self, nodes: Mapping[UID, Bools]) -> Iterator[None]:
        """Let shared claims without devices, by UID, get such as all of some nodes reach, shape (nodes,).

        Users of the claims are placed on these nodes alone.
        """
        before = self._chosen
        self._chosen = {**before, **nodes}
        self._touch(0, all_rows=True)
        try:
            yield
        finally:
            self._chosen = before
            self._touch(0, all_rows=True)

    def given_claim(self, uid: UID) -> GivenClaims | None:
        """What a shared claim was given in this session, now or later as it looks at it."""
        found = self._given.by_uid.get(uid)
        if found is None and self._node_usage.later:
            found = self._nominated.by_uid.get(uid)
        return found

    def _unserved(self, claims: ClassClaims, row: int) -> list[SharedClaim] | None:
        """Shared claims that a pod on a row needs served there; None where it cannot use one."""
        unserved = []
        for each in claims.shared:
            given = self.given_claim(each.uid)
            chosen = self._chosen.get(each.uid)
            if given is not None:
                if not given.reaches(row):
                    return None
            elif chosen is None or not chosen[row]:
                if chosen is not None:
                    return None
                unserved.append(each)
            elif int(chosen.sum()) == 1:
                unserved.append(each)
        return unserved

    def _find_wide(
        self, claims: ClassClaims, row: int, *, nominated: bool
    ) -> dict[UID, GivenClaims] | None:
        """Devices that all chosen nodes reach, for shared claims for which several were chosen."""
        wanted = [
            each
            for each in claims.shared
            if each.uid in self._chosen
            and self.given_claim(each.uid) is None
            and int(self._chosen[each.uid].sum()) > 1
        ]
        if not wanted:
            return {}
        question = (tuple(each.uid for each in wanted), nominated, self._moves, self.hold)
        if self._wide[0] != question or self._wide[1] is not self._chosen:
            found = self._allocate_wide(wanted, nominated=nominated)
            self._wide = (question, self._chosen, found)
        allocations = self._wide[2]
        if allocations is None:
            return None
        return {
            each.uid: GivenClaims(
                row, _alone(each), (allocation,), self.reaches.rows_of(allocation)
            )
            for each, allocation in zip(wanted, allocations, strict=True)
        }

    def _allocate_wide(
        self, claims: Sequence[SharedClaim], *, nominated: bool
    ) -> list[ClaimAllocation] | None:
        usage = (self._later if nominated else self._now).copy()
        found = []
        for each in claims:
            allocation = self.reaches.allocate(usage, each.ready, self._chosen[each.uid])
            if allocation is None:
                return None
            usage.add(allocation.devices)
            found.append(allocation)
        return found

    def allocate_wide(self, claim: SharedClaim, rows: Bools) -> ClaimAllocation | None:
        """Devices for a shared claim that all of some rows reach; None where there are none."""
        return self.reaches.allocate(self._usage, claim.ready, rows)

    # -- victims -----------------------------------------------------------------------------
    def leave(self, pod: Pod, *, times: int = 1) -> None:
        """A pod leaves its node: what is reserved for it alone is free later; -1 takes it back."""
        self._moves += 1
        for each in self._held_by(pod.uid):
            self._later.add(each.devices, times=-times)

    def matching(self, row: int, request: ReadyRequest) -> Iterator[PoolDevice]:
        """Devices that a row reaches and a request matches and tolerates, in use or not."""
        node = self._node_devices(row)
        for number in self.inventory.select(node, request.selectors).chosen:
            device, pool = node.listed[number]
            if pool.is_usable and (
                not device.taints
                or all(
                    taint.effect not in REPELS
                    or any(each.tolerates(taint) for each in request.request.tolerations)
                    for taint in device.taints
                )
            ):
                yield device

    def reaches_shared_pools(self, row: int) -> bool:
        """Whether a row reaches devices that other nodes may reach too."""
        return self.inventory.shares_pools(self._node_usage.nodes.nodes[row].name)

    def matching_ids(self, row: int, request: ReadyRequest) -> frozenset[DeviceId]:
        """The same as ids, remembered for as long as the devices of the node are these."""
        known = self._node_devices(row).matching
        key = (request.selectors, request.request.tolerations)
        found = known.get(key)
        if found is None:
            if len(known) >= REMEMBERED_MAX:
                known.clear()
            found = known[key] = frozenset(each.id for each in self.matching(row, request))
        return found

    def held_later(self, row: int) -> list[DeviceId]:
        """Devices of a row's pools of which somebody has anything once the pods that leave are gone."""
        found = []
        for part in self._node_devices(row).pools:
            used = self._later.pool(part.pool.id)
            if used is not None:
                names = used.holdings.keys() & part.places.keys()
                found += [part.devices[part.places[name]].id for name in names]
        return found

    def held_alone(self, pod: Pod) -> Iterator[DeviceId]:
        """Devices that are free once a pod leaves: of claims of its own, or given in this session."""
        given = self._given.by_uid.get(pod.uid)
        for each in (*self._held_by(pod.uid), *(() if given is None else given.allocations)):
            yield from held_devices(each)

    def _held_by(self, uid: UID) -> Sequence[ClaimAllocation]:
        """Allocations that are reserved for one pod alone."""
        if self._held is None:
            self._held = _held_alone(self._catalog)
        return self._held.get(uid, ())

    # -- the plan ----------------------------------------------------------------------------
    def twice_given(self, pod: Pod) -> tuple[str, str, str] | None:
        """A claim of a pod, its device that another claim has as well, and that claim; None for none."""
        return self.pod_claims.twice_given(pod, self._first)

    def claim_binds(self, pod: Pod) -> tuple[ClaimBind, ...]:
        """What is written of a pod's claims before it is bound."""
        given = self._given.by_uid.get(pod.uid)
        left = iter(() if given is None else given.allocations)
        found = []
        for each, claim in zip(pod.pod_class.claims, self.pod_claims.claims_of(pod), strict=True):
            if each.extended:
                if given is not None and given.claims.extended:
                    found.append(_extended_bind(pod, next(left), given.claims.extended))
                continue
            if claim is not None:
                allocation = next(left) if each.template else None
                shared = self._given.by_uid.get(claim.uid)
                if not each.template and claim.allocation is None and shared is not None:
                    (allocation,) = shared.allocations
                whom = each.group.consumer if each.group is not None else None
                found.append(ClaimBind(claim.key, claim.uid, allocation, whom))
        return tuple(found)


def _extended_bind(
    pod: Pod, allocation: ClaimAllocation, requests: tuple[ExtendedRequest, ...]
) -> ClaimBind:
    key = ObjectKey(pod.namespace, extended_claim_name(pod.name, pod.uid))
    return ClaimBind(key, UID(""), allocation, extended=requests)


def _alone(claim: SharedClaim) -> ClassClaims:
    """A shared claim as if it were the only one of a pod."""
    return ClassClaims(own=(claim.ready,), asked=claim.asked)


def _held_alone(catalog: DeviceCatalog) -> dict[UID, list[ClaimAllocation]]:
    """Allocations that are reserved for one pod alone, by its UID."""
    held: dict[UID, list[ClaimAllocation]] = {}
    for claim in catalog.claims.values():
        if claim.allocation is not None and len(claim.reserved_for) == 1:
            held.setdefault(claim.reserved_for[0].uid, []).append(claim.allocation)
    return held
