"""The record of a charge: the queue, and the user, for whom a pod was bound, where only its owner names them.

A Job, PodGroup or controller may be deleted while its pods go on, for their grace or for good, and whoever
may delete it is a tenant. The record stands on each pod from its binding on, so that the pods stay in the
queue that pays for them, after a restart too. Whoever may edit the pod can write there as well: a record
counts only with its seal, see ``api.serializer.seal``.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from gpusched.api.meta.identity import NO_CREATOR, Creator, read_creator
from gpusched.base.classes import frozen
from gpusched.base.limits import CHARGE_RECORD_MAX

CHARGED: Final = "gpusched.io/charged"
"""The annotation of a pod that we bound; believed only with our seal in it."""


@frozen(slots=True)
class ChargeRecord:
    """Who pays for a pod.

    Attributes:
        queue: by name.
        creator: the user who is counted, of none where that was not known.
        seal: as read; says nothing about who pays.
    """

    queue: str
    creator: Creator = NO_CREATOR
    seal: str = attrs.field(default="", eq=False)


class _WireChargeRecord(msgspec.Struct, omit_defaults=True, gc=False):
    queue: str
    user: str = ""
    groups: str = ""
    seal: str = ""


_READ: Final = msgspec.json.Decoder(_WireChargeRecord)
_WRITE: Final = msgspec.json.Encoder()


def format_charge(record: ChargeRecord, *, seal: str) -> str:
    """The record's text; without a seal where that is empty."""
    creator = record.creator
    wire = _WireChargeRecord(record.queue, creator.user, ",".join(creator.groups), seal)
    return _WRITE.encode(wire).decode()


def parse_charge(text: str | None) -> ChargeRecord | None:
    """The charge that an annotation tells of; None for none, and for what we never wrote."""
    if not text or len(text) > CHARGE_RECORD_MAX:
        return None
    try:
        wire = _READ.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return ChargeRecord(wire.queue, read_creator(wire.user, wire.groups), wire.seal)
