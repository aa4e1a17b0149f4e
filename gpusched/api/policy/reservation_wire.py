"""The shape of a Reservation on the wire."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from gpusched.api.meta.wire import ABSENT, Count, Metadata, Quantities


class WireRecurrence(Struct, gc=False, rename={"time_zone": "timeZone"}):
    """``spec.recurring`` of a Reservation."""

    every: str | None = None
    weekdays: list[str] | None = None
    time_zone: str | None = None
    until: str | None = None


class ReservationSpec(
    Struct,
    gc=False,
    rename={
        "begins": "from",
        "ends": "to",
        "node_names": "nodeNames",
        "node_selector": "nodeSelector",
        "at_start": "atStart",
        "move_before": "moveBefore",
    },
):
    """The spec of a Reservation; ``begins`` and ``ends`` are ``from`` and ``to``."""

    begins: str
    ends: str | None = None
    duration: str | None = None
    recurring: WireRecurrence | None = None
    purpose: Literal["Reserved", "Maintenance"] | None = None
    queues: list[str] | None = None
    namespaces: list[str] | None = None
    node_names: list[str] | None = None
    node_selector: dict[str, str] | None = None
    nodes: Count | None = None
    resources: Quantities | None = None
    at_start: Literal["Evict", "Leave"] | None = None
    move_before: str | None = None


class WireReservation(Struct, gc=False):
    """A Reservation as the API server sends it."""

    metadata: Metadata
    spec: ReservationSpec
    status: Raw = ABSENT


class WireReservationStatus(Struct, gc=False):
    """What is read back of a Reservation's status."""

    nodes: list[str] | None = None
