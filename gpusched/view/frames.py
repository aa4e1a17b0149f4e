"""What the daemon tells the process that serves the view: one JSON object a line.

Puts and removals between two ``ViewMoment`` belong together: they are shown at once.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gpusched.view.model import DecisionView, GangView, MemberView, NodeView, QueueView, ViewPart


class ViewHead(ViewPart, frozen=True, kw_only=True, tag="head"):
    """About the daemon itself.

    Attributes:
        daemon: its identity.
        leading: whether it decides; one that stands by knows nothing of decisions.
        leader: where the one that leads serves its view, empty where that is not known.
        ready: sentence of ``/readyz``.
    """

    version: str
    daemon: str
    leading: bool
    leader: str = ""
    ready: str = ""
    scheduler_names: tuple[str, ...] = ()


class ViewReset(ViewPart, frozen=True, kw_only=True, tag="reset"):
    """All that was said of the cluster is void; what follows is the whole."""


class GangPut(ViewPart, frozen=True, kw_only=True, tag="gang"):
    """A gang as it is now, with its pods."""

    view: GangView
    members: tuple[MemberView, ...]


class NodePut(ViewPart, frozen=True, kw_only=True, tag="node"):
    """A node as it is now."""

    view: NodeView


class QueuePut(ViewPart, frozen=True, kw_only=True, tag="queue"):
    """A queue as it is now."""

    view: QueueView


class PartsGone(ViewPart, frozen=True, kw_only=True, tag="gone"):
    """What is there no more: gangs as ``NAMESPACE/KIND/NAME``, nodes and queues by name."""

    gangs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


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
    ViewHead | ViewReset | GangPut | NodePut | QueuePut | PartsGone | DecisionMade | ViewMoment
)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ViewFrame)


def encode_frame(frame: ViewFrame) -> bytes:
    """A line, with its end."""
    return _encoder.encode(frame) + b"\n"


def decode_frame(line: bytes) -> ViewFrame:
    """A line.

    Raises:
        msgspec.DecodeError: it is none.
    """
    frame: ViewFrame = _decoder.decode(line)
    return frame
