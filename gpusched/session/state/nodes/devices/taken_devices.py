"""What is taken of devices in a session, now and once the pods that leave are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import ClaimAllocation
from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod
from gpusched.arrays.node_usage import NodeUsage
from gpusched.devices.inventory import DeviceId
from gpusched.devices.usage import DeviceUsage
from gpusched.session.state.nodes.devices.device_rows import DeviceRows
from gpusched.session.state.nodes.devices.pod_claims import GivenPods, held_devices


class TakenDevices:
    """See the module.

    Args:
        catalog: of the snapshot.
        first: what was taken before the session gave anything; never changed.
        rows: of the nodes.
        node_usage: of the session, which says whether it looks at later.
        leaving: UIDs of pods that are being deleted, whose devices will be free.
    """

    def __init__(
        self,
        catalog: DeviceCatalog,
        first: DeviceUsage,
        rows: DeviceRows,
        node_usage: NodeUsage,
        leaving: Callable[[], Iterable[UID]],
    ) -> None:
        self._catalog = catalog
        self._rows = rows
        self._node_usage = node_usage
        self.first = first
        self.now = first.copy()
        """What is taken or nominated: what a nomination holds is given to nobody else meanwhile."""
        self._leaving = leaving
        self._changed_later: DeviceUsage | None = None
        """Usage once the pods that leave are gone; None while nothing was asked about it."""
        self._held: dict[UID, list[ClaimAllocation]] | None = None
        self.given = GivenPods()
        self.nominated = GivenPods()
        self.moves = 0
        """A number that changes whenever devices change hands in this session."""

    @property
    def looks_later(self) -> bool:
        """Whether the session looks at what is free once the pods that leave are gone."""
        return self._node_usage.later

    @property
    def usage(self) -> DeviceUsage:
        """What is taken now or later, as the session looks at it."""
        return self.later if self._node_usage.later else self.now

    @property
    def later(self) -> DeviceUsage:
        """What is taken once the pods that leave are gone."""
        if self._changed_later is None:
            self._changed_later = self.now.copy()
            for uid in self._leaving():
                for each in self._held_by(uid):
                    self._changed_later.add(each.devices, times=-1)
        return self._changed_later

    def usage_of_place(self, *, nominated: bool) -> DeviceUsage:
        """What is taken when a place is used: later for a nomination."""
        return self.later if nominated else self.now

    def given_pods(self, *, nominated: bool) -> GivenPods:
        """Pods with nominations, or with places."""
        return self.nominated if nominated else self.given

    def move_devices(
        self, allocations: Sequence[ClaimAllocation], *, nominated: bool, times: int
    ) -> None:
        """Take devices for a place, or give them back with ``times`` -1."""
        self.moves += 1
        self.shift_devices(allocations, nominated=nominated, times=times)

    def shift_devices(
        self, allocations: Sequence[ClaimAllocation], *, nominated: bool, times: int
    ) -> None:
        """The same where it is taken back before anything else is asked."""
        later = self.later if nominated else self._changed_later
        for each in allocations:
            if later is not None:
                later.add(each.devices, times=times)
            self.now.add(each.devices, times=times)

    def touch_rows(self, row: int, *, all_rows: bool) -> None:
        """Other nodes may reach what was taken on this one, or be open to users of a shared claim."""
        if all_rows or self._rows.shares_pools(row):
            self._node_usage.touched_rows.extend(range(len(self._node_usage.nodes)))

    def note_leaving(self, pod: Pod, *, times: int = 1) -> None:
        """A pod leaves its node: what is reserved for it alone is free later; -1 takes it back."""
        self.moves += 1
        for each in self._held_by(pod.uid):
            self.later.add(each.devices, times=-times)

    def given_devices(self) -> Iterator[tuple[UID, DeviceId]]:
        """Devices that this session gave or that are nominated, each with the pod's UID."""
        for uid, each in (*self.given.by_uid.items(), *self.nominated.by_uid.items()):
            for allocation in each.allocations:
                for device in held_devices(allocation):
                    yield uid, device

    def held_later(self, row: int) -> list[DeviceId]:
        """Devices of a row's pools of which somebody has anything once the pods that leave are gone."""
        found = []
        for part in self._rows.node_devices(row).pools:
            used = self.later.find_pool(part.pool.id)
            if used is not None:
                names = used.holdings.keys() & part.places.keys()
                found += [part.devices[part.places[name]].id for name in names]
        return found

    def held_alone(self, pod: Pod) -> Iterator[DeviceId]:
        """Devices that are free once a pod leaves: of claims of its own, or given in this session."""
        given = self.given.by_uid.get(pod.uid)
        for each in (*self._held_by(pod.uid), *(() if given is None else given.allocations)):
            yield from held_devices(each)

    def _held_by(self, uid: UID) -> Sequence[ClaimAllocation]:
        """Allocations that are reserved for one pod alone."""
        if self._held is None:
            self._held = _held_alone(self._catalog)
        return self._held.get(uid, ())


def _held_alone(catalog: DeviceCatalog) -> dict[UID, list[ClaimAllocation]]:
    """Allocations that are reserved for one pod alone, by its UID."""
    held: dict[UID, list[ClaimAllocation]] = {}
    for claim in catalog.claims.values():
        if claim.allocation is not None and len(claim.reserved_for) == 1:
            held.setdefault(claim.reserved_for[0].uid, []).append(claim.allocation)
    return held
