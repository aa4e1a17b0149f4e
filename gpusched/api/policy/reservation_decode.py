"""Reservations: from the wire to the entity, checked once more where the CRD is older or switched off."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.duration import NANOSECONDS
from gpusched.api.meta.fields import (
    check_identity,
    decode_part,
    is_object_name,
    parse_duration_ns,
    parse_resources,
    quoted,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import TIME_MAX, InvalidObject, format_time, parse_time
from gpusched.api.meta.status import status_or_empty
from gpusched.api.policy.reservation import (
    MAINTENANCE,
    RESERVED_PURPOSE,
    WEEKDAYS,
    AdvanceReservation,
    ReservationWindow,
)
from gpusched.api.policy.reservation_wire import (
    ReservationSpec,
    WireRecurrence,
    WireReservation,
    WireReservationStatus,
)
from gpusched.base.classes import frozen
from gpusched.base.limits import WINDOW_LENGTH_MAX_S, WINDOW_LENGTH_MIN_S, WINDOW_NAMES_MAX
from gpusched.base.time_zones import UTC_NAME, find_time_zone

_MOVE_BEFORE_S: Final = 3600
"""How long before maintenance gangs are moved where its Reservation does not say."""
_DAY_S: Final = 86_400
_STATUS: Final = msgspec.json.Decoder(WireReservationStatus)


def decode_reservation(parsed: WireReservation) -> AdvanceReservation:
    """A parsed Reservation as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed, out of bounds or contradicts another.
    """
    metadata, spec = parsed.metadata, parsed.spec
    check_identity(metadata, namespaced=False)
    purpose = spec.purpose or RESERVED_PURPOSE
    queues, namespaces = _names(spec.queues, "queues"), _names(spec.namespaces, "namespaces")
    if purpose == MAINTENANCE and (queues or namespaces):
        raise InvalidObject(
            "spec.purpose",
            "nobody uses nodes under Maintenance: leave out queues and namespaces, or say Reserved",
        )
    node_names = _names(spec.node_names, "nodeNames")
    selector = tuple(sorted((spec.node_selector or {}).items()))
    resources = parse_resources(spec.resources, field="spec.resources")
    _check_one_choice_of_nodes(spec)
    window = _first_window(spec)
    recurrence = _recurrence(spec.recurring, window)
    moves = purpose == MAINTENANCE and spec.move_before is None
    found = AdvanceReservation(
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        generation=metadata.generation,
        purpose=purpose,
        queues=queues,
        namespaces=namespaces,
        node_names=node_names,
        node_selector=selector,
        node_count=spec.nodes or 0,
        resources=resources,
        first=window,
        every_s=recurrence.every_s,
        weekdays=recurrence.weekdays,
        time_zone=recurrence.time_zone,
        until=recurrence.until,
        evicts=spec.at_start != "Leave",
        move_before_s=_MOVE_BEFORE_S if moves else _seconds(spec.move_before, "moveBefore"),
        chosen=_chosen_nodes(bytes(parsed.status)),
        status=status_or_empty(parsed.status),
    )
    if found.current_window(0) is None:
        raise InvalidObject(
            "spec.recurring.until",
            f"no window begins from {format_time(window.begins)} until then",
        )
    return found


def _names(names: Iterable[str] | None, field: str) -> tuple[str, ...]:
    """Names of objects, each once, sorted."""
    found = tuple(sorted(set(names or ())))
    if len(found) > WINDOW_NAMES_MAX:
        raise InvalidObject(f"spec.{field}", f"names {len(found)}, more than {WINDOW_NAMES_MAX}")
    for name in found:
        if not is_object_name(name):
            raise InvalidObject(f"spec.{field}", f"{quoted(name)} is no name of an object")
    return found


def _check_one_choice_of_nodes(spec: ReservationSpec) -> None:
    """Nodes are named, or chosen by labels; of these all, a number, or as many as offer an amount."""
    if spec.node_names and (spec.node_selector or spec.nodes or spec.resources):
        raise InvalidObject(
            "spec.nodeNames", "stands alone: leave out nodeSelector, nodes and resources"
        )
    if spec.nodes and spec.resources:
        raise InvalidObject("spec.nodes", "contradicts resources: say how many nodes or how much")
    if not (spec.node_names or spec.node_selector or spec.nodes or spec.resources):
        raise InvalidObject(
            "spec", "says no nodes: name nodeNames, nodeSelector, nodes or resources"
        )
    asked = parse_resources(spec.resources, field="spec.resources")
    if spec.resources is not None and not any(amount for _, amount in asked.items):
        raise InvalidObject("spec.resources", "asks for nothing")


def _first_window(spec: ReservationSpec) -> ReservationWindow:
    begins = _time(spec.begins, "from")
    if (spec.ends is None) == (spec.duration is None):
        raise InvalidObject("spec.to", "say either to or duration")
    if spec.ends is not None:
        ends = _time(spec.ends, "to")
        if ends <= begins:
            raise InvalidObject("spec.to", f"{quoted(spec.ends)} is not later than from")
    else:
        ends = begins + _seconds(spec.duration, "duration")
    length = ends - begins
    if not WINDOW_LENGTH_MIN_S <= length <= WINDOW_LENGTH_MAX_S or ends > TIME_MAX:
        raise InvalidObject(
            "spec.to" if spec.ends is not None else "spec.duration",
            f"a window lasts {WINDOW_LENGTH_MIN_S} s to {WINDOW_LENGTH_MAX_S // 86_400} days, not "
            f"{length} s",
        )
    return ReservationWindow(begins, ends)


@frozen(slots=True)
class _Recurrence:
    """When further windows begin, as fields of ``AdvanceReservation``."""

    every_s: int = 0
    weekdays: tuple[int, ...] = ()
    time_zone: str = UTC_NAME
    until: int = 0


def _recurrence(recurring: WireRecurrence | None, window: ReservationWindow) -> _Recurrence:
    if recurring is None:
        return _Recurrence()
    if (recurring.every is None) == (not recurring.weekdays):
        raise InvalidObject("spec.recurring", "say either every or weekdays")
    until = _time(recurring.until, "recurring.until") if recurring.until else 0
    if until and until < window.begins:
        raise InvalidObject("spec.recurring.until", "is before from")
    if recurring.every is not None:
        if recurring.time_zone is not None:
            raise InvalidObject(
                "spec.recurring.timeZone", "goes with weekdays: every day is all seven of them"
            )
        return _Recurrence(every_s=_every_s(recurring.every, window), until=until)
    zone = recurring.time_zone or UTC_NAME
    try:
        find_time_zone(zone)
    except ValueError as why:
        raise InvalidObject("spec.recurring.timeZone", str(why)) from None
    return _Recurrence(
        weekdays=_weekdays(recurring.weekdays or (), window), time_zone=zone, until=until
    )


def _every_s(every: str, window: ReservationWindow) -> int:
    every_s = _seconds(every, "recurring.every")
    if every_s > WINDOW_LENGTH_MAX_S:
        days = WINDOW_LENGTH_MAX_S // 86_400
        raise InvalidObject("spec.recurring.every", f"is longer than {days} days")
    _check_room_between(every_s, window, "every")
    return every_s


def _weekdays(names: Iterable[str], window: ReservationWindow) -> tuple[int, ...]:
    """Numbers of weekdays, each once, ascending."""
    for name in names:
        if name not in WEEKDAYS:
            known = f"{', '.join(WEEKDAYS[:-1])} or {WEEKDAYS[-1]}"
            raise InvalidObject(
                "spec.recurring.weekdays", f"{quoted(name)} is no weekday: write {known}"
            )
    found = sorted({WEEKDAYS.index(name) for name in names})
    apart = min(
        (following - number for number, following in pairwise((*found, found[0] + len(WEEKDAYS)))),
    )
    _check_room_between(apart * _DAY_S, window, "weekdays")
    return tuple(found)


def _check_room_between(apart_s: int, window: ReservationWindow, field: str) -> None:
    length = window.ends - window.begins
    if apart_s < length:
        raise InvalidObject(
            f"spec.recurring.{field}",
            f"each window lasts {length} s, longer than the {apart_s} s to the next one",
        )


def _time(text: str, field: str) -> int:
    try:
        seconds = parse_time(text)
    except (InvalidObject, OverflowError) as why:
        raise InvalidObject(f"spec.{field}", getattr(why, "why", str(why))) from None
    if not 0 < seconds <= TIME_MAX:
        raise InvalidObject(f"spec.{field}", f"{quoted(text)} is not a time between 1970 and 9999")
    return int(seconds)


def _seconds(text: str | None, field: str) -> int:
    """Whole seconds of a duration, rounded up."""
    return -(-parse_duration_ns(text, field=f"spec.{field}") // NANOSECONDS)


def _chosen_nodes(status: bytes) -> tuple[str, ...]:
    """Nodes that the status names; none where it cannot be read: they are chosen anew."""
    try:
        said = decode_part(_STATUS, status, field="status")
    except InvalidObject:
        return ()
    return tuple(sorted(set(said.nodes or ()))) if said is not None else ()


RESERVATIONS: Final = KindCodec(
    "Reservation", wire_type=WireReservation, entity=decode_reservation, ours=True
)
