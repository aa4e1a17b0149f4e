"""The record of turns: for how long a gang has run that was stopped to let others run.

A queue's ``maxRuntime`` makes gangs take turns. Who had one waits anew from its end, so the end must
outlast the pods and a restart: it lives in the status of the gang's PodGroup or in an annotation of
its Job. Whoever may edit the Job can write there too: a record counts only with its seal, see
``api.serializer.seal``.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from gpusched.api.meta.identity import TIME_MAX, InvalidObject, format_time, parse_time
from gpusched.base.classes import frozen
from gpusched.base.limits import FOREIGN_TEXT_MAX

TURN: Final = "gpusched.io/turn"
"""The annotation of a Job; believed only with our seal in it."""
_SECONDS_MAX: Final = 2**53


@frozen(slots=True)
class TurnRecord:
    """Turns that a gang has had.

    Attributes:
        ended: end of the last one, seconds since the epoch, whole.
        seconds: length of all of them together.
        seal: as read; says nothing about what the turns were.
    """

    ended: float
    seconds: int
    seal: str = attrs.field(default="", eq=False)


class WireTurnRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """The record as JSON: ``status.turn`` of a PodGroup, and the text of the annotation."""

    ended: str = ""
    seconds: int = 0
    seal: str = ""


_READ: Final = msgspec.json.Decoder(WireTurnRecord)


def format_turn(turn: TurnRecord, *, seal: str) -> str:
    """The record's text; without a seal where that is empty."""
    wire = WireTurnRecord(format_time(turn.ended), turn.seconds, seal)
    return msgspec.json.encode(wire).decode()


def parse_turn(text: str | None) -> TurnRecord | None:
    """The turns that an annotation tells of; None for none, and for what we never wrote."""
    if not text or len(text) > FOREIGN_TEXT_MAX:
        return None
    try:
        return turn_of_wire(_READ.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return None


def turn_of_wire(wire: WireTurnRecord | None) -> TurnRecord | None:
    """The same of a parsed record."""
    if wire is None:
        return None
    try:
        ended = parse_time(wire.ended)
    except InvalidObject:
        return None
    if not 0 < ended <= TIME_MAX or not 0 <= wire.seconds <= _SECONDS_MAX:
        return None
    return TurnRecord(ended, wire.seconds, wire.seal)


def later_turn(one: TurnRecord | None, other: TurnRecord | None) -> TurnRecord | None:
    """The record that ended later, of two about one gang; None where there is neither."""
    known = [each for each in (one, other) if each is not None]
    return max(known, key=lambda each: (each.ended, each.seconds), default=None)


def turn_limit_s(earlier_s: int, limit_s: int, *, longest: int) -> int:
    """Seconds that a gang may run before its turn is over.

    As long as all its turns before, and one limit more: whatever length it needs, and though it saves
    nothing between turns, it gets there by doubling. Bounded, so that nobody behind it waits for ever.

    Args:
        earlier_s: seconds of its earlier turns.
        limit_s: ``maxRuntime`` of its queue; 0 for none, which is the answer then.
        longest: multiple of the limit that no turn is longer than; 1 keeps all turns equal.
    """
    return min(earlier_s + limit_s, longest * limit_s) if limit_s else 0
