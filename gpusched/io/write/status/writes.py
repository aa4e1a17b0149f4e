"""All status writes, and what the answer to one says of its object."""

from __future__ import annotations

from typing import Final

import msgspec

from gpusched.io.observe.logs import Logger
from gpusched.io.write.status.object_writes import (
    GroupWrite,
    QueueWrite,
    ReservationWrite,
    TopologyWrite,
)
from gpusched.io.write.status.pod_writes import MemberWrite, PodWrite
from gpusched.io.write.status.rejected_writes import RejectedPodWrite, RejectedWrite
from gpusched.io.write.status.status_request import StatusRequest, WrittenStatus

_log = Logger(__name__)


Write = (
    GroupWrite
    | QueueWrite
    | TopologyWrite
    | ReservationWrite
    | PodWrite
    | MemberWrite
    | RejectedWrite
    | RejectedPodWrite
)


class _WireVersion(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - as the API spells it


class _WireStatusAnswer(msgspec.Struct):
    metadata: _WireVersion = msgspec.field(default_factory=_WireVersion)
    status: msgspec.Raw = msgspec.Raw(b"{}")


_ANSWER: Final = msgspec.json.Decoder(_WireStatusAnswer)


def parse_written_status(request: StatusRequest, want: Write, body: bytes) -> WrittenStatus | None:
    """What the object says now; None when the answer cannot be read: the watch will tell."""
    if isinstance(want, PodWrite | MemberWrite | RejectedPodWrite):
        return WrittenStatus(request.seen, reason_and_message=want.reason_and_message)
    try:
        answer = _ANSWER.decode(body)
        version = answer.metadata.resourceVersion
        return WrittenStatus(request.seen, status=bytes(answer.status), version=version)
    except msgspec.MsgspecError as error:
        _log.warning("an answer is no object", path=request.path, why=error)
        return None
