"""Status of the kinds that the scheduler writes: conditions, and the canonical JSON of the whole."""

from __future__ import annotations

from typing import Final

import msgspec

from gpusched.api.gang.eviction_record import WirePastEviction
from gpusched.api.gang.turn_record import WireTurnRecord
from gpusched.api.meta import wire
from gpusched.api.meta.fields import decode_part
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.base.classes import frozen


@frozen(slots=True)
class Condition:
    """One condition of a status; ``transition`` in seconds since the epoch."""

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int
    transition: float


class UsageStatus(msgspec.Struct, gc=False, rename="camel"):
    """``status.usage`` of a Queue: what it used of late, in billionths."""

    as_of: str | None = None
    average: dict[str, int] | None = None
    share: dict[str, int] | None = None


class BudgetUserRecord(msgspec.Struct, gc=False, rename="camel"):
    """An element of ``status.budget.users`` of a Queue."""

    name: str = ""
    gpu_seconds: str = "0"


class WireBudgetRecord(msgspec.Struct, gc=False, rename="camel"):
    """``status.budget`` of a Queue: what it used of its budget, GPU-seconds times price as decimal numbers."""

    as_of: str | None = None
    period_start: str | None = None
    gpu_seconds: str = "0"
    rolled_over_gpu_seconds: str = "0"
    users: list[BudgetUserRecord] | None = None


class StartTallyStatus(msgspec.Struct, gc=False, rename="camel"):
    """One element of ``status.startEstimates`` of a Queue."""

    known_by: str = ""
    starts_by_percent: dict[str, int] | None = None
    ranged: int = 0
    held: int = 0


class ShardRowStatus(msgspec.Struct, gc=False, rename="camel"):
    """One element of ``status.shards`` of a Queue, of what is read back of it."""

    name: str = ""
    allocated: dict[str, int | float | str] | None = None
    start_estimates: list[StartTallyStatus] | None = None


class GroupStatus(msgspec.Struct, gc=False):
    """The part of the status of a PodGroup or Queue that is read back."""

    phase: str | None = None
    state: str | None = None
    conditions: list[wire.WireCondition] | None = None
    usage: UsageStatus | None = None
    budget: WireBudgetRecord | None = None
    start_estimates: list[StartTallyStatus] | None = msgspec.field(
        default=None, name="startEstimates"
    )
    shards: list[ShardRowStatus] | None = None
    moved: str | None = None
    turn: WireTurnRecord | None = None
    evictions: list[WirePastEviction] | None = None


_STATUS: Final = msgspec.json.Decoder(GroupStatus)


_NO_STATUS: Final = GroupStatus()


def read_status(raw: msgspec.Raw) -> tuple[GroupStatus, bytes]:
    """What is read of a status, and the whole of it as canonical JSON."""
    status = decode_part(_STATUS, bytes(raw), field="status")
    if status is None:
        return _NO_STATUS, b"{}"
    return status, msgspec.json.encode(msgspec.json.decode(raw), order="sorted")


def decode_conditions(status: GroupStatus) -> tuple[Condition, ...]:
    """The conditions that it carries."""
    return tuple(
        Condition(
            type=each.type,
            status=each.status,
            reason=each.reason or "",
            message=each.message or "",
            observed_generation=each.observed_generation,
            transition=parse_time(each.last_transition_time or ""),
        )
        for each in status.conditions or ()
    )


def status_or_empty(raw: msgspec.Raw) -> bytes:
    """A status that is only written: one that cannot be read is written anew."""
    try:
        return read_status(raw)[1]
    except InvalidObject:
        return b"{}"
