"""What pods of each class claim on each row, and what their devices are held to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.devices.fit import DeviceAnswers
from gpusched.devices.requests import DeviceHold
from gpusched.session.state.nodes.devices.device_rows import DeviceRows
from gpusched.session.state.nodes.devices.pod_claims import ClassClaims, read_class_claims


class ClaimsByClass:
    """See the module.

    Args:
        catalog: of the snapshot.
        rows: of its nodes.
        answers: that give claims the number which equal ones share.
    """

    def __init__(self, catalog: DeviceCatalog, rows: DeviceRows, answers: DeviceAnswers) -> None:
        self._catalog = catalog
        self._rows = rows
        self._answers = answers
        self._classes: dict[tuple[str, DeviceHold | None, tuple[str, ...]], ClassClaims] = {}
        self.hold: DeviceHold | None = None
        """What devices that are given now are held to, see ``held_to``."""
        self._holds: dict[UID, DeviceHold] = {}
        """What devices of pods that were given any were held to."""

    def class_claims(self, pod_class: PodClass) -> ClassClaims:
        """Claims of a class, made ready for allocation once, where devices serve its extended resources."""
        return self.with_hold(pod_class, self.hold)

    def claims_on(self, pod_class: PodClass, row: int) -> ClassClaims:
        """Claims of a class on a row, which may have some of its extended resources itself."""
        return self.with_hold(pod_class, self.hold, self.published_resources(pod_class, row))

    def published_resources(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        """Extended resources of a class's last claim that a row has itself, not as devices."""
        extended = pod_class.claims[-1].extended if pod_class.claims else ()
        if not extended:
            return ()
        node = self._rows.nodes[row]
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

    def note_given(self, pod: Pod) -> None:
        """A pod is given devices, held as now."""
        if self.hold is not None:
            self._holds[pod.uid] = self.hold

    def claims_to_give(self, pod: Pod, row: int) -> ClassClaims:
        """Claims of a pod on a row, held as now or, where nothing is now, as those that it was given before."""
        hold = self.hold or self._holds.get(pod.uid)
        return self.with_hold(pod.pod_class, hold, self.published_resources(pod.pod_class, row))

    def with_hold(
        self, pod_class: PodClass, hold: DeviceHold | None, published: tuple[str, ...] = ()
    ) -> ClassClaims:
        """The same held to something, on nodes that have some of its extended resources themselves."""
        key = (pod_class.digest, hold, published)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = read_class_claims(
                pod_class, self._catalog, self._answers.make_asked, hold, published
            )
        return known
