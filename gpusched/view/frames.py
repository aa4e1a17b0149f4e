"""What the daemon tells the process that serves the view: one JSON object a line.

Puts and removals between two ``ViewMoment`` belong together: they are shown at once.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gpusched.base.limits import EVICTION_WINDOW_S
from gpusched.view.model import (
    DecisionView,
    GangView,
    GpuTotalsView,
    MemberView,
    NodeView,
    OrderTermView,
    QueueView,
    ViewPart,
)
from gpusched.view.over_time.future import RoomView, SpanView


class ViewHead(ViewPart, frozen=True, kw_only=True, tag="head"):
    """About the daemon itself.

    Attributes:
        daemon: its identity.
        leading: whether it decides; one that stands by knows nothing of decisions.
        leader: where the one that leads serves its view, empty where that is not known.
        ready: sentence of ``/readyz``.
        gpu_totals: as they were counted last; None before.
        eviction_window_s: within which evictions of a gang are repeated ones, ``limits.evictionWindow``.
    """

    version: str
    daemon: str
    leading: bool
    leader: str = ""
    ready: str = ""
    scheduler_names: tuple[str, ...] = ()
    gpu_totals: GpuTotalsView | None = None
    eviction_window_s: float = EVICTION_WINDOW_S


class ViewReset(ViewPart, frozen=True, kw_only=True, tag="reset"):
    """All that was said of the cluster is void; what follows is the whole."""


class GangPut(ViewPart, frozen=True, kw_only=True, tag="gang"):
    """A gang as it is now, with its pods, and the room that is kept for it."""

    view: GangView
    members: tuple[MemberView, ...]
    room: RoomView | None = None


class NodePut(ViewPart, frozen=True, kw_only=True, tag="node"):
    """A node as it is now."""

    view: NodeView


class QueuePut(ViewPart, frozen=True, kw_only=True, tag="queue"):
    """A queue as it is now."""

    view: QueueView


class ReservationsPut(ViewPart, frozen=True, kw_only=True, tag="reservations"):
    """Windows of all Reservations as they are now."""

    spans: tuple[SpanView, ...]


class QueueTermsPut(ViewPart, frozen=True, kw_only=True, tag="queueTerms"):
    """Terms of the queues on a path, which many turns have in common.

    Attributes:
        path: a number by which turns refer to it.
    """

    path: int
    terms: tuple[OrderTermView, ...]


class TurnPut(ViewPart, frozen=True, kw_only=True, tag="turn"):
    """The turn of a gang that waits, in the order of the last session.

    Attributes:
        gang: as ``NAMESPACE/KIND/NAME``.
        before: the gang just before it, empty for the first: a start so changes one turn, not all.
        path: its queues' terms, which count before its own.
        terms: its own, in the order in which they count.
        decided_by: what put it after that one.
        here, there: what is so of this gang, and of that one.
    """

    gang: str
    before: str = ""
    path: int = 0
    terms: tuple[OrderTermView, ...] = ()
    decided_by: str = ""
    here: str = ""
    there: str = ""


class PartsGone(ViewPart, frozen=True, kw_only=True, tag="gone"):
    """What is there no more: gangs as ``NAMESPACE/KIND/NAME``, nodes and queues by name.

    Attributes:
        turns: gangs that have no turn any more.
        paths: of queue terms that no turn refers to.
    """

    gangs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    paths: tuple[int, ...] = ()


class StartsAsked(ViewPart, frozen=True, kw_only=True, tag="starts"):
    """When gangs that wait start is to be played, and said on standard output; nothing is shown of it."""


class DecisionMade(ViewPart, frozen=True, kw_only=True, tag="decision"):
    """A decision of a session."""

    view: DecisionView


class ViewMoment(ViewPart, frozen=True, kw_only=True, tag="moment"):
    """Everything up to here is how things stood then.

    Attributes:
        now: seconds since the epoch.
    """

    now: float


ViewFrame: TypeAlias = (
    ViewHead
    | ViewReset
    | GangPut
    | NodePut
    | QueuePut
    | ReservationsPut
    | QueueTermsPut
    | TurnPut
    | PartsGone
    | DecisionMade
    | ViewMoment
)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ViewFrame | StartsAsked)


def encode_frame(frame: ViewFrame | StartsAsked) -> bytes:
    """A line, with its end."""
    return _encoder.encode(frame) + b"\n"


def decode_frame(line: bytes) -> ViewFrame | StartsAsked:
    """A line.

    Raises:
        msgspec.DecodeError: it is none.
    """
    frame: ViewFrame | StartsAsked = _decoder.decode(line)
    return frame
