"""Devices that gangs which wait claim, as columns beside amounts of nodes: room over time counts them."""

from __future__ import annotations

from itertools import chain

import numpy as np

from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Ints, RequestVector
from gpusched.session.state.nodes.devices.device_columns import DeviceColumns, device_columns
from gpusched.session.state.session import Session

CLASSES_MAX = 64
"""Classes of pods that wait whose devices are counted over time; of more, the first by digest."""


class WaitingDevices:
    """Columns behind those of a session's nodes; none where no gang that waits claims devices.

    Args:
        session: whose gangs are meant.
    """

    def __init__(self, session: Session) -> None:
        self.nodes_width: int = session.snapshot.nodes.allocatable.shape[1]
        classes = dict(
            chain.from_iterable(
                line.claiming_classes.items() for line in session.lines.lines.values()
            )
        )
        asked = [each for _, each in sorted(classes.items())[:CLASSES_MAX]]
        rows = np.ones(len(session.snapshot.nodes), dtype=np.bool_)
        with session.devices.claims.held_to(
            None
        ):  # whichever gang is being placed when they are made
            self._columns: DeviceColumns = device_columns(session, asked, rows)
        self.width: int = self.nodes_width + len(self._columns.requests)

    def allocatable_amounts(self, amounts: Ints) -> Ints:
        """Amounts of nodes, shape (nodes, resources), with the devices that each reaches."""
        return self._with_columns(
            amounts, [self._columns.all_of(row) for row in self._rows(amounts)]
        )

    def staying_amounts(self, amounts: Ints) -> Ints:
        """Amounts in use once pods that leave are gone, with the devices in use then."""
        return self._with_columns(
            amounts, [self._columns.in_use(row) for row in self._rows(amounts)]
        )

    def freed_amounts(self, amounts: Ints, pods: list[tuple[int, Pod]]) -> Ints:
        """Amounts that pods free, shape (pods, resources), with their devices.

        Args:
            amounts: of the pods.
            pods: with the rows of their nodes.
        """
        if self.width == self.nodes_width:
            return amounts
        none = (0,) * (self.width - self.nodes_width)
        freed = [
            list(self._columns.freed_by(pod, row)) if pod.pod_class.claims else none
            for row, pod in pods
        ]
        return self._with_columns(amounts, freed)

    def request_vector(self, pod_class: PodClass, request: RequestVector) -> RequestVector:
        """What one pod of a class requests, with its devices."""
        if self.width == self.nodes_width or not pod_class.claims:
            return request
        needs = [
            (self.nodes_width + number, amount)
            for number, amount in enumerate(self._columns.amounts_of(pod_class))
            if amount
        ]
        columns: Ints = np.append(request.columns, [column for column, _ in needs]).astype(np.int64)
        amounts: Ints = np.append(request.amounts, [each for _, each in needs]).astype(np.int64)
        return RequestVector(columns, amounts, request.missing)

    def _rows(self, amounts: Ints) -> range:
        return range(len(amounts)) if self.width > self.nodes_width else range(0)

    def _with_columns(self, amounts: Ints, more: object) -> Ints:
        if self.width == self.nodes_width:
            return amounts
        # A cluster may have no nodes, of which no columns could be read.
        columns = np.array(more, dtype=np.int64).reshape(
            len(amounts), self.width - self.nodes_width
        )
        found: Ints = np.hstack([amounts, columns])
        return found


def waiting_devices(session: Session) -> WaitingDevices:
    """Columns of a session, made once."""
    return session.cycle_state.get_or_make(WaitingDevices, lambda: WaitingDevices(session))
