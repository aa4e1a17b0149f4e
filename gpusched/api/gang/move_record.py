"""The record of a move: where room is held for the members of a gang until they are made again.

It lives in the status of the gang's PodGroup, or in an annotation of its Job, so that a restart
finds it: the pods for which the room is held do not exist while it matters most. Whoever may
edit the Job can write there too: a record counts only with its seal, see ``api.serializer.seal``.
"""

from __future__ import annotations

import attrs
import msgspec

from gpusched.api.devices.slots import gpu_request
from gpusched.api.meta.identity import TIME_MAX, InvalidObject, format_time, parse_time
from gpusched.api.meta.resources import Resources
from gpusched.base.classes import frozen
from gpusched.base.limits import GANG_PODS_MAX, MOVE_RECORD_MAX, QUANTITY_MAX

MOVED = "gpusched.io/moved"
"""The annotation of a Job; believed only with our seal in it."""


@frozen(slots=True)
class MoveTarget:
    """So many members, that ask for so much each, to a node."""

    node: str
    pods: int
    requests: Resources


@frozen(slots=True)
class MoveRecord:
    """Members created before ``at`` leave; those created since take the places.

    Attributes:
        at: seconds since the epoch, whole.
        places: sorted by node.
        seal: as read; says nothing about what the move is.
    """

    at: float
    places: tuple[MoveTarget, ...]
    seal: str = attrs.field(default="", eq=False)


class _WireMoveTarget(msgspec.Struct):
    requests: dict[str, int]
    nodes: dict[str, int]


class _WireMoveRecord(msgspec.Struct, omit_defaults=True):
    at: str
    pods: list[_WireMoveTarget]
    seal: str = ""


_READ = msgspec.json.Decoder(_WireMoveRecord)


def format_move(move: MoveRecord, *, seal: str) -> str:
    """The record's text; amounts in base units, pods by node; without a seal where that is empty."""
    kinds: dict[Resources, dict[str, int]] = {}
    for place in move.places:
        nodes = kinds.setdefault(place.requests, {})
        nodes[place.node] = nodes.get(place.node, 0) + place.pods
    found = [_WireMoveTarget(dict(requests.items), nodes) for requests, nodes in kinds.items()]
    return msgspec.json.encode(_WireMoveRecord(format_time(move.at), found, seal)).decode()


def parse_move(text: str | None) -> MoveRecord | None:
    """The move that a record tells of; None for none, and for what we never wrote."""
    if not text or len(text) > MOVE_RECORD_MAX:
        return None
    try:
        record = _READ.decode(text)
        at = parse_time(record.at)
    except (msgspec.MsgspecError, RecursionError, InvalidObject):
        return None
    if not 0 <= at <= TIME_MAX:
        return None
    if sum(len(kind.nodes) for kind in record.pods) > GANG_PODS_MAX:
        return None
    places = []
    for kind in record.pods:
        amounts = kind.requests.values()
        if any(not 0 <= amount <= QUANTITY_MAX for amount in amounts):
            return None
        if any(not 0 < count <= GANG_PODS_MAX for count in kind.nodes.values()):
            return None
        requests = Resources.of(kind.requests)
        try:
            gpu_request(requests)
        except InvalidObject:
            return None
        places += [MoveTarget(node, count, requests) for node, count in kind.nodes.items()]
    places.sort(key=lambda each: (each.node, each.requests.items))
    return MoveRecord(at, tuple(places), record.seal)
