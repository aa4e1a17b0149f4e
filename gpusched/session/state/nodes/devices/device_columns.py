"""Devices as columns beside amounts of nodes: how many that a request matches are free on a node, and held by each pod.

Each column is a number that any way to serve the claimants needs at least, so that what columns rule
out is impossible. Where requests are plain numbers of whole devices it is also enough; elsewhere
(constraints, alternatives, ``All``) what is chosen by columns is proven by placing the gang.
Devices that consume counters or are shared have no columns: what leaves frees other ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.api.devices.dynamic.claims import AllocationMode
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Bools
from gpusched.base.classes import define
from gpusched.devices.extended_resources import is_extended_title
from gpusched.devices.inventory import DeviceId
from gpusched.devices.requests import ReadyClaim, ReadyRequest
from gpusched.session.state.nodes.devices.device_room import DeviceRoom
from gpusched.session.state.session import Session

_Amounts = tuple[int, ...]


@define(slots=True, eq=False)
class DeviceColumns:
    """Columns of devices for claimants of some classes.

    Attributes:
        requests: one that stands for each column.
        amounts: devices of each column that one pod needs, by class.
        exact: whether devices are served wherever the columns suffice.
        digests: of the classes.
    """

    _room: DeviceRoom | None
    requests: tuple[ReadyRequest, ...]
    amounts: tuple[_Amounts, ...]
    exact: bool
    digests: tuple[str, ...] = ()
    _matching: dict[int, tuple[frozenset[DeviceId], ...]] = attrs.field(factory=dict)

    @property
    def largest_amounts(self) -> _Amounts:
        """The largest amount of any class, by column."""
        return tuple(map(max, zip(*self.amounts, strict=True)))

    def free_devices(self, row: int) -> list[int]:
        """Devices of each column that nobody has on a row once pods that leave are gone."""
        if self._room is None:
            return []
        return [
            every - used for every, used in zip(self.all_of(row), self.in_use(row), strict=True)
        ]

    def in_use(self, row: int) -> list[int]:
        """Devices of each column of which somebody has anything on a row once pods that leave are gone."""
        if self._room is None:
            return []
        held = self._room.taken.held_later(row)
        return [
            sum(device in devices for device in held) if held else 0
            for devices in self.devices_of(row)
        ]

    def all_of(self, row: int) -> list[int]:
        """Devices of each column that a row reaches, in use or not."""
        return [] if self._room is None else [len(devices) for devices in self.devices_of(row)]

    def amounts_of(self, pod_class: PodClass) -> _Amounts:
        """Devices of each column that a pod of a class needs; none of a class that is not asked about."""
        if pod_class.digest in self.digests:
            return self.amounts[self.digests.index(pod_class.digest)]
        return (0,) * len(self.requests)

    def freed_by(self, pod: Pod, row: int) -> _Amounts:
        """Devices of each column that a pod has for itself alone on a row."""
        if self._room is None:
            return ()
        held = frozenset(self._room.taken.held_alone(pod)) if pod.pod_class.claims else frozenset()
        return tuple(len(held & devices) for devices in self.devices_of(row))

    def devices_of(self, row: int) -> tuple[frozenset[DeviceId], ...]:
        """Devices of each column on a row, in use or not."""
        known = self._matching.get(row)
        if known is None:
            assert self._room is not None
            known = tuple([self._room.rows.matching_ids(row, each) for each in self.requests])
            self._matching[row] = known
        return known


class DeviceColumnsCache:
    """Columns that were made in a session, by the classes and rows that they are for."""

    def __init__(self) -> None:
        self.made: dict[tuple[tuple[str, ...], bytes], DeviceColumns] = {}


def device_columns(session: Session, classes: Sequence[PodClass], rows: Bools) -> DeviceColumns:
    """Columns for pods of some classes on some rows, shape (nodes,); none for pods without claims."""
    if not any(each.claims for each in classes):
        return DeviceColumns(None, (), ((),) * len(classes), exact=True)
    made = session.cycle_state.get_or_make(DeviceColumnsCache, DeviceColumnsCache).made
    key = (tuple(each.digest for each in classes), rows.tobytes())
    known = made.get(key)
    if known is None:
        numbers = np.flatnonzero(rows).tolist()
        known = made[key] = _make_columns(session.devices, classes, numbers)
    return known


def _make_columns(
    room: DeviceRoom, classes: Sequence[PodClass], rows: Sequence[int]
) -> DeviceColumns:
    columns: dict[tuple[object, ...], ReadyRequest] = {}
    needs: list[dict[tuple[object, ...], int]] = []
    exact = True
    for pod_class in classes:
        need: dict[tuple[object, ...], int] = {}
        claims = room.claims.class_claims(pod_class)
        exact = exact and not claims.shared  # which need devices once, whoever uses them
        served = claims.own
        if any(room.claims.published_resources(pod_class, row) for row in rows):
            # Some nodes have the resources themselves: what is chosen is proven by placing the gang.
            served, exact = (
                tuple(each for each in served if not is_extended_title(each.name)),
                False,
            )
        for claim in served:
            exact = exact and _is_plain(claim)
            for alternatives in claim.requests:
                request = alternatives[0].request
                if len(alternatives) > 1 or request.admin:
                    continue
                key: tuple[object, ...] = (alternatives[0].selectors, request.tolerations)
                columns.setdefault(key, alternatives[0])
                count = request.count if request.mode is AllocationMode.EXACT else 1
                need[key] = need.get(key, 0) + count
        needs.append(need)
    kept = []
    for column, ready in columns.items():
        devices = (
            device.device for row in rows for device in room.rows.matching_devices(row, ready)
        )
        if any(each.shareable or each.consumes for each in devices):
            exact = False
        else:
            kept.append(column)
    made = DeviceColumns(
        room,
        tuple(columns[key] for key in kept),
        tuple(tuple(need.get(key, 0) for key in kept) for need in needs),
        exact and not any(room.rows.shares_pools(row) for row in rows),
        tuple(each.digest for each in classes),
    )
    made.exact = made.exact and not any(_columns_overlap(made.devices_of(row)) for row in rows)
    return made


def _is_plain(claim: ReadyClaim) -> bool:
    """Whether any devices that match serve the claim, if there are enough for each request."""
    return not claim.constraints and all(
        len(alternatives) == 1
        and alternatives[0].request.mode is AllocationMode.EXACT
        and not alternatives[0].request.admin
        and not alternatives[0].request.capacity
        for alternatives in claim.requests
    )


def _columns_overlap(columns: Sequence[frozenset[DeviceId]]) -> bool:
    return any(
        not mine.isdisjoint(other)
        for place, mine in enumerate(columns)
        for other in columns[:place]
    )
