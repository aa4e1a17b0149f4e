"""What is told of devices: what keeps them from claims, who holds them, and which some pods have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.slices import Device
from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.devices.fit import DeviceAnswers
from gpusched.devices.inventory import DeviceId, PoolDevice, PoolId
from gpusched.devices.shortage.causes import (
    Holders,
    Relief,
    RequestShortage,
    describe_request,
    find_reliefs,
)
from gpusched.session.state.nodes.devices.claims_by_class import ClaimsByClass
from gpusched.session.state.nodes.devices.device_counts import PODS_MAX
from gpusched.session.state.nodes.devices.device_rows import DeviceRows
from gpusched.session.state.nodes.devices.pod_claims import PodClaims, held_devices
from gpusched.session.state.nodes.devices.taken_devices import TakenDevices


class DeviceReport:
    """See the module.

    Args:
        catalog: of the snapshot.
        rows: of its nodes.
        claims: of classes.
        pod_claims: the claims that pods mean.
        taken: what is taken.
        answers: about nodes that are alike.
    """

    def __init__(
        self,
        catalog: DeviceCatalog,
        rows: DeviceRows,
        claims: ClaimsByClass,
        pod_claims: PodClaims,
        *,
        taken: TakenDevices,
        answers: DeviceAnswers,
    ) -> None:
        self._catalog = catalog
        self._rows = rows
        self._claims = claims
        self._pod_claims = pod_claims
        self._taken = taken
        self._answers = answers

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
            (self._rows.node_devices(row), has_room)
            for row, has_room in rows
            if not self._claims.published_resources(pod_class, row)
        ]
        return [
            describe_request(
                self._rows.inventory,
                self._taken.usage,
                nodes,
                claim,
                alternatives[-1],
                holders=holders,
            )
            for claim in self._claims.class_claims(pod_class).without_devices
            for alternatives in claim.requests
        ]

    def find_reliefs(
        self, pod_class: PodClass, rows: Sequence[int], *, most: int
    ) -> tuple[Relief, ...]:
        """Without which constraint or request more pods of a class would find devices on some rows."""
        return find_reliefs(
            self._rows.inventory,
            self._taken.usage,
            [
                self._rows.node_devices(row)
                for row in rows
                if not self._claims.published_resources(pod_class, row)
            ],
            self._claims.class_claims(pod_class).own,
            most=min(most, PODS_MAX),
            counts=self._answers.counts,
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
            for claim in self._claims.with_hold(pod_class, None).without_devices
            for alternatives in claim.requests
            for each in alternatives
            if not requests or each.parent in requests or each.name in requests
        }
        found: dict[PoolId, dict[str, tuple[PoolDevice, bool]]] = {}
        usage = self._taken.usage
        for row in range(len(self._rows.nodes)) if selectors else ():
            for device, pool in self._rows.node_devices(row).usable:
                known = found.setdefault(pool.id, {})
                if device.id.device not in known and any(
                    device.matches_selectors(each) is True for each in selectors
                ):
                    held = usage.find_holding(device.id)
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
        made = [each for each in self._pod_claims.claims_of(pod) if each is not None]
        given = map(self._taken.given.by_uid.get, (pod.uid, *(each.uid for each in made)))
        allocations = [held for each in given if each is not None for held in each.allocations]
        of_claims = [each.allocation for each in made]
        for allocation in (*allocations, *of_claims):
            for each in allocation.devices if allocation is not None else ():
                names = {each.request, each.request.partition("/")[0]}
                device = self._rows.inventory.find_device(
                    DeviceId(each.driver, each.pool, each.device)
                )
                if device is not None and (not requests or names & set(requests)):
                    found.append((each.driver, device))
        return found
