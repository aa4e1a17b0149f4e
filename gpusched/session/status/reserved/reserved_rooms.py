"""Room that is kept for gangs that wait: by reservations, nominations and moves."""

from __future__ import annotations

import numpy as np

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.base.limits import COLUMN_MAX
from gpusched.session.backfill.reservations import session_reservations
from gpusched.session.backfill.running.release_order import FOREVER
from gpusched.session.state.session import Session


@frozen(slots=True, kw_only=True)
class ReservedRoom:
    """Room that is kept for a gang that waits.

    Attributes:
        nodes: on which it is, sorted.
        begins: seconds since the epoch; 0.0 where it is kept from now on.
        ends: when the gang is to have ended; 0.0 where that is not known.
        evicted: gangs that leave for it by this session, sorted; of a Job that is started first, those
            that its pods will have evicted.
    """

    gang: GangKey
    nodes: tuple[str, ...]
    begins: float = 0.0
    ends: float = 0.0
    evicted: tuple[GangKey, ...] = ()


def reserved_rooms(session: Session) -> tuple[ReservedRoom, ...]:
    """Kept room by gang: from now on where its nodes are nominated, else from when it is reserved."""
    snapshot = session.snapshot
    nodes = snapshot.nodes.nodes
    found: dict[GangKey, ReservedRoom] = {}
    reservations = session_reservations(session)
    for each in reservations.reserved_gangs if reservations is not None else ():
        room = each.reservation
        if session.placements.assigned(each.gang):
            continue
        snapshot.changes_at(room.start)
        found[room.gang] = ReservedRoom(
            gang=room.gang,
            nodes=tuple(sorted(nodes[row].name for row in room.rows.tolist())),
            begins=float(room.start) if room.start > snapshot.unobserved_now else 0.0,
            ends=float(room.end) if room.end < FOREVER else 0.0,
        )
    shown = session.lines.by_key
    for gang in [shown[key] for key in session.nominations.gang_keys() if key in shown]:
        if session.placements.assigned(gang):
            continue
        places = (
            *session.nominations.nominated_places(gang),
            *session.nominations.moved_places(gang),
        )
        if places:
            names = {nodes[place.row].name for place in places}
            draft = session.nominations.plans.get(gang.key)
            leaving = {each.gang.key for each in draft.evictions} if draft is not None else set()
            found[gang.key] = ReservedRoom(
                gang=gang.key, nodes=tuple(sorted(names)), evicted=tuple(sorted(leaving))
            )
    return tuple(sorted(found.values(), key=lambda room: room.gang))


def spare_room(session: Session) -> dict[str, Resources]:
    """What others may take of nodes on which room is reserved for gangs that wait, by node; what nobody reserves is not told."""
    reservations = session_reservations(session)
    nodes = session.snapshot.nodes
    width, found = nodes.allocatable.shape[1], dict[int, Ints]()
    for each in reservations.reserved_gangs if reservations is not None else ():
        slack = np.maximum(each.slack[:, :width], 0)
        spare = np.where(each.requested_columns[:, :width], slack, COLUMN_MAX)
        for row, number in each.index.items():
            known = found.get(row)
            found[row] = spare[number] if known is None else np.minimum(known, spare[number])
    names = sorted(nodes.columns, key=nodes.columns.__getitem__)
    return {
        nodes.nodes[row].name: Resources.of(
            {
                name: most
                for name, most in zip(names, found[row].tolist(), strict=True)
                if most < COLUMN_MAX
            }
        )
        for row in sorted(found)
    }
