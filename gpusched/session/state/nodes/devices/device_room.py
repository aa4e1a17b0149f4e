"""Devices of one session: how many pods of a class find theirs on a node, and which each pod gets.

Where devices are decided everything else is, too: a class's fit on a node counts them, a statement
that gives a place takes them, and one that is rolled back gives them back. Pods that were given
places on a node in this session may change devices among themselves, as nothing of it was sent yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import ClaimAllocation, ExtendedRequest
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.node_usage import NodeUsage
from gpusched.base.errors import InvariantBroken
from gpusched.devices.extended_resources import extended_claim_name
from gpusched.placement.model.class_fit import Caps
from gpusched.session.state.nodes.devices.claims_by_class import ClaimsByClass
from gpusched.session.state.nodes.devices.device_cache import DeviceCache
from gpusched.session.state.nodes.devices.device_counts import DeviceCounts
from gpusched.session.state.nodes.devices.device_reaches import DeviceReaches
from gpusched.session.state.nodes.devices.device_report import DeviceReport
from gpusched.session.state.nodes.devices.device_rows import DeviceRows
from gpusched.session.state.nodes.devices.device_search import DeviceSearch
from gpusched.session.state.nodes.devices.pod_claims import GivenClaims, PodClaims
from gpusched.session.state.nodes.devices.taken_devices import TakenDevices
from gpusched.session.state.plan import ClaimBind


class DeviceRoom:
    """Free devices of a session, now and once the pods that leave are gone.

    Args:
        catalog: of the snapshot.
        node_usage: of the session, which says whether it looks at later.
        cache: kept from session to session.
        leaving: UIDs of pods that are being deleted, whose devices will be free.

    Attributes:
        rows: devices that each node reaches.
        claims: of classes, and what their devices are held to.
        taken: what is taken, now and later.
        search: for the devices of one pod.
        counts: of pods that find devices.
        report: what is told of devices.
    """

    def __init__(
        self,
        catalog: DeviceCatalog,
        node_usage: NodeUsage,
        cache: DeviceCache,
        leaving: Callable[[], Iterable[UID]] = tuple,
    ) -> None:
        self._node_usage = node_usage
        self.inventory = cache.find_inventory(catalog)
        self.pod_claims = PodClaims(catalog)
        self.reaches = DeviceReaches(self.inventory, node_usage.nodes.nodes)
        answers = cache.answers
        self.rows = DeviceRows(self.inventory, node_usage.nodes.nodes)
        self.claims = ClaimsByClass(catalog, self.rows, answers)
        self.taken = TakenDevices(
            catalog, cache.claimed_usage(catalog), self.rows, node_usage, leaving
        )
        self.search = DeviceSearch(self.rows, self.claims, self.taken, self.reaches, answers)
        self.counts = DeviceCounts(self.rows, self.claims, self.taken, self.search, answers)
        self.report = DeviceReport(
            catalog, self.rows, self.claims, self.pod_claims, taken=self.taken, answers=answers
        )
        self._found: tuple[object, dict[UID, GivenClaims] | None] = (None, None)
        """The last answer of ``can_take``, with what was asked and after how many moves."""

    def class_caps(self, pod_class: PodClass) -> Caps | None:
        """What lowers how many pods of a class fit some rows; None for classes without claims."""
        return self.counts.class_caps(pod_class) if pod_class.claims else None

    @property
    def moves(self) -> int:
        """A number that changes whenever devices change hands in this session."""
        return self.taken.moves

    def can_take(self, pod: Pod, row: int) -> bool:
        """Whether a pod finds devices on a row, now or later as the session looks at it.

        Where it finds none although some were counted, a search ended early: no more pods of its class are counted there.
        """
        nominated = self.taken.looks_later
        found = self.search.find_devices(pod, row, nominated=nominated)
        self._found = ((pod.uid, row, nominated, self.taken.moves), found)
        if found is None:
            self.counts.give_up(pod, row, nominated=nominated)
            self._node_usage.touched_rows.append(row)
        return found is not None

    def take_devices(self, pod: Pod, row: int, *, nominated: bool) -> None:
        """Give a pod its devices on a row; others that this session placed there may change theirs.

        Args:
            pod: that gets the place.
            row: of the node.
            nominated: whether the place is a nomination, whose devices are free later.

        Raises:
            InvariantBroken: there are none; the caller read another fit.
        """
        question, found = self._found
        if question != (pod.uid, row, nominated, self.taken.moves):
            found = self.search.find_devices(pod, row, nominated=nominated)
        if found is None:
            raise InvariantBroken(f"pod {pod.key} finds no devices on row {row}")
        self.claims.note_given(pod)
        given = self.taken.given_pods(nominated=nominated)
        shared = len(given.by_uid.keys() & found.keys()) + 1 < len(found)
        for uid in found:
            before = given.pop_pod(uid)
            if before is not None:
                self.taken.move_devices(before.allocations, nominated=nominated, times=-1)
        for uid, place in found.items():
            self.taken.move_devices(place.allocations, nominated=nominated, times=1)
            given.enter_pod(uid, place)
        given.use_claims(pod.uid, self.claims.class_claims(pod.pod_class))
        self.taken.touch_rows(row, all_rows=shared)

    def give_back(self, pod: Pod, *, nominated: bool) -> None:
        """Undo ``take_devices``; a nomination of an earlier session may have found none."""
        given = self.taken.given_pods(nominated=nominated)
        place = given.pop_pod(pod.uid)
        if place is None:
            return
        unused = given.unused_without(pod.uid, place.claims)
        for each in (place, *filter(None, map(given.pop_pod, unused))):
            self.taken.move_devices(each.allocations, nominated=nominated, times=-1)
        self.taken.touch_rows(place.row, all_rows=bool(unused))

    def take_again(self, pod: Pod, row: int, *, nominated: bool) -> None:
        """Undo ``give_back``; where a nomination of an earlier session had none, nothing happens."""
        if not nominated or self.search.find_devices(pod, row, nominated=True) is not None:
            self.take_devices(pod, row, nominated=nominated)

    # -- the plan ----------------------------------------------------------------------------
    def twice_given(self, pod: Pod) -> tuple[str, str, str] | None:
        """A claim of a pod, its device that another claim has as well, and that claim; None for none."""
        return self.pod_claims.twice_given(pod, self.taken.first)

    def claim_binds(self, pod: Pod) -> tuple[ClaimBind, ...]:
        """What is written of a pod's claims before it is bound."""
        given = self.taken.given.by_uid.get(pod.uid)
        left = iter(() if given is None else given.allocations)
        found = []
        for each, claim in zip(pod.pod_class.claims, self.pod_claims.claims_of(pod), strict=True):
            if each.extended:
                if given is not None and given.claims.extended:
                    found.append(_extended_bind(pod, next(left), given.claims.extended))
                continue
            if claim is not None:
                allocation = next(left) if each.template else None
                shared = self.taken.given.by_uid.get(claim.uid)
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
