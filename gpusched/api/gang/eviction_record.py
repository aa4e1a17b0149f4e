"""The record of evictions: when a gang was made to leave of late, by which action and for which gang.

A gang that is evicted, starts again and is evicted again loses work each time, and its pods are others
by then: what happened must outlast them and a restart. It lives in the status of the gang's PodGroup or
in an annotation of its Job. Whoever may edit the Job can write there too: a record counts only with its
seal, see ``api.serializer.seal``. It holds the last few evictions and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import msgspec

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.identity import TIME_MAX, UID, InvalidObject, format_time, parse_time
from gpusched.base.classes import frozen
from gpusched.base.limits import EVICTION_RECORD_MAX, EVICTIONS_RECORDED_MAX, FOREIGN_TEXT_MAX

EVICTIONS: Final = "gpusched.io/evictions"
"""The annotation of a Job; believed only with our seal in it."""
NO_CLAIMANT: Final = UID("")
"""Of an eviction of a gang that was stopped for its own sake."""
_SECONDS_MAX: Final = 2**53
_TEXT_MAX: Final = 2 * FOREIGN_TEXT_MAX
"""Of the name of a gang with its kind and namespace."""


@frozen(slots=True, kw_only=True)
class PastEviction:
    """One time that a gang was left without its minimum.

    Attributes:
        at: when it was decided, seconds since the epoch, whole.
        action: that decided: ``preempt``, ``reclaim``, ``consolidate`` or ``stop``.
        reason: of the evictions, one of the contract's.
        claimant: UID of the gang for which it left; empty where it was stopped for its own sake.
        claimant_name: kind, namespace and name of that gang as the gang's namespace may read it.
        gpu_seconds: work that was lost.
    """

    at: float
    action: str
    reason: str
    claimant: UID = NO_CLAIMANT
    claimant_name: str = ""
    gpu_seconds: int = 0


@frozen(slots=True)
class GangEvictions:
    """The last evictions of a gang, oldest first; no more than ``EVICTIONS_RECORDED_MAX``.

    Attributes:
        past: of which the last is the newest.
        seal: as read; says nothing about what the evictions were.
    """

    past: tuple[PastEviction, ...] = ()
    seal: str = attrs.field(default="", eq=False)

    def since(self, moment: float) -> tuple[PastEviction, ...]:
        """Evictions at a moment, in seconds since the epoch, or later."""
        return tuple(each for each in self.past if each.at >= moment)


NO_EVICTIONS: Final = GangEvictions()


class WirePastEviction(msgspec.Struct, omit_defaults=True, gc=False, rename="camel"):
    """One eviction as JSON: an item of ``status.evictions`` of a PodGroup."""

    time: str = ""
    action: str = ""
    reason: str = ""
    for_: str = msgspec.field(default="", name="for")
    for_uid: str = msgspec.field(default="", name="forUID")
    gpu_seconds: int = 0


class WireGangEvictions(msgspec.Struct, omit_defaults=True, gc=False):
    """The record as JSON: the text of the annotation."""

    evictions: list[WirePastEviction] = []
    seal: str = ""


_READ: Final = msgspec.json.Decoder(WireGangEvictions)


def wire_evictions(record: GangEvictions) -> list[WirePastEviction]:
    """The evictions of a record as JSON has them."""
    return [
        WirePastEviction(
            time=format_time(each.at),
            action=each.action,
            reason=each.reason,
            for_=each.claimant_name,
            for_uid=each.claimant,
            gpu_seconds=each.gpu_seconds,
        )
        for each in record.past
    ]


def format_evictions(record: GangEvictions, *, seal: str) -> str:
    """The record's text; without a seal where that is empty."""
    return msgspec.json.encode(WireGangEvictions(wire_evictions(record), seal)).decode()


def parse_evictions(text: str | None) -> GangEvictions:
    """The evictions that an annotation tells of; none for what we never wrote."""
    if not text or len(text) > EVICTION_RECORD_MAX:
        return NO_EVICTIONS
    try:
        wire = _READ.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return NO_EVICTIONS
    return attrs.evolve(evictions_of_wire(wire.evictions), seal=wire.seal)


def evictions_of_wire(items: Sequence[WirePastEviction] | None) -> GangEvictions:
    """The same of parsed items; none where one of them is nothing that we write."""
    if not items or len(items) > EVICTIONS_RECORDED_MAX:
        return NO_EVICTIONS
    past = [_past_eviction(each) for each in items]
    if any(each is None for each in past):
        return NO_EVICTIONS
    return GangEvictions(tuple(each for each in past if each is not None))


def _past_eviction(wire: WirePastEviction) -> PastEviction | None:
    texts = (wire.action, wire.reason, wire.for_, wire.for_uid)
    try:
        at = parse_time(wire.time)
    except InvalidObject:
        return None
    if not 0 < at <= TIME_MAX or not 0 <= wire.gpu_seconds <= _SECONDS_MAX:
        return None
    if any(len(text) > _TEXT_MAX or not text.isprintable() for text in texts):
        return None
    return PastEviction(
        at=at,
        action=wire.action,
        reason=wire.reason,
        claimant=UID(wire.for_uid),
        claimant_name=wire.for_,
        gpu_seconds=wire.gpu_seconds,
    )


def later_evictions(one: GangEvictions, other: GangEvictions) -> GangEvictions:
    """The record that goes further, of two about one gang."""
    return max((one, other), key=_last_moment)


def _last_moment(record: GangEvictions) -> tuple[float, int]:
    return (record.past[-1].at, len(record.past)) if record.past else (0.0, 0)


def with_eviction(
    record: GangEvictions, eviction: PastEviction, *, placed_at: float
) -> GangEvictions:
    """The record with one eviction more.

    An eviction of the same run is replaced: a disruption budget kept the members then, or they were
    given up, and the gang did not start again in between. Both moments are whole seconds: members that got their
    places in the second of the last eviction are those that it was about, as pods that leave and are made again take
    longer than that.

    Args:
        record: of the gang so far.
        eviction: that is decided now.
        placed_at: when the last of its members that leave now got its place, seconds since the epoch.
    """
    past = record.past
    if past and placed_at <= past[-1].at:
        past = past[:-1]
    return GangEvictions((*past, eviction)[-EVICTIONS_RECORDED_MAX:])


def evictions_text(past: Sequence[PastEviction], window_s: float) -> str:
    """Evictions within a window in words, the newest first: ``evicted 2 times within 1h: by preempt for ...``."""
    count = len(past)
    often = "once" if count == 1 else f"{count} times"
    least = "at least " if count >= EVICTIONS_RECORDED_MAX else ""
    lost = sum(each.gpu_seconds for each in past)
    cost = f", which cost {lost:,} GPU-seconds of work" if lost else ""
    window = format_duration(int(window_s) * NANOSECONDS)
    told = ", ".join(_eviction_texts(reversed(past)))
    return f"evicted {least}{often} within {window}{cost}: {told}"


def _eviction_texts(past: Iterable[PastEviction]) -> Iterable[str]:
    for each in past:
        whose = f" for {each.claimant_name}" if each.claimant_name else f" ({each.reason})"
        yield f"by {each.action}{whose} at {format_time(each.at)}"
