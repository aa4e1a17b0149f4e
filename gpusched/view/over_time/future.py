"""What is known of the time to come: ends of gangs that run, starts of gangs that wait, Reservations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpusched.view.model import RUNNING, WAITING, GangView, ViewPart

EXPECTED: Final = "expected"
RESERVED: Final = "reserved"
ENDS: Final = "running"


class RoomView(ViewPart, frozen=True, kw_only=True, rename={"begins": "from", "ends": "to"}):
    """Room that is kept for a gang that waits.

    Attributes:
        begins: empty where it is kept from now on.
        ends: when the gang is to have ended, empty where that is not known.
    """

    nodes: tuple[str, ...]
    begins: str = ""
    ends: str = ""


class SpanView(ViewPart, frozen=True, kw_only=True, rename={"begins": "from", "ends": "to"}):
    """A gang, or a window of a Reservation, on the axis of time.

    Attributes:
        nodes: on which it runs, or on which room is reserved for it.
        begins: empty where room is kept from now on.
        ends: empty where that is not known.
        what: ``running``: it runs, and ends then if it keeps to what its author says;
            ``reserved``: it waits, and room on these nodes is kept for it from then on;
            ``expected``: it waits, and is estimated to start then;
            ``kept``: no gang but a Reservation, which keeps these nodes then.
    """

    namespace: str
    kind: str
    name: str
    queue: str
    gpus: str
    nodes: tuple[str, ...] = ()
    begins: str
    ends: str
    what: str


def future_spans(
    gangs: Iterable[GangView],
    room_of: Callable[[str], RoomView | None],
    kept: Iterable[SpanView] = (),
) -> list[SpanView]:
    """Spans of gangs that run, and of those that wait with room or an estimate, by their beginning.

    Args:
        gangs: to be told.
        room_of: what is kept for a gang, by its key.
        kept: windows of Reservations.
    """
    found = list(kept)
    for gang in gangs:
        if gang.state == RUNNING:
            span = _span(gang, ENDS, gang.since, gang.expected_end_time, gang.nodes)
        elif (room := room_of(gang.key)) is not None:
            span = _span(gang, RESERVED, room.begins, room.ends, room.nodes)
        elif gang.state == WAITING and gang.estimated_start_time:
            span = _span(gang, EXPECTED, gang.estimated_start_time, "", gang.nodes)
        else:
            continue
        found.append(span)
    return sorted(found, key=lambda span: (span.begins, span.namespace, span.name))


def _span(gang: GangView, what: str, begins: str, ends: str, nodes: tuple[str, ...]) -> SpanView:
    return SpanView(
        namespace=gang.metadata.namespace,
        kind=gang.gang_kind,
        name=gang.metadata.name,
        queue=gang.queue,
        gpus=gang.gpus,
        nodes=nodes,
        begins=begins,
        ends=ends,
        what=what,
    )
